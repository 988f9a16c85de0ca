"""Formulas as MathML, which browsers draw themselves: the site loads nothing from a network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    text = node.astext()
    rows = r"\\" in text and r"\begin" not in text  # Sphinx takes several rows without an environment
    text = rf"\begin{{aligned}}{text}\end{{aligned}}" if rows else text
    translator.body.append(tex2mathml(text, as_block=True))
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
