"""Text files as spreadsheets write them: separators, decimal commas, encodings; and whole numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphdiffusion.data import open_data, read_graph, textfiles
from graphdiffusion.data.wholenumbers import read_whole_numbers
from graphdiffusion.errors import DataError

TABLES = {
    "edges": "source,target,weight\na,b,0.5\nb,c,2.25\nc,a,1.0\n",
    "features": "id,age,height\na,1,0.125\nb,-2.5,1e-3\nc,3.0,7.75\n",
    "labels": "id,label\na,0.5\nb,1.25\nc,\n",
}


def write(
    folder: Path, separator: str, suffix: str = "csv", comma: bool = False, header: bool = True
) -> Path:
    """The tables with another separator, and with decimal commas."""
    for name, text in TABLES.items():
        lines = text.splitlines(keepends=True)[0 if header else 1 :]
        text = "".join(lines).replace(",", separator)
        (folder / f"{name}.{suffix}").write_text(text.replace(".", ",") if comma else text)
    return folder


@pytest.fixture
def plain(tmp_path_factory):
    return open_data(write(tmp_path_factory.mktemp("plain"), ","))


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    ("separator", "suffix", "comma", "said"),
    [
        (";", "csv", False, "semicolons"),
        (";", "csv", True, "semicolons"),
        ("\t", "csv", True, "tabs"),
        ("\t", "tsv", True, ""),
        (";", "tsv", True, "semicolons"),
        (",", "tsv", False, "commas"),
    ],
)
def test_separators_and_decimal_commas(tmp_path, plain, separator, suffix, comma, said, header):
    data = open_data(write(tmp_path, separator, suffix, comma, header))
    for key in ("x", "y", "edge_index", "edge_weight"):
        assert torch.equal(data[key].nan_to_num(-1), plain[key].nan_to_num(-1)), key
    assert data.task == "regression" and data.node_ids == ["a", "b", "c"]
    assert data.get("feature_names") == (["age", "height"] if header else None)
    notes = "\n".join(data.notes)
    for name in TABLES:
        assert (f"{name}.{suffix}: the columns are taken as separated by {said}" in notes) == bool(said)
        assert (f"{name}.{suffix}: a comma in a number is taken as a decimal comma" in notes) == comma


def test_the_first_line_decides(tmp_path):
    """A mark in a cell or in quotes separates nothing."""
    edges, labels = tmp_path / "edges.csv", tmp_path / "labels.csv"
    edges.write_text("a,b\nb,c\n")
    for text, names in (
        ("id,label\na,x;y\nb,z\tw\n", ["x;y", "z\tw"]),
        ("a,x;y\nb,z\n", ["x;y", "z"]),
        ('\n"id;no","label"\na,x\nb,y\n', ["x", "y"]),
        ('"id";"label, or class"\na;x,y\nb;z\n', ["x,y", "z"]),
        ("id;label\na;0,5\nb;x\n", ["0,5", "x"]),  # not all labels are numbers
    ):
        labels.write_text(text)
        assert read_graph(edges, labels=labels).class_names == names, text
    labels.write_text("id;label\n1,5;x\n2,5;y\n")  # ids are texts
    edges.write_text("source;target\n1,5;2,5\n")
    assert read_graph(edges, labels=labels).node_ids == ["1,5", "2,5"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("features.csv", "id;age\na;1,5\nb;1.234\nc;1\n"),
        ("labels.csv", "id;label\na;1,5\nb;1.234\n"),
        ("edges.csv", "source;target;weight\na;b;1,5\nb;c;1.234\n"),
    ],
)
def test_points_and_decimal_commas(tmp_path, file, text):
    write(tmp_path, ";")
    (tmp_path / file).write_text(text)
    with pytest.raises(DataError, match=f"{file}: some numbers have a decimal comma and others a point"):
        open_data(tmp_path)


def test_numbers_with_commas_that_are_none(tmp_path):
    write(tmp_path, ";")
    (tmp_path / "features.csv").write_text("id;age\na;1,234,567\nb;1\nc;1\n")
    with pytest.raises(DataError, match="'1,234,567' is not a number"):
        open_data(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_encodings(tmp_path, plain, encoding):
    write(tmp_path, ",")
    for path in tmp_path.iterdir():
        text = path.read_text()
        path.write_text("\ufeff" + text if encoding == "utf-16-be" else text, encoding=encoding)
    if encoding == "utf-8-sig":
        assert torch.equal(open_data(tmp_path).x, plain.x) and open_data(tmp_path).notes == plain.notes
    else:
        with pytest.raises(DataError, match=r"edges\.csv is UTF-16 or UTF-32 text; save it as UTF-8"):
            open_data(tmp_path)


def test_whole_numbers_make_no_objects(tmp_path, monkeypatch):
    path = tmp_path / "edges.csv"
    path.write_text("source,target\n" + "".join(f"{i},{(i * i) % 1000}\n" for i in range(1000)))
    expected = read_graph(path)
    monkeypatch.setattr(textfiles._Reader, "_read_rows", None)
    found = read_graph(path)
    assert torch.equal(found.edge_index, expected.edge_index) and found.node_ids == expected.node_ids


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x;y\n1;20\r\n300;0\n5;6", [[1, 20], [300, 0], [5, 6]]),
        ("x;y\n", []),
        ("x;y\n999999999999999999;1\n", [[999999999999999999, 1]]),
        *[
            (text, None)
            for text in (
                "x;y\n9999999999999999999;1\n", "x;y\n1;02\n", "x;y\n1;\n", "x;y\n1;2\n\n",
                "x;y\n1;2;3\n4\n", "x;y\n1\n2;3\n", "x;y\n1;-2\n", "x;y\n1; 2\n",
                "\n1;2\n3;4\n", "x;y\r1;2\r", "x;y\n1;2.0\n",
            )
        ],
    ],
)  # fmt: skip
def test_what_is_a_plain_whole_number(tmp_path, text, expected):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    found = read_whole_numbers(path, ";", 2)
    assert (None if found is None else found.tolist()) == expected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(
            st.sampled_from(["0", "1", "12", "007", " 3", "4 ", '"5"', "", "x"]), min_size=2, max_size=2
        )
    ),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    st.booleans(),
)
def test_whole_numbers_are_read_as_other_cells_are(tmp_path, rows, end, header):
    """Whatever the file: the same graph, or the same refusal."""
    path = tmp_path / "edges.csv"
    lines = [*([["source", "target"]] if header else []), *rows]
    path.write_bytes("".join(",".join(line) + end for line in lines).encode())

    def read() -> tuple[object, ...]:
        try:
            data = read_graph(path)
        except DataError as error:
            return (str(error),)
        return data.node_ids, data.edge_index.tolist(), data.notes

    quick = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textfiles, "read_whole_numbers", lambda *_: None)
        assert read() == quick
