"""Whatever says that its step may be captured in a CUDA graph reads nothing from the device in it.

And all tensors of that step are of one device.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reads import Apart, Unread, elsewhere, without_numbers
from torch_geometric.data import Data

from graphdiffusion.configs import presets, read_preset
from graphdiffusion.diffusivity import DIFFUSIVITIES
from graphdiffusion.registry import Registry
from graphdiffusion.solvers import SOLVERS
from graphdiffusion.training import Config, Population, load_problem, protocol, tasks
from graphdiffusion.training.capture import has_bound, needed_room, with_capacity

SMALL: dict[str, Any] = {"hidden": 8, "epochs": 5, "splits": 2, "split": "shares", "device": "cpu"}
OWN = [name for name in presets() if name.startswith("own-")]
# a step of these has no fixed length, or an inner iteration
VARYING = {"own-blend", "own-blurring-sharpening"}
ADAPTIVE = {
    "adams-moulton", "bdf2", "bosh3", "dopri5", "esdirk", "exponential21", "exponential42", "heun21",
    "semi-implicit", "trapezoid",
}  # fmt: skip
NEEDED = {"symplectic-euler": "graphcon", "strang": "acmp"}  # the equations that a scheme is for
ATTENTION = {"heads": 2, "attention_dim": 8}


def shipped(registry: Registry[Any]) -> list[str]:
    """Names of the library; other tests add names of their own."""
    known = registry.classes().items()
    return [name for name, own in known if own.__module__.startswith("graphdiffusion.")]


def toy(kind: str = "classification") -> Data:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(40, (2, 160), generator=generator)
    y = torch.arange(40) % 3
    if kind == "regression":
        y = torch.rand(40, 2, generator=generator, dtype=torch.float64)
    if kind == "multilabel":
        y = torch.rand(40, 2, generator=generator).round()
    return Data(
        x=torch.randn(40, 6, generator=generator), y=y, task=kind, name="toy",
        edge_index=torch.cat([edges, edges.flip(0)], 1),
    )  # fmt: skip


def read_by_a_step(options: dict[str, Any], data: Data) -> bool:
    """Take a step as a capture takes it, where it may be captured; whether it may."""
    config = Config.from_dict({**options, **SMALL})
    problem = load_problem(config, data)
    population = Population(problem, config, protocol(config, problem.data))
    stack = population.stack
    if not (stack.model.capturable and stack.takes_members() and has_bound(population)):
        return False
    population.compute()  # the first step is taken plainly
    room = needed_room(population)
    with with_capacity(population, room), Unread():
        population.compute()
    other = elsewhere(population)
    with pytest.MonkeyPatch.context() as patch, with_capacity(other, room):
        without_numbers(patch)
        with Apart():
            other.compute()
    return True


@pytest.fixture(autouse=True)
def without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's one_hot looks at its numbers on a CPU alone; on CUDA its kernel checks them."""

    def one_hot(y: torch.Tensor, count: int) -> torch.Tensor:
        return (y[..., None] == torch.arange(count, device=y.device)).long()

    monkeypatch.setattr(tasks, "one_hot", one_hot)


@pytest.mark.parametrize("name", OWN)
def test_models_and_equations(name: str) -> None:
    options = read_preset(name)
    assert read_by_a_step(options, toy()) is (name not in VARYING)
    if name in VARYING:
        steps = {"solver": "rk4", "step_size": 0.5}
        fixed = {k: v for k, v in options.items() if k not in ("rtol", "atol")} | steps
        assert read_by_a_step(fixed, toy()) is (name != "own-blend")


@pytest.mark.parametrize(
    ("solver", "variant"),
    [
        (solver, variant)
        for solver in shipped(SOLVERS)
        for variant in ("linear", "nonlinear")
        if (solver, variant) != ("exponential", "nonlinear")  # the closed form is for linear equations
    ],
)
def test_solvers(solver: str, variant: str) -> None:
    options = {"variant": variant, "solver": solver, "time": 2.0, **ATTENTION}
    if solver in NEEDED:
        options["equation"] = NEEDED[solver]
    if solver not in ADAPTIVE | {"exponential"}:
        options["step_size"] = 0.1 if solver == "adams-bashforth" else 0.5
    assert read_by_a_step(options, toy()) is (solver not in ADAPTIVE)


@pytest.mark.parametrize("solver", ["exponential", "exponential-two-step", "exponential-cf4"])
def test_rounded_powers(solver: str) -> None:
    options = {"solver": solver, "precision": "bfloat16", "time": 2.0, **ATTENTION}
    assert read_by_a_step(options, toy())


@pytest.mark.parametrize("over", ["rows", "columns", "symmetric"])
@pytest.mark.parametrize("diffusivity", shipped(DIFFUSIVITIES))
def test_diffusivities(diffusivity: str, over: str) -> None:
    options = {"diffusivity": diffusivity, "over": over, "time": 2.0}
    options |= {} if diffusivity == "laplacian" else ATTENTION
    options |= {"variant": "nonlinear", "solver": "euler", "step_size": 1.0}
    names = [] if diffusivity == "laplacian" else ["softmax", "squareplus", "signed"]
    for more in [{"normaliser": name} for name in names] or [{}]:
        assert read_by_a_step({**options, **more}, toy())


@pytest.mark.parametrize(
    "more", [{}, {"label_rate": 0.5}, {"readout": 2}, {"batch_norm": True}, {"sweep": 3}]
)
@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_tasks(kind: str, more: dict[str, Any]) -> None:
    assert read_by_a_step({"time": 2.0, **ATTENTION, **more}, toy(kind))


def test_what_is_refused() -> None:
    mask = torch.tensor([True, False])
    with Unread(), pytest.raises(AssertionError, match="reads from the device"):
        float(torch.ones(2).sum())
    with Unread(), pytest.raises(AssertionError, match="boolean mask"):
        torch.ones(2)[mask]
    other = elsewhere(torch.ones(2))
    with pytest.raises(RuntimeError, match="device"):
        other + torch.ones(2)
    for copied in (lambda: other[mask.long()], lambda: torch.ones(2).to(other), lambda: other.copy_(mask)):
        copied()  # a GPU does that, too, but waits for it
        with Apart(), pytest.raises(AssertionError, match="copies from a CPU"):
            copied()
    with Apart():
        other + torch.ones(())
