"""Code blocks of the documents, and the comments above them that say how a block is run.

A comment stands on the lines above the fence, and holds one of

    <!-- run: COMMANDS -->               run these commands instead: the block at a reduced size
    <!-- change: OLD -> NEW; ... -->     run the block with these texts replaced: a reduced size, too
    <!-- skip: REASON -->                the block cannot be run where the documents are built
    <!-- prints: TEXT -->                what the block must print, at least
    <!-- file: PATH -->                  the block is a file: it is written before the next one runs

Without one, a block of Python or bash is run as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
PYTHON, SHELL = ("python",), ("bash", "console")
PLAIN = ("text", "csv", "toml", "json", "yaml", "bibtex", "html")  # data and output: parsed where it can be
MARKS = ("run", "change", "skip", "prints", "file")
COMMANDS = ("grand", "python", "pip", "make", "cp", "PYTHONPATH=src", "OMP_WAIT_POLICY=PASSIVE")

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<info>[^`\n]*)$")


class BlockError(Exception):
    """A block, or the comment above it, that cannot be understood."""


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        page: Its file, relative to the root of the project.
        line: Number of the line of its fence.
        language: First word after the fence.
        text: What it holds, without its indentation.
        marks: The comments above it.
    """

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_cell(self) -> bool:
        """Whether it is a cell of a notebook, which Sphinx runs."""
        return self.language == "{code-cell}"

    @property
    def is_code(self) -> bool:
        return self.language in PYTHON + SHELL

    def to_run(self) -> str:
        """The text with its replacements, or the commands that stand for it."""
        if "run" in self.marks:
            return self.marks["run"]
        text = self.text
        for change in filter(None, self.marks.get("change", "").split("; ")):
            old, arrow, new = change.partition(" -> ")
            if not arrow or old not in text:
                raise BlockError(f"{self.place}: change {change!r} fits nothing in the block.")
            text = text.replace(old, new)
        if self.language == "console":
            text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
        return text


def pages(root: Path = ROOT) -> list[Path]:
    """All documents with code blocks that are run."""
    own = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")]
    return own + sorted((root / "docs").rglob("*.md"))


def read_blocks(page: Path, root: Path = ROOT) -> list[Block]:
    """The fenced blocks of a document, in order."""
    name = str(page.relative_to(root))
    lines = page.read_text(encoding="utf-8").splitlines()
    blocks = list(_fenced(name, lines))
    for block in blocks:
        _check(block)
    # directives of MyST are no code; cells of notebooks are
    return [block for block in blocks if block.is_cell or not block.language.startswith("{")]


def _fenced(name: str, lines: list[str]) -> Iterator[Block]:
    k, marks = 0, {}
    while k < len(lines):
        line = lines[k]
        opening = FENCE.match(line)
        if opening:
            closing = re.compile(rf"^ *{opening['fence']}{opening['fence'][0]}* *$")
            last = next((j for j in range(k + 1, len(lines)) if closing.match(lines[j])), None)
            if last is None:
                raise BlockError(f"{name}:{k + 1}: this fence is never closed.")
            language = (opening["info"].split() or [""])[0]
            text = dedent("\n".join(lines[k + 1 : last]) + "\n")
            yield Block(name, k + 1, language, text, marks)
            k, marks = last + 1, {}
        elif line.lstrip().startswith("<!--"):
            last = next((j for j in range(k, len(lines)) if "-->" in lines[j]), k)
            comment = "\n".join(lines[k : last + 1]).strip().removeprefix("<!--").removesuffix("-->")
            word, colon, rest = comment.partition(":")
            if colon and word.strip() in MARKS:
                marks = {**marks, word.strip(): dedent(rest).strip()}
            k = last + 1
        else:
            if marks and line.strip():
                raise BlockError(f"{name}:{k + 1}: no block follows the comment {next(iter(marks))!r}.")
            before = lines[k - 1].strip() if k else ""
            words = line.split()
            if line.startswith("    ") and not before and words and words[0] in COMMANDS:
                raise BlockError(f"{name}:{k + 1}: commands stand in a block fenced by ```bash.")
            k += 1
    if marks:
        raise BlockError(f"{name}: no block follows the comment {next(iter(marks))!r} at its end.")


def _check(block: Block) -> None:
    if not block.language:
        raise BlockError(f"{block.place}: a block names its language, such as ```bash or ```text.")
    if block.language.startswith("{"):
        if block.is_cell and "skip-execution" in block.text:
            raise BlockError(f"{block.place}: cells of notebooks are run.")
        return
    if block.language not in PYTHON + SHELL + PLAIN:
        known = ", ".join(PYTHON + SHELL + PLAIN)
        raise BlockError(f"{block.place}: {block.language!r} is not known; known are {known}.")
    if "run" in block.marks and "change" in block.marks:
        raise BlockError(f"{block.place}: either 'run' or 'change', not both.")
    if "skip" in block.marks and not block.marks["skip"]:
        raise BlockError(f"{block.place}: 'skip' needs a reason.")
