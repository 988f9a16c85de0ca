"""Splits: sizes, exactness, and the sentences for graphs that cannot be split as asked."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphdiffusion.data import (
    Split,
    deal_again,
    default_development,
    given_split,
    load_data,
    number_of_splits,
    random_split,
    stack_splits,
)
from graphdiffusion.errors import DataError


def digest(split: Split) -> str:
    masks = torch.stack([split.train, split.val, split.test]).numpy()
    return hashlib.sha256(np.packbits(masks).tobytes()).hexdigest()[:16]


@pytest.fixture(scope="module")
def cora():
    return load_data("cora-embedded")


def test_sizes_on_cora(cora):
    split = random_split(cora.y, 0)
    assert int(split.train.sum()) == 140
    assert int(split.val.sum()) == 1500 - 140
    assert int(split.test.sum()) == 2485 - 1500
    assert cora.y[split.train].bincount().tolist() == [20] * 7


def test_splits_are_exact_on_every_platform(cora):
    assert digest(random_split(cora.y, 0)) == "df3d7894e1b296a9"
    assert digest(random_split(cora.y, 12345, development=600, per_class=5)) == "82e0683f31ef84ec"


def test_documented_derivation(cora):
    keys = np.random.PCG64(7).random_raw(2485)
    order = np.argsort(keys, kind="stable")
    split = random_split(cora.y, 7)
    assert set(np.flatnonzero(split.test.numpy())) == set(order[1500:])
    first_of_class_3 = [i for i in order[:1500] if int(cora.y[i]) == 3][:20]
    assert bool(split.train[first_of_class_3].all())


def test_seeds_differ_and_repeat(cora):
    digests = [digest(random_split(cora.y, seed)) for seed in range(20)]
    assert len(set(digests)) == 20
    assert digest(random_split(cora.y, 3)) == digests[3]


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(6, 40), min_size=2, max_size=5),
    unlabelled=st.integers(0, 20),
    per_class=st.integers(1, 3),
    seed=st.integers(0, 2**63),
)
def test_invariants(counts, unlabelled, per_class, seed):
    parts = [torch.full((c,), k) for k, c in enumerate(counts)]
    y = torch.cat([*parts, torch.full((unlabelled,), -1)])
    y = y[torch.randperm(y.numel(), generator=torch.Generator().manual_seed(seed % 1000))]
    development = sum(counts) * 3 // 4
    if development <= per_class * len(counts):
        return
    split = random_split(y, seed, development=development, per_class=per_class)
    assert torch.equal(split.train | split.val | split.test, y >= 0)
    assert y[split.train].bincount(minlength=len(counts)).tolist() == [per_class] * len(counts)
    assert int(split.train.sum() + split.val.sum()) == development


def test_a_development_set_short_of_a_class_is_drawn_again():
    y = torch.cat([torch.zeros(990, dtype=torch.int64), torch.ones(10, dtype=torch.int64)])
    for seed in range(50):  # ten of a thousand: three among 200 are there in about one draw of three
        split = random_split(y, seed, development=200, per_class=3)
        assert y[split.train].bincount().tolist() == [3, 3]


def test_a_class_number_may_be_missing():
    y = torch.tensor([0, 2] * 20)
    split = random_split(y, 0, development=20, per_class=4)
    assert y[split.train].bincount().tolist() == [4, 0, 4]


@pytest.mark.parametrize(
    ("y", "arguments", "message"),
    [
        (torch.zeros(9), {}, "int64"),
        (torch.zeros(9, 1, dtype=torch.int64), {}, "shape"),
        (torch.full((9,), -1), {}, "no node is labelled"),
        (torch.tensor([0] * 50 + [1] * 4), {"development": 45}, "class 1 has 4.*at most 4"),
        (torch.tensor([0, 1] * 50), {"development": 100}, "less than the 100 labelled"),
        (torch.tensor([0, 1] * 50), {"development": 40}, "more than 20 × 2 classes"),
        (torch.tensor([0, 1] * 50), {}, "default_development gives 75"),
        (torch.tensor([0, 1] * 50), {"per_class": 0}, "per_class must be at least 1"),
        (torch.tensor([0] * 9980 + [1] * 20), {"development": 100}, "class 1 has 20 of 10000"),
    ],
)
def test_impossible_splits(y, arguments, message):
    with pytest.raises(DataError, match=message):
        random_split(y, 0, **arguments)


def test_negative_seed():
    with pytest.raises(DataError, match="non-negative"):
        random_split(torch.tensor([0, 1] * 50), -1)


@pytest.mark.parametrize(("labelled", "size"), [(34, 25), (2000, 1500), (2120, 1500), (10**6, 1500)])
def test_default_development(labelled, size):
    assert default_development(labelled) == size


def test_given_split():
    masks = torch.eye(3, dtype=torch.bool)
    data = Data(train_mask=masks[0], val_mask=masks[1], test_mask=masks[2])
    assert torch.equal(given_split(data).val, masks[1])
    only = Data(train_mask=masks[0], name="thing")
    assert not given_split(only).val.any() and not given_split(only).test.any()
    with pytest.raises(DataError, match=r"thing carries no fixed split \(train_mask missing"):
        given_split(Data(val_mask=masks[0], name="thing"))
    with pytest.raises(DataError, match="thing carries 1 splits, numbered from 0; there is no split 1"):
        given_split(only, 1)
    with pytest.raises(DataError, match="split 0 of those given with the data has no training node"):
        given_split(Data(train_mask=torch.zeros(3, dtype=torch.bool)))


def test_several_given_splits():
    """A mask (n, S) is taken column by column; a mask (n,) beside it belongs to all splits (WikiCS)."""
    train = torch.tensor([[True, False], [False, True], [False, False]])
    data = Data(train_mask=train, val_mask=train.flip(1), test_mask=torch.tensor([False, False, True]))
    assert [number_of_splits(d) for d in (data, Data(), Data(train_mask=train[:, 0]))] == [2, 0, 1]
    for k in range(2):
        split = given_split(data, k)
        assert torch.equal(split.train, train[:, k]) and torch.equal(split.val, train[:, 1 - k])
        assert torch.equal(split.test, data.test_mask)
        assert split.train.is_contiguous()
    assert stack_splits([given_split(data, k) for k in range(2)]).train.shape == (2, 3)


def test_deal_again(cora):
    fixed = random_split(cora.y, 0)
    dealt = [deal_again(fixed, cora.y, seed) for seed in (1, 1, 2)]
    assert torch.equal(dealt[0].train, dealt[1].train)
    assert not torch.equal(dealt[0].train, dealt[2].train)
    for split in dealt:
        assert torch.equal(split.test, fixed.test)
        assert torch.equal(split.train | split.val, fixed.train | fixed.val)
        assert torch.equal(cora.y[split.train].bincount(), cora.y[fixed.train].bincount())
    hidden = torch.where(torch.arange(len(cora.y)) % 3 == 0, -1, cora.y)
    assert (hidden[deal_again(fixed, hidden, 1).train] >= 0).all()


def test_stack_and_to(cora):
    splits = [random_split(cora.y, seed) for seed in range(3)]
    stacked = stack_splits(splits).to("cpu")
    assert stacked.train.shape == (3, 2485)
    assert torch.equal(stacked.test[2], splits[2].test)
    for bad in ([], [stacked], [splits[0], random_split(torch.tensor([0, 1] * 50), 0, development=75)]):
        with pytest.raises(DataError, match="one shape"):
            stack_splits(bad)


def test_split_refuses_bad_masks():
    mask = torch.tensor([True, False])
    with pytest.raises(DataError, match="overlap"):
        Split(mask, ~mask, mask)
    with pytest.raises(DataError, match=r"val is torch.int64"):
        Split(mask, mask.long(), mask)
    with pytest.raises(DataError, match=r"test is torch.bool of shape"):
        Split(mask, ~mask, torch.zeros(3, dtype=torch.bool))
