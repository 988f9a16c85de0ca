"""Members of one integration: a status for each, a tolerance for each, and a capacity for all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import D, make_equation, make_graph, normal
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from graphdiffusion.diffusivity import ConstantLaplacian
from graphdiffusion.equation import Coefficient, Diffusion, Source
from graphdiffusion.errors import (
    ArgumentError,
    NotConverged,
    SolverError,
    StepSizeUnderflow,
    TooManyEvaluations,
)
from graphdiffusion.solvers import (
    RK4,
    SOLVERS,
    AdamsMoulton4,
    Adaptive,
    BogackiShampine,
    DormandPrince,
    Euler,
    Exponential,
    ExponentialEuler,
    ExponentialMidpoint,
    ExponentialTwoStep,
    FixedStep,
    HeunEuler,
    SemiImplicitEuler,
    integrate,
)

GRAPH = make_graph("random")


def rates(*values: float) -> Tensor:
    return torch.tensor(values, dtype=D)[:, None, None]


class Field(nn.Module):
    """−λ y, and noise where ``noisy``: every evaluation gives another value."""

    def __init__(self, speed: Tensor, noisy: Tensor | None = None) -> None:
        super().__init__()
        self.speed = nn.Parameter(speed)
        self.noisy, self.count = noisy, 0

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        out = -self.speed * y
        if self.noisy is None:
            return out
        self.count += 1
        noise = torch.randn(
            y.shape[-2:], generator=torch.Generator().manual_seed(self.count), dtype=y.dtype
        )
        return torch.where(self.noisy, 1e15 * noise, out)


def flow(alpha: tuple[float, ...], x: Tensor) -> Any:
    """Linear diffusion with an α for each member."""
    model = Diffusion(ConstantLaplacian(), linear=True, alpha=Coefficient(1.0), terms=[Source(0.25)]).to(D)
    model.alpha.raw = nn.Parameter(rates(*alpha).unsqueeze(1))
    return model.bind(GRAPH, x)


HARD = torch.tensor([False, True, False])[:, None, None]
# for each scheme: what it integrates for the members (keep), until when, and what fails in the second
FAILING: dict[str, tuple[Any, Any, Tensor, type[SolverError]]] = {
    "fixed": (
        RK4(0.1, max_evaluations=100),
        rates(1, 1, 1),
        torch.tensor([1.0, 9.0, 2.0]),
        TooManyEvaluations,
    ),
    "adaptive": (DormandPrince(max_evaluations=60), rates(1, 1e4, 2), torch.ones(3), TooManyEvaluations),
    "not smooth": (DormandPrince(), HARD, torch.ones(3), StepSizeUnderflow),
    "corrector": (AdamsMoulton4(1.0), rates(0.5, 5, 1), torch.tensor([5.0, 6.0, 7.0]), NotConverged),
    "linear solve": (SemiImplicitEuler(1.0), (0.5, 1e12, 1.0), torch.tensor([5.0, 6.0, 7.0]), NotConverged),
    "negative": (Exponential(), (0.5, -1.0, 1.0), torch.tensor([5.0, 6.0, 7.0]), SolverError),
    "negative in a step": (
        ExponentialMidpoint(1.0),
        (0.5, -1.0, 1.0),
        torch.tensor([5.0, 6.0, 7.0]),
        SolverError,
    ),
    "negative in a step of two": (
        ExponentialTwoStep(1.0),
        (0.5, -1.0, 1.0),
        torch.tensor([5.0, 6.0, 7.0]),
        SolverError,
    ),
    "too many products in a step": (
        ExponentialEuler(1e3, max_evaluations=50),
        (0.5, 1.0, 1.0),
        torch.tensor([5.0, 600.0, 7.0]),
        TooManyEvaluations,
    ),
    "too many products": (
        Exponential(max_evaluations=50),
        (0.5, 1.0, 1.0),
        torch.tensor([5.0, 600.0, 7.0]),
        TooManyEvaluations,
    ),
}


def build(what: Any, x: Tensor, keep: list[int]) -> Any:
    if isinstance(what, tuple):
        return flow(tuple(what[k] for k in keep), x)
    if what.dtype == torch.bool:
        return Field(rates(1, 1, 2)[keep], what[keep])
    return Field(what[keep])


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("learn", [False, True])
def test_a_member_that_fails_fails_alone(name: str, learn: bool) -> None:
    solver, what, times, error = FAILING[name]
    x = normal(3, 9, 2)
    found = []
    for keep in ([0, 1, 2], [0, 2]):
        own = x[keep].requires_grad_(learn)
        field = build(what, own, keep)
        solution = integrate(field, own, times[keep], solver, at=times[keep][None] * 0.9, check=False)
        grads = []
        if learn:
            state = torch.where(solution.failed[:, None, None], 0.0, solution.state)
            leaves = [own, *(field.equation if isinstance(what, tuple) else field).parameters()]
            leaves = [v for v in leaves if v.requires_grad]
            grads = list(torch.autograd.grad(state.square().sum(), leaves, allow_unused=True))
        found.append((solution, grads))
    (together, grads), (others, own_grads) = found
    assert together.failed.tolist() == [False, True, False] and not bool(others.failed.any())
    for failure in together.stats.failures:  # one, and perhaps another in the backward pass
        assert type(failure) is error and failure.members is not None
        assert failure.members.tolist() == [False, True, False]
    assert len(together.stats.failures) <= 1 + learn
    assert bool(torch.isnan(together.state[1]).all())
    assert together.states is not None and others.states is not None
    assert bool(torch.isnan(together.states[:, 1]).all())
    assert torch.equal(together.state[[0, 2]], others.state)
    assert torch.equal(together.states[:, [0, 2]], others.states)
    for both, alone in zip(grads, own_grads, strict=True):
        if both is not None and len(both) == 3:
            torch.testing.assert_close(both[[0, 2]], alone, rtol=1e-12, atol=1e-14)
    with pytest.raises(error) as strict:  # a single integration raises
        integrate(build(what, x, [0, 1, 2]), x, times, solver)
    assert strict.value.members is not None and strict.value.members.tolist() == [False, True, False]


def test_outputs_before_a_failure_stand() -> None:
    def breaks(t: Tensor, y: Tensor) -> Tensor:
        return torch.where((t > 0.5) & HARD, torch.nan, -y)

    for solver in (RK4(0.1), DormandPrince()):
        for x in (normal(3, 9, 2), normal(3, 9, 2).requires_grad_()):
            solution = integrate(breaks, x, 1.0, solver, at=[0.25, 0.8], check=False)
            assert solution.states is not None
            early, late = solution.states
            torch.testing.assert_close(early, x * torch.exp(torch.tensor(-0.25)), rtol=1e-3, atol=1e-3)
            assert bool(torch.isnan(late[1]).all()) and bool(torch.isfinite(late[[0, 2]]).all())


FIXED = [
    name
    for name, cls in SOLVERS.classes().items()
    if issubclass(cls, FixedStep) and cls.needs in (None, "stiff")
]


def fixed(name: str) -> Any:
    cls: Any = SOLVERS[name]
    return cls(0.125, rtol=1e-9, atol=1e-10) if name == "adams-moulton" else cls(0.125)


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("mode", ["backprop", "checkpoint"])
def test_capacity_of_fixed_steps(name: str, mode: Any) -> None:
    """With room for more steps than a member needs nothing changes; with less, that member is NaN."""
    solver = fixed(name)
    exponential = name.startswith("exponential")  # its series have room for α = 1, as is asked below
    assert solver.captures == (solver.explicit or exponential) and solver.follows_rate == exponential
    times = torch.tensor([0.5, 1.3, 0.9], dtype=D)
    room = solver.capacity(times, torch.ones(3))
    steps = room[0]
    assert steps == 11  # ceil(1.3 / 0.125)
    x = normal(3, 9, 3).requires_grad_()
    model = make_equation()
    at = times[None] * 0.7
    plain = integrate(model.bind(GRAPH, x), x, times, solver, at=at, gradient=mode)
    grads = torch.autograd.grad(plain.state.square().sum(), [x, *model.parameters()])
    for more in (0, 4):
        given = solver.with_capacity((steps + more, *room[1:]))
        assert given is not solver and given.step_size == solver.step_size
        found = integrate(model.bind(GRAPH, x), x, times, given, at=at, gradient=mode, check=False)
        assert torch.equal(found.state, plain.state)
        torch.testing.assert_close(found.states, plain.states, rtol=1e-13, atol=1e-13)
        for a, b in zip(
            torch.autograd.grad(found.state.square().sum(), [x, *model.parameters()]), grads, strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
    short = solver.with_capacity((steps - 1, *room[1:]))
    lost = integrate(model.bind(GRAPH, x), x, times, short, at=at, check=False)
    assert torch.equal(lost.state[[0, 2]], plain.state[[0, 2]]) and bool(torch.isnan(lost.state[1]).all())
    assert bool(torch.isnan(lost.states[:, 1]).all())
    with pytest.raises(ArgumentError, match=r"11 steps of τ = 0\.125 are needed, but max_steps is 10"):
        integrate(model.bind(GRAPH, x), x, times, short)


def test_capacity_of_the_closed_form() -> None:
    alpha, times = (0.5, 2.0, 1.0), torch.tensor([3.0, 4.0, 2.0], dtype=D)
    x = normal(3, 9, 2, dtype=torch.float32)
    model = flow(alpha, x.double()).equation.float()
    solver = Exponential()
    assert solver.captures and solver.follows_rate
    (room,) = solver.capacity(times, model.rate()[:, 0, 0])
    plain = integrate(model.bind(GRAPH, x), x, times, solver, at=times[None] / 2)
    assert plain.stats.evaluations == room
    for more in (0, 7):
        found = integrate(
            model.bind(GRAPH, x), x, times, solver.with_capacity((room + more,)), at=times[None] / 2
        )
        torch.testing.assert_close(found.state, plain.state, rtol=1e-6, atol=1e-6)
    lost = integrate(model.bind(GRAPH, x), x, times, solver.with_capacity((room - 2,)), check=False).state
    assert bool(torch.isnan(lost[1]).all()) and bool(torch.isfinite(lost[[0, 2]]).all())
    # room for one update of α by 0.5 more
    reach = torch.full((3, 1, 1), 0.5, dtype=D)
    assert solver.capacity(times, model.rate(reach)[:, 0, 0])[0] > room


@pytest.mark.parametrize(
    "name", [name for name, cls in SOLVERS.classes().items() if issubclass(cls, Adaptive)]
)
def test_an_adaptive_scheme_has_no_capacity(name: str) -> None:
    solver = SOLVERS[name]()
    assert not solver.captures
    for call in (lambda: solver.capacity(torch.ones(1), torch.ones(1)), lambda: solver.with_capacity((5,))):
        with pytest.raises(NotImplementedError, match="known beforehand"):
            call()


def test_closed_form_of_members_with_one_time() -> None:
    """A rate for each member and one time for all, with as many output times as members."""
    alpha, x = (0.5, 2.0, 1.0), normal(3, 9, 2)
    solution = integrate(flow(alpha, x), x, 3.0, Exponential(), at=[0.5, 1.0, 2.0])
    assert solution.state.shape == x.shape and solution.states is not None
    assert solution.states.shape == (3, *x.shape)
    for k in range(3):
        model = Diffusion(ConstantLaplacian(), linear=True, alpha=alpha[k], terms=[Source(0.25)]).to(D)
        alone = integrate(model.bind(GRAPH, x[k]), x[k], 3.0, Exponential(), at=[0.5, 1.0, 2.0])
        torch.testing.assert_close(solution.state[k], alone.state, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(solution.states[:, k], alone.states, rtol=1e-13, atol=1e-13)


class Model(nn.Module):
    """A scheme as part of a model: its tolerances are buffers."""

    def __init__(self, solver: nn.Module, seed: int) -> None:
        super().__init__()
        self.solver, self.equation = solver, make_equation(seed=seed)

    def forward(self, x: Tensor) -> Any:
        return integrate(self.equation.bind(GRAPH, x), x, 1.5, self.solver)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", [HeunEuler, BogackiShampine, DormandPrince])
def test_tolerances_of_each_member(scheme: Any) -> None:
    sharp = (1e-2, 1e-4, 1e-3)
    models = [Model(scheme(r, r / 10), seed=k) for k, r in enumerate(sharp)]
    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]
    assert buffers["solver.rtol"].flatten().tolist() == list(sharp)
    assert not models[0].state_dict().keys() & buffers.keys()  # settings are no part of what is saved
    x = normal(3, 9, 3)
    together = functional_call(models[0], {**parameters, **buffers}, (x,))
    steps = []
    for k, model in enumerate(models):
        alone = model(x[k])
        torch.testing.assert_close(together.state[k], alone.state, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(together.stats.last_step[k], alone.stats.last_step, rtol=1e-9, atol=0)
        steps.append(alone.stats.accepted)
    assert steps[1] == max(steps) == together.stats.accepted > min(steps)


def test_solvers_move_with_a_model() -> None:
    """A copy with another capacity or norm leaves the first alone; to(dtype) keeps the tolerances."""
    solver = DormandPrince(1e-5, 1e-7).to(torch.float32)
    assert repr(solver).startswith("DormandPrince(rtol=") and float(solver.rtol) == pytest.approx(1e-5)
    first = Euler(0.5)
    assert first.with_capacity((7,)).max_steps == 7 and first.max_steps is None
