"""Links from the documents to files and folders of the repository lead to pages of the site that show them.

On a code host such a link opens the file. Here every linked file becomes a page with its text, every folder
one with its list; a link to a path that is not there is a warning, and so an error of the build.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from docutils import nodes
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INCLUDED = {"README.md": "index", "CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".md": "markdown", ".cff": "yaml"}
LONGEST = 100_000  # characters of a file that are shown


def page_of(path: Path) -> str:
    """Name of the page that shows a file or folder of the repository."""
    return f"repository/{path.relative_to(ROOT)}"


class LinkFiles(SphinxTransform):
    """Points links to files and folders outside the documents to their pages."""

    default_priority = 450

    def apply(self, **_: Any) -> None:
        docname = self.env.docname
        folder, up = (DOCS / docname).parent, "../" * docname.count("/")
        kinds = (addnodes.download_reference, addnodes.pending_xref)
        for node in [link for kind in kinds for link in self.document.findall(kind)]:
            target, _, _ = unquote(node.get("reftarget", "")).partition("#")
            if node.get("reftype") != "myst" or node.get("refdomain") or not target:
                continue
            path = (folder / target).resolve()
            if docname in INCLUDED.values() and not path.exists():
                path = (ROOT / target).resolve()
            if not path.is_relative_to(ROOT) or not path.exists():
                continue
            page = INCLUDED.get(str(path.relative_to(ROOT)), page_of(path))
            link = nodes.reference("", "", *node.children, internal=True, refuri=f"{up}{page}.html")
            node.replace_self(link)
            if page not in INCLUDED.values():
                self.env.linked_files.setdefault(docname, set()).add(path)


def prepare(app: Sphinx, env: Any, *_: Any) -> None:
    if not hasattr(env, "linked_files"):
        env.linked_files = {}


def forget(app: Sphinx, env: Any, docname: str) -> None:
    getattr(env, "linked_files", {}).pop(docname, None)


def merge(app: Sphinx, env: Any, docnames: list[str], other: Any) -> None:
    for name in docnames:
        if name in other.linked_files:
            env.linked_files[name] = other.linked_files[name]


def make_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for every linked path, and for the files of linked folders."""
    linked = {path for paths in app.env.linked_files.values() for path in paths}
    for path in list(linked):
        if path.is_dir():
            linked |= {own for own in path.iterdir() if own.is_file()}
    for path in sorted(linked):
        body = folder_page(path) if path.is_dir() else file_page(app, path)
        name = str(path.relative_to(ROOT))
        yield page_of(path), {"title": name, "body": f"<h1>{html.escape(name)}</h1>{body}"}, "page.html"


def folder_page(path: Path) -> str:
    names = [html.escape(own.name) for own in sorted(path.iterdir()) if own.is_file()]
    folder = html.escape(path.name)
    lines = [f'<li><a href="{folder}/{name}.html">{name}</a></li>' for name in names]
    return f"<ul>{''.join(lines)}</ul>"


def file_page(app: Sphinx, path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return f"<p>A file of {path.stat().st_size:,} bytes, in the repository.</p>"
    note = ""
    if len(text) > LONGEST:
        note = f"<p>The first of {text.count(chr(10)):,} lines; the whole file is in the repository.</p>"
        text = text[: text.rfind("\n", 0, 20_000)]
    language = LANGUAGES.get(path.suffix, "text")
    try:
        shown = app.builder.highlighter.highlight_block(text, language, force=True)
    except ClassNotFound:
        shown = f"<pre>{html.escape(text)}</pre>"
    return note + shown


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("env-before-read-docs", prepare)
    app.add_transform(LinkFiles)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", make_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
