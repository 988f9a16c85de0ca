"""Schemes: limits of stability against known ones, errors, trainings, the verdict, and the picture."""

from __future__ import annotations

import builtins
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphdiffusion.cli import main
from graphdiffusion.diffusivity import ConstantLaplacian
from graphdiffusion.equation import Diffusion
from graphdiffusion.errors import ArgumentError, GraphDiffusionError
from graphdiffusion.experiments import scheme_list, scheme_stability, schemes
from graphdiffusion.experiments.results import read_results
from graphdiffusion.experiments.scheme_errors import ErrorSettings
from graphdiffusion.experiments.scheme_list import SCHEMES, make_solver
from graphdiffusion.experiments.scheme_verdict import figures, verdict
from graphdiffusion.experiments.torchdiffeq_adams import TorchdiffeqAdams
from graphdiffusion.graph import Graph
from graphdiffusion.report import plot_schemes
from graphdiffusion.report.schemes import LINES
from graphdiffusion.solvers import integrate

QUICK = replace(
    schemes.SMALL,
    models=("laplacian",),
    schemes=("ab4", "torchdiffeq-implicit", "dopri5"),
    explicit=(2,),
    implicit=(2,),
    epochs=3,
    hidden=4,
    augment=2,
    errors=ErrorSettings(
        hidden=8, heads=1, attention_dim=4, time=4.0, epochs=1, parts=(8,), scales=(1e3,), repeats=1,
        schemes=("rk4", "torchdiffeq-explicit", "dopri5", "closed", "exponential-midpoint"),
    ),
    limits=("rk4", "dopri5"),
    stability_steps=8,
    digits=0.5,
)  # fmt: skip


def test_command_and_resuming(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(schemes, "SMALL", QUICK)
    command = ["reproduce", "schemes", "--small", "--device", "cpu", "--out", str(tmp_path)]
    assert main([*command, "--part", "stability"]) == 0
    assert "have not been measured" in capsys.readouterr().out
    picture = tmp_path / "schemes-small" / "picture.png"
    part = int.from_bytes(picture.read_bytes()[20:24])  # height of a PNG, in pixels
    assert main(command) == 0
    # parts without points are left out; 150 pixels an inch
    assert int.from_bytes(picture.read_bytes()[20:24]) == part + 2 * 4.5 * 150
    out = capsys.readouterr().out
    assert "Adams-Moulton stable for all steps" in out.replace("\n", " ")
    path = tmp_path / "schemes-small" / "results.json"
    found = read_results(path)
    assert [p["part"] for p in found["points"]] == ["stability"] * 2 + ["errors"] * 4 + ["accuracy"] * 3
    for point in found["points"]:
        if point["part"] == "errors":
            rows = {row["scheme"]: row for row in point["rows"]}
            assert rows["rk4"]["evaluations"] == 32 and rows["rk4"]["error"] < 1e-3
            assert ("closed" in rows) == (point["equation"] == "linear")
            assert rows["dopri5"]["error"] < 1e-3
        if point["part"] == "accuracy":
            assert len(point["runs"]) == 2 and point["epoch_seconds"] > 0
            assert all(run["epochs"] == 3 and 0 < run["test"] < 100 for run in point["runs"])
    # 7 steps: three of RK4, then one evaluation each; the error of the trained equation shows it
    ab4 = next(p for p in found["points"] if p.get("scheme") == "ab4" and p["part"] == "accuracy")
    assert (ab4["evaluations"], ab4["steps"]) == (16, 7) and ab4["error"] > 0.3
    assert picture.stat().st_size > 10_000
    # nothing is measured again
    monkeypatch.setattr(schemes, "Trainings", None)
    monkeypatch.setattr(schemes, "error_point", None)
    assert main(command) == 0
    assert read_results(path)["points"] == found["points"]
    assert plot_schemes(path, tmp_path / "again.png").exists()
    capsys.readouterr()
    assert main([*command, "--part", "speed"]) == 2
    assert "part must be one of accuracy, errors, stability" in capsys.readouterr().err


def test_a_training_that_fails_is_a_point():
    """The fixed-point corrector does not converge at a step beyond its limit."""
    data = scheme_data()
    own = replace(QUICK, time=40.0, runs=1)
    point = {"model": "laplacian", "scheme": "am3", "amount": 4}
    found = schemes.training_point(point, data.of, own, lambda share: None)
    assert [run["reason"] for run in found["runs"]] == ["NotConverged"]
    assert found["runs"][0]["test"] is None and found["epoch_seconds"] is None
    assert figures([{**point, "part": "accuracy", **found}])[0]["test"] is None
    stopped = schemes.training_point(
        {"model": "laplacian", "scheme": "rk4", "amount": 2}, data.of, replace(own, limit=0.0, time=2.0),
        lambda share: None,
    )  # fmt: skip
    assert [(run["reason"], run["epochs"]) for run in stopped["runs"]] == [("TimeLimit", 1)]


def scheme_data():
    from graphdiffusion.data import load_data
    from graphdiffusion.training.problem import Problems

    return Problems(load_data("cora-embedded"), torch.device("cpu"))


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("ab4", 0.15), ("am3-newton", 1.5), ("am3", 4 / 3), ("am4", 45 / 49), ("am4-newton", 45 / 49),
        ("rk4", 1.3926), ("dopri5", 1.653), ("trapezoid", None), ("bdf2", None), ("esdirk", None),
        ("semi-implicit", None), ("exponential-midpoint", None),
    ],
)  # fmt: skip
def test_theory(name, limit):
    """Known intervals on the real axis, 0.3, 3, 90/49, 2.785 and 3.307, over the 2 of A − I."""
    for spectrum in scheme_stability.SPECTRA:
        found = scheme_stability.theory_limit(name, spectrum)
        assert found == (None if limit is None else pytest.approx(limit, rel=1e-3))


def test_weights_of_adams():
    from graphdiffusion.solvers.adams import AdamsBashforth4, AdamsMoulton4

    explicit, implicit = (scheme_stability.adams_weights(4, implicit=kind) for kind in (False, True))
    assert explicit == pytest.approx(AdamsBashforth4.weights)
    assert implicit == pytest.approx(AdamsMoulton4(1.0).weights)
    five = scheme_stability.adams_weights(5, implicit=True)
    assert five == pytest.approx(AdamsMoulton4(1.0, memory=4).weights)


@pytest.mark.parametrize(("name", "limit", "steps"), [("rk4", 1.3926, 20), ("ab4", 0.15, 10)])
def test_measured_limit(name, limit, steps):
    found = scheme_stability.measured_limit(name, "disc", steps, 0.03)
    assert found["limit"] == pytest.approx(limit, rel=0.06) and found["beyond"] == "grows"


def test_no_limit_and_no_convergence():
    assert scheme_stability.measured_limit("bdf2", "interval", 8, 0.5)["limit"] is None
    assert scheme_stability.stays_bounded("am3", "disc", 2.0, 8) == (False, "NotConverged")
    assert not scheme_stability.stays_bounded("am4-newton", "disc", 1.2, 40)[0]
    assert scheme_stability.stays_bounded("am3-newton", "disc", 1.2, 16)[0]


def flow_on_cycle():
    return scheme_stability.cycle("interval")


def test_cycles_have_the_spectra():
    for spectrum, values in (("interval", np.cos), ("disc", lambda a: np.exp(1j * a))):
        flow, x = scheme_stability.cycle(spectrum)
        dense = flow.graph.dense(flow.context.attention).numpy()
        found = np.sort_complex(np.linalg.eigvals(dense))
        wanted = values(2 * np.pi * np.arange(24) / 24).astype(complex)
        assert all(np.abs(found - value).min() < 1e-7 for value in wanted)
        assert abs(float(x.mean())) < 1e-12


def test_torchdiffeq_behind_the_face():
    """Below its limit it integrates, with gradients and outputs; four corrections are too few for τ = 2."""
    flow, x = flow_on_cycle()
    x = x.clone().requires_grad_()
    solver = TorchdiffeqAdams("explicit_adams", 0.001)
    exact = integrate(flow, x, 0.02).state
    solution = integrate(flow, x, 0.02, solver, at=[0.01])
    assert solution.stats.accepted == 20
    torch.testing.assert_close(solution.state, exact, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(solution.states[0], integrate(flow, x, 0.01).state, rtol=1e-8, atol=1e-10)
    (wanted,) = torch.autograd.grad(exact.square().sum(), x)
    for gradient in ("backprop", "checkpoint"):
        state = integrate(flow, x, 0.02, solver, gradient=gradient).state
        (found,) = torch.autograd.grad(state.square().sum(), x)
        torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-9)
    implicit = make_solver("torchdiffeq-implicit", 2.0, 1.0)
    assert isinstance(implicit, TorchdiffeqAdams)
    integrate(flow, x, 12.0, implicit)
    assert implicit.unconverged == 4  # of six steps the first two are Runge-Kutta's
    with pytest.raises(ArgumentError, match="explicit_adams or implicit_adams"):
        TorchdiffeqAdams("rk4", 1.0)


def test_every_scheme_has_a_line_in_the_picture():
    """None looks like another one."""
    assert set(LINES) == set(SCHEMES) and len(set(LINES.values())) == len(LINES)


def test_without_torchdiffeq(monkeypatch):
    monkeypatch.setattr(scheme_list, "find_spec", lambda name: None)
    assert scheme_list.missing(list(SCHEMES)) == ["torchdiffeq-explicit", "torchdiffeq-implicit"]
    assert not any("torchdiffeq" in str(point) for point in schemes.wanted(schemes.FULL))
    load = builtins.__import__

    def refuse(name, *rest, **more):
        if name == "torchdiffeq":
            raise ImportError(name)
        return load(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    flow, x = flow_on_cycle()
    with pytest.raises(GraphDiffusionError, match="pip install torchdiffeq"):
        integrate(flow, x, 1.0, TorchdiffeqAdams("explicit_adams", 0.5))


def test_full_setting_has_the_steps_of_the_side_branch():
    points = schemes.wanted(schemes.FULL)
    own = {
        (p["scheme"], p["amount"]) for p in points if p["part"] == "accuracy" and p["model"] == "nonlinear"
    }
    assert {("ab4", tau) for tau in (2, 1, 0.5, 0.25, 0.1, 0.005)} <= own
    assert {("am3", tau) for tau in (5, 2, 1, 0.5, 0.25, 0.1)} <= own
    assert not any(name == "closed" for name, _ in own)
    for point in points:
        if point["part"] == "accuracy":
            config = schemes.training_config(point, schemes.FULL)
            assert (config.optimiser, config.rate, config.decay) == ("rmsprop", 0.0047, 5e-4)
            assert (config.gradient == "checkpoint") == (point["amount"] == 0.005)


def test_verdict():
    def point(scheme, amount, test, seconds, reason=""):
        runs = [{"test": test, "epochs": 3, "reason": reason}]
        return {
            "part": "accuracy", "model": "linear", "scheme": scheme, "amount": amount, "runs": runs,
            "train_seconds": seconds,
        }  # fmt: skip

    paper = [
        point("ab4", 1, 30.0, 1.0), point("ab4", 0.005, 79.0, 90.0), point("am3", 5, 79.0, 0.5),
        point("am3", 1, 80.0, 1.0), point("dopri5", 1000, 80.0, 2.0),
    ]  # fmt: skip
    told = verdict(paper, 1000)
    assert told.count("holds (1 of 1 cases)") == 3
    ours = [
        point("ab4", 0.1, 79.0, 9.0), *paper[1:2], point("am3", 5, None, None, "NotConverged"),
        point("am3", 1, 80.0, 3.0), paper[-1],
    ]  # fmt: skip
    told = verdict(ours, 1000)
    assert told.count("does not hold (0 of 1 cases)") == 3
    rows = {(f["scheme"], f["amount"]): f["stable"] for f in figures(ours)}
    assert rows[("am3", 5)] is False and rows[("ab4", 0.1)] is True
    clock = figures([point("rk4", 1, 40.0, 3.0, "TimeLimit"), paper[-1]])
    assert clock[0]["stable"] is None and clock[0]["reasons"] == ["TimeLimit"]
    told = verdict([paper[0], paper[-1]], 1000)  # whether the tiny step is stable is not known
    assert "open (0 of 1 cases, open in 1: Adams-Bashforth, order 4 (GRAND-l))" in told


def test_solvers_have_their_tolerances():
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    x = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    flow = Diffusion(ConstantLaplacian(over="rows"), linear=True, alpha=1.0).double().bind(graph, x)
    exact = integrate(flow, x, 0.5).state
    for name, own in SCHEMES.items():
        amount = {"adaptive": 100.0, "closed": None}.get(own.kind, 0.05)
        if name == "torchdiffeq-explicit":
            amount = 0.001
        found = integrate(flow, x, 0.5, make_solver(name, amount, 1.0), check=False).state
        bound = 0.03 if name == "semi-implicit" else 2e-3
        assert float((found - exact).abs().max()) < bound, name
