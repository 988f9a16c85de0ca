"""Runs with damaged files: the result of the undamaged run, or one sentence; never a traceback.

A finished run and one that was stopped are damaged, one kind of damage at a time, and then evaluated, used
for predictions, and resumed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from fuzz import BYTES, damage
from run_templates import Templates
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from graphdiffusion.cli import main
from graphdiffusion.training.storage import read_tensors, write_tensors

FINISHED = ("config.toml", "fingerprint.json", "metrics.jsonl", "model.safetensors", "summary.json")
STOPPED = (
    "config.toml", "fingerprint.json", "metrics.jsonl", "checkpoint.safetensors",
    "chunks/00000.safetensors",
)  # fmt: skip
DATA = ("edges.csv", "features.csv", "labels.csv")
KINDS = {"model.safetensors": "model", "checkpoint.safetensors": "checkpoint", STOPPED[-1]: "chunk"}

Damage = Callable[[Path, Random], None]


@dataclass
class Bench:
    """Templates, the undamaged results, and files of another run."""

    templates: Templates
    evaluated: str
    resumed: str
    predicted: bytes
    model: bytes
    metrics: bytes
    other: dict[str, Path]

    def try_out(self, state: str, kind: str, spoil: Damage) -> None:
        """Damage a run, and look at what the commands make of it."""
        damage(kind)
        os.chdir(self.templates.restore(state))
        spoil(Path("run"), Random(kind))
        if state == "finished":
            code, out = command(kind, "evaluate", "run")
            assert code == 2 or out == self.evaluated, kind
            code, _ = command(kind, "predict", "run", "--out", "p.csv")
            assert Path("p.csv").exists() == (code == 0), kind
            assert code == 2 or Path("p.csv").read_bytes() == self.predicted, kind
            code, out = command(kind, "train", "--resume", "--out", "run")
            assert code == 2 or timeless(out) == timeless(self.resumed), kind
            assert code == 2 or Path("run/model.safetensors").read_bytes() == self.model, kind
        else:
            assert command(kind, "evaluate", "run")[0] == 2, kind
            code, _ = command(kind, "train", "--resume", "--out", "run")
            if code == 0:
                assert Path("run/model.safetensors").read_bytes() == self.model, kind
                assert Path("run/metrics.jsonl").read_bytes() == self.metrics, kind
        left = [path for path in Path("run").rglob("*.part") if path.is_file()]
        assert not left and (not Path("run/lock").is_file() or "lock" in kind), kind


def timeless(shown: str) -> list[str]:
    """A summary without the time that the training took."""
    return [line for line in shown.splitlines() if not line.startswith("│ time")]


def command(kind: str, *arguments: str) -> tuple[int, str]:
    """Exit code and standard output; a refusal is one line on standard error."""
    out, says = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(says):
        code = main(arguments)
    said = says.getvalue()
    assert code in (0, 2), kind
    if code == 2:
        assert out.getvalue() == "" and said.count("\n") == 1 and said.startswith("grand: "), (kind, said)
        assert "Traceback" not in said, (kind, said)
    return code, out.getvalue()


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Iterator[Bench]:
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        # these take longer than all the rest
        patch.setattr("graphdiffusion.report.page.write_report", lambda *given, **how: None)
        templates = Templates(tmp_path_factory.mktemp("fuzz"))
        other = Templates(tmp_path_factory.mktemp("other"), "--seed", "5")
        os.chdir(templates.restore("finished"))
        _, evaluated = command("", "evaluate", "run")
        assert command("", "predict", "run", "--out", "p.csv")[0] == 0
        _, resumed = command("", "train", "--resume", "--out", "run")
        yield Bench(
            templates, evaluated, resumed, Path("p.csv").read_bytes(),
            Path("run/model.safetensors").read_bytes(), Path("run/metrics.jsonl").read_bytes(),
            {state: other.kept / state / "run" for state in ("finished", "stopped")},
        )  # fmt: skip
        os.chdir(before)


def rewrite(change: Callable[[bytes, Random], bytes], file: str) -> Damage:
    def spoil(run: Path, chance: Random) -> None:
        path = run / file
        path.write_bytes(change(path.read_bytes(), chance))

    return spoil


@pytest.mark.parametrize("file", sorted({*FINISHED, *STOPPED}))
def test_bytes(bench, file):
    states = [state for state, files in (("finished", FINISHED), ("stopped", STOPPED)) if file in files]
    for k, (name, change) in enumerate(BYTES.items()):
        state = states[k % len(states)]
        bench.try_out(state, f"{state} run, {file}: {name}", rewrite(change, file))


def test_data(bench):
    """The graph of the run: read as before, or refused."""
    for file in DATA:
        for k, (name, change) in enumerate(BYTES.items()):
            state = ("finished", "finished", "stopped")[k % 3]
            bench.try_out(state, f"{state} run, {file}: {name}", rewrite(change, f"../toy/{file}"))


def test_files_that_are_missing_or_others(bench):
    for state, files in (("finished", FINISHED), ("stopped", STOPPED)):
        every = (*files, "log.txt")
        for file in every:
            bench.try_out(state, f"{state} run: {file} missing", lambda run, _, f=file: (run / f).unlink())
            bench.try_out(
                state, f"{state} run: {file} is a folder", lambda run, _, f=file: _folder(run / f)
            )
        for file in files:
            for source in files:
                if source != file:
                    kind = f"{state} run: {file} replaced by {source}"
                    bench.try_out(state, kind, lambda run, _, f=file, s=source: _copy(run / s, run / f))
            for source in (bench.other["finished"] / file, bench.other["stopped"] / file):
                if source.exists():
                    kind = f"{state} run: {file} of another run, {source.parts[-3]}"
                    bench.try_out(state, kind, lambda run, _, f=file, s=source: _copy(s, run / f))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _copy(source: Path, target: Path) -> None:
    shutil.copy(source, target)


# JSON: values of other types, keys too few and too many, numbers that JSON does not have


def _json_kinds() -> dict[str, Callable[[dict[str, Any], Random], Any]]:
    def put(value: Any) -> Callable[[dict[str, Any], Random], Any]:
        def change(content: dict[str, Any], chance: Random) -> Any:
            content[chance.choice(sorted(content))] = value
            return content

        return change

    def drop(content: dict[str, Any], chance: Random) -> Any:
        del content[chance.choice(sorted(content))]
        return content

    def inner(content: dict[str, Any], chance: Random) -> Any:
        below = [value for value in content.values() if isinstance(value, dict) and value]
        own = chance.choice(below)
        own[chance.choice(sorted(own))] = chance.choice([None, "x", 10**30, [], {}])
        return content

    values = {"null": None, "text": "x", "list": [], "object": {}, "true": True, "-1": -1, "10^30": 10**30}
    kinds = {f"a value becomes {name}": put(value) for name, value in values.items()}
    kinds |= {"a value becomes NaN": put(float("nan")), "a value becomes infinite": put(float("inf"))}
    kinds |= {"a key missing": drop, "a value below changed": inner}
    kinds |= {"a key added": lambda content, _: content | {"extra": 1}}
    kinds |= {"no checksum": lambda content, _: {k: v for k, v in content.items() if k != "checksum"}}
    kinds |= {"empty object": lambda *_: {}, "in a list": lambda content, _: [content]}
    return kinds | {"a number": lambda *_: 3, "null": lambda *_: None}


def test_json(bench):
    for file in ("fingerprint.json", "summary.json"):
        for name, change in _json_kinds().items():

            def spoil(run: Path, chance: Random, file: str = file, change: Any = change) -> None:
                path = run / file
                path.write_text(json.dumps(change(json.loads(path.read_text()), chance)))

            bench.try_out("finished", f"{file}: {name}", spoil)
        deep = rewrite(lambda *_: b'{"a": ' * 50_000, file)
        bench.try_out("finished", f"{file}: nested without end", deep)


# tensors: with the notes and the checksum as they were, and with a checksum that is right

Tensors = dict[str, torch.Tensor]


def _tensor_kinds() -> dict[str, Callable[[Tensors, Random], Any]]:
    def some(tensors: Tensors, chance: Random) -> str:
        return chance.choice(sorted(name for name, value in tensors.items() if value.dim() > 1))

    def put(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors, Random], Any]:
        def spoil(tensors: Tensors, chance: Random) -> None:
            name = some(tensors, chance)
            tensors[name] = change(tensors[name]).contiguous()

        return spoil

    def rename(tensors: Tensors, chance: Random) -> None:
        name = some(tensors, chance)
        tensors[name + "x"] = tensors.pop(name)

    return {
        "a tensor missing": lambda t, chance: t.pop(some(t, chance)),
        "a tensor renamed": rename,
        "a tensor too many": lambda t, _: t.update(more=torch.zeros(2, 2)),
        "a tensor flattened": put(lambda v: v.flatten()),
        "a tensor with one more dimension": put(lambda v: v.unsqueeze(0)),
        "a tensor cut": put(lambda v: v[..., :0]),
        "a tensor doubled": put(lambda v: torch.cat([v, v])),
        "a tensor in float64": put(lambda v: v.double()),
        "a tensor in float16": put(lambda v: v.half()),
        "a tensor of whole numbers": put(lambda v: v.long()),
        "all tensors missing": lambda t, _: t.clear(),
    }


def _not_finite(value: float) -> Callable[[Tensors, Random], Any]:
    def spoil(tensors: Tensors, chance: Random) -> None:
        names = sorted(k for k in tensors if not k.startswith(("now/", "optimiser/", "self/")))
        tensors[chance.choice(names)].fill_(value)

    return spoil


def test_tensors(bench):
    states = {"model.safetensors": "finished", "checkpoint.safetensors": "stopped", STOPPED[-1]: "stopped"}
    kinds = _tensor_kinds() | {"NaN": _not_finite(torch.nan), "infinity": _not_finite(torch.inf)}
    for file, state in states.items():
        for name, change in kinds.items():

            def sealed(run: Path, chance: Random, file: str = file, change: Any = change) -> None:
                tensors, note = read_tensors(run / file, KINDS[file])
                change(tensors, chance)
                write_tensors(run / file, KINDS[file], tensors, note)

            def unsealed(run: Path, chance: Random, file: str = file, change: Any = change) -> None:
                with safe_open(run / file, "pt") as opened:
                    notes = opened.metadata()
                tensors = load_file(run / file)
                change(tensors, chance)
                save_file(tensors, run / file, notes)

            bench.try_out(state, f"{file}: {name}, with a checksum", sealed)
            bench.try_out(state, f"{file}: {name}", unsealed)


def test_notes(bench):
    """Notes of tensors: missing, of another kind, with keys too few or of other types."""
    states = {"model.safetensors": "finished", "checkpoint.safetensors": "stopped", STOPPED[-1]: "stopped"}
    for file, state in states.items():

        def without(run: Path, chance: Random, file: str = file) -> None:
            save_file(load_file(run / file), run / file)

        bench.try_out(state, f"{file}: no note", without)
        for text in ("", "{", "null", "[]", '{"checksum": "", "kind": "model"}'):

            def foreign(run: Path, chance: Random, file: str = file, text: str = text) -> None:
                save_file(load_file(run / file), run / file, {"graphdiffusion": text})

            bench.try_out(state, f"{file}: the note is {text!r}", foreign)

        def other(run: Path, chance: Random, file: str = file) -> None:
            tensors, note = read_tensors(run / file, KINDS[file])
            write_tensors(run / file, "thing", tensors, note)

        bench.try_out(state, f"{file}: of another kind", other)
        run = bench.templates.kept / state / "run"
        for key in sorted(read_tensors(run / file, KINDS[file])[1]):
            for name, value in (("missing", None), ("a number", 7), ("a text", "x"), ("a list", [1, {}])):
                if key == "seconds" or (key in ("feature_names", "target_names") and name == "missing"):
                    continue  # part of no result; this graph has no such names

                def noted(
                    run: Path, chance: Random, file: str = file, key: str = key, value: Any = value
                ) -> None:
                    tensors, note = read_tensors(run / file, KINDS[file])
                    note[key] = value
                    if value is None:
                        del note[key]
                    write_tensors(run / file, KINDS[file], tensors, note)

                bench.try_out(state, f"{file}: {key} of the note {name}", noted)


# options


def _options() -> dict[str, Callable[[str, Random], str]]:
    def put(text: str) -> Callable[[str, Random], str]:
        def change(content: str, chance: Random) -> str:
            lines = [line for line in content.splitlines() if "=" in line]
            name = chance.choice(lines).partition(" = ")[0]
            return "\n".join(f"{name} = {text}" if line.startswith(f"{name} =") else line for line in lines)

        return change

    def line(text: str) -> Callable[[str, Random], str]:
        return lambda content, _: content + text + "\n"

    values = {
        "a text": '"x"', "a list": "[1, 2]", "a table": "{ a = 1 }", "a date": "2020-01-01", "NaN": "nan",
        "infinite": "-inf", "huge": "1e400", "a long number": "9" * 5000, "true": "true", "-1": "-1",
        "hexadecimal": "0xff", "nothing": "",
    }  # fmt: skip
    kinds = {f"an option becomes {name}": put(text) for name, text in values.items()}
    kinds |= {
        "a smaller hidden": lambda t, _: t.replace("hidden = 8", "hidden = 4"),
        "a huge hidden": lambda t, _: t.replace("hidden = 8", "hidden = 1000000000"),
        "another seed": lambda t, _: t.replace("seed = 0", "seed = 1"),
        "a huge seed": lambda t, _: t.replace("seed = 0", f"seed = {10**23}"),
        "another variant": lambda t, _: t.replace('"linear"', '"nonlinear"'),
        "more splits": lambda t, _: t.replace("splits = 2", "splits = 3"),
        "more epochs": lambda t, _: t.replace("epochs = 3", "epochs = 4"),
        "another graph": lambda t, _: t.replace("/toy", "/elsewhere"),
        "a data set": lambda t, _: t.replace(t.splitlines()[1], 'data = "cora-embedded"'),
        "an unknown option": line("hiden = 3"),
        "a root": line('root = "/"'),
        "an option twice": line("hidden = 8"),
        "a table": line("[model]\nhidden = 8"),
        "tables in tables": line("[a.b.c]\nd = [[1], {e = 2}]"),
        "lists without end": line("x = " + "[" * 5000),
        "an option less": lambda t, _: t.replace("hidden = 8\n", ""),
        "a comment more": line("# by hand"),
        "another order": lambda t, _: "\n".join(reversed(t.splitlines())),
        "no option": lambda *_: "",
    }
    return kinds


def test_options(bench):
    for name, change in _options().items():

        def spoil(run: Path, chance: Random, change: Any = change) -> None:
            path = run / "config.toml"
            path.write_text(change(path.read_text(), chance))

        state = "stopped" if "become" in name else "finished"
        bench.try_out(state, f"{state} run, config.toml: {name}", spoil)
        kind = f"--config: {name}"
        damage(kind)
        command(kind, "train", "toy", "--config", "run/config.toml", "--epochs", "1", "--out", "new")


# lines of metrics, locks, and files that do not belong


def _lines(change: Callable[[list[bytes]], list[bytes]]) -> Damage:
    return rewrite(lambda content, _: b"".join(change(content.splitlines(keepends=True))), "metrics.jsonl")


def test_metrics(bench):
    foreign = (
        b"{}\n",
        b'{"kind": "epoch", "chunk": 0, "epoch": 1}\n',
        b"[]\n",
        b"7\n",
        b"\n",
        b"\x00\n",
        b"NaN\n",
    )
    for state, places in (("finished", {"third": 2}), ("stopped", {"first": 0, "third": 2, "last": None})):
        for k, line in enumerate(foreign):
            for name, place in places.items():

                def insert(
                    lines: list[bytes], line: bytes = line, place: int | None = place
                ) -> list[bytes]:
                    at = len(lines) if place is None else place
                    return [*lines[:at], line, *lines[at:]]

                bench.try_out(state, f"{state} run: foreign line {k} of metrics, {name}", _lines(insert))
        for name, change in {
            "a line twice": lambda lines: [lines[0], *lines],
            "two lines swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
            "a line missing": lambda lines: [lines[0], *lines[2:]],
            "the last line missing": lambda lines: lines[:-1],
            "a figure changed": lambda lines: [lines[0].replace(b'"epoch": 0', b'"epoch": 1'), *lines[1:]],
            "carriage returns": lambda lines: [line.replace(b"\n", b"\r\n") for line in lines],
            "spaces": lambda lines: [line.replace(b": ", b":  ") for line in lines],
        }.items():
            bench.try_out(state, f"{state} run, metrics: {name}", _lines(change))


def test_locks_and_foreign_files(bench):
    contents = (b"", b"noise", b"\xff\x00", b"{}", b"[]", b'{"process": {}, "host": 3}', b"1" * 5000)
    for state in ("finished", "stopped"):
        for k, content in enumerate(contents):
            kind = f"{state} run: lock with garbage {k}"
            bench.try_out(state, kind, lambda run, _, c=content: (run / "lock").write_bytes(c))
        for kind, spoil in {
            "lock is a folder": lambda run, _: (run / "lock").mkdir(),
            "lock is a link to nothing": lambda run, _: (run / "lock").symlink_to("nowhere"),
            "a part left by a kill": lambda run, _: (run / ".grand-0123.part").write_bytes(b"{"),
            "a foreign file": lambda run, _: (run / "mine.txt").write_bytes(b"mine"),
            "a foreign chunk": lambda run, _: _put(run / "chunks" / "x.safetensors"),
            "a chunk behind a gap": lambda run, _: _put(run / "chunks" / "00009.safetensors"),
            "an empty folder of chunks": lambda run, _: (run / "chunks").mkdir(exist_ok=True),
            "the log is a link to nothing": lambda run, _: _relink(run / "log.txt"),
        }.items():
            bench.try_out(state, f"{state} run: {kind}", spoil)


def _put(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"foreign")


def _relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/log.txt")
