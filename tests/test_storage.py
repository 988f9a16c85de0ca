"""Files: written as a whole or not at all, through links and into pipes, and refused when damaged."""

from __future__ import annotations

import json
import math
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from test_cli_basics import SMALL, toy  # noqa: F401

from graphdiffusion.cli import main
from graphdiffusion.errors import DataError, StorageError
from graphdiffusion.files import write_bytes
from graphdiffusion.training.journal import Journal, read_lines
from graphdiffusion.training.storage import read_json, read_tensors, write_json, write_tensors


@pytest.fixture
def run(toy):  # noqa: F811
    assert main(["train", "toy", *SMALL, "--out", "run", "--quiet"]) == 0
    return toy


def predicted(run) -> bytes:
    assert main(["predict", "run", "--out", "expected.csv"]) == 0
    return Path("expected.csv").read_bytes()


def test_predictions_go_through_links(run):
    expected = predicted(run)
    Path("far").mkdir()
    Path("far/old.csv").write_text("old")
    for link, target in (
        ("link.csv", "far/old.csv"),
        ("chain.csv", "link.csv"),
        ("new.csv", "far/made.csv"),
    ):
        Path(link).symlink_to(target)
        assert main(["predict", "run", "--out", link]) == 0
        assert Path(link).is_symlink() and os.readlink(link) == target
        assert Path(link).read_bytes() == expected
    assert sorted(p.name for p in Path("far").iterdir()) == ["made.csv", "old.csv"]
    Path("loop.csv").symlink_to("loop.csv")
    assert main(["predict", "run", "--out", "loop.csv"]) == 2


def test_predictions_go_into_pipes_and_open_files(run):
    expected = predicted(run)
    os.mkfifo("pipe")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(Path("pipe").read_bytes()), daemon=True)
    reader.start()
    assert main(["predict", "run", "--out", "pipe"]) == 0
    reader.join(timeout=10)
    assert found == [expected] and Path("pipe").is_fifo()
    # /dev/fd/N stands for an open file, as /dev/stdout does: what it holds already stays
    with open("both.csv", "wb") as file:
        file.write(b"before\n")
        file.flush()
        assert main(["predict", "run", "--out", f"/dev/fd/{file.fileno()}"]) == 0
    assert Path("both.csv").read_bytes() == b"before\n" + expected
    assert not list(Path().glob(".*"))


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """A limit on the size of files: writing beyond it fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_named(run, capsys):
    before = sorted(Path().rglob("*"))
    capsys.readouterr()
    with small_files(1000):
        assert main(["predict", "run", "--out", "p.csv"]) == 2
    assert capsys.readouterr().err == "grand: cannot write p.csv: File too large.\n"
    assert sorted(Path().rglob("*")) == before


def test_a_full_disk_during_a_training(toy, capsys):  # noqa: F811
    """The error names the file, and the run goes on when there is room again."""
    with small_files(8000):
        assert main(["train", "toy", *SMALL, "--hidden", "64", "--out", "run"]) == 2
    says = capsys.readouterr().err
    assert says.endswith("grand: cannot write run/chunks/00000.safetensors: File too large.\n")
    assert not list(Path("run").rglob(".*"))
    assert main(["train", "--resume", "--out", "run"]) == 0


def test_json_is_valid(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, "thing", {"a": math.nan, "b": [1.5, math.inf, {"c": -math.inf}]})
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["b"] == [1.5, None, {"c": None}]
    assert read_json(path, "thing") == {"a": None, "b": [1.5, None, {"c": None}]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}", "has no checksum"),
        ('{"a": 1}', "has no checksum"),
        ("[]", "has no checksum"),
        ("null", "has no checksum"),
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("9" * 5000, "not valid JSON"),
    ],
    ids=["empty object", "no checksum", "list", "null", "empty", "deep", "long number"],
)
def test_foreign_json_is_refused(tmp_path, content, says):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(DataError, match=says):
        read_json(path, "thing")


def test_changed_json_is_refused(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, "thing", {"a": 1, "b": [2.5]})
    text = path.read_text()
    path.write_text(text.replace("2.5", "2.6"))
    with pytest.raises(DataError, match=r"a.json was changed or damaged after it was written: put"):
        read_json(path, "thing")
    path.write_text(text)
    with pytest.raises(DataError, match="does not hold what it should \\(summary\\), but something else"):
        read_json(path, "summary")
    assert read_json(path, "thing") == {"a": 1, "b": [2.5]}


def test_tensors(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors = {
        "a": torch.arange(6.0).view(2, 3), "b": torch.tensor(True), "c": torch.zeros(0, 4),
        "d": torch.ones(3, dtype=torch.bfloat16),
    }  # fmt: skip
    write_tensors(path, "thing", tensors, {"x": 1.5})
    first = path.read_bytes()
    found, note = read_tensors(path, "thing")
    assert note == {"x": 1.5} and found.keys() == tensors.keys()
    assert all(torch.equal(value, tensors[name]) for name, value in found.items())
    write_tensors(path, "thing", dict(reversed(tensors.items())), {"x": 1.5})
    assert path.read_bytes() == first
    for k in range(0, len(first), 7):  # any bit: the header is padded with spaces only
        damaged = bytearray(first)
        damaged[k] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(DataError):
            read_tensors(path, "thing")


def cut(path: Path, until: str | None = None) -> Journal:
    journal = Journal(path)
    journal.cut(until)
    return journal


def test_journals(tmp_path):
    path = tmp_path / "a.jsonl"
    journal, ends = Journal(path), [""]
    for k in range(4):
        journal.append({"k": k, "loss": math.nan if k == 2 else 0.5 * k})
        ends.append(journal.last)
    whole = path.read_bytes()
    assert [line["loss"] for line in read_lines(path)] == [0, 0.5, None, 1.5]
    path.write_bytes(whole[:-3])  # the last line cut off by a kill
    again = cut(path)
    assert again.last == ends[3]
    again.append({"k": 3, "loss": 1.5})
    assert path.read_bytes() == whole
    assert cut(path, ends[2]).last == ends[2]
    assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:2])
    path.write_bytes(whole.replace(b'"k": 1', b'"k": 7'))
    with pytest.raises(DataError, match=r"line 2 of .*a.jsonl was changed or damaged"):
        cut(path)
    with pytest.raises(DataError, match=r"line 2 of .*a.jsonl was changed or damaged"):
        cut(path, ends[2])
    assert cut(path, ends[1]).last == ends[1]  # damage behind the line does not matter
    with pytest.raises(DataError, match="lacks lines that were written"):
        cut(path, ends[2])
    assert cut(path, "").last == "" and path.read_bytes() == b""


def test_nothing_is_left_of_a_failed_write(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, os.strerror(28))

    path = tmp_path / "a"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"cannot write .*/a: No space left on device\."):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "a"
    for mode in (0o600, 0o640, 0o755, 0o444):
        path.touch()
        path.chmod(mode)
        write_bytes(path, b"new")
        assert path.stat().st_mode & 0o777 == mode
        path.unlink()
    (tmp_path / "plain").touch()
    write_bytes(path, b"new")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_files_beside_it_are_left_alone(tmp_path):
    others = [tmp_path / f"a{ending}" for ending in (".part", ".tmp", "~")]
    for other in others:
        other.write_bytes(b"mine")
    write_bytes(tmp_path / "a", b"new")
    assert all(other.read_bytes() == b"mine" for other in others)
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a", *others])


def test_long_names(tmp_path):
    for length in (251, 253, 255):
        write_bytes(tmp_path / ("a" * length), b"new")
        assert (tmp_path / ("a" * length)).read_bytes() == b"new"
