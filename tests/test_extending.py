"""The examples of docs/extending.md: one file each, by name from the command line, presets and searches."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest
import torch
from test_cli_basics import SMALL, write_graph

from graphdiffusion import plugins
from graphdiffusion.cli import main
from graphdiffusion.errors import ConfigError
from graphdiffusion.plugins import load_plugin
from graphdiffusion.registry import registries
from graphdiffusion.training import Config, Population, load_problem, protocol

EXAMPLES = Path(__file__).parents[1] / "examples" / "extending"
CHOICES = {
    "diffusivity": ["--diffusivity", "example"],
    "term": ["--terms", "example"],
    "equation": ["--equation", "example"],
    "solver": ["--solver", "example"],
    "model": ["--model", "example"],
}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Each test starts without plug-ins."""
    monkeypatch.setattr(plugins, "_loaded", {})
    yield
    for registry in registries().values():
        for cls in registry.classes().values():
            if cls.__module__.startswith("graphdiffusion_plugin_"):
                registry.forget(cls.__module__)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    return tmp_path


@pytest.mark.parametrize("kind", CHOICES)
def test_example_trains_on_cora(kind, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("graphdiffusion.cli.train._draw", lambda folder: None)
    plugin, out = str(EXAMPLES / f"{kind}.py"), str(tmp_path / "run")
    short = ["--splits", "1", "--epochs", "3", "--time", "3"][: 4 if kind == "model" else 6]
    assert main(["train", "cora-embedded", *short, "--plugin", plugin, *CHOICES[kind], "--out", out]) == 0
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert found["test"]["mean"] > 20  # chance is 14
    capsys.readouterr()
    assert main(["evaluate", out, "--plugin", plugin]) == 0
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("kind", CHOICES)
def test_examples_are_short_and_register_one_name(kind):
    source = (EXAMPLES / f"{kind}.py").read_text()
    assert len(source.splitlines()) <= 60
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert len(classes) == 1
    load_plugin(EXAMPLES / f"{kind}.py")
    assert "example" in registries()[kind].names()


def test_a_run_asks_for_its_plugin_by_name_and_sum(here, capsys):
    shutil.copy(EXAMPLES / "term.py", "mine.py")
    small = [*SMALL, "--out", "run", "--terms", "example", "--plugin", "mine.py"]
    assert main(["train", "toy", *small]) == 0
    capsys.readouterr()
    plugins._loaded.clear()
    for registry in registries().values():
        for cls in registry.classes().values():
            registry.forget(cls.__module__) if cls.__module__.startswith("graphdiffusion_plugin_") else None
    for command in (["evaluate", "run"], ["predict", "run"], ["train", "--resume", "--out", "run"]):
        assert main(command) == 2
        shown = capsys.readouterr().err
        assert "needs the plug-in mine.py with the SHA-256 " in shown and "--plugin" in shown
        assert shown.count("\n") == 1
    Path("mine.py").write_text(Path("mine.py").read_text().replace("0.1", "0.2"))
    assert main(["evaluate", "run", "--plugin", "mine.py"]) == 2
    assert "name the file as it was" in capsys.readouterr().err


def test_nothing_is_loaded_because_a_file_mentions_it(here, capsys):
    """A configuration from elsewhere names a class: that is an unknown name, and no reason to run code."""
    Path("mine.py").write_text("raise SystemExit('this was run')\n")
    Path("config.toml").write_text('terms = "example"\nplugin = "mine.py"\n')
    assert main(["train", "toy", "--config", "config.toml"]) == 2
    assert "unknown option 'plugin'" in capsys.readouterr().err
    Path("config.toml").write_text('terms = "example"\n')
    assert main(["train", "toy", "--config", "config.toml"]) == 2
    assert "terms must be names out of source, got 'example'" in capsys.readouterr().err


def test_presets_and_searches_use_plugins(here, capsys):
    Path("mine.toml").write_text('terms = "example"\nreaction = 0.3\n')
    Path("space.toml").write_text('terms = ["example", "source,example"]\nreaction = [0.05, 0.3]\n')
    plugin = ["--plugin", str(EXAMPLES / "term.py")]
    assert main(["train", "toy", *SMALL, "--config", "mine.toml", *plugin, "--out", "run"]) == 0
    assert "reaction = 0.3" in Path("run/config.toml").read_text()
    search = ["--trials", "3", "--families", "2", "--finalists", "1", "--final-seeds", "1"]
    quick = ["--per-class", "4", "--epochs", "2", "--hidden", "8", "--time", "2"]
    assert main(["tune", "toy", *search, *quick, *plugin, "--space", "space.toml", "--out", "s"]) == 0
    assert "plugins" in json.loads(Path("s/search.json").read_text())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("def broken(:\n", "line 1: invalid syntax"),
        ("x = 1\nimport nowhere\n", "line 2: ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1\n\nraise ValueError\n", "line 3: ValueError: ValueError"),
        (
            "from graphdiffusion.solvers import SOLVERS, Solver\n"
            "@SOLVERS.register('rk4')\nclass RK(Solver): ...\n",
            "there is a solver 'rk4' already, graphdiffusion.solvers.rk4.RK4: choose another name",
        ),
    ],
)
def test_plugins_that_cannot_be_loaded(here, capsys, content, says):
    Path("mine.py").write_text(content)
    assert main(["train", "toy", "--plugin", "mine.py"]) == 2
    shown = capsys.readouterr().err
    assert "the plug-in mine.py cannot be loaded: " in shown and says in shown and shown.count("\n") == 1
    assert main(["train", "toy", "--plugin=nowhere.py"]) == 2
    assert "cannot read the plug-in nowhere.py: No such file" in capsys.readouterr().err
    Path("mine.txt").write_text("")
    assert main(["info", "--plugin", "mine.txt"]) == 2
    assert "must end in .py" in capsys.readouterr().err


def test_an_option_that_every_training_has_is_refused(here, capsys):
    source = (EXAMPLES / "term.py").read_text().replace("reaction", "rate")
    Path("mine.py").write_text(source)
    assert main(["train", "toy", "--plugin", "mine.py", "--terms", "example"]) == 2
    assert "AllenCahn has an option 'rate', which every training has: rename it" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["diffusivity", "term", "equation", "model"])
def test_members_of_an_example_are_what_they_are_alone(kind, here):
    load_plugin(EXAMPLES / f"{kind}.py")
    chosen = {CHOICES[kind][0].removeprefix("--"): "example"}
    more = {"hidden": 8} if kind == "model" else {"hidden": 8, "time": 2.0}
    # as many members as nodes (60), and as channels (8)
    for count in (60, 8):
        config = Config(data="toy", per_class=4, splits=count, **more, **chosen)
        problem, members = load_problem(config), protocol(config)
        together = Population(problem, config, members)
        together.step()
        for k in (0, count - 1):
            alone = Population(problem, config, [members[k]])
            alone.step()
            torch.testing.assert_close(together.loss[k], alone.loss[0], rtol=1e-5, atol=1e-6)
            for name, value in alone.parameters.items():
                torch.testing.assert_close(
                    together.parameters[name][k], value[0], rtol=1e-4, atol=1e-5, msg=name
                )


def test_a_name_is_taken_once(here):
    load_plugin(EXAMPLES / "term.py")
    load_plugin(EXAMPLES / "term.py")  # the same file again
    Path("other.py").write_text((EXAMPLES / "term.py").read_text() + "\n# another\n")
    with pytest.raises(ConfigError, match="there is a term 'example' already"):
        load_plugin("other.py")
