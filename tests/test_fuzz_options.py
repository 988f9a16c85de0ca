"""Options and searches that are damaged: a valid configuration or the same result, or one sentence."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from random import Random

import numpy as np
import torch
from fuzz import BYTES, damage
from test_cli_basics import SMALL, write_graph
from test_fuzz_runs import command

from graphdiffusion.errors import ConfigError
from graphdiffusion.training import Config
from graphdiffusion.training.choices import applicable

# together they have every option
CHOICES = (
    {}, {"solver": "rk4"}, {"model": "gcn"}, {"variant": "nonlinear", "solver": "adams-moulton"},
    {"diffusivity": "gatv2"},
)  # fmt: skip
VALUES = (
    None, True, False, 0, 1, -1, 2, 10**9, 2**31, 2**63, 10**23, 10**400, 10**5000, 0.0, -0.0, 0.5, 1.0,
    -1.5, 1e38, 1e300, 5e-324, float("nan"), float("inf"), "", "x", "linear", "auto", "\x00", "\x7f",
    "\ud800", "a" * 10_000, "1", b"x", [], [1], (), {}, {"a": {"b": 1}}, {1}, 1j, np.float32(0.5),
    np.int64(3), np.nan, np.bool_(True), np.arange(3), np.str_("linear"), torch.tensor(1), Path("x"),
    object(), range(3), Config(), Config, len,
)  # fmt: skip


def test_values_of_options(tmp_path):
    """A valid configuration, which survives a file, or a sentence."""
    kinds = [type(value).__name__ for value in VALUES]
    tried = {name: chosen for chosen in reversed(CHOICES) for name in applicable(chosen)}
    for name, chosen in tried.items():
        for kind, value in zip(kinds, VALUES, strict=True):
            damage(f"option of type {kind}")
            try:
                config = Config.from_dict({**chosen, name: value})
            except ConfigError as error:
                assert len(str(error)) < 400 and "\n" not in str(error)
                continue
            path = tmp_path / "config.toml"
            path.write_text(config.to_toml(), encoding="utf-8")
            assert Config.from_toml(path) == config


def test_texts_of_options(tmp_path):
    """TOML of any kind gives a configuration or a sentence."""
    path = tmp_path / "config.toml"
    good = Config().to_toml().encode()
    for name, change in BYTES.items():
        for k in range(20):
            damage(f"TOML: {name}")
            path.write_bytes(change(good, Random(f"{name} {k}")))
            with contextlib.suppress(ConfigError):
                assert isinstance(Config.from_toml(path), Config)


def test_searches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    Path("space.toml").write_text("rate = { low = 0.001, high = 0.1, log = true }\n")
    tune = [
        "tune", "toy", *SMALL[:-6], "--per-class", "4", "--device", "cpu", "--space", "space.toml",
        "--trials", "3", "--families", "1", "--grace", "1", "--final-seeds", "2", "--out", "search",
    ]  # fmt: skip
    assert command("", *tune)[0] == 0
    best = Path("search/best.toml").read_bytes()
    shutil.copytree("search", "kept")
    kinds = list(BYTES.items())
    # the last two are written anew and never read
    for file, some in (
        ("search.json", kinds[::3]), ("trials.jsonl", kinds[::2]), ("leaderboard.json", kinds[-1:]),
        ("best.toml", kinds[-1:]),
    ):  # fmt: skip
        for name, change in some:
            kind = f"search, {file}: {name}"
            damage(kind)
            shutil.rmtree("search")
            shutil.copytree("kept", "search")
            path = Path("search", file)
            path.write_bytes(change(path.read_bytes(), Random(kind)))
            code, _ = command(kind, *tune)
            assert code == 2 or Path("search/best.toml").read_bytes() == best, kind
