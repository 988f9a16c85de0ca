"""The runner of code blocks: what it refuses, what it counts, and that a failing block fails it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "tools"))

from blocks import BlockError, read_blocks  # noqa: E402
from forked import commands_of  # noqa: E402
from run_blocks import in_process, kind_of, report  # noqa: E402


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text.replace("~~~", "```"), encoding="utf-8")
    return path


def test_comments_belong_to_the_block_below(tmp_path):
    text = (
        "<!-- change: 9 -> 2 -->\n<!-- prints: 2 -->\n~~~python\nprint(9)\n~~~\n"
        "\n<!-- table -->\n~~~bash\nls\n~~~\n"
    )
    first, second = read_blocks(page(tmp_path, text), tmp_path)
    assert first.to_run() == "print(2)\n" and kind_of(first) == "at a reduced size"
    assert second.marks == {} and kind_of(second) == "run" and (first.line, second.line) == (3, 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("~~~\nls\n~~~\n", "names its language"),
        ("~~~perl\nls\n~~~\n", "'perl' is not known"),
        ("~~~bash\nls\n", "never closed"),
        ("<!-- skip: -->\n~~~bash\nls\n~~~\n", "needs a reason"),
        ("<!-- skip: it is long -->\n\nText.\n", "no block follows"),
        ("<!-- run: ls -->\n", "no block follows"),
        ("<!-- run: ls -->\n<!-- change: a -> b -->\n~~~bash\na\n~~~\n", "not both"),
        ("Text:\n\n    grand train\n", "fenced by"),
        ("~~~{code-cell}\n:tags: [skip-execution]\n1\n~~~\n", "cells of notebooks are run"),
    ],
)
def test_what_cannot_be_understood_is_refused(tmp_path, text, said):
    with pytest.raises(BlockError, match=said):
        read_blocks(page(tmp_path, text), tmp_path)


def test_a_change_that_fits_nothing_is_refused(tmp_path):
    (block,) = read_blocks(page(tmp_path, "<!-- change: 8 -> 2 -->\n~~~python\nprint(9)\n~~~\n"), tmp_path)
    with pytest.raises(BlockError, match="fits nothing"):
        block.to_run()


def test_blocks_run_in_order_and_failures_are_named(tmp_path, capsys):
    text = (
        "<!-- file: a/data.csv -->\n~~~csv\nx\n7\n~~~\n"
        "~~~python\nfrom pathlib import Path\nk = Path('a/data.csv')\n~~~\n"
        "<!-- prints: 7 -->\n~~~python\nprint(k.read_text())\n~~~\n~~~bash\ncat a/data.csv | grep 7\n~~~\n"
        "<!-- prints: 8 -->\n~~~console\n$ echo 7\n7\n~~~\n~~~bash\nfalse\n~~~\n~~~python\n1 / 0\n~~~\n"
        "<!-- skip: no GPU -->\n~~~bash\nnvidia-smi\n~~~\n~~~toml\na = \n~~~\n"
    )
    results = in_process(page(tmp_path, text), tmp_path)
    assert [k for k, result in enumerate(results) if result["error"]] == [4, 5, 6, 8]
    assert "does not print '8'" in results[4]["error"] and "ZeroDivisionError" in results[6]["error"]
    assert report(results, 1.0) == 1
    out = capsys.readouterr()
    assert "6 run as they are" in out.out and "1 skipped, 4 failed" in out.out and "no GPU" in out.out
    assert "FAILED page.md:18" in out.err


def test_plain_commands_need_no_shell():
    assert commands_of("grand info  # what\npython a.py\n") == [["grand", "info"], ["python", "a.py"]]
    assert commands_of("A=b grand info") is None and commands_of("grand info | head") is None
