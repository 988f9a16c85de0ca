"""Implicit schemes for stiff equations: order, stability, cost, gradients, and each member on its own."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from conftest import D, make_diffusivity, make_equation, make_graph, normal
from scipy.integrate import solve_ivp
from test_gradients import TINY, Model, saved_bytes
from test_solvers_order import problem, reference
from test_stability import two_nodes
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call, stack_module_state

from graphdiffusion.equation import Coefficient, Diffusion, Flow, Source
from graphdiffusion.errors import ArgumentError, NotConverged, SolverError
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.solvers import (
    BDF2,
    ESDIRK4,
    RK4,
    AdamsMoulton4,
    DormandPrince,
    Exponential,
    ExponentialMidpoint,
    SemiImplicitEuler,
    Stats,
    Trapezoid,
    integrate,
)
from graphdiffusion.solvers.gmres import gmres

SHARP: Any = {"rtol": 1e-10, "atol": 1e-11}
FIXED: dict[str, Any] = {
    "trapezoid": lambda h: Trapezoid(h, **SHARP),
    "bdf2": lambda h: BDF2(h, **SHARP),
    "adams-moulton, 3 steps": lambda h: AdamsMoulton4(h, corrector="newton", rtol=1e-12, atol=1e-13),
    "adams-moulton, 4 steps": lambda h: AdamsMoulton4(
        h, memory=4, corrector="newton", rtol=1e-12, atol=1e-13
    ),
}
SCHEMES = {
    "trapezoid": Trapezoid(0.25, **SHARP),
    "bdf2": BDF2(0.25, **SHARP),
    "adams-moulton": AdamsMoulton4(0.1, corrector="newton", **SHARP),
    "esdirk": ESDIRK4(1e-4, 1e-5),
}
KINDS = ("linear", "nonlinear", "time-dependent")


def radau(f: Any, x: Tensor, time: float, tolerance: float = 1e-11) -> Tensor:
    def right(t: float, y: np.ndarray) -> np.ndarray:
        state = torch.from_numpy(y).reshape(x.shape)
        return f(torch.tensor([[t]], dtype=D), state).flatten().numpy()

    with torch.no_grad():
        found = solve_ivp(
            right, (0, time), x.flatten().numpy(), "Radau", rtol=tolerance, atol=tolerance / 100
        )
    return torch.from_numpy(found.y[:, -1]).reshape(x.shape)


@cache
def known(kind: str) -> tuple[Any, Tensor, Tensor]:
    flow, x = problem(kind)
    return flow, x, radau(flow, x, 0.5, 1e-12)


def in_equal_steps(solver: Any, flow: Any, x: Tensor, time: float, count: int) -> Tensor:
    """An adaptive scheme without its control."""
    h = torch.full((1, 1), time / count, dtype=D)
    state = solver.begin(flow, 0 * h, x)
    for k in range(count):
        state = solver.step(flow, k * h, h, state, k, Stats()).state
    return state[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*FIXED, "esdirk"])
def test_measured_order(name: str, kind: str) -> None:
    flow, x, exact = known(kind)
    if name == "esdirk":
        order, counts = 4, (4, 8)
        ends = [in_equal_steps(ESDIRK4(**SHARP), flow, x, 0.5, n) for n in counts]
    else:
        order = FIXED[name](1.0).order
        counts = {2: (8, 16), 4: (24, 48), 5: (16, 32)}[order]
        ends = [integrate(flow, x, 0.5, FIXED[name](0.5 / n)).state for n in counts]
    first, second = (float((end - exact).norm()) for end in ends)
    assert abs(np.log2(first / second) - order) < 0.2


@pytest.mark.parametrize("scheme", [Trapezoid, BDF2])
def test_short_steps_move_at_the_default_tolerances(scheme: Any) -> None:
    """The first guess of a short step meets the tolerance, whatever it leaves out."""
    for kind in KINDS:
        flow, x, exact = known(kind)
        errors = [float((integrate(flow, x, 0.5, scheme(h)).state - exact).norm()) for h in (1e-2, 2.5e-3)]
        assert errors[0] < 1e-3 and abs(np.log2(errors[0] / errors[1]) / 2 - 2) < 0.2


def test_adaptive_meets_its_tolerance() -> None:
    for kind in KINDS:
        flow, x = problem(kind)
        exact = reference(flow, x, 1.0)
        errors = []
        for tolerance in (1e-3, 1e-5, 1e-7):
            state = integrate(flow, x, 1.0, ESDIRK4(tolerance, tolerance)).state
            errors.append(float((state - exact).abs().max()))
            assert errors[-1] < 10 * tolerance * float(exact.abs().max() + 1)
        assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("name", ["trapezoid", "bdf2"])
def test_states_between_the_steps(name: str) -> None:
    flow, x, _ = known("nonlinear")
    at = (0.07, 0.31, 0.44)
    exact = torch.stack([radau(flow, x, t, 1e-9) for t in at])

    def error(solver: Any) -> float:
        return float((integrate(flow, x, 0.5, solver, at=at).states - exact).abs().max())

    first, second = (error(FIXED[name](0.5 / n)) for n in (8, 32))
    assert np.log2(first / second) / 2 > 1.65


def test_order_of_the_interpolant() -> None:
    """One step from the exact start: the error of the cubic is O(h⁴)."""
    flow, x, _ = known("nonlinear")
    solver, errors = ESDIRK4(**SHARP), []
    for h in (0.4, 0.2):
        start, size = (torch.full((1, 1), v, dtype=D) for v in (0.0, h))
        step = solver.step(flow, start, size, solver.begin(flow, start, x), 0, Stats())
        half = step.between(torch.full((1, 1), 0.5, dtype=D))
        errors.append(float((half - radau(flow, x, h / 2)).norm()))
        assert torch.equal(step.between(torch.ones(1, 1, dtype=D)), step.state[0])
    assert abs(np.log2(errors[0] / errors[1]) - 4) < 0.4


# the left half-plane up to |z| = 10⁶, its edge included, and discs |z + c| ≤ c, which hold the spectrum
# of τα(A − I)
ANGLES = np.exp(1j * np.linspace(np.pi / 2, 3 * np.pi / 2, 9))
DISC = np.exp(1j * np.linspace(0, 2 * np.pi, 9))[1:-1] - 1
PLANE = np.concatenate(
    [np.outer(np.logspace(-2, 6, 17), ANGLES).ravel(), np.outer([0.1, 1, 30, 1e3, 1e6], DISC).ravel()]
)


def spin(z: np.ndarray) -> Any:
    """y' = z y in real numbers, a member for each z: the state is (Re y, Im y)."""
    re, im = (torch.from_numpy(part.copy())[:, None, None] for part in (z.real, z.imag))

    def field(t: Tensor, y: Tensor) -> Tensor:
        u, v = y[..., :1], y[..., 1:]
        return torch.cat([re * u - im * v, im * u + re * v], -1)

    return field


def stepped(solver: Any, z: np.ndarray, state: tuple[float, ...], index: int) -> np.ndarray:
    """The state after one step of size 1 from real states of now and before."""
    stats, field, t = Stats(), spin(z), torch.zeros(1, 1, dtype=D)
    states = [torch.tensor([[value, 0.0]], dtype=D).expand(len(z), 1, 2) for value in state]
    begin = tuple(states) if len(states) > 1 else solver.begin(field, t, states[0])
    found = solver.step(field, t, torch.ones(1, 1, dtype=D), begin, index, stats).state[0]
    assert not stats.failures
    return found[:, 0, 0].numpy() + 1j * found[:, 0, 1].numpy()


@pytest.mark.parametrize("solver", [Trapezoid(1.0, rtol=1e-9), BDF2(1.0, rtol=1e-9), ESDIRK4(1e-9, 1e-9)])
def test_stable_in_the_left_half_plane(solver: Any) -> None:
    far = np.array([-1e4, -1e6, 1e6j])
    if isinstance(solver, BDF2):  # the roots of ζ² = pζ + q
        start = np.abs(stepped(solver, PLANE, (1.0,), 0)).max()
        p, q = (stepped(solver, PLANE, state, 1) for state in ((1.0, 0.0), (0.0, 1.0)))
        roots = np.stack([p + np.sqrt(p**2 + 4 * q + 0j), p - np.sqrt(p**2 + 4 * q + 0j)]) / 2
        assert max(start, np.abs(roots).max()) < 1 + 1e-6
        assert (
            max(np.abs(stepped(solver, far, state, 1)).max() for state in ((1.0, 0.0), (0.0, 1.0))) < 1e-3
        )
        return
    assert np.abs(stepped(solver, PLANE, (1.0,), 0)).max() < 1 + 1e-6
    last = np.abs(stepped(solver, far, (1.0,), 0)).max()
    assert abs(last - 1) < 1e-3 if isinstance(solver, Trapezoid) else last < 1e-3  # only ESDIRK is L-stable


def test_stability_of_the_tableau() -> None:
    """|R| ≤ 1 on the imaginary axis and poles to its right, so on all of the left; R(∞) = 0."""
    tableau = ESDIRK4.tableau
    a = np.zeros((6, 6))
    for i, row in enumerate(tableau.a, 1):
        a[i, : len(row) + 1] = (*row, tableau.diagonal)
    b = np.array(tableau.b)
    assert tableau.diagonal > 0 and np.array_equal(a[-1], b)  # the poles are 1/γ; stiffly accurate

    def growth(weights: np.ndarray, z: complex) -> float:
        return abs(1 + z * weights @ np.linalg.solve(np.eye(6) - z * a, np.ones(6)))

    for weights in (b, b - np.array(tableau.error)):
        assert max(growth(weights, 1j * y) for y in np.logspace(-3, 5, 400)) < 1 + 1e-9
    assert growth(b, -1e7) < 1e-5


def van_der_pol(t: Tensor, y: Tensor) -> Tensor:
    u, v = y[..., :1], y[..., 1:]
    return torch.cat([v, 300 * (1 - u**2) * v - u], -1)


def fast(alpha: float) -> tuple[Any, Tensor]:
    """Diffusion of rate α with a source, near its slow solution: what is fast has decayed."""
    x = normal(9, 3)
    equation = make_equation(alpha=alpha, source=True).requires_grad_(False)
    return equation.bind(make_graph("random"), x), x.mean(0).expand_as(x).contiguous()


def test_fewer_evaluations_on_stiff_problems() -> None:
    start = torch.tensor([[2.0, 0.0]], dtype=D)
    for field, begin, time in ((van_der_pol, start, 1.0), (*fast(1e3), 0.6)):
        exact = radau(field, begin, time, 1e-8)
        with torch.no_grad():
            explicit, implicit = (
                integrate(field, begin, time, scheme(1e-4, 1e-6)) for scheme in (DormandPrince, ESDIRK4)
            )
        assert implicit.stats.evaluations < explicit.stats.evaluations / 3
        for solution in (explicit, implicit):
            assert float((solution.state - exact).abs().max()) < 1e-4
        stats = implicit.stats
        assert 0 < stats.newton_iterations <= stats.inner_iterations <= stats.products < stats.evaluations


def test_huge_rates() -> None:
    """Steps ten thousand times longer than those of an explicit scheme."""
    flow, x = fast(1e5)
    exact = radau(flow, x, 1.0, 1e-8)
    for solver in (BDF2(0.1), ESDIRK4(1e-4, 1e-5)):
        with torch.no_grad():
            assert float((integrate(flow, x, 1.0, solver).state - exact).abs().max()) < 1e-3


def tiny(linear: bool) -> Model:
    equation = Diffusion(
        make_diffusivity("dot/sqrt", channels=2),
        linear=linear,
        alpha=Coefficient(0.7),
        terms=[Source(0.3, detach_source=False)],
    ).to(D)
    return Model(equation, TINY)


@pytest.mark.parametrize("name", SCHEMES)
def test_gradcheck(name: str) -> None:
    """State, time and all parameters by finite differences; also of two members with their own."""
    adaptive = name == "esdirk"
    solver = ESDIRK4(1e-8, 1e-9) if adaptive else SCHEMES[name]
    for linear, members in ((True, ()), (False, (2,)))[int(adaptive) :]:
        model = tiny(linear)
        names = [n for n, _ in model.named_parameters()]

        def run(x: Tensor, time: Tensor, *parameters: Tensor, model=model, names=names) -> Tensor:
            return functional_call(model, dict(zip(names, parameters, strict=True)), (x, time, solver))

        own = [p.detach().expand(*members, *p.shape) for p in model.parameters()]
        if members:
            own = [p + 0.1 * normal(*p.shape, seed=k) for k, p in enumerate(own)]
        time = torch.full(members, 0.05 if adaptive else 0.38, dtype=D)  # not a whole number of steps
        inputs = [v.clone().requires_grad_() for v in (normal(*members, 3, 2), time, *own)]
        # an adaptive scheme changes its steps with its input: the jumps are as large as its tolerance
        eps, atol = (1e-3, 1e-4) if adaptive else (1e-6, 1e-5)
        assert gradcheck(run, inputs, eps=eps, atol=atol, fast_mode=True)


@pytest.mark.parametrize("name", SCHEMES)
def test_modes_agree(name: str) -> None:
    """Every parameter has its gradient in every mode; the adjoint's up to the error of the scheme."""
    model = Model(make_equation(), make_graph("random"))
    leaves = [normal(9, 3).requires_grad_(), torch.tensor(0.9, dtype=D, requires_grad=True)]
    found = []
    for mode in ("backprop", "checkpoint", "adjoint"):
        state = model(*leaves, SCHEMES[name], mode)
        found.append(torch.autograd.grad(state.sin().sum(), [*leaves, *model.parameters()]))
    for plain, again, adjoint in zip(*found, strict=True):
        assert float(plain.abs().max()) > 1e-12
        torch.testing.assert_close(again, plain, rtol=1e-11, atol=1e-13)
        assert float((adjoint - plain).norm()) <= 3e-2 * (1 + float(plain.norm()))


def test_gradient_of_what_a_function_holds() -> None:
    """A plain function does not name its parameters: none is lost."""
    rate = torch.tensor(3.0, dtype=D, requires_grad=True)
    x = normal(4, 2).requires_grad_()
    for solver in (Trapezoid(0.01, **SHARP), BDF2(0.01, **SHARP), ESDIRK4(1e-8, 1e-9)):
        state = integrate(lambda t, y: -rate * y, x, 1.0, solver).state
        by_rate, by_x = torch.autograd.grad(state.sum(), [rate, x])
        torch.testing.assert_close(by_rate, -x.sum() * torch.exp(-rate), rtol=1e-3, atol=0)
        torch.testing.assert_close(by_x, torch.exp(-rate).expand_as(x), rtol=1e-3, atol=0)


def test_memory_does_not_grow_with_the_iterations() -> None:
    model, x = Model(make_equation(), make_graph("random")), normal(9, 3).requires_grad_()
    loose, sharp = (BDF2(0.5, rtol=tolerance, atol=tolerance) for tolerance in (1e-2, 1e-12))
    stats = [integrate(model.equation.bind(model.graph, x), x, 2.0, s).stats for s in (loose, sharp)]
    assert stats[1].products > 2 * stats[0].products
    kept = [saved_bytes(model, x, 2.0, solver, "backprop") for solver in (loose, sharp)]
    assert kept[0] == kept[1]
    assert saved_bytes(model, x, 8.0, sharp, "checkpoint") < 2.5 * kept[1]


def test_the_adjoint_solves_its_stages_as_the_others_do() -> None:
    """Inside the forward pass of a Function, torch turns forward mode off."""
    x = normal(9, 3)
    flow = make_equation().bind(make_graph("random"), x)
    stats = [
        integrate(flow, x, 0.5, BDF2(0.5, **SHARP), gradient=mode).stats for mode in ("backprop", "adjoint")
    ]
    assert stats[0].products == stats[1].products > 0


@pytest.mark.parametrize("name", ["bdf2", "esdirk"])
def test_members_equal_each_alone(name: str) -> None:
    """From mild to stiff: states to 1e-12, gradients to 1e-9."""
    graph, solver = make_graph("random"), SCHEMES[name]
    models = [
        Model(make_equation(seed=s, alpha=Coefficient(rate)), graph) for s, rate in enumerate((0.5, 20, 4))
    ]
    stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
    x, times = normal(3, 9, 3).requires_grad_(), torch.tensor([0.2, 0.5, 0.3], dtype=D)
    together = functional_call(models[0], stacked, (x, times, solver))
    grads = torch.autograd.grad(together.sin().sum(), [x, *stacked.values()])
    for k, model in enumerate(models):
        own = x[k].detach().requires_grad_()
        alone = model(own, times[k], solver)
        torch.testing.assert_close(together[k], alone, rtol=1e-12, atol=1e-12)
        for a, b in zip(
            grads, torch.autograd.grad(alone.sin().sum(), [own, *model.parameters()]), strict=True
        ):
            torch.testing.assert_close(a[k], b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize(
    ("solver", "error"),
    [
        (BDF2(0.25), NotConverged),
        (Trapezoid(0.25), NotConverged),
        (ESDIRK4(max_evaluations=400), SolverError),
    ],
)
def test_a_member_that_fails_fails_alone(solver: Any, error: type[SolverError], learn: bool) -> None:
    """ẏ = 9(1 + y²) ends at t = π/18: a step beyond it has no solution."""
    power = torch.tensor([0.0, 9.0, 0.0], dtype=D)[:, None, None]
    x = normal(3, 4, 2) * torch.tensor([1.0, 0.1, 1.0])[:, None, None]
    found = []
    for keep in ([0, 1, 2], [0, 2]):
        own, rate = x[keep].requires_grad_(learn), power[keep]
        solution = integrate(lambda t, y: -y + rate * (1 + y**2), own, 1.0, solver, check=False)  # noqa: B023
        grads = ()
        if learn:
            state = torch.where(solution.failed[:, None, None], 0.0, solution.state)
            grads = torch.autograd.grad(state.square().sum(), own)
        found.append((solution, grads))
    (together, grads), (others, own_grads) = found
    assert together.failed.tolist() == [False, True, False] and not bool(others.failed.any())
    assert torch.equal(together.state[[0, 2]], others.state)
    assert bool(torch.isnan(together.state[1]).all())
    for both, alone in zip(grads, own_grads, strict=True):
        torch.testing.assert_close(both[[0, 2]], alone, rtol=1e-12, atol=1e-14)
    with pytest.raises(error) as strict:
        integrate(lambda t, y: -y + power * (1 + y**2), x, 1.0, solver)
    assert strict.value.members is not None and strict.value.members.tolist() == [False, True, False]


def test_single_precision() -> None:
    wide, x = fast(1e3)
    exact = radau(wide, x, 0.5, 1e-8)
    flow = wide.equation.float().bind(wide.graph, wide.x0.float())
    for solver in (ESDIRK4(1e-4, 1e-5), BDF2(0.05), Trapezoid(0.05)):
        own = x.float().requires_grad_()
        state = integrate(flow, own, 0.5, solver).state
        assert state.dtype == torch.float32
        assert float((state.detach() - exact).abs().max()) < 1e-3
        assert bool(torch.isfinite(torch.autograd.grad(state.sum(), own)[0]).all())
    with pytest.raises(SolverError):  # more than float32 can hold
        integrate(flow, x.float(), 0.5, ESDIRK4(1e-9, 1e-9, max_evaluations=300))


def test_newton_corrects_where_adams_moulton_is_stable() -> None:
    flow, x = two_nodes()  # the eigenvalue −2
    with pytest.raises(NotConverged, match="corrector newton"):
        integrate(flow, x, 40.0, AdamsMoulton4(1.45))
    for memory in (3, 4):
        solver = AdamsMoulton4(1.0, memory=memory, corrector="newton", **SHARP)
        for share, tame in ((0.9, True), (1.2, False)):
            size = share * solver.limit
            steps = AdamsMoulton4(size, memory=memory, corrector="newton", **SHARP)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                state = integrate(flow, x, 60 * size, steps).state
            assert (float(state.abs().max()) < 1) == tame
    with pytest.raises(ArgumentError, match=r"memory 3 or 4.*got 5"):
        AdamsMoulton4(0.1, memory=5)


def test_the_diagonal_of_a_field_is_a_preconditioner() -> None:
    """Channels with rates from 1 to 10⁴: scaled by the diagonal, they need fewer products."""
    x = normal(9, 3)
    rates = Coefficient(1.0, channels=3).to(D)
    with torch.no_grad():
        rates.raw.copy_(torch.tensor([1.0, 1e2, 1e4], dtype=D))
    equation = Diffusion(make_diffusivity("dot/sqrt"), linear=True, rates=rates).to(D).requires_grad_(False)
    flow = equation.bind(make_graph("random"), x)
    with torch.no_grad():
        scaled, plain = (
            integrate(f, x, 1.0, BDF2(0.1, rtol=1e-5, atol=1e-6)) for f in (flow, lambda t, y: flow(t, y))
        )
    torch.testing.assert_close(scaled.state, plain.state, rtol=1e-4, atol=1e-5)
    assert scaled.stats.products < 0.8 * plain.stats.products


def test_gmres_solves_members_on_their_own() -> None:
    a = torch.eye(60, dtype=D) + 0.6 * normal(3, 60, 60) / 60**0.5
    a[1] = a[1] + torch.diag(torch.linspace(0, 50, 60, dtype=D))  # more than one cycle
    b = normal(3, 60, 1)
    b[2, 0] = torch.nan
    goal = torch.full((3, 1, 1), 1e-10, dtype=D)
    found = gmres(lambda v: a @ v, b, goal, 200)
    assert not bool(found.failed.any()) and not bool(found.x[2].any())
    torch.testing.assert_close(found.x[:2], torch.linalg.solve(a[:2], b[:2]), rtol=1e-8, atol=1e-8)
    assert float(found.products[1]) > 20 >= float(found.products[2]) == 0
    short = gmres(lambda v: a @ v, b, goal, 25)
    assert short.failed.flatten().tolist() == [found.products[0] > 25, True, False]


def test_a_layer_takes_them_by_name() -> None:
    x, graph = normal(9, 4, dtype=torch.float32), make_graph("random")
    for solver, options in (("esdirk", {"rtol": 1e-3}), ("bdf2", {"step_size": 0.5}), ("trapezoid", {})):
        layer = GraphDiffusion(
            4, 2.0, variant="nonlinear", solver=solver, heads=2, attention_dim=4, **options
        )
        layer(x, graph).square().sum().backward()
        assert all(bool(p.grad.isfinite().all()) and bool(p.grad.any()) for p in layer.parameters())
    with pytest.raises(ArgumentError, match=r"inside torch\.func"):
        torch.func.jvp(lambda v: layer(v, graph), (x,), (x,))


@pytest.mark.parametrize("again", [False, True])
def test_only_schemes_that_evaluate_again_bind_the_equation_anew(again: bool, monkeypatch: Any) -> None:
    """The others take the equation as it is: a forward pass with parameters in their place costs more."""
    bound = []
    monkeypatch.setattr(Flow, "rebound", lambda self, tensors: (bound.append(tensors), self)[1])
    schemes = [Trapezoid(), BDF2(), ESDIRK4(), AdamsMoulton4(0.5, corrector="newton")]
    if not again:
        schemes = [Exponential(), ExponentialMidpoint(), SemiImplicitEuler(), AdamsMoulton4(0.5), RK4()]
    x = normal(3, 2)
    for scheme in schemes:
        bound.clear()
        integrate(tiny(linear=True).equation.bind(TINY, x), x, 1.0, scheme)
        assert len(bound) == again
