"""The experiment on the successors' equations: on few points, its searches, verdict and picture."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_cli_basics import write_graph

from graphdiffusion.cli import main
from graphdiffusion.data import open_data
from graphdiffusion.experiments import successors, trained
from graphdiffusion.experiments.record import Plan
from graphdiffusion.experiments.results import read_results
from graphdiffusion.experiments.space import Range, draw_trials
from graphdiffusion.experiments.successor_figures import best_of_each, figures, verdict
from graphdiffusion.experiments.successor_models import MODELS, RIVALS, space_of, start_of
from graphdiffusion.report import plot_successors
from graphdiffusion.report.successor_tables import successor_tables
from graphdiffusion.training import Config


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A small graph in place of Cora, and few points."""
    write_graph(tmp_path / "toy", n=150)
    small = replace(
        successors.SMALL, per_class=(2,), shares=(0.5,), attacks=(0.0, 0.1), adaptive=(0.1,), splits=2,
        epochs=2, hidden=8, models=("gcn", "linear", "labelled-source"),
    )  # fmt: skip
    monkeypatch.setattr(successors, "SMALL", small)
    monkeypatch.setattr(trained, "read_data", lambda config, root=None: open_data(str(tmp_path / "toy")))
    return tmp_path


def test_command_and_resuming(toy, capsys, monkeypatch):
    command = ["reproduce", "successors", "--small", "--device", "cpu", "--out", str(toy)]
    assert main([*command, "--part", "labels"]) == 0
    folder = toy / "successors-small"
    assert len(read_results(folder / "results.json")["points"]) == 3
    assert main(command) == 0
    out = capsys.readouterr().out.replace("\n", " ")
    assert "the source at labelled nodes is above GRAND-l in " in out
    found = read_results(folder / "results.json")
    wanted = {"labels": 3, "edges": 3, "attack": 6, "adaptive": 3}
    assert [p["part"] for p in found["points"]] == [part for part, k in wanted.items() for _ in range(k)]
    for p in found["points"]:
        assert len(p["test"]) == len(p["val"]) == (1 if p["part"] == "adaptive" else 2)
        assert p["trials"] == 0
    assert found["figures"][1]["difference"] == 0  # GRAND-l itself
    # all parts but few labels train on 20 labels a class, or what there is: the clean graph once
    assert len(list((folder / "runs").iterdir())) == 3 * 3
    assert (folder / "picture.png").stat().st_size > 10_000
    monkeypatch.setattr(successors, "trained", None)  # nothing is trained again
    assert main(command) == 0
    assert plot_successors(folder / "results.json", toy / "again.png", ["labels"]).exists()
    assert main([*command, "--part", "set"]) == 2
    assert main([*command, "--only", "texas"]) == 2
    assert "only must be among cora-embedded; got texas" in capsys.readouterr().err


def test_points_stay_when_data_sets_are_added(toy, monkeypatch, capsys):
    """Lists may grow, and trials of new data sets; another number of trials or of epochs is refused."""
    command = [
        "reproduce",
        "successors",
        "--small",
        "--device",
        "cpu",
        "--out",
        str(toy),
        "--part",
        "edges",
    ]
    assert main(command) == 0
    path = toy / "successors-small" / "results.json"
    points = read_results(path)["points"]
    grown = replace(
        successors.SMALL, models=(*successors.SMALL.models, "mlp"), trials={"other": 3}, per_class=(2, 3)
    )
    monkeypatch.setattr(successors, "SMALL", grown)
    assert main(command) == 0
    found = read_results(path)
    assert found["points"][: len(points)] == points and found["points"][-1]["model"] == "mlp"
    assert found["settings"]["models"][-1] == "mlp" and found["settings"]["trials"] == {"other": 3}
    for changes in ({"epochs": 3}, {"trials": {"other": 4}}):
        monkeypatch.setattr(successors, "SMALL", replace(grown, **changes))
        assert main(command) == 2
        assert "was made with other settings" in capsys.readouterr().err


def test_searches_have_the_trials_of_their_data_set(toy, monkeypatch):
    """One search for each model and data set, whatever the part; --trials is for all data sets."""
    plans = []

    def found(start, space, plan, folder, **more):
        plans.append((folder.name, plan.trials, start.per_class))
        return type("Board", (), {"best": start})

    monkeypatch.setattr("graphdiffusion.experiments.trained.search", found)
    small = replace(successors.SMALL, trials={"cora-embedded": 3}, models=("gcn", "linear"))
    monkeypatch.setattr(successors, "SMALL", small)
    command = ["reproduce", "successors", "--small", "--device", "cpu", "--out"]
    assert main([*command, str(toy / "a"), "--part", "edges"]) == 0
    assert plans == [(f"random-cora-embedded-{model}", 3, 5) for model in ("gcn", "linear")]
    points = read_results(toy / "a" / "successors-small" / "results.json")["points"]
    assert [p["trials"] for p in points] == [3, 3]
    assert main([*command, str(toy / "b"), "--part", "edges", "--trials", "7"]) == 0
    assert {trials for _, trials, _ in plans[2:]} == {7}


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("split", ["given", "random"])
def test_every_model_has_settings_and_a_space(name, split):
    """What a search starts from is a configuration, and so are the corners of its space and its trials."""
    start, space = start_of(name, "cora", split, epochs=10, hidden=32), space_of(name)
    fixed, more = MODELS[name][2:]
    assert not set(fixed) & set(space) and set(more) <= set(space)
    assert all(getattr(start, option) == value for option, value in fixed.items())
    for option, values in space.items():
        if isinstance(values, Range):
            ends = values.bounds(getattr(start, option))
        else:
            ends = [v for v in values if option != "diffusivity"]
        for value in ends:
            assert getattr(start.replace(**{option: value}), option) == value
    assert start.hidden * (start.heads if name == "gat" else 1) == 32
    trials = draw_trials(start, space, 16, 8, 0)
    assert len(trials) == 16 and all(isinstance(trial.config, Config) for trial in trials)


def test_all_equations_have_one_space():
    """Besides the coefficients of their own."""
    for group in (RIVALS, [name for name in MODELS if name not in RIVALS]):
        spaces = [{k: v for k, v in space_of(name).items() if k not in MODELS[name][3]} for name in group]
        assert all(space == spaces[0] for space in spaces)
    assert Plan(trials=8).trials == 8 and not set(successors.FULL.left_out) - set(successors.FULL.trials)
    assert {*successors.FULL.sets, *successors.FULL.citations} == set(successors.FULL.trials)


@pytest.mark.parametrize("data", ["squirrel", "cora"])
def test_a_search_sees_every_value_of_every_option(data):
    """Sums over rows, columns and both, every diffusivity, x(0) read or not: whatever the start has."""
    own = successors.FULL
    trials = own.trials[data]
    start = start_of("linear", data, "given", epochs=10, hidden=32)
    drawn = draw_trials(start, space_of("linear"), trials, trials // own.each, 0, own.stay)
    for option, choices in space_of("linear").items():
        if not isinstance(choices, Range):
            assert set(choices) <= {getattr(trial.config, option) for trial in drawn}, option


def test_points_leave_out_what_is_too_slow():
    points = successors.points_of(successors.FULL)
    cells = {(p["data"], p["model"]) for p in points}
    assert ("texas", "convection") in cells and ("squirrel", "convection") not in cells
    assert {p["data"] for p in points if p["part"] == "attack"} == {"cora"}


def test_verdict():
    def point(part, model, test, val, level=0.0):
        known = {"part": part, "data": "toy", "model": model, "level": level, "trials": 8}
        return {**known, "test": test, "val": val}

    points = [
        point("sets", "gcn", [50.0, 52.0], [60.0, 60.0]),
        point("sets", "linear", [40.0, 42.0], [50.0, 50.0]),
        point("sets", "fisher", [53.0, 53.0], [61.0, 61.0]),
        point("sets", "acmp", [90.0, 90.0], [55.0, 55.0]),  # better in the test, not chosen by it
        point("labels", "linear", [40.0, 42.0], [50.0, 50.0], 1.0),
        point("labels", "labelled-source", [45.0, 47.2], [50.0, 50.0], 1.0),
        point("labels", "labelled-source", [10.0, 10.0], [50.0, 50.0], 5.0),
        point("attack", "gcn", [80.0, 82.0], [50.0, 50.0]),
        point("attack", "gcn", [50.0, 50.0], [50.0, 50.0], 0.1),
        point("attack", "linear", [80.0, 82.0], [50.0, 50.0]),
        point("attack", "linear", [70.0, 70.0], [50.0, 50.0], 0.1),
        point("attack", "mlp", [60.0, 60.0], [50.0, 50.0]),
        point("attack", "mlp", [60.0, 60.0], [50.0, 50.0], 0.1),  # nothing to lose: it reads no edge
    ]
    said = verdict(points)
    # differences 3 and 1: mean 2, deviation √2, Student's t with one degree of freedom 12.706
    assert "on 1 of 1 sets whose neighbours differ, beyond the interval on 0, and below it on 0" in said
    assert "(toy Fisher +2.0 ± 12.7)" in said
    assert "above GRAND-l in 1 of 1 cases, beyond the interval (toy 1: +5.1)" in said
    assert "An attack on GCN that changes 10% of the edges takes 11.0 points from GRAND-l" in said
    assert "31.0 from GCN, the most" in said
    assert verdict(points[:1]) == "Not enough is measured for a verdict."
    assert [f["difference"] for f in figures(points)][2] == 12.0
    (best,) = best_of_each(points)
    assert (best["best"], best["rival"], best["difference"]) == ("fisher", "gcn", 2.0)


def test_tables():
    """Cells against sums by hand; what was not measured has a dash."""

    def point(part, data, model, test, level=0.0):
        known = {"part": part, "data": data, "model": model, "level": level, "trials": 8}
        return {**known, "test": test, "val": test}

    points = [
        point("sets", "texas", "mlp", [70.0, 70.0]),
        point("sets", "texas", "linear", [80.0, 82.0]),
        point("sets", "texas", "fisher", [81.0, 83.0]),
        point("sets", "actor", "linear", [30.0, 30.0]),
        point("labels", "cora", "linear", [40.0, 40.0], 1.0),
        point("labels", "cora", "adc", [40.0, 40.0], 1.0),
        point("edges", "cora", "linear", [40.0, 40.0], 0.5),
    ]
    made = successor_tables({"points": points})
    assert list(made) == ["successors sets", "successors labels cora", "successors robust"]
    assert made["successors sets"].splitlines() == [
        "|  | texas | actor |",
        "|---|---|---|",
        "| MLP | 70.0 (-11.0 ± 12.7) | – |",
        "| GRAND-l | 81.0 ± 12.7 | 30.0 ± 0.0 |",
        "| Fisher | **82.0 (+1.0 ± 0.0)** | – |",
        "| *best equation by validation* | Fisher | – |",
        "| *best rival by validation* | MLP | – |",
        "| *equation − rival* | +12.0 ± 12.7 | – |",
        "| *trials of each search* | 8 | 8 |",
    ]
    assert "| ADC | 40.0 (0.0 ± 0.0) |" in made["successors labels cora"]
    assert made["successors robust"].splitlines()[0] == "|  | 50% random edges |"
