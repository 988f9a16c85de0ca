"""Splits of a user's own labels: sizes, strata, turns, rare classes."""

from typing import Any

import numpy as np
import pytest
import torch

from graphdiffusion.data.shares import FOLDS, RARE, has_few_labels, rare_classes, share_split, whole_split
from graphdiffusion.errors import DataError


def labels(*counts: int, unlabelled: int = 0) -> torch.Tensor:
    """So many nodes of each class, in a shuffled order."""
    parts = [torch.full((count,), k) for k, count in enumerate(counts)]
    y = torch.cat([*parts, torch.full((unlabelled,), -1)])
    return y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]


def test_shares_are_60_20_20_in_every_class() -> None:
    y = labels(100, 50, 25, 10, unlabelled=300)
    for number in range(8):
        split = share_split(y, number, 3, test="apart")
        for k, count in enumerate((100, 50, 25, 10)):
            parts = [int((mask & (y == k)).sum()) for mask in (split.train, split.val, split.test)]
            assert sum(parts) == count
            assert abs(parts[2] - count / 5) <= 1 and abs(parts[1] - count / 5) <= 1
        assert not bool(((split.train | split.val | split.test) & (y < 0)).any())


@pytest.mark.parametrize("test", ["apart", "turns", "none"])
def test_each_node_validates_once_a_turn_and_tests_as_it_should(test: Any) -> None:
    y = labels(40, 30, 20)
    turns = []
    for turn in range(2):
        splits = [share_split(y, turn * FOLDS[test] + k, 7, test=test) for k in range(FOLDS[test])]
        validated, tested = (
            torch.stack([getattr(s, part) for s in splits]).sum(0) for part in ("val", "test")
        )
        if test == "apart":  # the same nodes in all splits
            assert torch.equal(tested, splits[0].test * FOLDS[test]) and torch.equal(
                validated, (tested == 0).long()
            )
        else:
            assert bool((validated == 1).all()) and bool((tested == (test == "turns")).all())
        assert all(bool((s.train ^ s.val ^ s.test).all()) for s in splits)
        turns.append(splits[0])
    assert torch.equal(turns[0].test, turns[1].test) == (test != "turns")
    assert not torch.equal(turns[0].val, turns[1].val)


def test_seeds_give_other_splits_and_the_same_one_again() -> None:
    y = labels(40, 30)
    one, two, again = (share_split(y, 0, seed, test="apart") for seed in (0, 1, 0))
    assert torch.equal(one.test, again.test) and torch.equal(one.val, again.val)
    assert not torch.equal(one.test, two.test)


def test_rare_classes_always_train() -> None:
    y = labels(60, 60, 2, 1)
    assert rare_classes(y) == {2: 2, 3: 1} and RARE == 3
    for number in range(4):
        split = share_split(y, number, 0, test="apart")
        assert bool(split.train[y >= 2].all())
        assert int(split.train.sum()) >= 72  # one odd label costs no others


def test_a_class_of_three_is_spread_out() -> None:
    y = labels(50, 3)
    for number in range(4):
        split = share_split(y, number, 0, test="apart")
        assert all(int((mask & (y == 1)).sum()) <= 1 for mask in (split.val, split.test))


def test_numbers_are_stratified_by_size() -> None:
    y = torch.rand(100, 1, generator=torch.Generator().manual_seed(1))
    y[::10] = torch.nan
    means = [float(y[share_split(y, k, 0, test="turns").val].mean()) for k in range(5)]
    assert np.ptp(means) < 0.06  # of 18 numbers drawn at random the mean would vary by 0.07 each
    assert not bool(share_split(y, 0, 0, test="apart").train[::10].any())


def test_several_targets() -> None:
    y = torch.rand(50, 3).round()
    split = share_split(y, 0, 0, test="apart")
    assert [int(mask.sum()) for mask in (split.train, split.val, split.test)] == [30, 10, 10]


def test_all_labels() -> None:
    y = labels(5, 4, unlabelled=3)
    split = whole_split(y)
    assert torch.equal(split.train, y >= 0) and not bool((split.val | split.test).any())


def test_too_few_labels() -> None:
    with pytest.raises(DataError, match="of 6 labelled nodes 4 are in classes"):
        share_split(labels(4, 2, unlabelled=9), 0, 0, test="turns")
    assert has_few_labels(labels(100)) and not has_few_labels(labels(200, 100))
