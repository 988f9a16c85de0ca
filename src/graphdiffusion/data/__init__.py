"""Data sets, splits, the embedded Cora, and a reader for a user's own graph."""

from graphdiffusion.data.catalogue import DATASETS, DatasetInfo, dataset_info, is_dataset
from graphdiffusion.data.check import check_data
from graphdiffusion.data.datasets import find_raw, load_data
from graphdiffusion.data.objects import from_igraph, from_networkx
from graphdiffusion.data.reader import open_data, read_folder, read_graph
from graphdiffusion.data.splits import (
    Split,
    authors_split,
    deal_again,
    default_development,
    given_split,
    number_of_splits,
    random_split,
    stack_splits,
)
from graphdiffusion.data.structure import MASKS, largest_component
from graphdiffusion.data.targets import labelled, task_of

__all__ = [
    "DATASETS",
    "MASKS",
    "DatasetInfo",
    "Split",
    "authors_split",
    "check_data",
    "dataset_info",
    "deal_again",
    "default_development",
    "find_raw",
    "from_igraph",
    "from_networkx",
    "given_split",
    "is_dataset",
    "labelled",
    "largest_component",
    "load_data",
    "number_of_splits",
    "open_data",
    "random_split",
    "read_folder",
    "read_graph",
    "stack_splits",
    "task_of",
]
