"""Bad input: exit code 2, one clear sentence on standard error, nothing left behind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from test_cli_basics import SMALL, toy, write_graph  # noqa: F401

from graphdiffusion.cli import main

# what a training says about its data before it begins
ABOUT = re.compile(r"grand: (\S+: [\d,]+ nodes, |split \w+: |labels that train|one configuration, )")


def refused(capsys, arguments: list[str], says: str) -> None:
    before = sorted(str(p) for p in Path().rglob("*"))
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if not ABOUT.match(line)]
    assert len(lines) == 1 and lines[0].startswith("grand: "), captured.err
    assert "Traceback" not in captured.err
    assert says in captured.err, captured.err
    assert sorted(str(p) for p in Path().rglob("*")) == before


OPTIONS = [
    (["--hiden", "8"], "no such option --hiden: did you mean --hidden?"),
    (["--no-rellu"], "did you mean --no-relu?"),
    (["--hidden", "many"], "--hidden must be a whole number, got 'many'"),
    (["--hidden"], "requires an argument"),
    (["--hidden", "0"], "hidden must be at least 1, got 0"),
    (["--epochs", "1.5"], "--epochs must be a whole number, got '1.5'"),
    (["--rate", "fast"], "--rate must be a number, got 'fast'"),
    (["--rate", "nan"], "rate must be finite"),
    (["--dropout", "1"], "dropout must be between 0 and 0.999"),
    (["--time", "-1"], "time must be at least 0"),
    (["--variant", "liner"], "Did you mean 'linear'?"),
    (["--heads", "3"], "attention_dim must be a positive multiple of heads"),
    (["--solver", "exponential", "--variant", "nonlinear"], "needs an equation with a closed form"),
    (["--variant", "nonlinear-rewired", "--keep", "1.5"], "keep must be between 0 and 1, got 1.5"),
    (["--solver", "rk4", "--rtol", "0.1"], "rtol is an option of solver "),
    (["--model", "gcm"], "model must be one of "),
    (["--model", "gcn", "--time", "3"], "time is an option of model cgnn, model gde"),
    (["--terms", "sorce"], "got 'sorce'. Did you mean 'source'?"),
    (["--equation", "fisher"], "got 'fisher'. 'fisher' is a term: give it to terms."),
    (["--terms", "source,acmp"], "got 'acmp'. 'acmp' is an equation: give it to equation."),
    (["--rewire", "ppr", "--rewire-alpha", "1"], "alpha must lie between 0 and 1"),
    (["--preset", "papre"], "there is no preset 'papre'"),
    (["--config", "nowhere.toml"], "cannot read the configuration nowhere.toml"),
    (["--resume"], "--resume needs --out FOLDER"),
    (["--resume", "--out", "nowhere"], "nowhere holds no run to go on with"),
    (["--out", "toy"], "toy holds other files and no run"),
    (["--out", "toy/edges.csv"], "is a file: name a folder"),
    (["--out", "/dev/null/run"], "/dev/null"),
    (["--per-class", "50"], "take per_class of at most 20"),
    (["--development", "60"], "development must be more than"),
    (["--split", "given"], "carries no fixed split"),
    (["another"], "unexpected extra argument"),
    # this one fails only in the first epoch, when the folder has been made
    (["--variant", "nonlinear", "--max-evaluations", "1"], "evaluations"),
]


@pytest.mark.parametrize(("arguments", "says"), OPTIONS, ids=[" ".join(a) for a, _ in OPTIONS])
def test_options(toy, capsys, arguments, says):  # noqa: F811
    out = [] if "--out" in arguments or arguments == ["--resume"] else ["--out", "run"]
    refused(capsys, ["train", "toy", *SMALL, *out, *arguments], says)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(toy, capsys):  # noqa: F811
    refused(capsys, ["train", "toy", "--out", "run", "--device", "cuda"], "torch finds no GPU here")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trian"], "train"),
        (["train", "crora"], "there is no data set 'crora'. Did you mean 'cora'?"),
        (["train", "./nowhere"], "nor is there a folder or file of that name"),
        (["train", "cora", "--root", "nowhere"], "which is not a folder"),
        (["data", "info", "citeser"], "Did you mean 'citeseer'?"),
        (["evaluate"], "Missing argument"),
        (["evaluate", "toy"], "toy holds no run"),
        (["predict", "toy", "--out", "p.csv"], "toy holds no run"),
    ],
)
def test_names(toy, capsys, arguments, says):  # noqa: F811
    refused(capsys, arguments, says)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"hidden = ", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"hiden = 8", "unknown option 'hiden': did you mean 'hidden'?"),
        (b'hidden = "8"', "hidden must be a whole number, got '8'"),
        (b"data = 3", "data must be a text, got 3"),
        (b"[modell]\nhidden = 8", "unknown option 'modell'"),
    ],
)
def test_configuration_files(toy, capsys, content, says):  # noqa: F811
    Path("mine.toml").write_bytes(content)
    given = [] if b"data" in content else ["toy"]
    refused(capsys, ["train", *given, "--config", "mine.toml", "--out", "run"], says)


def _line(file: str, number: int, text: str) -> None:
    path = Path("toy", file)
    lines = path.read_text().splitlines()
    lines[number - 1] = text
    path.write_text("\n".join(lines) + "\n")


def _splits(name: str) -> None:
    path = Path("toy/labels.csv")
    path.write_text("".join(f"{line},{name}\n" for line in path.read_text().splitlines()))


GRAPHS = {
    "no edges": (lambda: Path("toy/edges.csv").unlink(), "toy holds no edges"),
    "short edge": (lambda: _line("edges.csv", 7, "lonely"), "edges.csv, line 7"),
    "unknown node": (lambda: _line("edges.csv", 9, "x,y"), "edges.csv, line 9: node 'x' has no row"),
    "no number": (lambda: _line("features.csv", 4, '"node ""3"", 3",1,2,x,4,5'), "features.csv, line 4"),
    "NaN": (lambda: _line("features.csv", 4, '"node ""3"", 3",1,2,nan,4,5'), "features.csv, line 4"),
    "twice": (lambda: _line("features.csv", 4, '"node ""2"", 2",1,2,3,4,5'), "is listed twice"),
    "unknown split": (lambda: _splits("training"), "unknown split 'training'"),
    "no training": (lambda: _splits("val"), "no training node"),
    "no labels": (lambda: Path("toy/labels.csv").unlink(), "no labels"),
    "not UTF-8": (lambda: Path("toy/edges.csv").write_bytes(b"a,b\n\xe9,c\n"), "edges.csv, line 2"),
    "UTF-16": (lambda: Path("toy/edges.csv").write_text("a,b\n", encoding="utf-16"), "is UTF-16 or UTF-32"),
    "empty": (lambda: Path("toy/edges.csv").write_text(""), "edges.csv is empty"),
    "two files": (lambda: Path("toy/edges.tsv").write_text("a\tb\n"), "keep only the one to be read"),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_own_graphs(toy, capsys, kind):  # noqa: F811
    spoil, says = GRAPHS[kind]
    spoil()
    refused(capsys, ["train", "toy", *SMALL, "--split", "auto", "--splits", "0", "--out", "run"], says)
    refused(capsys, ["train", "toy", "--out", "run"], says)  # the automatic choice


def test_own_arrays(toy, capsys):  # noqa: F811
    Path("cut.npz").write_bytes(b"PK\x03\x04 and no more")
    refused(capsys, ["train", "cut.npz", "--out", "run"], "cut.npz cannot be read as NumPy arrays")
    np.savez("pickled.npz", edge_index=np.array([{"a": 1}], dtype=object))
    refused(capsys, ["train", "pickled.npz", "--out", "run"], "pickled.npz cannot be read")
    np.savez("far.npz", edge_index=np.array([[0], [9]]), x=np.ones((3, 2)), y=np.zeros(3, int))
    refused(capsys, ["train", "far.npz", "--out", "run"], "an edge names node 9")


def test_runs(toy, capsys, monkeypatch):  # noqa: F811
    assert main(["train", "toy", *SMALL, "--out", "run"]) == 0
    capsys.readouterr()
    write_graph(Path("other"), 12, features=4)
    refused(capsys, ["train", "toy", *SMALL, "--out", "run"], "add --resume to go on with it")
    refused(
        capsys, ["train", "--out", "run", "--resume", "--hidden", "9"], "started with --hidden 8, not 9"
    )
    refused(capsys, ["train", "cora", "--out", "run", "--resume"], "was started with DATA")
    refused(capsys, ["train", "--out", "run", "--resume", "--preset", "none"], "leave out --preset")
    refused(capsys, ["evaluate", "run", "--member", "2"], "a number from 0 to 1, best or all, got '2'")
    refused(capsys, ["predict", "run", "--member", "worst"], "a number from 0 to 1, best or all")
    refused(capsys, ["predict", "run", "--data", "other"], "take 5 features a node, but other has 4")
    refused(capsys, ["predict", "run", "--data", "citeser"], "Did you mean 'citeseer'?")
    refused(capsys, ["predict", "run", "--out", "toy"], "toy is a folder")
    refused(capsys, ["predict", "run", "--out", "toy/edges.csv/p.csv"], "toy/edges.csv")
    Path("toy/labels.csv").rename("labels.csv")
    refused(capsys, ["evaluate", "run"], "the labels and class names (3 then, 0 now) of toy have changed")
    Path("labels.csv").rename("toy/labels.csv")
    for file, content, says in (
        ("model.safetensors", b"abc", "cannot be read as safetensors"),
        ("summary.json", b"{", "not valid JSON"),
        ("config.toml", b"hidden = ", "not valid TOML"),
    ):
        shutil.copytree("run", "spoilt")
        Path("spoilt", file).write_bytes(content)
        refused(capsys, ["evaluate", "spoilt"], says)
        shutil.rmtree("spoilt")
    Path("run/summary.json").unlink()
    refused(capsys, ["evaluate", "run"], "go on with grand train --resume --out run")
    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "soon")
    refused(capsys, ["train", "toy", *SMALL, "--out", "new"], "GRAND_CHECKPOINT_SECONDS must be a number")
