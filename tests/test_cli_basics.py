"""The small graph that the tests of the command line share; help, version, and what there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphdiffusion
from graphdiffusion.cli import main, make_command
from graphdiffusion.cli.options import flag
from graphdiffusion.registry import registries
from graphdiffusion.training.choices import all_options

SMALL = [
    "--preset", "none", "--split", "random",
    "--hidden", "8", "--heads", "2", "--attention-dim", "8", "--time", "2", "--epochs", "3",
    "--per-class", "4", "--splits", "2", "--device", "cpu",
]  # fmt: skip
CLASSES = ("apple", "pear", "plum")


def write_graph(folder: Path, n: int = 60, seed: int = 0, labels: bool = True, features: int = 5) -> Path:
    """A ring with chords whose classes come in three arcs; ids hold commas and quotes."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    ids = [f'"node ""{i}"", {i % 7}"' for i in range(n)]
    kinds = np.arange(n) * 3 // n
    x = rng.normal(size=(n, features)) + 2 * np.eye(3, features)[kinds]
    edges = [(i, (i + step) % n) for i in range(n) for step in (1, 2)]
    (folder / "edges.csv").write_text("".join(f"{ids[a]},{ids[b]}\n" for a, b in edges))
    rows = (",".join([ids[i], *(f"{v:.4f}" for v in x[i])]) for i in range(n))
    (folder / "features.csv").write_text("\n".join(rows) + "\n")
    if labels:
        (folder / "labels.csv").write_text("".join(f"{ids[i]},{CLASSES[kinds[i]]}\n" for i in range(n)))
    return folder


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder with a graph, in the folder in which the commands run."""
    monkeypatch.chdir(tmp_path)
    return write_graph(tmp_path / "toy")


def test_help_shows_every_option_with_its_default(monkeypatch, capsys):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 600)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["train", "--help"]) == 0
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    for option in all_options().values():
        if option.name == "data":
            continue
        (line,) = [line for line in lines if line.split(" ")[0] == flag(option.name)]
        shown = option.default if option.default != "" else "(empty)"
        if isinstance(shown, bool):
            assert f"--no-{flag(option.name)[2:]}" in line
            shown = flag(option.name)[2:] if shown else f"no-{flag(option.name)[2:]}"
        assert f"[default: {shown}]" in line
        assert option.help in line and all(choice in line for choice in option.values())
    assert any("[default: cora-embedded]" in line for line in lines)


def test_version_and_no_arguments(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"grand {graphdiffusion.__version__}"
    assert main([]) == 0
    assert "evaluate" in capsys.readouterr().out


def test_info(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for word in ("torch_geometric", "threads", "backend triton", "extra parquet"):
        assert word in out
    for kind, registry in registries().items():
        assert f"{kind} by name" in out and all(f" {name} " in out for name in registry.names())


def test_data_list_and_info(capsys, toy):
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert "citeseer" in out and "19717" in out
    assert main(["data", "info", "Cora"]) == 0
    out = capsys.readouterr().out
    assert "2,485" in out and "planetoid" in out and "Sen et al." in out
    assert main(["data", "info", "cora-embedded"]) == 0
    assert "inside the package" in capsys.readouterr().out
    assert main(["data", "info", "toy"]) == 0
    out = capsys.readouterr().out
    assert "apple, pear, plum" in out and "none given" in out


def test_public_names():
    for name in graphdiffusion.__all__:
        assert getattr(graphdiffusion, name) is not None
    assert set(graphdiffusion.__all__) == set(dir(graphdiffusion))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = graphdiffusion.nothing


@pytest.mark.parametrize("configured", [False, True])
def test_every_parameter_has_a_type_that_typer_knows(configured):
    """Versions of Typer before 0.29 refuse what takes ``**options``; later ones make a parameter of it."""
    commands = make_command(configured).commands
    assert all("options" not in [p.name for p in command.params] for command in commands.values())


def test_a_group_alone_shows_its_help(capsys):
    assert main(["data"]) == 2
    shown = capsys.readouterr()
    assert "Usage: grand data" in shown.out + shown.err and "grand: ." not in shown.err
