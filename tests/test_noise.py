"""Random numbers by counting: rate, independence, and the same numbers wherever they are drawn."""

from __future__ import annotations

import pytest
import torch

from graphdiffusion.ops.noise import derive, dropout_scale, random_bits


def mask(key: int, rate: float = 0.5, count: int = 200_000) -> torch.Tensor:
    return dropout_scale(torch.tensor(key), (count,), torch.tensor(rate)) == 0


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.5, 0.9])
def test_rate_and_mean(rate):
    scale = dropout_scale(derive(torch.tensor(1), 0), (500, 400), torch.tensor(rate))
    share = float((scale == 0).double().mean())
    assert abs(share - rate) <= 5 * (rate * (1 - rate) / 200_000) ** 0.5
    kept = scale[scale != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate)))
    assert float(scale.mean()) == pytest.approx(1, abs=0.02)


def test_same_on_repeat_and_prefix():
    assert torch.equal(mask(3), mask(3))
    assert torch.equal(mask(3, count=1000), mask(3)[:1000])
    assert not torch.equal(mask(3), mask(4))


def test_pieces_of_a_mask_are_those_of_the_whole():
    keys, count = derive(torch.arange(2), 7), 200_000
    whole = dropout_scale(keys, (count,), torch.tensor(0.25))
    bits = random_bits(keys, count)
    assert torch.equal(whole == 0, bits < 2**22)
    places = torch.arange(count).flip(0)
    assert torch.equal(dropout_scale(keys, (count,), torch.tensor(0.25), places), whole.flip(1))


def test_a_member_draws_what_it_would_draw_alone():
    keys = derive(torch.arange(5), 3)
    rates = torch.tensor([0.0, 0.2, 0.5, 0.7, 0.9])
    together = dropout_scale(keys, (30, 7), rates)
    assert together.shape == (5, 30, 7)
    for k in range(5):
        assert torch.equal(together[k], dropout_scale(keys[k], (30, 7), rates[k]))
    shared = dropout_scale(keys, (30, 7), torch.tensor(0.5))
    assert torch.equal(shared[2], together[2])


@pytest.mark.parametrize("other", ["next key", "next site", "next epoch", "next place"])
def test_independence(other):
    root = derive(torch.tensor(0), 0)
    key = derive(derive(root, 10), 0)
    second = {
        "next key": derive(derive(derive(torch.tensor(1), 0), 10), 0),
        "next site": derive(derive(root, 10), 1),
        "next epoch": derive(derive(root, 11), 0),
        "next place": key,
    }[other]
    count = 400_000
    a, b = random_bits(key, count), random_bits(second, count)
    if other == "next place":
        a, b = a[:-1], b[1:]
    x, y = (v.double() / 2**24 - 0.5 for v in (a, b))
    correlation = float((x * y).mean() / (x.std() * y.std()))
    assert abs(correlation) < 5 / count**0.5
    # bit by bit: pairs of equal bits are half of all
    equal = torch.stack([((a ^ b) >> bit & 1).double().mean() for bit in range(24)])
    assert float((equal - 0.5).abs().max()) < 5 * 0.5 / count**0.5


def test_uniform():
    draws = random_bits(derive(torch.tensor(9), 2), 2**20)
    assert draws.dtype == torch.int32 and int(draws.min()) >= 0 and int(draws.max()) < 2**24
    counts = torch.bincount(draws >> 16, minlength=256).double()
    chi = float(((counts - 4096) ** 2 / 4096).sum())  # 255 degrees of freedom
    assert 150 < chi < 380
    keys = random_bits(derive(torch.arange(2**16), 0), 1).flatten()  # across keys, at one place
    counts = torch.bincount(keys >> 16, minlength=256).double()
    assert 150 < float(((counts - 256) ** 2 / 256).sum()) < 380


def test_derived_keys_differ():
    keys = torch.stack([derive(torch.arange(1000), salt) for salt in range(20)]).flatten()
    assert len(keys.unique()) == 20_000
    epochs = derive(torch.tensor(5), torch.arange(1000))
    assert torch.equal(epochs[7], derive(torch.tensor(5), 7)) and len(epochs.unique()) == 1000
