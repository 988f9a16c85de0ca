"""The small graph that the tests of the estimators share."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from test_cli_basics import CLASSES, write_graph
from torch_geometric.data import Data

from graphdiffusion.data import open_data

GRAND = {"model": "grand", "hidden": 8, "time": 2.0, "epochs": 15}
FAST = {"model": "gcn", "hidden": 8, "epochs": 15}
NODES = np.arange(60)
EVEN, ODD = NODES[::2], NODES[1::2]
LABELS = np.repeat(CLASSES, 20)


@cache
def _read() -> Data:
    with tempfile.TemporaryDirectory() as folder:
        return open_data(write_graph(Path(folder, "toy")))


def toy() -> Data:
    """60 nodes with ids, in three classes with names, 5 features with names."""
    data = _read().clone()
    data.feature_names = list("abcde")
    return data
