"""What fits before the start: estimates against measurements, the gradient mode, parts, and the command."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_cli_basics import SMALL, write_graph
from torch_geometric.data import Data

from graphdiffusion.cli import main
from graphdiffusion.errors import NotEnoughMemory
from graphdiffusion.training import Config, Member, Population, load_problem
from graphdiffusion.training.memory import bytes_of, member_bytes
from graphdiffusion.training.plan import MODES, fitted, make_plan, parts_needed

SOLVERS = {
    "closed form": {},
    "rk4, linear": {"solver": "rk4", "step_size": 1.0},
    "rk4": {"variant": "nonlinear", "solver": "rk4", "step_size": 1.0},
    "dopri5": {"variant": "nonlinear", "solver": "dopri5"},
    "two-step": {"variant": "nonlinear", "solver": "exponential-two-step", "step_size": 1.0},
}
ROUNDED = {"precision": "bfloat16"}
NODES, EDGES = 1000, 10_000  # estimates and memory grow alike with both


def graph(nodes: int, edges: int, features: int = 64) -> Data:
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(nodes, (2, edges // 2), generator=generator)
    x = torch.randn(nodes, features, generator=generator)
    return Data(x=x, edge_index=torch.cat([half, half.flip(0)], 1), y=torch.arange(nodes) % 5)


def configured(options: dict) -> Config:
    given = {"split": "random", "development": 500, "per_class": 20, "device": "cpu", "hidden": 64}
    return Config(**{**given, "time": 6.0, "heads": 4, "attention_dim": 32, **options})


def allocated(population: Population) -> int:
    """Most bytes that torch holds at once in a training step, beyond those before it."""
    population._train(population.seeds)  # what is made once
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        population._train(population.seeds)
    events = profile.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SOLVERS)
def test_estimates_are_within_a_factor_of_two(name, mode):
    config = configured({**SOLVERS[name], "gradient": mode})
    problem = load_problem(config, graph(NODES, EDGES))
    measured = allocated(Population(problem, config, [Member(0, 0, 0)]))
    ratio = member_bytes(problem, config) / measured
    assert 0.5 < ratio < 2, ratio


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("name", ["closed form", "two-step"])
def test_estimates_of_rounded_powers(name, mode):
    sizes = []
    for options in ({}, ROUNDED):
        config = configured({**SOLVERS[name], **options, "gradient": mode, "time": 18.0})
        problem = load_problem(config, graph(NODES, EDGES))
        measured = allocated(Population(problem, config, [Member(0, 0, 0)]))
        sizes.append((measured, member_bytes(problem, config)))
        assert 0.5 < sizes[-1][1] / measured < 2, sizes
    (full, estimate), (less, lower) = sizes
    assert less < full and lower < estimate


@pytest.mark.skipif(torch.cuda.is_available(), reason="estimates are then those of a GPU's kernels")
@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("diffusivity", ["scaled-dot", "bahdanau"])
def test_estimates_of_many_edges(diffusivity, mode):
    own = {"hidden": 16, "development": 300, "gradient": mode, "diffusivity": diffusivity}
    config = configured({"variant": "nonlinear", "solver": "rk4", **own})
    problem = load_problem(config, graph(500, 40_000, 16))
    measured = allocated(Population(problem, config, [Member(0, 0, 0)]))
    assert 0.5 < member_bytes(problem, config) / measured < 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="estimates are then those of a GPU's kernels")
@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("diffusivity", ["scaled-dot", "bahdanau"])
def test_estimates_of_many_edges_and_a_constant_matrix(diffusivity, mode):
    """The attention of the linear model is made once: with many edges it takes more than the states."""
    own = {"hidden": 16, "development": 300, "gradient": mode, "diffusivity": diffusivity}
    config = configured(own)
    problem = load_problem(config, graph(500, 80_000, 16))
    measured = allocated(Population(problem, config, [Member(0, 0, 0)]))
    assert 0.5 < member_bytes(problem, config) / measured < 2


def test_estimates_of_batches():
    config = configured({"batches": 4, "batch_cut": "random"})
    problem = load_problem(config, graph(NODES, EDGES))
    measured = allocated(Population(problem, config, [Member(0, 0, 0)]))
    exact = member_bytes(problem, config.replace(batches=0))
    # the whole graph is evaluated without gradients, which may be the larger part
    assert bytes_of(problem, config, 0.25, 0.25) < 0.3 * exact < exact
    assert measured < member_bytes(problem, config) < exact


def free(monkeypatch, size: float) -> None:
    for module in ("plan", "memory"):
        monkeypatch.setattr(f"graphdiffusion.training.{module}.free_bytes", lambda device: int(size))


@pytest.fixture
def problem():
    return load_problem(configured({}), graph(NODES, EDGES))


NONLINEAR = {"variant": "nonlinear", "solver": "rk4", "step_size": 1.0}


def test_the_mode_is_chosen_to_fit(problem, monkeypatch):
    config = configured(NONLINEAR)
    sizes = make_plan(problem, config).modes
    assert list(sizes) == list(MODES) and sizes["backprop"] > sizes["checkpoint"] > sizes["adjoint"]
    assert fitted(problem, config, ()) == (config, [])
    for mode in ("checkpoint", "adjoint"):
        free(monkeypatch, sizes[mode] + 1)
        found, said = fitted(problem, config, ())
        assert found == config.replace(gradient=mode) and len(said) == 1
        assert f"gradient {mode} is taken" in said[0]
        assert ("the same numbers" in said[0]) == (mode == "checkpoint")
        # what the user has chosen stays
        found, said = fitted(problem, config, {"gradient"})
        assert found == config and f"--gradient {mode} takes about" in said[0]
    free(monkeypatch, 1e12)
    assert fitted(problem, found, ()) == (found, [])  # that of the configuration comes first


def test_nothing_fits(problem, monkeypatch):
    config = configured(NONLINEAR)
    least = min(make_plan(problem, config).modes.values())
    free(monkeypatch, least / 3)
    parts = make_plan(problem, config).parts
    assert parts is not None
    how = "--gradient adjoint, on as many devices, or .* --batches"
    with pytest.raises(NotEnoughMemory, match=f"--parts {parts} {how}"):
        fitted(problem, config, ())


def test_rounding_is_named_and_never_chosen(problem, monkeypatch):
    config = configured({"time": 40.0})
    plan = make_plan(problem, config)
    half = min(plan.rounded.values())
    assert half < min(plan.modes.values()) and plan.rounded.keys() == plan.modes.keys()
    free(monkeypatch, half + 1)
    with pytest.raises(NotEnoughMemory, match="round: --precision bfloat16 --gradient checkpoint"):
        fitted(problem, config, ())
    found, _ = fitted(problem, config.replace(**ROUNDED), ())
    assert found == config.replace(**ROUNDED, gradient="checkpoint")
    free(monkeypatch, half - 1)
    with pytest.raises(NotEnoughMemory) as error:
        fitted(problem, config, ())
    assert "precision" not in str(error.value)
    assert make_plan(problem, configured(NONLINEAR)).rounded == {}  # rk4 has no powers
    assert make_plan(problem, config.replace(**ROUNDED)).rounded == {}
    for refused in ({"coefficients": "channel"}, {"terms": "source,blurring-sharpening"}):
        assert make_plan(problem, configured(refused)).rounded == {}


def test_parts_are_the_fewest_that_fit(problem):
    config = configured({**NONLINEAR, "gradient": "adjoint"})
    room = 0.7 * member_bytes(problem, config)
    parts = parts_needed(problem, config, int(room))
    assert parts is not None

    def takes(k):
        return bytes_of(problem, config, min(1.0, 2 / k), 1 / k)

    assert takes(parts) <= 0.7 * room < takes(parts - 1)
    assert parts_needed(problem, config, 10) is None


def test_models_without_modes(problem, monkeypatch):
    config = Config(model="gcn", split="random", development=500, device="cpu")
    plan = make_plan(problem, config)
    assert plan.gradient == "" and list(plan.modes) == [""] and plan.members > 0
    free(monkeypatch, 100)
    with pytest.raises(NotEnoughMemory, match="one training takes about"):
        fitted(problem, config, ())


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))


def options_of(folder: str) -> dict:
    return tomllib.loads(Path(folder, "config.toml").read_text())


def test_a_run_keeps_the_mode_that_was_chosen(here, monkeypatch, capsys):
    command = ["train", "toy", *SMALL, "--variant", "nonlinear", "--solver", "rk4", "--step-size", "0.5"]
    command += ["--splits", "1", "--epochs", "2"]
    assert main([*command, "--out", "plain"]) == 0
    toy = load_problem(Config(**options_of("plain")))
    sizes = make_plan(toy, Config(**options_of("plain"))).modes
    monkeypatch.setattr("graphdiffusion.training.plan.free_bytes", lambda device: sizes["checkpoint"] + 1)
    capsys.readouterr()
    assert main([*command, "--out", "less"]) == 0
    assert "gradient checkpoint is taken" in capsys.readouterr().err
    assert options_of("plain")["gradient"] == "backprop"
    assert options_of("less") == options_of("plain") | {"gradient": "checkpoint"}
    less, plain = (load_file(Path(folder, "model.safetensors")) for folder in ("less", "plain"))
    for name, value in plain.items():
        torch.testing.assert_close(less[name], value, msg=name)
    assert main(["train", "--resume", "--out", "less"]) == 0
    assert main([*command, "--batches", "2", "--out", "groups"]) == 0
    assert options_of("groups")["batch_cut"] in ("metis", "ldg")


def test_info_plan(here, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    own = ["--variant", "nonlinear", "--solver", "rk4", "--preset", "none", "--no-lcc"]
    assert main(["info", "toy", "--plan", *own]) == 0
    shown = capsys.readouterr().out
    for text in ("one member, backprop", "one member, adjoint", "free on cpu", "fits", "float32"):
        assert text in shown
    assert "grand train toy --preset none" in shown and "--no-lcc --variant nonlinear" in shown
    assert main(["info", "toy", "--plan", "--preset", "none"]) == 0
    assert "--precision bfloat16" in capsys.readouterr().out
    assert main(["info", "toy", "--plan", "--preset", "none", "--precision", "bfloat16"]) == 0
    assert "float32, powers of A bfloat16" in capsys.readouterr().out
    config = Config(data="toy", variant="nonlinear", solver="rk4", lcc=False)
    free(monkeypatch, 0.8 * min(make_plan(load_problem(config), config).modes.values()))
    assert main(["info", "toy", "--plan", *own]) == 0
    shown = capsys.readouterr().out
    assert "does not fit" in shown and "parts needed" in shown
    assert "--gradient adjoint --parts" in shown  # the mode with which so many parts are enough
    assert main(["info", "toy", "--plan", *own, "--batches", "1"]) == 0
    assert "--gradient adjoint --parts" in (shown := capsys.readouterr().out) and "--batches" not in shown
    free(monkeypatch, 1e12)
    Path("own.py").touch()
    places = ["--root", "some data", "--plugin", "own.py"]
    assert main(["info", "toy", "--plan", "--preset", "none", *places]) == 0
    assert "--preset none --root 'some data' --plugin own.py" in capsys.readouterr().out
    assert main(["info", "--plan"]) == 2 and main(["info", "toy"]) == 2
    said = capsys.readouterr().err
    assert "grand info DATA --plan" in said and "grand data info toy" in said
