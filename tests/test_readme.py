"""README and docs: blocks that can be understood, commands that exist, links and tables that are right.

The blocks themselves, and the cells of the notebooks, are run by ``make docs``.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from graphdiffusion.cli import main
from graphdiffusion.data import open_data

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "tools"))

from blocks import SHELL, Block, pages, read_blocks  # noqa: E402

README = ROOT / "README.md"
PAGES = pages()


def own_blocks(*languages: str) -> list[Block]:
    return [b for page in PAGES for b in read_blocks(page) if b.language in languages]


def test_every_block_says_how_it_is_run():
    """Reading a page refuses blocks without a language, unknown comments, and changes that fit nothing."""
    found = [block for page in PAGES for block in read_blocks(page)]
    assert sum(b.is_code or b.is_cell for b in found) > 80
    assert all(block.to_run().strip() for block in found if block.is_code and "skip" not in block.marks)
    skipped = [b for b in found if "skip" in b.marks]
    assert len(skipped) < len(found) / 8


def commands() -> list[list[str]]:
    found = own_blocks(*SHELL)
    texts = [b.text for b in found] + [b.marks["run"] for b in found if "run" in b.marks]
    lines = [
        shlex.split(line, comments=True) for text in texts for line in text.replace("\\\n", "").splitlines()
    ]
    return [words[1:] for words in lines if words and words[0] == "grand"]


def test_commands_and_options_exist(capsys):
    found, helps = commands(), {}
    assert {words[0] for words in found} >= {"train", "evaluate", "predict"}
    for words in found:
        group = words[0] in ("data", "demo", "reproduce") and not "".join(words[1:2]).startswith("-")
        name = tuple(words[:2] if group else words[:1])
        if name not in helps:
            assert main([*name, "--help"]) == 0
            helps[name] = capsys.readouterr().out
        shown = helps[name]
        for option in (word for word in words if word.startswith("--")):
            assert option in shown, f"{' '.join(words)}: {option}"


def test_options_named_in_the_text_exist(capsys):
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    of_others = {"--data", "--check"}  # of grand predict, of a script
    for name in ("README.md", "docs/choosing.md", "docs/own-data.md", "docs/troubleshooting.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for option in re.findall(r"`(?:grand train )?(--[a-z-]+)[ `]", text):
            assert option in shown or option in of_others, option


def test_own_graph_can_be_read(tmp_path):
    for block in read_blocks(README):
        if block.language == "csv":
            (tmp_path / Path(block.marks["file"]).name).write_text(block.text)
    data = open_data(str(tmp_path))
    assert (data.num_nodes, data.edge_index.shape[1], data.x.shape[1]) == (4, 8, 2)
    assert data.class_names == ["reader", "writer"] and data.y.tolist() == [0, 1, 0, -1]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as code hosts make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_pictures_are_there(page):
    """As a code host shows the page; the site's own links are checked by Sphinx."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in target:
            assert re.fullmatch(r"https://[\w.-]+\.[a-z]+(/\S*)?", target), target
            continue
        goal = page.parent / target if target else page
        assert goal.exists(), target
        if anchor:
            assert anchor in anchors(goal), f"{target}#{anchor}"


def test_tables_are_those_of_results_and_registries(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["make_tables.py", "--check"])
    monkeypatch.syspath_prepend(ROOT / "docs")
    runpy.run_path(str(ROOT / "docs" / "make_tables.py"), run_name="__main__")


def test_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 170
