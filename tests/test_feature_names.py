"""Names of features: kept by every reader, and what a model takes is found by them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from test_cli_bad_input import refused
from test_cli_basics import SMALL, write_graph

from graphdiffusion.cli import main
from graphdiffusion.data import check_data, open_data, read_graph
from graphdiffusion.errors import DataError
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
    with pytest.raises(DataError, match="feature_names has 2 entries for 5 features"):
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
        (["width", "height", "1e3", "weight", "years"], "a feature 'age', and other has none of that name"),
        (["width", "age", "age", "height", "weight"], "features.csv: two columns are named 'age'"),
    ):
        shutil.rmtree("other", ignore_errors=True)
        write_graph(Path("other"))
        name_features("other", names)
        capsys.readouterr()
        refused(capsys, ["predict", "run", "--data", "other"], says)


def test_two_features_of_one_name(run):
    """They have the order of the training, or cannot be told apart."""
    data, trained = open_data("toy"), load_run("run")
    names = ["a", "a", "b", "c", "d"]
    doubled = replace(trained, feature_names=names)
    data.feature_names = names
    assert doubled.predict(data).equal(trained.predict())
    data.feature_names = names[::-1]
    with pytest.raises(DataError, match="has a feature 'a', and toy has several of that name"):
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
    assert run._features(data).col_indices().tolist() == csr.indices.tolist()


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
