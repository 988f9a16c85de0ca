"""Splits for a user's own graph: stratified shares of the labels, with validation in turns.

60, 20 and 20 percent of the labels train, validate and test. Where labels are many, the test part is kept
apart and the rest is dealt into four folds, of which each validates once. Where they are few, there are
five folds, of which each validates once and tests once: so every label is in the test.

Classes with fewer than `RARE` labels train in every split: they cannot be spread over the parts.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphdiffusion.data.splits import Split
from graphdiffusion.data.targets import known
from graphdiffusion.errors import DataError

TEST_SHARE = 5  # one label in so many is for the test
Test = Literal["apart", "turns", "none"]  # a test part for all splits, one fold for each, or none
FOLDS: dict[Test, int] = {"apart": TEST_SHARE - 1, "turns": TEST_SHARE, "none": TEST_SHARE}
RARE = 3  # labels of a class that can be spread over three parts
FEW = 300  # labels under which a test part would be too small to tell anything


def has_few_labels(y: Tensor) -> bool:
    """Whether cross-validation is the better use of the labels: they are under `FEW`."""
    return int(known(y).sum()) < FEW


def share_split(y: Tensor, number: int, seed: int, *, test: Test) -> Split:
    """One of a series of stratified splits.

    Splits 0 to 3 (0 to 4 unless the test part is kept apart) have the same folds, each with another one for
    validation; the next ones deal the folds anew. A test part that is kept apart is the same in all; in
    turns it is the fold after that for validation. Classes are stratified; a single number as target is,
    too, by its size. The draw is exact on every platform, as that of `random_split`.

    Args:
        y: (n,) int64 class numbers, -1 where unlabelled; or targets (n, k), NaN where unlabelled.
        number: which of the series, from 0.
        seed: of the series.
        test: whether the test part is kept apart, takes turns, or is left out.
    """
    nodes = known(y).cpu().numpy().nonzero()[0]
    order = _order(y, nodes)
    rare = rare_classes(y)
    common = nodes if not rare else nodes[~np.isin(order, list(rare))]
    folds = FOLDS[test]
    if nodes.size == 0:
        raise DataError("the data has no labels: give some nodes a label to learn from.")
    if common.size < TEST_SHARE:
        raise DataError(
            f"of {nodes.size} labelled nodes {common.size} are in classes with at least {RARE} labels, too "
            f"few to train and to validate: label at least {TEST_SHARE} such nodes. If the labels are "
            "numbers to predict, take task regression."
        )
    masks = np.zeros((3, y.shape[0]), dtype=bool)
    masks[0, nodes] = True
    turn, fold = divmod(number, folds)
    if test == "apart":
        apart = _dealt(_order(y, common), TEST_SHARE, seed, 0) == 0
        masks[2, common[apart]] = True
        common = common[~apart]
    dealt = _dealt(_order(y, common), folds, seed, 1 + turn)
    masks[1, common[dealt == fold]] = True
    if test == "turns":
        masks[2, common[dealt == (fold + 1) % folds]] = True
    masks[0] &= ~masks[1] & ~masks[2]
    train, val, tested = torch.from_numpy(masks).to(y.device)
    return Split(train, val, tested)


def whole_split(y: Tensor) -> Split:
    """All labelled nodes train: for a last fit, when everything else has been decided."""
    train = known(y)
    none = torch.zeros_like(train)
    return Split(train, none, none.clone())


def rare_classes(y: Tensor) -> dict[int, int]:
    """Classes with labels, but fewer than `RARE`, and how many they have; empty for other targets."""
    if y.is_floating_point():
        return {}
    counts = torch.bincount(y[y >= 0].cpu()).tolist()
    return {k: count for k, count in enumerate(counts) if 0 < count < RARE}


def _order(y: Tensor, nodes: NDArray[np.int64]) -> NDArray:
    """What the nodes are stratified by: their class, the size of a single number, or nothing."""
    values = y.cpu().numpy()[nodes]
    if values.ndim == 1:
        return values
    return values[:, 0] if values.shape[1] == 1 else np.zeros(len(nodes))


def _dealt(order: NDArray, folds: int, seed: int, turn: int) -> NDArray[np.int64]:
    """The fold of each node: sorted by `order`, at random among equals, dealt out like cards.

    So the folds differ by at most one node, in all and in each class. Among distinct numbers the first of a
    round would always be the smallest: there each round is shuffled.
    """
    stream = np.random.PCG64(np.random.SeedSequence([seed, turn]))
    keys = stream.random_raw(order.size)
    place = np.empty(order.size, dtype=np.int64)
    place[np.lexsort((keys, order))] = np.arange(order.size)
    if order.dtype.kind != "f":
        return place % folds
    rounds = -(-order.size // folds)
    cards = np.argsort(stream.random_raw(rounds * folds).reshape(rounds, folds), axis=1, kind="stable")
    return cards.ravel()[place]
