"""Reports and comparisons: what they hold, that data cannot act in them, and what they do in a browser."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import shutil
import warnings
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from graphdiffusion.cli import main
from graphdiffusion.data import load_data
from graphdiffusion.ensemble import load_ensemble
from graphdiffusion.errors import ConfigError, DataError
from graphdiffusion.experiments.depth import relative_energy
from graphdiffusion.nn.continuous import Continuous
from graphdiffusion.report import nodes
from graphdiffusion.report.curves import plot_curves, read_curves
from graphdiffusion.report.page import parts
from graphdiffusion.report.page.answers import errors
from graphdiffusion.report.page.compare import Entry, read_entries, write_comparison
from graphdiffusion.report.page.compare import _differences as differences
from graphdiffusion.report.page.compare import _scores as scores
from graphdiffusion.report.page.html import element, page, pictures, table
from graphdiffusion.report.page.report import read_report, shown_run, write_report
from graphdiffusion.report.style import axes_of
from graphdiffusion.report.view.scene import read_scene
from graphdiffusion.training import Config, Member, Population, Trainer, load_problem, load_run, open_folder
from graphdiffusion.training.problem import member_splits

EVIL = "</script><script>window.broken = 1</script><img src=x onerror=window.broken=2>"
NAME = f"even {EVIL} {'x' * 3000}"  # of a class
FRACTIONS = [0.0, 0.5, 1.0]


def write_graph(folder: Path, target: str) -> Path:
    """Two rings with a few bridges; ids and class names are markup."""
    random = np.random.default_rng(0)
    folder.mkdir()
    count = 60
    side = np.arange(count) % 2
    pairs = [(k, (k + 2) % count) for k in range(count)] + [(k, k + 1) for k in range(0, count, 15)]
    x = random.normal(size=(count, 3)) + side[:, None]
    ids = [f"{k} {EVIL}" for k in range(count)]
    if target == "classes":
        answers = [NAME if s == 0 else "odd" for s in side]
    elif target == "numbers":
        answers = [f"{v:.4f}" for v in x.sum(1)]
    else:
        answers = ["|".join(name for name, on in (("a", s), ("b", 1 - s), ("c", v > 0.5)) if on)
                   for s, v in zip(side, x[:, 0], strict=True)]  # fmt: skip
    tables = {
        "edges": [["source", "target"], *([ids[a], ids[b]] for a, b in pairs)],
        "features": [["id", "f", "g", "h"], *([ids[k], *x[k]] for k in range(count))],
        "labels": [["id", "label"], *([ids[k], answers[k]] for k in range(count) if k % 5)],
    }
    for name, rows in tables.items():
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows(rows)
    return folder


def trained(folder: Path, target: str, *options: str) -> Path:
    graph = write_graph(folder / f"graph of {target}", target)
    out = folder / "-".join(["run", target, *options]).replace("--", "")
    given = ["--epochs", "8", "--hidden", "8", "--no-report", "--quiet", *options]
    assert main(["train", str(graph), "--model", "grand", *given, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("classes"), "classes", "--time", "3")


@pytest.fixture(scope="module")
def choice(tmp_path_factory) -> Path:
    """An automatic choice, cut as short as it can be."""
    folder = tmp_path_factory.mktemp("choice")
    graph, out = write_graph(folder / "graph", "classes"), folder / "run"
    assert main(["train", str(graph), "--budget", "0.01", "--no-report", "--quiet", "--out", str(out)]) == 0
    return out


class Reader(HTMLParser):
    """Collects the elements of a page, and the text of its scripts; each element must be closed once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.shown = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("input", "link", "meta"):
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.shown += data


@pytest.mark.parametrize("source", ["run", "choice"])
def test_a_report_is_one_file_that_loads_nothing(source, request):
    folder = request.getfixturevalue(source)
    path = write_report(folder)
    text = path.read_text()
    assert path == folder / "report.html" and len(text) < 5_000_000
    reader = Reader(text)
    for tag, attributes in reader.tags:
        assert tag not in ("img", "iframe", "object", "embed"), tag
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href"):
                assert value is not None and (value.startswith("#") or value == "data:,")
    names = {attributes.get("id") for tag, attributes in reader.tags if tag == "section"}
    assert names >= {"scores", "nodes", "along", "classes", "calibration", "curves"}
    assert NAME in reader.shown  # as text
    data, script = reader.scripts
    assert json.loads(data)["nodes"]["names"] == [NAME, "odd"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = next(a["content"] for tag, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert f"script-src 'sha256-{digest}';" in str(rules) and "default-src 'none'" in str(rules)
    assert write_report(folder, folder.parent / "again.html").read_text() == text


@pytest.mark.parametrize("target", ["numbers", "labels"])
def test_other_targets(tmp_path, target):
    folder = trained(tmp_path, target)
    reader = Reader(write_report(folder).read_text())
    names = {attributes.get("id") for tag, attributes in reader.tags if tag == "section"}
    assert names >= {"scores", "nodes", "along", "classes", "curves"}
    # a menu with one colour is not shown; the colours of a target are explained
    colour = reader.tags[[attributes.get("id") for _, attributes in reader.tags].index("colour") - 1]
    assert colour == ("label", {"hidden": "hidden"})
    y = load_run(folder).problem.task.y
    known = f"violet at {y[y.isfinite()].min():.4g} to yellow at {y[y.isfinite()].max():.4g}; grey where"
    assert (known in reader.shown) == (target == "numbers")


def test_edges_and_sizes(tmp_path):
    """A directed edge is one edge, and splits of several sizes are told in full."""
    folder = trained(tmp_path, "classes", "--directed")
    rows = (tmp_path / "graph of classes" / "edges.csv").read_text().count("window.broken = 1") // 2
    shown = Reader(write_report(folder).read_text()).shown
    assert f"A graph of 60 nodes and {rows} edges" in shown
    summary = json.loads((folder / "summary.json").read_text())
    sizes = {part: sorted(set(own)) for part, own in summary["split"]["sizes"].items()}
    assert len(sizes["train"]) > 1
    assert f"Split folds: {sizes['train'][0]} to {sizes['train'][-1]} train" in shown
    assert "(5 splits take turns)." in shown


def test_pictures_leave_text_alone():
    told = 'id="a" href="#b" url(#c) #000000 <i>'
    figure, ax = axes_of(None)
    ax.set_title(told)
    ax.plot([0, 1], [0, 1], color="#000000")
    made = pictures([figure], "name", "")
    assert told in Reader(made).shown
    assert "#000000" not in re.sub(r"(?<=>)[^<]*", "", made) and 'id="name-0-' in made


def test_a_folder_whose_name_is_no_text(run, tmp_path):
    strange = tmp_path / os.fsdecode(b"run \xff")
    try:
        shutil.copytree(run, strange)
    except OSError:
        pytest.skip("names of files must be text here")
    path = write_comparison([run, strange], tmp_path / "compare.html")
    assert "run ?" in Reader(path.read_text()).shown


def test_a_model_without_an_integral(tmp_path):
    graph, out = write_graph(tmp_path / "graph", "classes"), tmp_path / "run"
    given = ["--model", "gcn", "--epochs", "5", "--no-report", "--quiet", "--out", str(out)]
    assert main(["train", str(graph), *given]) == 0
    reader = Reader(write_report(out).read_text())
    names = {attributes.get("id") for tag, attributes in reader.tags if tag == "section"}
    assert "nodes" in names and "along" not in names


@pytest.mark.pages
def test_training_writes_its_report(tmp_path, capsys, monkeypatch):
    graph = str(write_graph(tmp_path / "graph", "classes"))
    given = ["--model", "grand", "--epochs", "2", "--hidden", "4", "--quiet"]
    assert main(["train", graph, *given, "--out", str(tmp_path / "a")]) == 0
    assert f"Report:  {tmp_path / 'a' / 'report.html'}" in capsys.readouterr().out.splitlines()
    assert main(["train", graph, *given, "--no-report", "--out", str(tmp_path / "b")]) == 0
    assert "Report" not in capsys.readouterr().out
    assert not (tmp_path / "b" / "report.html").exists()
    assert main(["report", str(tmp_path / "b"), "--out", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"Report: {tmp_path / 'page.html'}\n"
    # what goes wrong with a report does not undo a training
    monkeypatch.setattr("graphdiffusion.report.page.report.course", lambda *given: 1 / 0)
    assert main(["train", graph, *given, "--out", str(tmp_path / "c")]) == 0
    shown = capsys.readouterr()
    assert "could not be written (ZeroDivisionError" in shown.err and "Results:" in shown.out


@pytest.mark.pages
def test_refusals(run, tmp_path, capsys):
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert main(["report", str(run), "--out", str(tmp_path)]) == 2
    assert "is a folder: name a file" in capsys.readouterr().err
    assert main(["compare", str(run), "--out", str(tmp_path / "c.html")]) == 2
    assert "at least two runs" in capsys.readouterr().err
    with pytest.raises(DataError, match="holds no run"):
        write_comparison([run, tmp_path], tmp_path / "c.html")
    unfinished = shutil.copytree(run, tmp_path / "unfinished")
    (unfinished / "summary.json").unlink()
    with pytest.raises(DataError, match="unfinished is unfinished: go on with grand train --resume"):
        write_comparison([run, unfinished], tmp_path / "c.html")


def test_text_is_escaped():
    made = table(["<a>", "b", "c"], [["<b>", "x & y", element("td", "<i>", class_="cell")]], '"<c>"')
    assert "<b>" not in made and "<i>" not in made and "&lt;b&gt;" in made and "x &amp; y" in made
    assert 'aria-label="&quot;&lt;c&gt;&quot;"' in made
    whole = page("<t>", [], {"x": "</script>\u2028"})
    assert "<t>" not in whole and Reader(whole).scripts[0] == '{"x":"\\u003c/script\\u003e\\u2028"}'


def test_a_model_beside_methods_without_a_graph(run):
    """The table of a run of one model, against scikit-learn on the same training nodes."""
    found = load_run(run)
    members = list({r.member.split: r.member for r in found.results}.values())
    splits = member_splits(found.config, found.problem.data, members)
    x, y = found.problem.x.numpy(), found.problem.task.y.numpy()
    wanted = []
    for train, test in zip(splits.train.numpy(), splits.test.numpy(), strict=True):
        wanted.append(LogisticRegression(max_iter=1000).fit(x[train], y[train]).score(x[test], y[test]))
    shown = str(parts._beside(found))
    assert f"<td>{100 * np.mean(wanted):.2f}%</td>" in shown and "majority" in shown
    assert f"<td>{100 * np.mean([r.test for r in found.results]):.2f}%</td>" in shown


def test_surest_errors(run):
    report = read_report(run)
    made = errors(report)
    assert made is not None
    found = load_run(run)
    y = found.problem.y
    # by hand: the mean over the members that have a node in their test
    total, weight = torch.zeros(len(y), 2), torch.zeros(len(y))
    for result in found.results:
        test = member_splits(found.config, found.problem.data, [result.member]).test[0]
        total[test] += found.predict(member=result.number)[test]
        weight[test] += 1
    own = total / weight.clamp_min(1)[:, None]
    wrong = ((own.argmax(1) != y) & (weight > 0)).nonzero().flatten().tolist()
    order = sorted(wrong, key=lambda k: -float(own[k].max()))
    shown = [int(text) for text in re.findall(r'<th scope="row"[^>]*>(\d+) ', made[2])]
    assert len(order) > 0 and shown == order[:20]


def test_trajectory_ends_where_the_model_does(run):
    found = load_run(run)
    for result in found.results[:2]:
        way = found.trajectory(FRACTIONS, result.number)
        model, problem = found.model(result.number), found.problem
        with torch.no_grad():
            torch.testing.assert_close(way.logits[-1], model(problem.x, problem.graph))
            model.diffusion.time.mul_(0.5)
            torch.testing.assert_close(way.logits[1], model(problem.x, problem.graph))
            torch.testing.assert_close(way.states[0], model.encoder(problem.x))
            solution = model.diffusion(way.states[0], problem.graph)
        torch.testing.assert_close(way.states[1], solution)
        assert way.times.tolist() == pytest.approx([0.0, 1.5, 3.0])


def test_accepted_steps_end_at_the_time(tmp_path):
    found = load_run(trained(tmp_path, "classes", "--solver", "dopri5", "--time", "4"))
    sizes = found.trajectory(FRACTIONS).solution.stats.steps
    assert len(sizes) == found.trajectory(FRACTIONS).solution.stats.accepted > 1
    assert sum(float(h) for h in sizes) == pytest.approx(4.0) and all(float(h) > 0 for h in sizes)
    assert ">step size<" in write_report(found.folder).read_text()


def test_places_in_the_plane():
    random = np.random.default_rng(1)
    states = random.normal(size=(3, 40, 6)) * np.array([5.0, 3, 1, 1, 1, 1])
    plane, explained = nodes.principal(states)
    own = PCA(2).fit(states.reshape(-1, 6))
    wanted = own.transform(states.reshape(-1, 6)).reshape(3, 40, 2)
    np.testing.assert_allclose(np.abs(plane), np.abs(wanted), atol=1e-9)
    assert explained == pytest.approx(own.explained_variance_ratio_.sum())
    # one map for all times: the same state has the same place, and near states near ones
    states[2] = states[0]
    places = nodes.neighbour_map(states, np.random.default_rng(0))
    np.testing.assert_allclose(places[2], places[0])
    places[0, 0] = 1e6
    framed = nodes.framed(places)
    assert framed.min() >= 0 and framed.max() <= 1
    assert np.ptp(framed[1:]) > 0.5  # an outlier does not take the room of the others
    assert nodes.principal(np.ones((1, 5, 1)))[0].shape == (1, 5, 2)
    assert nodes.neighbour_map(np.ones((2, 5, 3)), random).shape == (2, 5, 2)


def test_separation_and_energy():
    y = torch.tensor([0, 0, 1, 1, 2, -1])
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    total = x[:5].var(0, correction=0).sum() * 5
    inside = sum(((x[y == k] - x[y == k].mean(0)) ** 2).sum() for k in range(3))
    assert nodes.separation(x, y) == pytest.approx(float(1 - inside / total))
    assert nodes.separation(torch.ones(6, 3), y) == 0.0
    graph = load_problem(Config(data="cora-embedded")).graph
    assert relative_energy(graph, torch.ones(graph.num_nodes, 2)) == 0.0


def test_curves_of_members_that_train_together(tmp_path, monkeypatch):
    data = load_data("cora-embedded")
    config = Config(data="cora-embedded", model="mlp", hidden=4, epochs=3, splits=3, inits=1, device="cpu")
    problem = load_problem(config, data)
    members = [Member(k, k, k) for k in range(3)]
    monkeypatch.setattr("graphdiffusion.training.trainer.chunk_size", lambda *given: 3)
    with open_folder(tmp_path / "run", config, data, False) as folder:
        Trainer(problem, config, members, folder).run()
    found = read_curves(tmp_path / "run")
    assert set(found["val"]) == set(found["loss"]) == {0, 1, 2} and set(found["evaluations"]) == {0}
    population = Population(problem, config, members)
    for epoch in range(3):
        population.step()
        for k in range(3):
            assert found["loss"][k][epoch] == pytest.approx(float(population.loss[k]), rel=1e-4)
    figure = plot_curves({"mlp": found["loss"]}, "loss")
    middle = figure.axes[0].lines[-1].get_ydata()
    np.testing.assert_allclose(middle, np.median([list(v.values()) for v in found["loss"].values()], 0))


def test_curves_of_the_last_member_left(tmp_path, monkeypatch):
    """Trained alone at the end, it keeps its own line."""
    config = Config(data="cora-embedded", model="mlp", hidden=4, epochs=3, splits=3, inits=1, device="cpu")
    data = load_data("cora-embedded")
    monkeypatch.setattr("graphdiffusion.training.trainer.chunk_size", lambda *given: 3)

    def finished(population: Population) -> torch.Tensor:
        return torch.tensor([member.number != 2 for member in population.members])

    monkeypatch.setattr(Population, "finished", finished)
    with open_folder(tmp_path / "run", config, data, False) as folder:
        Trainer(load_problem(config, data), config, [Member(k, k, k) for k in range(3)], folder).run()
    found = read_curves(tmp_path / "run")
    for key in ("loss", "val"):
        assert {k: list(own) for k, own in found[key].items()} == {0: [0], 1: [0], 2: [0, 1, 2]}


def test_comparison(tmp_path, capsys):
    folders = []
    for name, rate in (("slow", "0.001"), ("fast", "0.02")):
        given = ["--model", "mlp", "--hidden", "8", "--epochs", "5", "--splits", "4", "--rate", rate]
        out = tmp_path / name
        assert main(["train", "cora-embedded", *given, "--quiet", "--out", str(out)]) == 0
        folders.append(out)
    capsys.readouterr()
    path = tmp_path / "compare.html"
    assert main(["compare", *map(str, folders), "--out", str(path)]) == 0
    assert capsys.readouterr().out == f"Comparison: {path}\n"
    shown = Reader(path.read_text()).shown
    slow, fast = (np.array(list(entry.each.values())) for entry in read_entries(folders))
    test = stats.ttest_rel(fast, slow).confidence_interval(0.95)
    assert f"{(fast - slow).mean():+.2f}" in shown
    assert f"± {(test.high - test.low) / 2:.2f}" in shown
    with pytest.raises(ConfigError, match="is a folder"):
        write_comparison(folders, tmp_path)


def test_names_in_a_comparison(run, tmp_path):
    """Long ones leave room for the picture; their ends tell them apart."""
    folders = [run, *(tmp_path / f"{'long ' * 40}{k}" for k in range(2)), tmp_path / "a\nb"]
    for folder in folders[1:]:
        shutil.copytree(run, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = write_comparison(folders, tmp_path / "compare.html").read_text()
    assert len(set(re.findall(">…[^<]{39}</text>", text))) == 2 and ">a b</text>" in text
    assert f'title="{folders[1].name}"' in text


def test_no_negative_zero():
    about = ("graph", "GRAND-l", "R²")
    first, second = (
        Entry(name, *about, score, score, score, {(0, 0): score, (1, 1): score}, "same", 1.0, 9)
        for name, score in (("a", -1e-9), ("b", -2e-9))
    )
    shown = Reader(scores([first, second]) + differences([first, second])).shown
    assert "-0.0000" not in shown and "0.0000 to 0.0000" in shown and "+0.0000" in shown


def test_validation_beside_test_is_named():
    """A run without test nodes has the score of its validation nodes."""
    about = ("graph", "GRAND-l", "accuracy, %", 80.0, 75.0, 85.0, {}, None, 1.0, 9)
    first, second = Entry("a", *about), Entry("b", *about, part="validation")
    assert "which chose the model" not in Reader(scores([first, first])).shown
    shown = Reader(scores([first, second])).shown
    assert "test" in shown and "validation" in shown and "which chose the model" in shown


def test_the_best_training_of_a_choice_is_shown():
    """A configuration has a run for its first split, and one for the others, with the same weight."""
    model = Continuous.__new__(Continuous)

    def run(*val):
        return SimpleNamespace(results=[SimpleNamespace(val=v) for v in val], model=lambda: model)

    runs = [run(0.6), run(0.5, 0.9), run(0.99), run(None)]
    assert shown_run(runs, [0.7, 0.7, 0.3, 0.7]) is runs[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "shared"), [("folds", 0), ("random", 3)])
def test_splits_of_other_seeds_are_not_paired(tmp_path, kind, shared):
    """Fold 2 of seed 0 is another split than fold 0 of seed 2; a random split is known by its seed."""
    graph, folders = str(write_graph(tmp_path / "graph", "classes")), []
    sizes = ["--per-class", "5", "--development", "20"] if kind == "random" else []
    given = ["--split", kind, "--model", "mlp", "--hidden", "4", "--epochs", "1", *sizes]
    for seed in ("0", "2"):
        folders.append(tmp_path / seed)
        more = ["--splits", "5", "--no-report", "--quiet", "--seed", seed]
        assert main(["train", graph, *given, *more, "--out", str(folders[-1])]) == 0
    shown = Reader(write_comparison(folders, tmp_path / "compare.html").read_text()).shown
    assert ("not paired" in shown) == (shared == 0)
    assert (f"{shared} splits" in shown) == (shared > 0)


def test_no_time(tmp_path):
    """Nothing moves where T = 0."""
    reader = Reader(write_report(trained(tmp_path, "classes", "--time", "0")).read_text())
    ids = [attributes.get("id") for _, attributes in reader.tags]
    assert "along" not in ids and reader.tags[ids.index("time") - 1][1]["hidden"] == "hidden"


def test_the_viewer_shows_the_same_model_of_a_choice(choice):
    report, scene = read_report(choice), read_scene(choice)
    assert scene.run.folder == report.shown.folder and scene.member == report.shown.best
    assert scene.times == report.course.times
    np.testing.assert_array_equal(scene.answers.argmax(-1), report.course.predicted)
    reached = [r.val for run in report.runs for r in run.results]
    assert len(report.runs) == 2 and [max(reached)] == [
        r.val for r in scene.run.results if r.number == scene.member
    ]
    for member, (run, number) in enumerate(load_ensemble(choice).members[:2]):
        other = read_scene(choice, member=member)
        assert (other.run.folder, other.member) == (run.folder, number)


def test_a_choice_of_one_configuration(choice):
    report = read_report(choice)
    assert len(report.summary["race"]) == 1
    assert report.runs[0].config.title in parts.title(report) and "several" not in parts.title(report)
    assert "One configuration, laplacian: the answer is the mean of" in "".join(parts.heading(report))


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")], ids=["desktop", "phone"])
def test_a_report_in_a_browser(browser, run, tmp_path, width, scheme):
    path = write_report(run, tmp_path / "report.html")
    context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
    tab, said, asked = context.new_page(), [], []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(path.as_uri())
    canvas = tab.locator("#nodes-canvas")

    def pixels() -> str:
        return tab.evaluate("document.getElementById('nodes-canvas').toDataURL()")

    last = pixels()
    assert canvas.get_attribute("data-frame") == "20"
    slider = tab.locator("#time")
    slider.focus()
    tab.keyboard.press("Home")  # the keyboard moves the slider
    assert (
        canvas.get_attribute("data-frame") == "0" and tab.locator("#time-value").inner_text() == "t = 0.00"
    )
    first = pixels()
    assert first != last
    tab.keyboard.press("End")
    assert pixels() == last
    for menu, value in (("#embedding", "t-SNE"), ("#colour", "right"), ("#colour", "predicted")):
        before = pixels()
        tab.select_option(menu, value)
        assert pixels() != before, value
    before = pixels()
    button = tab.locator("#legend button").first
    assert button.inner_text().strip() == NAME == button.get_attribute("title")
    button.click()
    assert button.get_attribute("aria-pressed") == "false" and pixels() != before
    button.click()
    assert pixels() == before
    # a click on a point says which node it is
    place = tab.evaluate(
        """() => { const d = JSON.parse(document.getElementById('data').textContent).nodes;
        const b = Uint8Array.from(atob(d.places['t-SNE']), c => c.charCodeAt(0));
        const p = new Uint16Array(b.buffer), k = 2 * (d.times.length - 1) * d.ids.length;
        const box = document.getElementById('nodes-canvas').getBoundingClientRect();
        const s = Math.min(box.width, box.height) - 16, x = p[k] / 65535, y = 1 - p[k + 1] / 65535;
        return [(box.width - s) / 2 + x * s, (box.height - s) / 2 + y * s]; }"""
    )
    canvas.click(position={"x": place[0], "y": place[1]})
    about = tab.locator("#about").inner_text()
    assert about.startswith("node ") and EVIL in about and "predicted at this t" in about
    play = tab.locator("#play")
    tab.evaluate("document.getElementById('about').textContent = 'old'")
    play.click()
    tab.wait_for_timeout(400)
    play.click()  # a pause stands on a frame
    stopped = canvas.get_attribute("data-frame")
    assert stopped in map(str, range(1, 20)) and slider.input_value() == stopped
    assert tab.locator("#about").inner_text().startswith("node ")  # its prediction at this t
    assert tab.evaluate("window.broken") is None
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert said == [] and [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    context.close()


def test_what_does_not_apply_is_not_seen(browser, tmp_path):
    """Without an integral there is no t to choose; several labels have no one colour."""
    graph, out = write_graph(tmp_path / "graph", "labels"), tmp_path / "run"
    given = ["--model", "gcn", "--epochs", "2", "--no-report", "--quiet", "--out", str(out)]
    assert main(["train", str(graph), *given]) == 0
    tab = browser.new_page()
    tab.goto(write_report(out).as_uri())
    assert tab.locator("#embedding").is_visible()
    for name in ("#time", "#play", "#colour"):
        assert not tab.locator(name).is_visible(), name
    tab.close()
