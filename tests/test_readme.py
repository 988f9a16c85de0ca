"""README and docs: their code runs, their commands exist, their links and tables are up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphdiffusion.cli import main
from graphdiffusion.data import open_data

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "README.md"]


def blocks(language: str, page: Path = PAGES[0]) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize(
    ("page", "least", "printed"),
    [
        ("README.md", 6, ["validation", "torch.Size([2, 4, 8])"]),
        ("docs/extending.md", 3, ["source,example 0.3 term.py", "drag=0.3"]),
        ("docs/how-it-works.md", 1, ["reliability: calibration error 0.050"]),
        ("docs/own-data.md", 8, ["'reader', 'writer'", "1 label 'NA'", "regression [10.0, 12.5, nan]"]),
    ],
)
def test_python_blocks_run(page, least, printed, tmp_path):
    """All blocks of a page in one process, in the root of the project, with fewer epochs."""
    code = blocks("python", ROOT / page)
    assert len(code) >= least
    quick = [
        re.sub(r"epochs=\d+", "epochs=2", re.sub(r"range\(100\)", "range(2)", block)) for block in code
    ]
    script = "\n".join(
        f"exec(compile({block!r}, '{page} block {k}', 'exec'), {{}})" for k, block in enumerate(quick)
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "GRAND_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in printed), done.stdout


def commands() -> list[list[str]]:
    lines = [
        line.partition("#")[0].split()
        for page in PAGES
        for block in blocks("bash", page)
        for line in block.splitlines()
    ]
    return [line[1:] for line in lines if line and line[0] == "grand"]


def test_commands_and_options_exist(capsys):
    found = commands()
    assert {line[0] for line in found} >= {"train", "evaluate", "predict"}
    for line in found:
        group = line[0] in ("data", "demo", "reproduce") and not "".join(line[1:2]).startswith("-")
        name = line[:2] if group else line[:1]
        assert main([*name, "--help"]) == 0
        shown = capsys.readouterr().out
        for option in (word for word in line if word.startswith("--")):
            assert option in shown, f"{' '.join(line)}: {option}"


def test_options_named_in_the_text_exist(capsys):
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for option in re.findall(r"`(--[a-z-]+)[ `]", PAGES[0].read_text(encoding="utf-8")):
        if option != "--data":  # of grand predict
            assert option in shown, option


def test_own_graph_can_be_read(tmp_path):
    for name, text in zip(("edges", "features", "labels"), blocks("csv"), strict=True):
        (tmp_path / f"{name}.csv").write_text(text)
    data = open_data(str(tmp_path))
    assert (data.num_nodes, data.edge_index.shape[1], data.x.shape[1]) == (4, 8, 2)
    assert data.class_names == ["reader", "writer"] and data.y.tolist() == [0, 1, 0, -1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_are_there(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_tables_are_those_of_results_and_registries():
    done = subprocess.run(
        [sys.executable, PAGES[0].parent / "docs" / "make_tables.py", "--check"], check=False
    )
    assert done.returncode == 0
