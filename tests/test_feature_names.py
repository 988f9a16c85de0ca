"""Names of features: kept by every reader, and what a model takes is found by them."""

from __future__ import annotations

import shutil
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from test_cli_bad_input import refused
from test_cli_basics import SMALL, write_graph
from torch_geometric.data import Data

from graphdiffusion.cli import main
from graphdiffusion.data import check_data, open_data, read_graph
from graphdiffusion.data.matching import match_features
from graphdiffusion.errors import DataError, FeaturesWarning
from graphdiffusion.training import load_run

NAMES = ["width", "height", "1e3", "weight", "age"]


def name_features(folder: str, names: list[str], order: list[int] | None = None) -> None:
    """Give the features of a graph a header, and put its columns into another order."""
    path = Path(folder, "features.csv")
    rows = [line.rsplit(",", len(names)) for line in path.read_text().splitlines()]
    order = order or list(range(len(names)))
    lines = [["id", *names], *([row[0], *(row[1 + k] for k in order)] for row in rows)]
    path.write_text("".join(",".join(line) + "\n" for line in lines))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run on a graph whose features have names."""
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    name_features("toy", NAMES)
    shutil.copytree("toy", "kept")
    assert main(["train", "toy", *SMALL, "--out", "run"]) == 0
    return tmp_path


HEADERS = {
    "csv": ("features.csv", "id,width,height\na,1,2\nb,3,4\n"),
    "tsv": ("features.tsv", " id \twidth\t height\na\t1\t2\nb\t3\t4\n"),
    "quoted": ("features.csv", 'id,"width","height"\na,1,2\nb,3,4\n'),
    "of R": ("features.csv", '"width","height"\n"a",1,2\n"b",3,4\n'),
    "numbers": ("features.csv", "id,1,2\na,1,2\nb,3,4\n"),
    "no header": ("features.csv", "a,1,2\nb,3,4\n"),
    "no names": ("features.csv", "id,,\na,1,2\nb,3,4\n"),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_of_texts(tmp_path, kind):
    file, text = HEADERS[kind]
    (tmp_path / "edges.csv").write_text("a,b\n")
    (tmp_path / file).write_text(text)
    found = open_data(tmp_path)
    expected = {"numbers": ["1", "2"], "no header": None, "no names": None}.get(kind, ["width", "height"])
    assert found.get("feature_names") == expected
    assert found.x.tolist() == [[1, 2], [3, 4]]


def test_a_header_of_another_width(tmp_path):
    (tmp_path / "edges.csv").write_text("a,b\n")
    for header in ("id,width", "id,a,b", "id,a,b,c,d,e"):
        (tmp_path / "features.csv").write_text(f"{header}\na,1,2,3,4\nb,3,4,5,6\n")
        with pytest.raises(
            DataError, match=r"features.csv, line 2: expected \d columns as in line 1, found 5"
        ):
            open_data(tmp_path)


def test_names_in_parquet(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "edges.csv").write_text("a,b\n")
    pq.write_table(
        pa.table({"id": ["a", "b"], "width": [1.0, 2.0], "height": [3, 4]}), tmp_path / "f.parquet"
    )
    assert read_graph(tmp_path / "edges.csv", tmp_path / "f.parquet").feature_names == ["width", "height"]


def test_names_in_arrays(tmp_path):
    edges, x, names = np.array([[0], [1]]), np.eye(2, 3) + 1, np.array(["a", "b", "c"])
    np.savez(tmp_path / "graph.npz", edge_index=edges, x=x, feature_names=names)
    assert open_data(tmp_path / "graph.npz").feature_names == ["a", "b", "c"]
    np.savez(tmp_path / "edges.npz", edge_index=edges)
    for arrays in ({"x": x}, {"anything": x}):
        np.savez(tmp_path / "f.npz", feature_names=names, **arrays)
        assert read_graph(tmp_path / "edges.npz", tmp_path / "f.npz").feature_names == ["a", "b", "c"]
    np.savez(tmp_path / "f.npz", x=x)
    assert read_graph(tmp_path / "edges.npz", tmp_path / "f.npz").get("feature_names") is None
    for wrong in (names[:2], np.arange(3), names[None]):
        np.savez(tmp_path / "graph.npz", edge_index=edges, x=x, feature_names=wrong)
        with pytest.raises(DataError, match=r"graph.npz: feature_names must be texts of shape \(3,\)"):
            open_data(tmp_path / "graph.npz")


def test_names_are_as_many_as_features(tmp_path):
    data = open_data(write_graph(tmp_path / "toy"))
    data.feature_names = ["a", "b"]
    with pytest.raises(DataError, match="feature_names must have 5 entries, one for each feature, got 2"):
        check_data(data)


def predicted(*arguments: str) -> bytes:
    assert main(["predict", "run", *arguments, "--out", "p.csv"]) == 0
    return Path("p.csv").read_bytes()


def test_columns_are_found_by_their_names(run, capsys):
    expected, order = predicted(), [3, 1, 4, 0, 2]
    write_graph(Path("swapped"))
    name_features("swapped", [NAMES[k] for k in order], order)
    assert predicted("--data", "swapped") == expected
    write_graph(Path("plain"))
    assert predicted("--data", "plain") == expected
    for names, says in (
        (["width", "height", "1e3", "weight", "years"], "other lacks the feature 'age' of the training"),
        (
            ["a", "b", "c", "d", "age"],
            "lacks the features 'width', 'height', '1e3' and 1 more of the training",
        ),
        (
            ["a", "b", "c", "d", "e"],
            "other has none of the 5 features of the training: it has 'a', 'b', 'c'",
        ),
        (["width", "age", "age", "height", "weight"], "features.csv: two columns are named 'age'"),
    ):
        shutil.rmtree("other", ignore_errors=True)
        write_graph(Path("other"))
        name_features("other", names)
        capsys.readouterr()
        refused(capsys, ["predict", "run", "--data", "other"], says)


def test_more_or_fewer_columns(run, capsys):
    """Columns that the training did not have are left out; one that it had is asked for by its name."""
    expected = predicted()
    write_graph(Path("more"))
    name_features("more", NAMES)
    lines = Path("more/features.csv").read_text().splitlines()
    lines = [f"{line},{'colour' if k == 0 else k}" for k, line in enumerate(lines)]
    Path("more/features.csv").write_text("\n".join(lines))
    capsys.readouterr()
    assert predicted("--data", "more") == expected
    note = "more: 1 feature is left out, because the training has none of this name: 'colour'"
    assert capsys.readouterr().err.count(note) == 1
    with pytest.warns(FeaturesWarning, match="1 feature is left out") as found:
        load_run("run").predict(open_data("more"))
    assert [Path(warning.filename).name for warning in found] == [Path(__file__).name]
    write_graph(Path("fewer"), features=4)
    name_features("fewer", NAMES[:4])
    refused(capsys, ["predict", "run", "--data", "fewer"], "fewer lacks the feature 'age' of the training")
    write_graph(Path("unnamed"), features=4)
    refused(capsys, ["predict", "run", "--data", "unnamed"], "take 5 features a node, but unnamed has 4")


def write_words(folder: str, words: list[set[str]]) -> None:
    """A ring of nodes with words, in the long format."""
    Path(folder).mkdir()
    n = len(words)
    Path(folder, "edges.csv").write_text("".join(f"{i},{(i + 1) % n}\n" for i in range(n)))
    rows = [f"{i},{word},1\n" for i, own in enumerate(words) for word in sorted(own)]
    Path(folder, "features.csv").write_text("id,feature,value\n" + "".join(rows))


@pytest.fixture
def words(tmp_path, monkeypatch):
    """A run on a graph with features in the long format."""
    monkeypatch.chdir(tmp_path)
    write_words("toy", [{"w0", f"w{i % 6}", f"w{5 - i % 3}"} for i in range(60)])
    Path("toy/labels.csv").write_text("".join(f"{i},{'ab'[i % 2]}\n" for i in range(60)))
    assert main(["train", "toy", *SMALL, "--out", "run"]) == 0
    return load_run("run")


def test_words_that_do_not_occur(words, capsys):
    """In the long format what has no row is zero, also where a word has no row at all."""
    assert words.feature_names == [f"w{k}" for k in range(6)]
    write_words("part", [{"w1", "w5", "w4", "w3"} if i else {"w3"} for i in range(20)])
    data = open_data("part")
    dense = torch.zeros(20, 6)
    dense[1:, [1, 4, 5]], dense[:, 3] = 1.0, 1.0
    same = data.clone()
    same.x, same.feature_names = dense, words.feature_names
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(words.predict(data), words.predict(same))
    capsys.readouterr()
    predicted("--data", "part")
    assert "features" not in capsys.readouterr().err
    write_words("other", [{"w3", "new", f"n{i}"} for i in range(20)])
    predicted("--data", "other")
    err = capsys.readouterr().err
    assert (
        "other: 21 features are left out, because the training has none of these names: 'n0', 'n1'" in err
    )
    assert "5 of 6 features of the training do not occur and are zero: 'w0', 'w1', 'w2' and 2 more" in err
    write_words("strange", [{"x", f"y{i}"} for i in range(20)])
    refused(capsys, ["predict", "run", "--data", "strange"], "none of the 6 features of the training")


def test_nodes_as_features(tmp_path, monkeypatch, capsys):
    """Without features every node is one: of another graph those count that the training had."""
    monkeypatch.chdir(tmp_path)
    for folder, nodes in (("toy", range(40)), ("later", range(1, 42))):
        Path(folder).mkdir()
        ring = [f"v{a},v{b}\n" for a, b in zip(nodes, [*nodes[1:], nodes[0]], strict=True)]
        Path(folder, "edges.csv").write_text("".join(ring))
    Path("toy/labels.csv").write_text("".join(f"v{i},{'ab'[i // 20]}\n" for i in range(40)))
    assert main(["train", "toy", *SMALL, "--out", "run"]) == 0
    run, later = load_run("run"), open_data("later")
    matched, (note,) = run.matched(later)
    assert note == (
        "later: 2 features are left out, because the training has none of these names: 'v40', 'v41'"
    )
    found = matched.x.to_dense()
    for k, node in enumerate(later.node_ids):
        own = [float(name == node) for name in run.feature_names]
        assert found[k].tolist() == own, node


def test_matching_takes_linear_time():
    """To search for each of so many names among all takes half a minute."""
    names = [f"f{k}" for k in range(40_000)]
    data = Data(x=torch.randn(2, 40_000), feature_names=names[::-1])
    start = time.perf_counter()
    x, notes = match_features(data, names)
    assert time.perf_counter() - start < 3 and notes == [] and torch.equal(x, data.x.flip(1))


def test_two_features_of_one_name(run):
    """They have the order of the training, or cannot be told apart."""
    data, trained = open_data("toy"), load_run("run")
    names = ["a", "a", "b", "c", "d"]
    doubled = replace(trained, feature_names=names)
    data.feature_names = names
    assert doubled.predict(data).equal(trained.predict())
    data.feature_names = names[::-1]
    with pytest.raises(
        DataError, match="the training has several features named 'a', so that they cannot be matched"
    ):
        doubled.predict(data)


def test_columns_of_sparse_features(run):
    data = open_data("toy")
    x = data.x.clone()
    x[x < 1.0] = 0.0
    run, order = load_run("run"), [2, 0, 1, 4, 3]
    data.x = x
    expected = run.predict(data)
    names = [NAMES[k] for k in order]
    for convert in (torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_coo):
        data.x, data.feature_names = convert(x[:, order]), names
        torch.testing.assert_close(run.predict(data), expected)
    csr = sp.csr_matrix(x.numpy())
    assert run.matched(data)[0].x.col_indices().tolist() == csr.indices.tolist()


def test_an_edited_header_is_noticed(run, capsys):
    capsys.readouterr()
    for names in (["width", "height", "1e3", "weight", "years"], [*NAMES[1:], NAMES[0]]):
        path = Path("toy/features.csv")
        path.write_text(
            path.read_text().replace(path.read_text().splitlines()[0], ",".join(["id", *names]))
        )
        for command in (["evaluate", "run"], ["predict", "run"]):
            refused(capsys, command, "the feature names of toy have changed since the run began")
    Path("run/summary.json").unlink()
    refused(
        capsys, ["train", "--resume", "--out", "run"], "the feature names of toy have changed since the run"
    )
    shutil.rmtree("toy")
    shutil.copytree("kept", "toy")
    assert main(["train", "--resume", "--out", "run"]) == 0
