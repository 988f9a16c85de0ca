"""Which nodes train, validate and test: the paper's random splits, and those given with the data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from graphdiffusion.data.structure import MASKS
from graphdiffusion.data.targets import known
from graphdiffusion.errors import DataError

# Draws of a development set before giving up on one that holds enough nodes of every class. On the
# paper's data sets about one draw in two hundred is short of a class, so a hundred never run out.
_DRAWS = 100


@dataclass(frozen=True)
class Split:
    """Three disjoint bool masks of one shape: (n,), or (P, n) for the splits of P members."""

    train: Tensor
    val: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        masks = {"train": self.train, "val": self.val, "test": self.test}
        for key, mask in masks.items():
            if mask.dtype != torch.bool or mask.dim() not in (1, 2) or mask.shape != self.train.shape:
                raise DataError(
                    "the masks of a split must be bool, all of one shape (n,) or (P, n); "
                    f"{key} is {mask.dtype} of shape {tuple(mask.shape)}"
                )
        if bool((self.train & self.val | self.train & self.test | self.val & self.test).any()):
            raise DataError("a node may be in only one of train, val and test; the masks overlap")

    def to(self, device: torch.device | str) -> "Split":
        """The same split on another device."""
        return Split(self.train.to(device), self.val.to(device), self.test.to(device))


def default_development(num_labelled: int) -> int:
    """A size for the development set: the paper's 1500, but at most three quarters of the labels."""
    return min(1500, 3 * num_labelled // 4)


def random_split(y: Tensor, seed: int, *, development: int = 1500, per_class: int = 20) -> Split:
    """A random split as in the paper (Shchur et al., 2018).

    Of the labelled nodes, `development` are drawn at random; the first `per_class` of each class
    among them train, the rest of them validate, all other labelled nodes test. Unlabelled nodes
    (-1) are in no mask.

    The draw is exact on every platform and every NumPy: `numpy.random.PCG64(seed).random_raw(m)`
    gives the m labelled nodes, in their order, 64-bit keys; sorted by key (stable), the first
    `development` nodes are the development set. Should it hold fewer than `per_class` nodes of a
    class, the next m keys of the same stream are used instead.

    Args:
        y: (n,) int64 class numbers from 0; -1 where unlabelled.
        seed: a non-negative integer; equal seeds give equal splits.
        development: size of the development set; `default_development` suits a small graph.
        per_class: training nodes of each class.

    Returns:
        Masks of shape (n,) on the device of `y`.
    """
    if y.dim() != 1 or y.dtype != torch.int64:
        raise DataError(f"y must be int64 of shape (n,), got {y.dtype} of shape {tuple(y.shape)}")
    if seed < 0:
        raise DataError(f"a seed must be a non-negative integer, got {seed}")
    if per_class < 1:
        raise DataError(f"per_class must be at least 1, got {per_class}")
    classes = y.cpu().numpy()
    labelled = np.flatnonzero(classes >= 0)
    _check_feasible(classes[labelled], development, per_class)
    stream = np.random.PCG64(seed)
    for _ in range(_DRAWS):
        order = labelled[np.argsort(stream.random_raw(labelled.size), kind="stable")]
        drawn = order[:development]
        rank = _rank_within_class(classes[drawn])
        counts = np.bincount(classes[drawn], minlength=int(classes.max()) + 1)
        if counts[np.unique(classes[labelled])].min() >= per_class:
            break
    else:
        members = np.bincount(classes[labelled])
        rarest = int(np.argmin(np.where(members > 0, members, labelled.size + 1)))
        raise DataError(
            f"class {rarest} has {members[rarest]} of {labelled.size} labelled nodes, too few for "
            f"{per_class} of them to fall into a development set of {development}; "
            "take a smaller per_class or a larger development"
        )
    masks = np.zeros((3, classes.size), dtype=bool)
    masks[0, drawn[rank < per_class]] = True
    masks[1, drawn[rank >= per_class]] = True
    masks[2, order[development:]] = True
    train, val, test = torch.from_numpy(masks).to(y.device)
    return Split(train, val, test)


AUTHORS_SEED = 12345


def authors_split(y: Tensor, *, development: int = 1500, per_class: int = 20) -> Split:
    """The one random split that the authors' published code draws where it is asked for Planetoid's.

    `numpy.random.RandomState(12345)` chooses the development set from all nodes; a second one of the same
    seed chooses the training nodes of each class in it, in the order of the classes. The rest of the
    development set validates, all other nodes test. Unlabelled nodes (-1) are in no mask.
    """
    classes = y.cpu().numpy()
    _check_feasible(classes[classes >= 0], development, per_class)
    drawn = np.random.RandomState(AUTHORS_SEED).choice(classes.size, development, replace=False)
    second, train = np.random.RandomState(AUTHORS_SEED), []
    for k in np.unique(classes[classes >= 0]):
        own = drawn[classes[drawn] == k]
        if own.size < per_class:
            raise DataError(
                f"class {k} has {own.size} nodes in the development set of {development}, and {per_class} "
                "of each are to train: take split random"
            )
        train.append(second.choice(own, per_class, replace=False))
    masks = np.zeros((3, classes.size), dtype=bool)
    masks[1, drawn] = True
    masks[2] = ~masks[1]
    masks[0, np.concatenate(train)] = True
    masks[1] &= ~masks[0]
    return Split(*torch.from_numpy(masks & (classes >= 0)).to(y.device))


def _check_feasible(labels: NDArray[np.int64], development: int, per_class: int) -> None:
    if labels.size == 0:
        raise DataError("no node is labelled, so there is nothing to split")
    present, counts = np.unique(labels, return_counts=True)
    if counts.min() < per_class:
        short = ", ".join(
            f"class {k} has {c}" for k, c in zip(present, counts, strict=True) if c < per_class
        )
        raise DataError(
            f"{per_class} training nodes of each class are wanted, but {short}; "
            f"take per_class of at most {counts.min()}, or leave these classes unlabelled (-1)"
        )
    if not per_class * present.size < development < labels.size:
        raise DataError(
            f"development must be more than {per_class} × {present.size} classes, to leave nodes "
            f"for validation, and less than the {labels.size} labelled nodes, to leave nodes for "
            f"the test; got {development}. default_development gives "
            f"{default_development(labels.size)}; a smaller per_class needs fewer"
        )


def _rank_within_class(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each position, how many earlier ones have the same label."""
    by_class = np.argsort(labels, kind="stable")
    _, starts, counts = np.unique(labels[by_class], return_index=True, return_counts=True)
    rank = np.empty(labels.size, dtype=np.int64)
    rank[by_class] = np.arange(labels.size) - np.repeat(starts, counts)
    return rank


def deal_again(split: Split, y: Tensor, seed: int) -> Split:
    """A fixed split (n,) whose training and validation nodes are dealt out anew; the test nodes stay.

    As many nodes of each class train as before, or as many in all where targets are no classes. Whoever
    looks at one validation set again and again ends up with what happens to suit it; a search therefore
    deals anew for every seed.

    The draw is as exact as that of `random_split`: `numpy.random.PCG64(seed).random_raw(m)` gives the
    m nodes keys, and of each class those with the smallest keys train.
    """
    classes = (y if y.dtype == torch.int64 else known(y).long() - 1).cpu().numpy()
    before = split.train.cpu().numpy() & (classes >= 0)
    pool = ((split.train | split.val).cpu().numpy() & (classes >= 0)).nonzero()[0]
    order = pool[np.argsort(np.random.PCG64(seed).random_raw(pool.size), kind="stable")]
    wanted = np.bincount(classes[before], minlength=int(classes.max()) + 1)
    chosen = order[_rank_within_class(classes[order]) < wanted[classes[order]]]
    train = torch.zeros(classes.shape, dtype=torch.bool)
    train[torch.from_numpy(chosen)] = True
    train = train.to(split.train.device)
    return Split(train, (split.train | split.val) & ~train, split.test)


def number_of_splits(data: Data) -> int:
    """How many fixed splits `data` carries in its masks: 0 without masks, S where they are (n, S)."""
    masks = [data[key] for key in MASKS if data.get(key) is not None]
    return max((1 if mask.dim() == 1 else mask.size(1) for mask in masks), default=0)


def given_split(data: Data, number: int = 0) -> Split:
    """One of the fixed splits that `data` carries in train_mask, val_mask and test_mask.

    Masks are (n,), or (n, S) for S splits, of which column `number` is taken; a mask (n,) beside them
    belongs to all of them. A part without a mask is empty; only a training mask must be there.
    """
    name, count = data.get("name") or "this graph", number_of_splits(data)
    if data.get("train_mask") is None:
        raise DataError(f"{name} carries no fixed split (train_mask missing); take a random split")
    if not 0 <= number < count:
        raise DataError(f"{name} carries {count} splits, numbered from 0; there is no split {number}")
    empty = torch.zeros_like(data.train_mask)
    masks = (empty if data.get(key) is None else data[key] for key in MASKS)
    # one column belongs to all splits
    split = Split(
        *(m if m.dim() == 1 else m[:, number if m.size(1) > 1 else 0].contiguous() for m in masks)
    )
    if not bool(split.train.any()):
        raise DataError(
            f"{name}: split {number} of those given with the data has no training node; "
            "mark some nodes with train, or take a random split"
        )
    return split


def stack_splits(splits: Sequence[Split]) -> Split:
    """P splits with masks (n,) as one split with masks (P, n)."""
    shapes = {tuple(split.train.shape) for split in splits}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise DataError(f"splits to stack must all have masks of one shape (n,), got {shapes or 'none'}")
    return Split(
        torch.stack([split.train for split in splits]),
        torch.stack([split.val for split in splits]),
        torch.stack([split.test for split in splits]),
    )
