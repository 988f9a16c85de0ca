"""Three ways to differentiate: they agree, they are right, and they lose no parameter."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from conftest import LEARNT, D, make_diffusivity, make_equation, make_graph, normal, scatter_parameters
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call, stack_module_state

from graphdiffusion.diffusivity import ScaledDotProduct, TimeVarying
from graphdiffusion.equation import Coefficient, Diffusion, Source
from graphdiffusion.errors import TooManyEvaluations
from graphdiffusion.graph import Graph
from graphdiffusion.solvers import (
    RK4,
    AdamsBashforth4,
    AdamsMoulton4,
    Adjoint,
    BogackiShampine,
    DormandPrince,
    Euler,
    Exponential,
    ExponentialCF4,
    ExponentialCF42,
    ExponentialEuler,
    ExponentialMidpoint,
    ExponentialMidpointEuler,
    ExponentialTwoStep,
    Heun,
    HeunEuler,
    Midpoint,
    RK4ThreeEighths,
    SemiImplicitEuler,
    integrate,
)
from graphdiffusion.solvers.linear_solve import solve
from graphdiffusion.solvers.solution import Stats

SOLVERS: dict[str, Any] = {
    "euler": Euler(0.2),
    "midpoint": Midpoint(0.2),
    "heun": Heun(0.2),
    "rk4": RK4(0.2),
    "three eighths": RK4ThreeEighths(0.2),
    "adams-bashforth": AdamsBashforth4(0.125),
    "adams-moulton": AdamsMoulton4(0.125, rtol=1e-13, atol=1e-14),
    "semi-implicit": SemiImplicitEuler(0.25),
    "heun 2(1)": HeunEuler(1e-3, 1e-4),
    "bogacki-shampine": BogackiShampine(1e-4, 1e-5),
    "dormand-prince": DormandPrince(1e-6, 1e-7),
    "exponential": Exponential(),
    "exponential euler": ExponentialEuler(0.5),
    "exponential midpoint": ExponentialMidpoint(0.5),
    "exponential two-step": ExponentialTwoStep(0.5),
    "exponential cf4": ExponentialCF4(1.0),
    "exponential 2(1)": ExponentialMidpointEuler(1e-3, 1e-4),
    "exponential 4(2)": ExponentialCF42(1e-3, 1e-4),
}
MODES = ("backprop", "checkpoint", "adjoint")
TINY = Graph.from_edge_index(torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]]), self_loops=1.0)


class Model(nn.Module):
    """Bind and integrate, as a layer does."""

    def __init__(self, equation: Diffusion, graph: Graph) -> None:
        super().__init__()
        self.equation, self.graph = equation, graph

    def forward(self, x: Tensor, time: Any, solver: Any, gradient: Any = "backprop") -> Tensor:
        flow = self.equation.bind(self.graph, x)
        return integrate(flow, x, time, solver, gradient=gradient).state


def gradients(model: Model, x: Tensor, time: Tensor, solver: Any, mode: Any) -> dict[str, Tensor]:
    inputs = {"x": x, "time": time} | dict(model.named_parameters())
    state = model(x, time, solver, mode)
    probe = torch.cos(torch.arange(state.numel(), dtype=D)).reshape(state.shape)
    return dict(zip(inputs, torch.autograd.grad((state * probe).sum(), list(inputs.values())), strict=True))


# finite differences of an adaptive scheme need many steps: three stand for all
@pytest.mark.parametrize(
    "name", [name for name in SOLVERS if name not in ("exponential 2(1)", "exponential 4(2)")]
)
def test_gradcheck(name: str) -> None:
    """By finite differences: state, time and all parameters, linear and nonlinear."""
    x = normal(3, 2)
    # an adaptive scheme changes its steps with its input: the jumps are as large as its tolerance
    sharp = {HeunEuler: (1e-6, 1e-7), BogackiShampine: (1e-8, 1e-9), DormandPrince: (1e-11, 1e-12)}
    solver = SOLVERS[name]
    rough = type(solver) in sharp
    if rough:
        solver = type(solver)(*sharp[type(solver)])
    for linear in (True,) if name == "exponential" else (True, False):
        equation = Diffusion(
            make_diffusivity("dot/sqrt", channels=2),
            linear=linear,
            alpha=Coefficient(0.7),
            terms=[Source(0.3, detach_source=False)],
        ).to(D)
        model = Model(equation, TINY)
        names = [n for n, _ in model.named_parameters()]

        def run(x: Tensor, time: Tensor, *parameters: Tensor, model=model, names=names) -> Tensor:
            return functional_call(model, dict(zip(names, parameters, strict=True)), (x, time, solver))

        inputs = (
            x,
            torch.tensor(0.15 if rough else 0.9, dtype=D),
            *(p.detach() for p in model.parameters()),
        )
        assert gradcheck(
            run,
            [v.clone().requires_grad_() for v in inputs],
            eps=1e-3 if rough else 1e-6,
            atol=1e-4 if rough else 1e-5,
            fast_mode=rough,
        )


@pytest.mark.parametrize("over", ["rows", "columns"])
@pytest.mark.parametrize("c", [0.3, 20.0])
def test_gradcheck_of_the_linear_solve(c: float, over: Any) -> None:
    values = make_diffusivity("dot/sqrt", channels=2, over=over)(TINY, normal(3, 2)).detach()

    def run(values: Tensor, c: Tensor, b: Tensor) -> Tensor:
        how = {"over": over, "tolerance": 1e-13, "max_iterations": 100, "stats": Stats()}
        return solve(TINY, values, c, b, **how)

    one, two = torch.full((1, 1), c, dtype=D), torch.tensor([c, 2 * c], dtype=D)[:, None, None]
    for inputs in (
        (values, one, normal(3, 2)),
        (values.expand(2, -1), two, normal(2, 3, 2)),
        (values, two, normal(3, 2)),  # both members share matrix and right-hand side
    ):
        assert gradcheck(run, [v.clone().requires_grad_() for v in inputs], atol=1e-5)


@pytest.mark.parametrize(("name", "linear"), list(product(SOLVERS, (True, False))))
def test_modes_agree(name: str, linear: bool) -> None:
    if name == "exponential" and not linear:
        return
    solver = SOLVERS[name]
    model = Model(make_equation(linear=linear), make_graph("random"))
    x, time = normal(9, 3).requires_grad_(), torch.tensor(1.3, dtype=D, requires_grad=True)
    plain = gradients(model, x, time, solver, "backprop")
    checkpointed = gradients(model, x, time, solver, "checkpoint")
    for key, value in plain.items():
        torch.testing.assert_close(
            checkpointed[key], value, rtol=1e-11, atol=1e-13, msg=lambda m: f"{name} {m}"
        )
    # the adjoint differentiates the equation, not the scheme: equal up to the error of the scheme
    loose = 0.15 if name in ("euler", "semi-implicit", "exponential euler") else 3e-2
    adjoint = gradients(model, x, time, solver, "adjoint")
    for key, value in plain.items():
        assert float((adjoint[key] - value).norm()) <= loose * (1 + float(value.norm())), key


def test_adjoint_converges_to_backprop() -> None:
    model = Model(make_equation(), make_graph("random"))
    x, time = normal(9, 3).requires_grad_(), torch.tensor(3.3, dtype=D, requires_grad=True)
    exact = gradients(model, x, time, DormandPrince(1e-11, 1e-12), "backprop")
    errors = []
    for tolerance in (1e-4, 1e-7, 1e-10):
        adjoint = Adjoint(DormandPrince(tolerance, tolerance / 10))
        found = gradients(model, x, time, DormandPrince(tolerance, tolerance / 10), adjoint)
        errors.append(max(float((found[k] - exact[k]).norm() / exact[k].norm()) for k in exact))
    assert errors[0] < 1e-2 and errors[2] < 1e-7 and errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize(
    ("name", "linear", "mode"), list(product((*LEARNT, "time-varying"), (True, False), MODES))
)
def test_no_parameter_is_lost(name: str, linear: bool, mode: str) -> None:
    """The trap of the published code: attention outside the integral got no gradient by the adjoint."""
    graph = make_graph("random")
    if name == "time-varying":
        attention: Any = scatter_parameters(
            TimeVarying(make_diffusivity("dot/sqrt"), horizon=2.0), scale=0.2
        )
    else:
        attention = make_diffusivity(name)
    equation = Diffusion(
        attention,
        linear=linear,
        alpha=Coefficient(0.6, bounded=True),
        terms=[Source(0.3, detach_source=False)],
    ).to(D)
    # before the integral: reached through x0, attention and source; wide enough to bend LeakyReLU
    lift = nn.Linear(2, 3).to(D)
    with torch.no_grad():
        lift.weight.copy_(2 * normal(3, 2, seed=5))
        lift.bias.zero_()
    time = torch.tensor(1.5, dtype=D, requires_grad=True)
    solvers = [RK4(0.25), DormandPrince(1e-4, 1e-5), SemiImplicitEuler(0.5)]
    for solver in [*solvers, Exponential()] if linear and name != "time-varying" else solvers:
        x = lift(normal(graph.num_nodes, 2))
        state = integrate(equation.bind(graph, x), x, time, solver, gradient=mode).state
        named = dict(equation.named_parameters()) | dict(lift.named_parameters()) | {"time": time}
        found = torch.autograd.grad((state**3).sum(), list(named.values()), allow_unused=True)
        for key, grad in zip(named, found, strict=True):
            assert grad is not None, f"{key} has no gradient ({solver}, {mode})"
            assert bool(torch.isfinite(grad).all()) and float(grad.abs().max()) > 1e-12, key


def test_adjoint_of_a_module_and_of_segments() -> None:
    layer = scatter_parameters(nn.Linear(2, 2))

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, t: Tensor, x: Tensor) -> Tensor:
            return torch.tanh(self.layer(x)) * torch.cos(t)

    x = normal(3, 2)
    found = []
    for mode in (
        "backprop",
        Adjoint(DormandPrince(1e-10, 1e-11)),
        Adjoint(DormandPrince(1e-10, 1e-11), segment=9.0),
    ):
        state = integrate(Field(), x, 2.5, DormandPrince(1e-10, 1e-11), gradient=mode).state
        found.append(torch.autograd.grad(state.square().sum(), list(layer.parameters())))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def saved_bytes(model: Model, x: Tensor, time: float, solver: Any, mode: Any) -> int:
    """Memory that the forward pass keeps for the backward pass, each storage once."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        state = model(x, time, solver, mode)
    del state
    return sum(kept.values())


@pytest.mark.parametrize(
    "name",
    ["rk4", "adams-bashforth", "bogacki-shampine", "semi-implicit", "exponential", "exponential midpoint"],
)
def test_checkpoint_memory_is_sublinear(name: str) -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 32).requires_grad_()
    attention = ScaledDotProduct(32, heads=2, attention_dim=4)
    model = Model(Diffusion(attention, linear=name == "exponential").to(D), graph)
    solver = BogackiShampine(1e-6, 1e-8) if name == "bogacki-shampine" else SOLVERS[name]
    times = (10.0, 160.0) if name == "exponential" else (4.0, 36.0)
    plain, checkpointed = (
        [saved_bytes(model, x, t, solver, mode) for t in times] for mode in ("backprop", "checkpoint")
    )
    assert checkpointed[1] < plain[1] / 3
    if not isinstance(solver, BogackiShampine):  # whose steps grow as the flow comes to rest
        assert checkpointed[1] / checkpointed[0] < 0.6 * plain[1] / plain[0]  # like √N, not like N


@pytest.mark.parametrize(("name", "mode"), list(product(SOLVERS, MODES)))
def test_members_equal_each_alone(name: str, mode: str) -> None:
    """A population with its own parameters and times: states and gradients of every member."""
    graph, solver = make_graph("random"), SOLVERS[name]
    linear = name == "exponential"
    models = [Model(make_equation(linear=linear, seed=s), graph) for s in range(3)]
    stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
    stacked = {k: v.detach().requires_grad_() for k, v in stacked.items()}
    x = normal(3, graph.num_nodes, 3).requires_grad_()
    times = torch.tensor([0.4, 1.1, 1.7], dtype=D, requires_grad=True)
    together = functional_call(models[0], stacked, (x, times, solver, mode))
    probe = torch.cos(torch.arange(together[0].numel(), dtype=D)).reshape(together[0].shape)
    leaves = [x, times, *stacked.values()]
    # after the call, as in training: the parameters are no longer swapped in when the backward pass runs
    found = torch.autograd.grad((together * probe).sum(), leaves)
    for k, model in enumerate(models):
        own_x, own_time = (v[k].detach().clone().requires_grad_() for v in (x, times))
        alone = model(own_x, own_time, solver, mode)
        torch.testing.assert_close(together[k], alone, rtol=1e-12, atol=1e-12)
        own = torch.autograd.grad((alone * probe).sum(), [own_x, own_time, *model.parameters()])
        for a, b in zip(found, own, strict=True):
            torch.testing.assert_close(a[k], b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("mode", MODES)
def test_members_with_horizons_of_their_own(mode: str) -> None:
    """Buffers of the equation are those of the member in the backward pass, too."""
    graph, solver = make_graph("random"), RK4(0.1)
    models = [
        Model(Diffusion(TimeVarying(make_diffusivity("dot/sqrt", seed=s), horizon, 3)), graph)
        for s, horizon in enumerate((0.4, 1.7))
    ]
    for s, model in enumerate(models):
        scatter_parameters(model, s)
    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]
    learnt = {k: v for k, v in parameters.items() if v.requires_grad}
    x = normal(2, graph.num_nodes, 3)
    together = functional_call(models[0], {**parameters, **buffers}, (x, 0.5, solver, mode))
    found = torch.autograd.grad(together.sin().sum(), list(learnt.values()))
    for k, model in enumerate(models):
        own = [p for p in model.parameters() if p.requires_grad]
        alone = torch.autograd.grad(model(x[k], 0.5, solver, mode).sin().sum(), own)
        for a, b in zip(found, alone, strict=True):
            torch.testing.assert_close(a[k], b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("learnt", [True, False])
def test_a_backward_pass_that_fails_names_its_member(learnt: bool) -> None:
    graph = make_graph("random")
    models = [Model(make_equation(seed=s), graph) for s in range(3)]
    for model in models:
        model.equation.alpha.requires_grad_(learnt)
    stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
    rtol = torch.tensor([1e-3, 1e-12, 1e-3], dtype=D)[:, None, None]
    adjoint = Adjoint(DormandPrince(rtol, rtol / 100, max_evaluations=60))
    x = normal(3, graph.num_nodes, 3).requires_grad_()
    end = functional_call(models[0], stacked, (x, torch.tensor(1.0, dtype=D), RK4(0.1), adjoint))
    with pytest.raises(TooManyEvaluations) as found:
        torch.autograd.grad(end.sum(), x)
    assert found.value.members.tolist() == [False, True, False]


@pytest.mark.parametrize("solver", [RK4(0.1), DormandPrince(1e-9, 1e-10), Exponential()])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("members", [False, True])
def test_learnable_output_times(solver: Any, mode: str, members: bool) -> None:
    """The time derivative of a state is the right-hand side there, whichever stops lie before it."""
    graph = make_graph("random")
    x = normal(*((2, 9, 3) if members else (9, 3)))
    flow = make_equation(linear=True).bind(graph, x)
    scale = torch.tensor(1.0, dtype=D, requires_grad=True)
    at = scale * torch.tensor([0.5, 1.2], dtype=D)
    solution = integrate(flow, x, 2.0 * scale, solver, at=at, gradient=mode)
    assert solution.states is not None
    for state, t in zip((*solution.states, solution.state), (0.5, 1.2, 2.0), strict=True):
        (slope,) = torch.autograd.grad(state.sum(), scale, retain_graph=True)
        want = t * flow(torch.tensor(t, dtype=D), state).sum().detach()
        torch.testing.assert_close(slope, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("alpha", [20.0, 200.0])
def test_adjoint_of_fast_diffusion(alpha: float) -> None:
    """Backwards an error grows like e^{2αt}: the segments are measured in αt."""
    graph = make_graph("random")
    model = Model(make_equation(alpha=Coefficient(alpha)), graph)
    x, time = normal(9, 3).requires_grad_(), torch.tensor(40.0 / alpha, dtype=D, requires_grad=True)
    exact = gradients(model, x, time, DormandPrince(1e-10, 1e-11), "backprop")
    found = gradients(model, x, time, DormandPrince(1e-8, 1e-9), Adjoint(DormandPrince(1e-7, 1e-8)))
    for name, value in exact.items():
        assert float((found[name] - value).norm()) < 1e-4 * (1 + float(value.norm())), name


def test_adjoint_with_a_rate_for_each_member_and_for_all_times() -> None:
    graph = make_graph("random")
    coefficient = Coefficient(3.0, terms=3, horizon=2.0).to(D)
    with torch.no_grad():
        coefficient.raw.copy_(torch.tensor([20.0, 10.0, -5.0], dtype=D)[:, None, None])
    equation = Diffusion(make_diffusivity("dot/sqrt"), alpha=coefficient).to(D)
    flow = equation.bind(graph, normal(9, 3))
    at = torch.stack([equation.alpha(torch.tensor([[t]], dtype=D)) for t in np.linspace(0, 2, 50)])
    assert float(at.detach().abs().max()) <= float(flow.rate) <= 35.0
    x, time = normal(9, 3).requires_grad_(), torch.tensor(2.0, dtype=D, requires_grad=True)
    model = Model(equation, graph)
    exact = gradients(model, x, time, DormandPrince(1e-8, 1e-9), "backprop")
    found = gradients(model, x, time, DormandPrince(1e-8, 1e-9), Adjoint(DormandPrince(1e-7, 1e-8)))
    for name, value in exact.items():
        assert float((found[name] - value).norm()) < 1e-4 * (1 + float(value.norm())), name
