"""Every refusal: typed, with the offending value, and with the way out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import D, make_equation, make_graph, normal
from torch import Tensor

from graphdiffusion import errors
from graphdiffusion.equation import Coefficient, Diffusion, Flow, Source
from graphdiffusion.errors import (
    ArgumentError,
    DtypeError,
    NonFiniteError,
    NotConverged,
    ShapeError,
    SolverError,
    StepSizeUnderflow,
    TooManyEvaluations,
)
from graphdiffusion.graph import Graph
from graphdiffusion.solvers import (
    RK4,
    AdamsMoulton4,
    Adjoint,
    BogackiShampine,
    DormandPrince,
    Euler,
    Exponential,
    HeunEuler,
    SemiImplicitEuler,
    integrate,
)
from graphdiffusion.solvers.linear_solve import solve
from graphdiffusion.solvers.solution import Stats


@pytest.fixture
def flow(small: Graph) -> Flow:
    return make_equation(linear=True).bind(small, normal(small.num_nodes, 3))


def test_every_error_has_one_base() -> None:
    typed = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    raised = [e for e in typed if not issubclass(e, Warning)]
    assert len(raised) > 8 and all(issubclass(e, errors.GraphDiffusionError) for e in raised)


@pytest.mark.parametrize("time", [-1.5, float("nan"), float("inf"), torch.tensor([1.0, -2.0])])
def test_time_must_not_be_negative(flow: Flow, time: Any) -> None:
    with pytest.raises(ArgumentError, match=r"T must be finite and not negative.*(-1\.5|nan|inf|-2)"):
        integrate(flow, flow.x0, time)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_input_must_be_finite(flow: Flow, value: float) -> None:
    x = flow.x0.clone()
    x[4, 1] = value
    with pytest.raises(NonFiniteError, match=rf"x0 holds {value} at \[4, 1\]"):
        integrate(flow, x, 1.0)


def test_input_shape_and_type(flow: Flow) -> None:
    x, n = flow.x0, flow.graph.num_nodes
    cases = [
        (x.numpy(), 1.0, ShapeError, rf"\({n}, 3\)"),
        (x[:, 0], 1.0, ShapeError, rf"\[{n}\]"),
        (x[1:], 1.0, ShapeError, rf"\({n - 1}, 3\)"),
        (x.half(), 1.0, DtypeError, "float16"),
        (x.long(), 1.0, DtypeError, "int64"),
        (x.expand(2, n, 3), torch.ones(3), ShapeError, r"\(2,\).*\(3,\)"),
    ]
    for state, time, error, says in cases:
        with pytest.raises(error, match=says):
            integrate(flow, state, time, RK4(0.5))  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [[0.5, 0.4], [-0.1], [0.5, 1.5]])
def test_output_times_are_in_order(flow: Flow, at: list[float]) -> None:
    for solver in (Exponential(), RK4(0.5)):
        with pytest.raises(ArgumentError, match=r"must not decrease, and lie in \[0, T\].*1\.0"):
            integrate(flow, flow.x0, 1.0, solver, at=at)


@pytest.mark.parametrize("at", [0.5, []])
def test_output_times_are_a_sequence(flow: Flow, at: Any) -> None:
    with pytest.raises(ShapeError, match="sequence"):
        integrate(flow, flow.x0, 1.0, at=at)


def test_solver_and_gradient_must_be_known(flow: Flow) -> None:
    with pytest.raises(ArgumentError, match="'rk4'"):
        integrate(flow, flow.x0, 1.0, "rk4")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="'magic'"):
        integrate(flow, flow.x0, 1.0, gradient="magic")  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", [HeunEuler, BogackiShampine, DormandPrince])
@pytest.mark.parametrize("members", [False, True])
def test_step_size_underflow(scheme: Any, members: bool) -> None:
    """Noise in the right-hand side, as from dropout inside it (appendix B), drives the step to zero."""
    generator = torch.Generator().manual_seed(0)

    def noisy(t: Tensor, x: Tensor) -> Tensor:
        return torch.randn(x.shape, generator=generator, dtype=x.dtype)

    x = normal(*((2, 4, 2) if members else (4, 2)), dtype=torch.float32)
    with pytest.raises(StepSizeUnderflow, match=r"fell to \d.*at t = .*dropout"):
        integrate(noisy, x, 1.0, scheme(1e-9, 1e-12))


@pytest.mark.parametrize("members", [False, True])
def test_too_many_evaluations(members: bool) -> None:
    x = normal(2, 4, 2) if members else normal(4, 2)
    with pytest.raises(TooManyEvaluations, match="max_evaluations=50"):
        integrate(lambda t, y: -1e4 * y, x, 10.0, DormandPrince(max_evaluations=50))


@pytest.mark.parametrize("scheme", [HeunEuler, DormandPrince])
def test_evaluations_are_counted_for_each_member(scheme: Any) -> None:
    """Members that are slow in turns: each has the limit that it has alone."""

    def field(early: Tensor, late: Tensor) -> Any:
        return lambda t, y: -(early * torch.exp(-4 * t**2) + late * torch.exp(-4 * (t - 2) ** 2)) * y

    rates = torch.tensor([[100.0, 1.0], [1.0, 400.0]], dtype=D)[..., None, None]
    x = normal(2, 4, 2)
    alone = [integrate(field(*rates[:, k]), x[k], 2.0, scheme()).stats for k in (0, 1)]
    together = integrate(field(*rates), x, 2.0, scheme()).stats
    first, second = (stats.evaluations for stats in alone)
    assert first < second <= together.evaluations
    integrate(field(*rates), x, 2.0, scheme(max_evaluations=second))
    with pytest.raises(TooManyEvaluations) as found:
        integrate(field(*rates), x, 2.0, scheme(max_evaluations=second - 1))
    assert found.value.members.tolist() == [False, True]


def test_failures_name_their_members() -> None:
    which = torch.tensor([0.0, 1.0, 0.0])[:, None, None]
    generator = torch.Generator().manual_seed(0)

    def noisy(t: Tensor, x: Tensor) -> Tensor:
        return torch.where(which == 1, torch.randn(x.shape, generator=generator), -x)

    rtol = torch.where(which == 1, 1e-9, 1e-3)
    with pytest.raises(StepSizeUnderflow) as noise:
        integrate(noisy, normal(3, 4, 2, dtype=torch.float32), 1.0, DormandPrince(rtol, rtol / 1000))
    with pytest.raises(NotConverged) as corrector:
        integrate(lambda t, y: -y - 5 * which * y, normal(3, 4, 2), 6.0, AdamsMoulton4(1.0))
    for error in (noise.value, corrector.value):
        assert error.members.tolist() == [False, True, False]
    with pytest.raises(NotConverged) as single:  # a single model has no members to name
        integrate(lambda t, y: -6 * y, normal(4, 2), 6.0, AdamsMoulton4(1.0))
    assert single.value.members.shape == ()


def test_state_that_turns_nan() -> None:
    def breaks(t: Tensor, x: Tensor) -> Tensor:
        return torch.where(t > 0.5, torch.nan, -x)

    with pytest.raises(NonFiniteError, match=r"NaN or infinite at t = 0\.5"):
        integrate(breaks, normal(4, 2), 1.0, DormandPrince())
    with pytest.raises(NonFiniteError, match="holds NaN or infinity after 40 evaluations in 10 steps"):
        integrate(breaks, normal(4, 2), 1.0, RK4(0.1))
    quiet = integrate(breaks, normal(4, 2), 1.0, RK4(0.1), check=False).state
    assert bool(torch.isnan(quiet).all())


@pytest.mark.parametrize("solver", [RK4(0.1), DormandPrince()])
@pytest.mark.parametrize("learn", [False, True])
def test_nan_stays_in_its_member(solver: Any, learn: bool) -> None:
    which = torch.tensor([0.0, 1.0, 0.0], dtype=D)[:, None, None]

    def breaks(t: Tensor, x: Tensor) -> Tensor:
        return torch.where((t > 0.5) & (which == 1), torch.nan, -x)

    x = normal(3, 4, 2).requires_grad_(learn)
    state = integrate(breaks, x, 1.0, solver, check=False).state
    assert bool(torch.isnan(state[1]).all())
    torch.testing.assert_close(state[0], x[0] * torch.exp(torch.tensor(-1.0)), rtol=1e-3, atol=1e-4)
    with pytest.raises(NonFiniteError, match=r"T = 1|t = 0\.5"):
        integrate(breaks, x, 1.0, solver)


@pytest.mark.parametrize("solver", [RK4(0.1), AdamsMoulton4(0.1), DormandPrince()])
def test_nan_from_the_start_is_found(solver: Any) -> None:
    with pytest.raises((NonFiniteError, NotConverged)):
        integrate(lambda t, y: y * torch.nan, normal(4, 2), 1.0, solver)


def test_corrector_that_does_not_converge() -> None:
    graph = make_graph("star")
    x = normal(graph.num_nodes, 3)
    flow = make_equation(linear=True, source=False, alpha=1.0).bind(graph, x)
    with pytest.raises(NotConverged, match=r"after 100 iterations at τ = 2 .*4/3"):
        integrate(flow, x, 20.0, AdamsMoulton4(2.0))
    integrate(flow, x, 20.0, AdamsMoulton4(1.0))


def test_linear_solve_that_does_not_converge(flow: Flow) -> None:
    assert flow.context.attention is not None
    with pytest.raises(NotConverged, match=r"τα = -5"):  # not diagonally dominant: no solution promised
        solve(
            flow.graph,
            flow.context.attention.detach(),
            torch.full((1, 1), -5.0, dtype=D),
            normal(flow.graph.num_nodes, 3),
            over="rows",
            tolerance=1e-14,
            max_iterations=2,
            stats=Stats(),
        )


def test_a_linear_solve_that_fails_is_that_of_its_member(flow: Flow) -> None:
    assert flow.context.attention is not None
    graph, b = flow.graph, normal(3, flow.graph.num_nodes, 3)
    values = flow.context.attention.detach().repeat(3, 1)
    # an eigenvalue μ of I − A, and τα = −1/μ: a singular system, beyond what is promised
    mu = float(torch.linalg.eigvals(torch.eye(len(b[0]), dtype=D) - graph.dense(values[0])).real.max())
    c = torch.tensor([0.3, -1 / mu, 0.8], dtype=D)[:, None, None]
    how: dict[str, Any] = {"over": "rows", "tolerance": 1e-12, "max_iterations": 50, "stats": Stats()}
    with pytest.raises(NotConverged) as found:
        solve(graph, values, c, b, **how)
    assert found.value.members.tolist() == [False, True, False]
    # one edge, and a source at its other end: half a step solves it, and then the method breaks down
    edge = int((graph.row != graph.col).nonzero()[0])
    values[1], b[1], c[1] = 0.0, 0.0, 1.0
    values[1, edge] = b[1, graph.col[edge]] = 1.0
    together, apart = (solve(graph, values[k], c[k], b[k], **how) for k in ([0, 1, 2], [0, 2]))
    assert torch.equal(together[[0, 2]], apart)
    assert together[1, graph.row[edge]].tolist() == [0.5] * 3


def test_structure_is_needed(flow: Flow, small: Graph) -> None:
    def bare(t: Tensor, x: Tensor) -> Tensor:
        return -x

    for call, says in (
        (lambda: integrate(bare, flow.x0, 1.0, Exponential()), "function"),
        (lambda: integrate(bare, flow.x0, 1.0, SemiImplicitEuler(0.5)), "function"),
        (
            lambda: integrate(bare, flow.x0, 1.0, RK4(0.5), gradient="adjoint"),
            "what f depends on.*function",
        ),
    ):
        with pytest.raises(ArgumentError, match=says):
            call()
    varying = Coefficient(0.5, terms=2, horizon=1.0)
    source = Diffusion(flow.equation.diffusivity, linear=True, terms=[Source(varying)]).to(D)
    for equation in (make_equation(linear=False), make_equation(linear=True, alpha=varying), source):
        with pytest.raises(ArgumentError, match="linear model only"):
            integrate(equation.bind(small, flow.x0), flow.x0, 1.0, Exponential())


def test_rate_of_the_exponential(small: Graph) -> None:
    x = normal(small.num_nodes, 3)
    for alpha, time, says in ((-0.5, 2.0, "got -1:"), (1.0, 2e6, "max_evaluations=10000")):
        flow = make_equation(linear=True, alpha=alpha).bind(small, x)
        with pytest.raises(SolverError, match=says):
            integrate(flow, x, time, Exponential())


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Euler(0.0), "got 0.0"),
        (lambda: RK4(-1.0), "got -1.0"),
        (lambda: RK4(float("nan")), "got nan"),
        (lambda: DormandPrince(rtol=-1e-3), "rtol.*-0.001"),
        (lambda: DormandPrince(rtol=0.0, atol=0.0), "0 and 0"),
        (lambda: DormandPrince(rtol=float("nan")), "rtol.*nan"),
        (lambda: AdamsMoulton4(0.5, max_iterations=0), "max_iterations=0"),
        (lambda: AdamsMoulton4(0.5, rtol=0.0, atol=0.0), "rtol=0.0"),
        (lambda: SemiImplicitEuler(0.5, tolerance=2.0), "got 2.0"),
        (lambda: Exponential(tolerance=0.0), "got 0.0"),
        (lambda: Exponential(terms=-1), "got -1"),
        (lambda: Adjoint(segment=0.0), "got 0.0"),
    ],
)
def test_solver_arguments(build: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        build()


def test_solvers_read_in_one_line() -> None:
    assert repr(RK4(0.5)) == "RK4(step_size=0.5)"
    assert repr(DormandPrince(1e-3, 1e-5)) == "DormandPrince(rtol=0.001, atol=1e-05)"
    assert repr(Exponential()) == "Exponential(tolerance=None)"
