"""Files of a run with a checksum that is right and a content that no training writes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from run_templates import Templates
from test_cli_bad_input import refused

from graphdiffusion.training.storage import read_tensors, write_json, write_tensors

ALL = (["evaluate", "run"], ["predict", "run"], ["train", "--resume", "--out", "run"])


@pytest.fixture(scope="module")
def templates(tmp_path_factory) -> Templates:
    return Templates(tmp_path_factory.mktemp("runs"))


def forge_json(file: str, change) -> None:
    path = Path("run", file)
    body = json.loads(path.read_text())
    kind = body.pop("kind")
    del body["checksum"]
    change(body)
    write_json(path, kind, body)


def forge_note(file: str, change) -> None:
    path = Path("run", file)
    kind = "chunk" if file.startswith("chunks") else Path(file).stem
    tensors, note = read_tensors(path, kind)
    change(note)
    write_tensors(path, kind, tensors, note)


def put(*keys: Any):
    """Sets the entry that the keys lead to; the last of them is its value."""

    def change(body: Any) -> None:
        *way, last, value = keys
        for key in way:
            body = body[key]
        body[last] = value

    return change


def drop(*keys: Any):
    def change(body: Any) -> None:
        *way, last = keys
        for key in way:
            body = body[key]
        del body[last]

    return change


FINGERPRINTS = {
    "no options": drop("options"),
    "a list of options": put("options", ["hidden"]),
    "no data": drop("data"),
    "data is text": put("data", "cora"),
    "a part is missing": drop("data", "labels"),
    "a part too many": put("data", "more", None),
    "a part is a list": put("data", "labels", [1]),
    "a size is a number": put("data", "labels", "size", 60),
    "a part without digest": drop("data", "labels", "sha256"),
}
SUMMARIES = {
    "no results": drop("results"),
    "empty results": put("results", []),
    "results of text": put("results", ["a", "b"]),
    "a result too few": lambda body: body["results"].pop(),
    "a result without split": drop("results", 0, "split"),
    "an accuracy of 5": put("results", 0, "test", 5.0),
    "no test accuracy": drop("test"),
    "an empty test accuracy": put("test", {}),
    "a test accuracy without interval": drop("test", "ci95"),
    "an interval of one end": put("test", "ci95", [1.0]),
    "an interval of texts": put("val", "ci95", ["a", "b"]),
    "a mean of nothing": put("val", "mean", None),
    "a row that is no name": put("row", 3),
    "no model": put("model", None),
    "other data": put("data", "cora"),
    "members are many": put("members", 10**30),
    "edges are a text": put("edges_given", "many"),
    "seconds are a list": put("seconds", []),
    "no checksum of the metrics": drop("metrics"),
    "no task": drop("task"),
    "a split that is a text": put("split", "random"),
    "figures are a list": put("figures", []),
    "a score without metric": drop("test", "metric"),
}
MODELS = {
    "a huge seed": put("members", 0, "init", 10**30),
    "a huge time": put("members", 0, "time", 10**400),
    "a truth for a number": put("members", 0, "split", True),
    "many classes": lambda note: note.update(outputs=30_000_000, class_names=None),
    "very many classes": put("outputs", 10**30),
    "no classes": put("outputs", 0),
    "classes are a fraction": put("outputs", 3.5),
    "an unknown task": put("task", "ranking"),
    "a task of two": put("task", ["classification", "regression"]),
    "another task": put("task", "regression"),
    "no temperature": drop("temperature"),
    "a temperature of zero": put("temperature", 0.0),
    "a huge temperature": put("temperature", 1e300),
    "another temperature": put("temperature", 7.0),
    "target names": put("target_names", list("abc")),
    "many features": put("in_channels", 2**31 - 1),
    "very many features": put("in_channels", 10**30),
    "two members of one number": put("members", 1, "number", 0),
    "another number": put("members", 1, "number", 7),
    "another split": put("members", 1, "split", 7),
    "other options": put("members", 1, "options", {"time": 3.0}),
    "no members": put("members", []),
    "members are a text": put("members", "ab"),
    "other class names": put("class_names", ["a", "b", "c"]),
    "class names are a number": put("class_names", 3),
    "feature names": put("feature_names", list("abcde")),
}


def tried(capsys, commands, says: str) -> None:
    """All commands refuse the run with a sentence, and without memory for what it claims."""
    tracemalloc.start()
    try:
        for command in commands:
            refused(capsys, list(command), says)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_fingerprints(templates, monkeypatch, capsys, kind):
    monkeypatch.chdir(templates.restore("finished"))
    forge_json("fingerprint.json", FINGERPRINTS[kind])
    tried(capsys, ALL, "run/fingerprint.json was not written by a training")
    monkeypatch.chdir(templates.restore("stopped"))
    forge_json("fingerprint.json", FINGERPRINTS[kind])
    tried(capsys, ALL[2:], "run/fingerprint.json was not written by a training")


@pytest.mark.parametrize("kind", SUMMARIES)
def test_summaries(templates, monkeypatch, capsys, kind):
    monkeypatch.chdir(templates.restore("finished"))
    forge_json("summary.json", SUMMARIES[kind])
    tried(capsys, ALL, "run/summary.json was not written by a training")


@pytest.mark.parametrize("kind", MODELS)
def test_models(templates, monkeypatch, capsys, kind):
    monkeypatch.chdir(templates.restore("finished"))
    forge_note("model.safetensors", MODELS[kind])
    tried(capsys, ALL, "run/model.safetensors")


def test_a_number_that_is_in_the_summary_too(templates, monkeypatch, capsys):
    monkeypatch.chdir(templates.restore("finished"))
    forge_json("summary.json", put("results", 1, "number", 0))
    forge_note("model.safetensors", put("members", 1, "number", 0))
    tried(capsys, ALL, "two of its members have the same number")


def test_checkpoints(templates, monkeypatch, capsys):
    monkeypatch.chdir(templates.restore("stopped"))
    forge_note("checkpoint.safetensors", put("seconds", 10**400))
    tried(capsys, ALL[2:], "run/checkpoint.safetensors was not written by a training")


def test_chunks(templates, monkeypatch, capsys):
    for change in (put("results", 0, "val", 1.5), put("results", 0, "test", 1.5), put("seconds", 10**400)):
        monkeypatch.chdir(templates.restore("stopped"))
        forge_note("chunks/00000.safetensors", change)
        tried(capsys, ALL[2:], "run/chunks/00000.safetensors was not written by a training")
