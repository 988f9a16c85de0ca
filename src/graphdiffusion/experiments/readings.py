"""The graph that a search for table 1 has: no node that a reading of the table tests has a label there."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from ..data import Split, authors_split, dataset_info, given_split
from ..errors import DataError
from ..training.problem import PER_CLASS


def hidden_tests(data: Data) -> Data:
    """A data set in which the test nodes of all readings of "Planetoid splits" have no label.

    So one search serves all readings. It has two splits, which its seeds take in turn: 20 nodes of each
    class train, as in most readings, or as many as Planetoid's split has in the largest component, where
    classes differ. All others with a label validate; a search deals the two out anew for every seed.

    Args:
        data: The largest component of Cora, CiteSeer or PubMed, with Planetoid's masks.
    """
    masks: list[Split] = [given_split(data)]
    masks.append(authors_split(data.y, development=dataset_info(data.name).development))
    tested = torch.stack([split.test for split in masks]).any(0)
    found = data.clone()
    found.y = data.y.masked_fill(tested, -1)
    known = found.y >= 0
    train = torch.zeros(len(known), 2, dtype=torch.bool)
    for k in found.y[known].unique().tolist():
        nodes = (found.y == k).nonzero().flatten()
        if len(nodes) <= PER_CLASS:
            raise DataError(f"class {k} of {data.name} has {len(nodes)} nodes that no reading tests.")
        component = int((masks[0].train & (data.y == k)).sum())
        for split, count in enumerate((PER_CLASS, component)):
            train[nodes[:count], split] = True
    found.train_mask, found.val_mask = train, known[:, None] & ~train
    found.test_mask = torch.zeros_like(train)
    return found
