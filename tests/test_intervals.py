"""95% intervals: over splits, or the binomial error of the nodes where there is only one split."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest
from scipy.stats import t as student
from test_cli_basics import SMALL, toy, write_graph  # noqa: F401

from graphdiffusion.cli import main


def test_splits_and_not_trainings_are_independent():
    """Four splits with eight initialisations: the interval is that of four values."""
    from graphdiffusion.training.summary import spread

    means = [0.78, 0.80, 0.83, 0.84]
    values = [m + 0.001 * (i - 3.5) for m in means for i in range(8)]
    splits = [s for s in range(4) for _ in range(8)]
    found = spread(values, splits, 1000, "test nodes")
    half = 3.182446 * 100 * statistics.stdev(means) / 2  # Student's t with 3 degrees of freedom
    assert found["mean"] == pytest.approx(81.25)
    assert found["ci95"] == pytest.approx([81.25 - half, 81.25 + half], abs=1e-4)
    assert (found["interval"], found["splits"], found["trainings"]) == ("splits", 4, 32)
    assert found["std"] == pytest.approx(100 * statistics.stdev(values))


def test_the_interval_covers():
    """Where accuracies vary with the split, 95% of the intervals hold the true mean."""
    from graphdiffusion.training.summary import spread

    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        split = rng.normal(0.8, 0.03, 4)
        values = np.clip(np.repeat(split, 8) + rng.normal(0, 0.005, 32), 0, 1).tolist()
        low, high = spread(values, np.repeat(range(4), 8).tolist(), 1000, "test nodes")["ci95"]
        hits += low <= 80 <= high
    assert 930 <= hits <= 970


@pytest.mark.parametrize("right", [0, 1, 660, 999, 1000])
def test_one_split_has_the_binomial_error_of_its_nodes(right):
    from graphdiffusion.training.summary import describe, spread

    found = spread([right / 1000] * 3, [7] * 3, 1000, "test nodes")
    wilson = binomtest(right, 1000).proportion_ci(method="wilson")
    assert found["ci95"] == pytest.approx([100 * wilson.low, 100 * wilson.high])
    assert found["interval"] == "test nodes" and found["ci95"][0] < found["ci95"][1]
    assert found["ci95"][0] <= found["mean"] <= found["ci95"][1]
    assert "binomial error of 1000 test nodes" in describe(found)


def test_equal_splits_have_the_binomial_error_of_one():
    from graphdiffusion.training.summary import spread

    equal = spread([0.66] * 5, list(range(5)), 1000, "test nodes")
    assert equal == spread([0.66] * 5, [0] * 5, 1000, "test nodes") | {"splits": 5}
    # means that differ by rounding only are equal, too
    near = spread([0.1 + 0.2, 0.3, 0.3], [0, 1, 2], 100, "test nodes")
    assert near["interval"] == "test nodes" and near["ci95"][1] - near["ci95"][0] > 10


def test_commands(toy, capsys):  # noqa: F811
    assert main(["train", "toy", *SMALL, "--inits", "3", "--out", "run"]) == 0
    shown = " ".join(re.sub(r"[│\n]", " ", capsys.readouterr().out).split())
    summary = json.loads(Path("run/summary.json").read_text())
    tests = [r["test"] for r in summary["results"]]
    means = [statistics.fmean(tests[:3]), statistics.fmean(tests[3:])]
    half = 12.7062047 * 100 * statistics.stdev(means) / math.sqrt(2)  # one degree of freedom
    middle = 100 * statistics.fmean(means)
    low, high = max(0, middle - half), min(100, middle + half)
    assert summary["test"]["interval"] == "splits"
    assert summary["test"]["ci95"] == pytest.approx([low, high])
    says = f"(95% interval {low:.2f} to {high:.2f}, over 2 splits)"
    assert says in shown
    assert main(["evaluate", "run"]) == 0
    assert f"test accuracy: {middle:.2f} ± {summary['test']['std']:.2f}% {says}" in capsys.readouterr().out
    assert main(["evaluate", "run", "--member", "0"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"test accuracy: [\d.]+% \(95% interval .*, binomial error of 15 test nodes\)", shown)
    assert "binomial error of 33 validation nodes" in shown


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_published_intervals_are_of_this_kind(table):
    from graphdiffusion.training.storage import read_json
    from graphdiffusion.training.summary import wilson

    path = Path(__file__).parent.parent / "docs" / "results" / f"{table}.json"
    for cell in read_json(path, "table")["cells"]:
        mean, nodes, splits = cell["mean"], cell["test_nodes"], cell["splits"]
        right = mean / 100 * nodes * cell["members"]
        assert right == pytest.approx(
            round(right), abs=1e-6
        )  # answers are whole: the nodes are counted right
        if table == "table1":
            low, high = (100 * end for end in wilson(mean / 100, nodes))
            assert cell["interval"] == "test nodes" and splits == 1
        else:
            half = student.ppf(0.975, splits - 1) * cell["std"] / math.sqrt(splits)
            low, high = mean - half, mean + half
            assert cell["interval"] == "splits" and cell["inits"] == 1
        assert cell["ci95"] == pytest.approx([low, high])


def test_a_given_split_is_one_whatever_the_seeds(toy):  # noqa: F811
    path = toy / "labels.csv"
    parts = ("train", "val", "test")
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line},{parts[i % 3]}\n" for i, line in enumerate(lines)))
    at = SMALL.index("--per-class")
    given = [*SMALL[:at], *SMALL[at + 2 :], "--split", "given", "--splits", "0"]
    assert main(["train", "toy", *given, "--inits", "4", "--out", "run"]) == 0
    test = json.loads(Path("run/summary.json").read_text())["test"]
    assert (test["interval"], test["splits"], test["nodes"], test["trainings"]) == ("test nodes", 1, 20, 4)
    assert test["ci95"][1] - test["ci95"][0] > 20
