"""The comments above code blocks (``blocks.py``) become visible: how a block was run, or why it was not."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

COMMENT = re.compile(r"<!--\s*(run|change|skip):\s*(.*?)\s*-->", re.S)


class RunNotes(SphinxTransform):
    """A line below every block that is run at another size, or not at all."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        for comment in list(self.document.findall(nodes.raw)):
            for found in COMMENT.finditer(comment.astext()):
                block = comment.next_node(nodes.literal_block, descend=False, siblings=True)
                if block is not None:
                    block.parent.insert(block.parent.index(block) + 1, note(found[1], found[2]))


def note(word: str, text: str) -> nodes.paragraph:
    paragraph = nodes.paragraph(classes=["run-note"])
    if word == "skip":
        paragraph += nodes.Text(f"Not run when this site is built: {text}.")
        return paragraph
    paragraph += nodes.Text("When this site is built, it runs at a reduced size: ")
    shown = text.splitlines() if word == "run" else text.split("; ")
    for k, line in enumerate(shown):
        if k:
            paragraph += nodes.Text(", ")
        paragraph += nodes.literal(text=line.replace(" -> ", " → ") if word == "change" else line)
    return paragraph


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(RunNotes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
