"""The parts of a page. Whatever comes from data is escaped here, and nowhere else."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Html(str):
    """Text that is markup already; all other text is escaped."""


VOID = ("input", "link", "meta")  # elements without content, and so without an end

Part = tuple[str, str, Html]  # of a page: name, title, content


def text(value: Any) -> Html:
    """A value as markup: text is escaped, markup is left alone."""
    return value if isinstance(value, Html) else Html(escape(str(value), quote=True))


def element(tag: str, *content: Any, **attributes: Any) -> Html:
    """An element. A trailing underscore of an attribute's name is dropped, others become hyphens."""
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    given = "".join(f' {name}="{text(value)}"' for name, value in names.items() if value is not None)
    end = "" if tag in VOID else f"</{tag}>"
    return Html(f"<{tag}{given}>{''.join(map(text, content))}{end}")


def section(title: str, *content: Any, name: str) -> Html:
    """A part of the page with a heading that can be linked to."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *content, id=name, aria_labelledby=f"{name}-title")


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], caption: str, kind: str | None = None
) -> Html:
    """A table that scrolls sideways where it is too wide; the first cell of a row is its heading."""
    listed = [(row[0], *map(_cell, row[1:])) for row in rows]
    columns = list(zip(*listed, strict=True))[1:] or [()] * (len(heads) - 1)
    sides = [None, *("left" if any(map(_is_left, own)) else None for own in columns)]
    named = zip(heads, sides, strict=True)
    head = element("tr", *(element("th", name, scope="col", class_=side) for name, side in named))
    body = [
        element("tr", element("th", row[0], scope="row", title=_title(row[0])), *row[1:]) for row in listed
    ]
    content = element("caption", caption), element("thead", head), element("tbody", *body)
    inside = element("table", *content, class_=kind)
    return element("div", inside, class_="wide", tabindex="0", role="region", aria_label=caption)


def _cell(value: Any) -> Html:
    """Numbers stand to the right, words to the left."""
    if isinstance(value, Html) and value.startswith("<td"):
        return value
    side = "left" if any(c.isalpha() for c in str(value)) else None
    return element("td", value, class_=side, title=_title(value))


def _title(value: Any) -> str | None:
    """The whole of a text that may be cut off."""
    return str(value) if len(str(value)) > 20 else None


def _is_left(cell: Html) -> bool:
    return cell.startswith('<td class="left"')


def pictures(figures: Sequence[Figure], name: str, caption: str) -> Html:
    """Figures of matplotlib as SVG, in the colours of the page, beside each other where there is room."""
    drawn = [_svg(figure, f"{name}-{k}") for k, figure in enumerate(figures)]
    return element("figure", element("div", *drawn, class_="row"), element("figcaption", caption))


def _svg(figure: Figure, name: str) -> Html:
    import matplotlib

    drawn = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = drawn.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub("<[^<>]*>", lambda tag: _adapted(tag[0], name), svg)  # tags alone: text is left as it is
    return Html(svg.replace("<svg", '<svg role="img" aria-hidden="true"', 1))


def _adapted(tag: str, name: str) -> str:
    """A tag of a picture with the colours of the page, and ids that differ between its pictures."""
    for colour, own in (("#000000", "currentColor"), ("#dddddd", "var(--grid)"), ("#ffffff", "none")):
        tag = tag.replace(colour, own)
    for before in ('id="', 'href="#', "url(#"):
        tag = tag.replace(before, f"{before}{name}-")
    return tag


def numbers(values: NDArray[Any], kind: str) -> str:
    """An array as base64 of numbers of a kind such as ``u2`` or ``f4``, little-endian."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=f"<{kind}").tobytes()).decode()


def colours() -> str:
    """The script that others begin with: colours, and arrays from text."""
    return files(__package__).joinpath("colours.js").read_text(encoding="utf-8")


def page(
    title: str,
    content: Sequence[Html],
    data: dict[str, Any],
    *,
    script: str | None = None,
    style: str = "",
    served: bool = False,
) -> str:
    """The whole page. Only its own script may run, and nothing is loaded from anywhere.

    Args:
        data: What the script finds in the element ``data``.
        script: By default ``page.js``.
        style: Rules behind those of ``page.css``.
        served: Whether the script may ask the server that the page came from.
    """
    own = files(__package__)
    style = own.joinpath("page.css").read_text(encoding="utf-8") + style
    script = colours() + own.joinpath("page.js").read_text(encoding="utf-8") if script is None else script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    rules += "; connect-src 'self'" if served else ""
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{rules}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<link rel="icon" href="data:,">'),
        element("title", title),
        element("style", Html(style)),
    )
    stored = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":  # nothing in it can end the element
        stored = stored.replace(character, f"\\u{ord(character):04x}")
    body = element(
        "body",
        element("main", *content),
        element("script", Html(stored), type="application/json", id="data"),
        element("script", Html(script)),
    )
    return f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n'
