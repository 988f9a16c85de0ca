"""The readout at several times: against a dense exponential, alone and among members, in every scheme."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import D, make_graph, normal, scatter_parameters
from test_equation_second_order import Wave
from torch import Tensor, func, nn
from torch.func import functional_call, stack_module_state

from graphdiffusion.diffusivity import ScaledDotProduct
from graphdiffusion.errors import ArgumentError
from graphdiffusion.nn import GRAND
from graphdiffusion.solvers import Adjoint, DormandPrince

GRAPH = make_graph("random")
X = normal(GRAPH.num_nodes, 5)
SMALL = {"hidden": 4, "time": 2.0, "dropout": 0.0, "input_dropout": 0.0}
HEADS = {"heads": 2, "attention_dim": 4}
SCHEMES: dict[str, dict[str, Any]] = {
    "closed form": {},
    "rk4": {"solver": "rk4", "step_size": 0.05},
    "dopri5": {"solver": "dopri5", "rtol": 1e-9, "atol": 1e-10},
}
SWEEP = [0.4, 1.0, 1.7]


def model(readout: int, seed: int = 0, **more: Any) -> Any:
    torch.manual_seed(seed)
    heads = {} if "equation" in more else HEADS
    grand = GRAND(5, 3, readout=readout, **{**SMALL, **heads, **more})
    return scatter_parameters(grand, seed, 0.3).eval()


def dense(grand: Any, fractions: list[float]) -> Tensor:
    """Logits at these fractions of T, from matrix exponentials."""
    layer = grand.diffusion
    start = X @ grand.encoder.weight.mT + grand.encoder.bias
    start = torch.cat([start, start.new_zeros(len(start), grand.augment)], -1)
    n, m = len(start), grand.readout
    a = start.new_zeros(n, n)
    a[GRAPH.row.long(), GRAPH.col.long()] = layer.bind(start, GRAPH).attention(None, start)
    alpha, beta = layer.equation.alpha(), layer.equation.terms[0].beta()
    # x and the constant source side by side
    right = torch.cat([alpha * (a - torch.eye(n, dtype=D)), beta * torch.eye(n, dtype=D)], 1)
    generator = torch.cat([right, torch.zeros_like(right)])

    def at(t: Tensor) -> Tensor:
        found = torch.linalg.matrix_exp(t * generator) @ torch.cat([start, start])
        return found[:n, : start.shape[1] - grand.augment]

    out = []
    for f in fractions:
        times = [f * layer.time * k / max(m, 1) for k in range(m + 1)] if m else [f * layer.time]
        read = torch.cat([at(t) for t in times], -1)
        out.append((read.relu() if grand.relu else read) @ grand.decoder.weight.mT + grand.decoder.bias)
    return torch.stack(out)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("readout", [0, 1, 3])
def test_against_a_dense_exponential(readout: int, scheme: str) -> None:
    grand = model(readout, augment=2 * (readout == 3), **SCHEMES[scheme])
    assert grand.decoder.weight.shape == (3, 4 * (readout + 1))
    tolerance = {"rtol": 1e-10, "atol": 1e-11} if scheme == "closed form" else {"rtol": 1e-6, "atol": 1e-7}
    torch.testing.assert_close(grand(X, GRAPH), dense(grand, [1.0])[0], **tolerance)
    swept = grand.run(X, GRAPH, sweep=SWEEP).logits
    torch.testing.assert_close(swept, dense(grand, SWEEP), **tolerance)
    # a state at a fraction of T is the model with that T: its readout times scale too
    for f, logits in zip(SWEEP, swept, strict=True):
        state = grand.at_fraction(grand.state_dict(), torch.tensor(f, dtype=D))
        torch.testing.assert_close(functional_call(grand, state, (X, GRAPH)), logits, **tolerance)


def test_all_times_of_the_closed_form_share_one_basis() -> None:
    plain, read = (model(m).run(X, GRAPH) for m in (0, 6))
    assert plain.evaluations == read.evaluations > 0


def slopes(grand: Any, loss: Any) -> None:
    """Gradients of all parameters along random directions, against central differences."""
    names, parameters = zip(*grand.named_parameters(), strict=True)
    found = torch.autograd.grad(loss(), parameters)
    small = 1e-4
    for place, (name, p, g) in enumerate(zip(names, parameters, found, strict=True)):
        along = normal(p.numel(), seed=place).view_as(p)
        ends = []
        with torch.no_grad():
            for move in (small, -2 * small, small):
                p.add_(move * along)
                ends.append(float(loss()))
        exact = (ends[0] - ends[1]) / (2 * small)
        assert float((g * along).sum()) == pytest.approx(exact, rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"gradient": "checkpoint"},
        {"solver": "rk4", "step_size": 0.4, "variant": "nonlinear"},
        {"solver": "rk4", "step_size": 0.4, "variant": "nonlinear", "gradient": "checkpoint"},
        {"solver": DormandPrince(1e-9, 1e-10), "variant": "nonlinear"},
        {
            "solver": DormandPrince(1e-9, 1e-10),
            "variant": "nonlinear",
            "gradient": Adjoint(DormandPrince(1e-9, 1e-10)),
        },
    ],
    ids=lambda how: "-".join(str(v) for v in how.values()) or "closed form",
)
def test_gradients_with_a_learnt_time(how: dict[str, Any]) -> None:
    grand = model(3, learn_time=True, relu=False, augment=1, time=0.9, **how)
    slopes(grand, lambda: grand(X, GRAPH).square().sum())


@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
def test_penalties_beside_the_readout(variant: str) -> None:
    """Quadrature nodes and readout times are output times of one integral."""
    how = {"variant": variant, "kinetic": 0.3, "jacobian": 0.2, "solver": "rk4", "step_size": 0.5}
    grand, plain = (model(m, learn_time=True, relu=False, **how).train() for m in (4, 0))
    shared = {k: v for k, v in grand.state_dict().items() if not k.startswith("decoder")}
    plain.load_state_dict(shared, strict=False)
    key = torch.tensor(7)
    first, second = (m.run(X, GRAPH, key=key) for m in (grand, plain))
    torch.testing.assert_close(first.penalty, second.penalty, rtol=1e-12, atol=0)
    torch.testing.assert_close(first.logits, grand.eval()(X, GRAPH))

    def loss() -> Tensor:
        output = grand.train().run(X, GRAPH, key=key)
        return output.logits.square().sum() + output.penalty

    slopes(grand, loss)


class Face(nn.Module):
    def __init__(self, grand: Any) -> None:
        super().__init__()
        self.grand = grand

    def forward(self, *args: Any, **more: Any) -> Tensor:
        return self.grand.run(*args, **more).logits


@pytest.mark.parametrize("sweep", [None, SWEEP])
@pytest.mark.parametrize("scheme", [*SCHEMES, "second order"])
def test_members_with_times_of_their_own(scheme: str, sweep: list[float] | None) -> None:
    faces = []
    for seed, time in enumerate((0.7, 2.3, 0.0)):
        how = SCHEMES.get(scheme) or {}
        if scheme == "second order":
            how = {"equation": Wave(ScaledDotProduct(5, **HEADS)), "solver": "rk4", "step_size": 0.1}
        faces.append(Face(model(2, seed, time=time, augment=1, **how)))
    parameters, buffers = stack_module_state(faces)  # type: ignore[arg-type]
    more = {"key": torch.arange(3), "sweep": sweep}
    together = functional_call(faces[0], {**parameters, **buffers}, (X, GRAPH), more)
    for k, face in enumerate(faces):
        alone = face(X, GRAPH, key=torch.tensor(k), sweep=sweep)
        own = together[k] if sweep is None else together[:, k]
        torch.testing.assert_close(own, alone, rtol=1e-9, atol=1e-10)


def test_dropout_and_relu_are_those_of_each_channel() -> None:
    grand = model(2, dropout=0.5).train()
    seen: list[Tensor] = []
    grand.decoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    grand(X, GRAPH, key=torch.tensor(1))
    wide = (GRAPH.num_nodes, 12)
    assert seen[0].shape == wide and bool((seen[0] >= 0).all())
    grand.eval()(X, GRAPH)
    kept = (seen[0] != 0) & (seen[1] != 0)
    torch.testing.assert_close(seen[0][kept], 2 * seen[1][kept])
    dropped = (seen[0] == 0) & (seen[1] != 0)
    columns = dropped.split(4, -1)
    assert all(bool(c.any()) for c in columns) and not torch.equal(columns[0], columns[1])


@pytest.mark.parametrize("how", [{}, {"variant": "nonlinear", "solver": "rk4", "step_size": 1.0}])
def test_transforms(how: dict[str, Any]) -> None:
    grand = model(2, **how)
    wanted = grand(X, GRAPH)
    face = Face(grand)

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.face = face

        def forward(self, x: Tensor) -> Tensor:
            return self.face(x, GRAPH)

    program = torch.export.export(Alone(), (X.flip(0),)).module()
    torch.testing.assert_close(program(X), wanted, rtol=1e-8, atol=1e-10)
    mapped = func.vmap(lambda x: face(x, GRAPH))(torch.stack([X.flip(0), X]))
    torch.testing.assert_close(mapped[1], wanted, rtol=1e-8, atol=1e-10)


def test_memory_grows_with_the_readout() -> None:
    small, large = (model(m).memory(1000, 5000, 100) for m in (0, 8))
    assert large - small >= 4 * 8 * 1000 * 4  # the states that are read


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match="readout must be between 0 and 1000, got -1"):
        GRAND(5, 3, readout=-1)
