"""The equations of GRAND's successors by name on a graph of one's own: each has settings of its own."""

from __future__ import annotations

import pytest
from test_cli_basics import write_graph

from graphdiffusion.cli import main
from graphdiffusion.configs import find_preset, parts_of, presets
from graphdiffusion.equation import EQUATIONS, TERMS
from graphdiffusion.estimator.fitting import configured
from graphdiffusion.training import Config, load_run

CHOICES = {
    **{name: ["--equation", name] for name in ("acmp", "adc", "blend", "graphcon")},
    **{
        name: ["--terms", f"source,{name}"]
        for name in (
            "fisher", "allen-cahn", "zeldovich", "blurring-sharpening", "labelled-source", "convection",
            "repulsion",
        )
    },
    "fractional": ["--solver", "fractional"],
}  # fmt: skip
FEW = ["--splits", "1", "--epochs", "3", "--hidden", "8", "--no-report", "--quiet", "--device", "cpu"]


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return str(write_graph(tmp_path / "toy"))


def test_every_equation_and_term_has_a_preset():
    library = {
        name
        for registry in (EQUATIONS, TERMS)
        for name, cls in registry.classes().items()
        if cls.__module__.startswith("graphdiffusion.")
    }
    assert library - {"diffusion", "source"} == set(CHOICES) - {"fractional"}
    assert {f"own-{name}" for name in CHOICES} <= set(presets())


@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
@pytest.mark.parametrize("name", list(CHOICES))
def test_name_alone_chooses_its_settings(name, variant, toy, capsys):
    """The name of an equation is enough: a scheme that integrates it comes with it, and it trains."""
    choice = [*CHOICES[name], "--variant", variant]
    assert main(["train", toy, *choice, *FEW, "--out", "run"]) == 0
    assert f"using the preset own-{name}." in capsys.readouterr().err
    run = load_run("run")
    assert run.config.variant == variant and name in parts_of(run.config.to_dict())
    assert run.results[0].epochs == 3  # no integration has failed
    assert main(["train", toy, "--preset", name, *FEW, "--out", "again"]) == 0
    assert name in parts_of(load_run("again").config.to_dict())


def test_which_settings_are_taken():
    chosen = parts_of(Config(equation="graphcon", terms="source").to_dict())
    assert find_preset("mygraph", "linear", parts=chosen) == "own-graphcon"
    assert find_preset("texas", "linear", parts=chosen) == "own-graphcon"
    assert find_preset("cora", "linear", parts=chosen) == "cora-linear"  # searched on this very data set
    assert find_preset("mygraph", "linear", parts=parts_of(Config().to_dict())) == "own-linear"
    assert find_preset("mygraph", "gcn", parts=parts_of(Config(model="gcn").to_dict())) == "own-gcn"
    both = parts_of(Config(terms="source,allen-cahn,convection").to_dict())
    assert find_preset("mygraph", "linear", parts=both) == "own-convection"  # the last term
    rewired = parts_of(Config(variant="nonlinear-rewired", equation="acmp").to_dict())
    assert find_preset("mygraph", "nonlinear-rewired", parts=rewired) == "own-nonlinear-rewired"


def test_estimators_take_them_too():
    found = configured("grand", {"equation": "graphcon"}, 0, "cpu")
    assert (found.solver, found.step_size) == ("symplectic-euler", 0.5)
    assert configured("grand", {}, 0, "cpu").solver == "auto"
