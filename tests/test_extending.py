"""The examples of docs/extending.md: one file each, by name from the command line, presets and searches."""

from __future__ import annotations

import ast
import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from conftest import make_graph, normal
from test_cli_basics import SMALL, write_graph
from torch import func

from graphdiffusion import GRAND, GraphDiffusion, plugins, registry
from graphdiffusion.cli import main
from graphdiffusion.data import open_data
from graphdiffusion.errors import ArgumentError, ConfigError
from graphdiffusion.options import options_of
from graphdiffusion.plugins import load_plugin
from graphdiffusion.registry import registries
from graphdiffusion.solvers import Tableau
from graphdiffusion.training import Config, Population, load_problem, load_run, protocol
from graphdiffusion.training.problem import member_splits

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
    forget_plugins()


def forget_plugins() -> None:
    """As in a new process."""
    plugins._loaded.clear()
    for kind in registries().values():
        for cls in kind.classes().values():
            if cls.__module__.startswith("graphdiffusion_plugin_"):
                kind.forget(cls.__module__)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    return tmp_path


@pytest.mark.parametrize("kind", CHOICES)
def test_example_trains_on_cora(kind, tmp_path, capsys, monkeypatch):
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
    forget_plugins()
    for command in (["evaluate", "run"], ["predict", "run"], ["train", "--resume", "--out", "run"]):
        assert main(command) == 2
        shown = capsys.readouterr().err
        assert "needs the plug-in mine.py with the SHA-256 " in shown and "--plugin" in shown
        assert shown.count("\n") == 1
    Path("mine.py").write_text(Path("mine.py").read_text().replace("0.01", "0.02"))
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
    assert "got 'example'" in capsys.readouterr().err


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
        problem = load_problem(config)
        members = protocol(config, problem.data)
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


def written(source: str) -> str:
    """A plug-in from its text."""
    Path("mine.py").write_text(source)
    return "mine.py"


AFFINE = '''
from graphdiffusion.equation import TERMS, Affine, Coefficient, Term
from graphdiffusion.ops import propagate

@TERMS.register("extra")
class Extra(Term):
    """More diffusion.

    Args:
        extra: Its coefficient.
    """

    members = needs_attention = True

    def __init__(self, extra: float = 5.0) -> None:
        super().__init__()
        self.c = Coefficient(extra)

    def forward(self, context):
        return self.c(), propagate(context.graph, context.attention, context.x) - context.x

    def affine(self, context):
        return Affine({1: self.c()})
'''


def test_an_affine_term_without_a_bound_in_a_traced_program(here):
    """The closed form needs more products than those of α: none is missing, and none is traced."""
    load_plugin(written(AFFINE))
    graph = make_graph("random")
    x = normal(graph.num_nodes, 4, dtype=torch.float32)
    layer = GraphDiffusion(4, 3.0, terms="extra", heads=1, attention_dim=4)
    exact = GraphDiffusion(
        4, 3.0, terms="extra", heads=1, attention_dim=4, solver="dopri5", rtol=1e-7, atol=1e-9
    )
    exact.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x, graph), exact(x, graph), rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="cannot follow"):
        func.vmap(lambda v: layer(v, graph))(x[None])
    assert not GRAND(4, 2, hidden=4, terms="extra", heads=1, attention_dim=4).capturable


LABELS = '''
import torch
from torch import nn
from graphdiffusion.equation import TERMS, Coefficient, Term

@TERMS.register("seen")
class Seen(Term):
    """Labels of the training nodes as a source."""

    needs_observed = True

    def __init__(self, channels: int, beta) -> None:
        super().__init__()
        self.beta, self.map = beta, nn.Parameter(torch.ones(3, channels))

    def forward(self, context):
        seen = torch.zeros_like(context.x0)
        if context.observed is not None:
            seen = context.observed @ self.map + seen
        return self.beta(), seen
'''


def test_predictions_of_a_term_with_labels_are_those_of_the_training(here, capsys):
    plugin = ["--plugin", written(LABELS)]
    small = [*SMALL, "--epochs", "6", "--splits", "1", "--out", "run", "--terms", "source,seen", *plugin]
    assert main(["train", "toy", *small]) == 0
    run = load_run("run")
    probabilities = run.predict()
    data, split = run.problem.data, member_splits(run.config, run.problem.data, [run.results[0].member])
    right = (probabilities.argmax(-1) == data.y)[split.test[0]].float().mean()
    assert float(right) == pytest.approx(run.results[0].test, abs=1e-6)
    names = run.states.keys()  # two terms with a coefficient of the library's have one each
    assert {"diffusion.equation.terms.0.beta.raw", "diffusion.equation.terms.1.beta.raw"} <= names
    assert run.predict(open_data("toy")).shape == probabilities.shape


def test_members_that_are_mixed_by_a_term_run_one_by_one(here):
    """Also where its coefficient starts at 0."""
    load_plugin(written(LABELS.replace("context.observed @ self.map", "context.x0.mean() + context.x0")))
    config = Config(data="toy", per_class=4, splits=2, hidden=8, time=2.0, terms="seen")
    problem = load_problem(config)
    population = Population(problem, config, protocol(config, problem.data))
    population.step()
    assert population.stack.takes_members() is False


MODEL = '''
import torch
from torch import nn
from graphdiffusion.nn import MODELS, Model, Output

@MODELS.register("mine")
class Mine(Model):
    """A model."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = nn.Linear(in_channels, in_channels)
        self.again = self.first
        self.last = nn.Linear(in_channels, out_channels)
        EXTRA

    def run(self, x, graph, **more):
        return RESULT
'''
WHOLE = "Output(self.last(self.again(torch.relu(self.first(x)))))"


def test_a_model_with_tied_weights_and_sparse_features(here, capsys):
    """Tied weights are one tensor under two names; features are dense for a model that wants them so."""
    plugin = ["--plugin", written(MODEL.replace("EXTRA", "").replace("RESULT", WHOLE))]
    short = ["--splits", "1", "--epochs", "2", "--out", "run"]
    assert main(["train", "cora-embedded", "--model", "mine", *short, *plugin]) == 0
    assert main(["evaluate", "run", *plugin]) == 0
    assert main(["predict", "run", *plugin]) == 0
    model = load_run("run").model()
    assert model.first is model.again


@pytest.mark.parametrize(
    ("extra", "result", "says"),
    [
        ("", WHOLE + ".logits", "run of Mine must give an Output, got Tensor"),
        ("", "Output(self.first(x))", "must give logits of shape (..., 60, 3)"),
        ("self.memory = 3.0", WHOLE, "Mine has an attribute 'memory', which the training calls"),
        ("self.requires_grad_(False)", WHOLE, "the model mine has no parameters to train"),
    ],
)
def test_models_with_mistakes(here, capsys, extra, result, says):
    plugin = ["--plugin", written(MODEL.replace("EXTRA", extra).replace("RESULT", result))]
    shared = ["--epochs", "1", "--splits", "1", "--out", "run"]
    assert main(["train", "toy", "--model", "mine", *shared, *plugin]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("kind: Literal[1, 2] = 1", "the choices of kind must be texts, got (1, 2)"),
        ("out: str = 'x'", "an option 'out', which the command line has: rename it"),
    ],
)
def test_options_with_mistakes(here, capsys, argument, says):
    source = AFFINE.replace("extra: float = 5.0", argument).replace(
        "Coefficient(extra)", "Coefficient(1.0)"
    )
    assert main(["train", "--help", "--plugin", written("from typing import Literal\n" + source)]) == 2
    assert says in capsys.readouterr().err


def test_annotations_for_type_checkers_alone(here):
    own = AFFINE.replace("extra: float = 5.0", "q: Other | None = None, extra: float = 5.0")
    source = "from __future__ import annotations\n" + own
    load_plugin(written(source))
    assert list(options_of(registries()["term"]["extra"])) == ["extra"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"b": (0.5,)},
        {"b": (0.5, 0.25)},
        {"a": ((0.5, 0.5),)},
        {"error": (0.1, 0.1)},
        {"error": (0.1,)},
        {"dense": ((1.0,),)},
        {"dense": ((1.0,), (1.0,))},
    ],
)
def test_a_tableau_is_checked(wrong):
    good = {"order": 2, "a": ((0.5,),), "b": (0.0, 1.0)}
    Tableau(**good)
    with pytest.raises(ArgumentError, match="tableau"):
        Tableau(**{**good, **wrong})


class _Point:
    """An entry point of an installed package."""

    def __init__(self, value: str, load) -> None:
        self.value, self.load = value, load


def test_entry_points_of_installed_packages(here, monkeypatch, caplog):
    def broken() -> None:
        raise ImportError("no such thing")

    points = [_Point("good", lambda: load_plugin(EXAMPLES / "term.py")), _Point("bad", broken)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    monkeypatch.setattr(registry, "_loaded", registry._loaded - {registry.ENTRY_POINTS})
    with caplog.at_level(logging.WARNING, "graphdiffusion"):
        registry.load_entry_points()
    assert "the entry point bad cannot be loaded: ImportError: no such thing" in caplog.text
    assert Config(terms="example").terms == "example"
