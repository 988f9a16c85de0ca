"""The page of a graph: its markup, and what its script is given."""

from __future__ import annotations

import base64
import zlib
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ...nn.continuous import Continuous
from ...training.summary import counted
from ..page.html import Html, colours, element, page
from .reach import FURTHEST
from .scene import Scene

MOST_PAIRS = 1_000_000  # that are drawn
OUTPUTS = 8  # numbers or labels that nodes can be coloured by
ROOM = 24 << 20  # bytes of details that an exported file may hold, before they are compressed
WORK = 2e10  # multiplications for the shares of all nodes, some tens of seconds
SCRIPTS = ("arrays.js", "draw.js", "node.js", "view.js", "controls.js")
ABSENT = 65535  # no such edge
NAMES = {
    "class": "class",
    "predicted": "prediction at t",
    "right": "right or wrong at t",
    "said": "prediction at t",
    "state": "state x(t)",
}
KEYS = (
    "Graph. Arrows move it, plus and minus zoom, 0 shows all of it, Enter takes the node in the middle, "
    "Escape lets it go."
)


def view_page(scene: Scene, served: bool) -> tuple[str, list[str]]:
    """The page as text, and sentences on what it leaves out.

    Args:
        scene: What is shown.
        served: Whether the details of a node are asked of the server; otherwise the page holds them.
    """
    data, left_out = page_data(scene, served)
    folder = files(__package__)
    script = colours() + "(async () => {\n"
    script += "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS) + "})();\n"
    style = folder.joinpath("view.css").read_text(encoding="utf-8")
    content = _content(scene, data, [*notes(scene), *left_out])
    return page(title(scene), content, data, script=script, style=style, served=served), left_out


def title(scene: Scene) -> str:
    data = str(scene.run.config.data).rstrip("/").rsplit("/", 1)[-1]
    return f"{data}: {scene.run.config.title}"


def _content(scene: Scene, data: dict[str, Any], told: list[str]) -> list[Html]:
    moving = scene.times[-1] > 0
    last = len(scene.times) - 1
    still = None if moving else "hidden"
    several = scene.task != "classification" and len(data["names"]) > 1
    classes = scene.task == "classification"
    controls = [
        element(
            "label",
            "colour ",
            _select("colour", {key: (NAMES | {"truth": data["noun"]})[key] for key in data["colours"]}),
        ),
        element(
            "label",
            "of ",
            _select("output", dict(enumerate(data["names"][:OUTPUTS]))),
            hidden=None if several else "hidden",
        ),
        element(
            "label",
            "t ",
            element("input", type="range", id="time", min="0", max=last, value=last, step="1"),
            element("output", "", id="time-value", for_="time"),
            hidden=still,
        ),
        element("button", "Play", id="play", type="button", hidden=still),
        element(
            "label",
            "answers ",
            _select("answers", {"": "all", "0": "right", "1": "wrong"}),
            hidden=None if classes else "hidden",
        ),
        element(
            "label",
            "nodes ",
            _select("part", {"": "all", "1": "training", "2": "validation", "3": "test", "0": "others"}),
        ),
        element("label", "edges ", _select("edges", {"all": data["edge"]["kind"], "none": "none"})),
        element("button", "Show all", id="all", type="button", hidden="hidden"),
    ]
    picture = element(
        "div",
        element("canvas", "", id="graph", tabindex="0", role="application", aria_label=KEYS),
        element(
            "div",
            *(
                element("button", sign, type="button", id=name, aria_label=label, title=label)
                for sign, name, label in (
                    ("+", "nearer", "zoom in"),
                    ("−", "further", "zoom out"),
                    ("⤢", "whole", "show the whole graph"),
                )
            ),
            class_="zoom",
        ),
        element("p", "", id="hover", aria_hidden="true", hidden="hidden"),
        class_="picture",
    )
    beside = element(
        "aside",
        element("p", "", id="status", class_="soft", aria_live="polite"),
        element("div", "", id="results"),
        element("div", element("p", "Choose a node: click one, or find it by its id."), id="node"),
        aria_label="The chosen node",
    )
    about = element(
        "details",
        element("summary", "What is shown"),
        *(element("p", sentence) for sentence in told),
        element("p", f"Written by grand view, graphdiffusion {__version__}.", class_="soft"),
    )
    left = element("div", picture, element("ul", "", id="legend"), class_="left")
    search = element(
        "form",
        element("label", "find ", element("input", id="find", type="search", placeholder="id of a node")),
        element("button", "Go", type="submit"),
        id="search",
        role="search",
    )
    heading = element("div", element("h1", title(scene)), element("p", _subtitle(scene), class_="soft"))
    return [
        element("header", heading, search),
        element("div", *controls, class_="controls"),
        element("div", left, beside, class_="stage"),
        about,
    ]


def _select(name: str, options: dict[Any, str]) -> Html:
    made = [element("option", text, value=key) for key, text in options.items()]
    return element("select", *made, id=name)


def _subtitle(scene: Scene) -> str:
    pairs = counted(len(scene.pairs.first), "pair") + " of neighbours"
    return f"{counted(scene.graph.num_nodes, 'node')}, {pairs}; {scene.name}"


def notes(scene: Scene) -> list[str]:
    """What is shown, and what this model does not have."""
    told = [
        f"The model is {scene.run.config.title}, {scene.name}; training, validation and test nodes "
        "are its own.",
        "Neighbours are near to each other; places do not depend on the model.",
    ]
    integral = isinstance(scene.run.model(), Continuous)
    if scene.attention and not integral:
        told.append("Edges are as wide as the larger attention of both directions, in the last layer.")
    elif scene.attention:
        changing = "at t" if len(scene.edges) > 1 else "which is the same for all t"
        told.append(f"Edges are as wide as the larger attention of both directions, {changing}.")
    else:
        told.append("This model has no attention of its own: edges show the weights of the graph.")
    if scene.times[-1] == 0:
        why = "T is 0" if integral else "This model has no integral over time"
        told.append(f"{why}: there is no t to choose.")
    elif len(scene.answers) == 1:
        told.append("This model cannot be read out before T: answers are those at T.")
    told.append(
        f"The colour of the state shows two principal components, {100 * scene.explained:.0f}% of the "
        "variance over all nodes and times: like colours are like states, at all t."
    )
    if scene.reach is None:
        told.append("How far a node listens is not known for this model.")
    elif scene.reach.exact:
        told.append("How far a node listens follows from the closed form of x(T).")
    else:
        told.append(
            f"How far a node listens follows from the attention at {len(scene.times)} times; x(T) is met "
            f"with an error of {100 * (scene.reach.error or 0):.2g}%."
        )
    return told


def page_data(scene: Scene, served: bool) -> tuple[dict[str, Any], list[str]]:
    """What the script is given, and sentences on what is left out."""
    left_out: list[str] = []
    pairs, count = scene.pairs, scene.graph.num_nodes
    drawn = slice(0, MOST_PAIRS)
    if len(pairs.first) > MOST_PAIRS:
        rest = len(pairs.first) - MOST_PAIRS
        left_out.append(f"{rest:,} of the weakest pairs of neighbours are not drawn.")
    peak = max(float(np.abs(scene.edges).max(initial=0)), 1e-12)
    strength = np.maximum(
        _field(np.abs(scene.edges), pairs.there[drawn], 0),
        _field(np.abs(scene.edges), pairs.back[drawn], 0),
    )
    width = np.where(strength > 0, 1 + 254 * np.sqrt(strength / peak), 0).round()
    names = scene.run.names
    arrays = {
        "places": packed(65535 * scene.places, "u2"),
        "pairs": packed(np.stack([pairs.first[drawn], pairs.second[drawn]]), "u4"),
        "width": packed(width, "u1"),
        "plane": packed(255 * scene.plane, "u1"),
        "parts": packed(scene.parts, "u1"),
    }
    low, high = _range(scene)
    if scene.task == "classification":
        arrays |= {
            "classes": packed(scene.truth, "i2"),
            "predicted": packed(scene.answers.argmax(-1), "u2"),
        }
        shown = ["class", "predicted", "right"]
        if (scene.truth >= 0).mean() < 0.5:
            shown = ["predicted", "class", "right"]
    else:
        truth = _share(scene.truth[:, :OUTPUTS].T, low[:OUTPUTS, None], high[:OUTPUTS, None])
        arrays["truth"] = packed(np.where(np.isnan(truth), ABSENT, 65534 * truth), "u2")
        said = _share(scene.answers[..., :OUTPUTS], low[:OUTPUTS], high[:OUTPUTS])
        arrays["said"] = packed(65534 * said, "u2")
        shown = ["truth", "said"]
        if len(names) > OUTPUTS:
            left_out.append(
                f"Nodes can be coloured by the first {OUTPUTS} of {len(names)} {_noun(scene)}s."
            )
    ids = scene.run.data.get("node_ids")
    data: dict[str, Any] = {
        "count": count,
        "ids": None if ids is None else [str(own) for own in ids],
        "task": scene.task,
        "noun": _noun(scene),
        "names": [str(name) for name in names],
        "times": scene.times,
        "colours": [*shown, "state"],
        "ranges": np.stack([low, high], 1).tolist(),
        "edge": {"kind": "attention" if scene.attention else "weight", "peak": peak},
        "furthest": FURTHEST,
        "served": served,
        "arrays": arrays,
    }
    if not served:
        left_out += _add_details(scene, data)
    return data, left_out


def _add_details(scene: Scene, data: dict[str, Any]) -> list[str]:
    """Put the details of all nodes into the data of a page; sentences on those that do not fit."""
    left_out, pairs = [], scene.pairs
    room, otherwise = ROOM, "without --out they are computed for each node that is chosen"
    low, high = np.array(data["ranges"]).T
    if 2 * scene.answers.size <= room:
        data["arrays"]["answers"] = packed(65534 * _share(scene.answers, low, high), "u2")
        room -= 2 * scene.answers.size
    else:
        left_out.append(f"The answers of each node along t would make the file too large: {otherwise}.")
    if 2 * scene.edges.size <= room and len(pairs.first) <= MOST_PAIRS:
        ends = float(scene.edges.min(initial=0)), data["edge"]["peak"]
        data["edge"]["range"] = ends
        for name, edges in (("there", pairs.there), ("back", pairs.back), ("loops", pairs.loops)):
            own = _field(_share(scene.edges, *ends) * 65534, edges, ABSENT)
            data["arrays"][name] = packed(own, "u2")
    else:
        kind = data["edge"]["kind"]
        left_out.append(f"The {kind}s of each node would make the file too large: {otherwise}.")
    if scene.reach is not None:
        if scene.reach.work * data["count"] <= WORK:
            shares = scene.reach.shares(np.arange(data["count"]))
            data["arrays"]["shares"] = packed(65535 * shares, "u2")
        else:
            left_out.append(f"The shares of far nodes would take too long for all nodes: {otherwise}.")
    return left_out


def packed(values: NDArray[Any], kind: str) -> dict[str, str]:
    """An array of whole numbers, compressed: its kind, such as ``u2``, and its bytes as base64."""
    numbers = np.rint(values) if np.issubdtype(np.asarray(values).dtype, np.floating) else values
    content = np.ascontiguousarray(numbers, dtype=f"<{kind}").tobytes()
    return {"kind": kind, "data": base64.b64encode(zlib.compress(content, 6)).decode()}


def _field(values: NDArray[Any], edges: NDArray[np.int64], absent: float) -> NDArray[Any]:
    """Values ``(m, E)`` at some edges, ``(m, k)``; where there is no edge, another value."""
    if values.shape[-1] == 0:
        return np.full((len(values), len(edges)), absent)
    return np.where(edges >= 0, values[:, edges], absent)


def _share(values: NDArray[Any], low: Any, high: Any) -> NDArray[Any]:
    """Where values lie between two ends, in [0, 1]."""
    return ((values - low) / np.maximum(high - low, 1e-300)).clip(0, 1)


def _range(scene: Scene) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the numbers that are shown, of each output."""
    if scene.task != "regression":
        return np.zeros(len(scene.run.names)), np.ones(len(scene.run.names))
    both = np.concatenate([scene.truth[None], scene.answers.astype(float)])
    return np.nanmin(both, (0, 1)), np.nanmax(both, (0, 1))


def _noun(scene: Scene) -> str:
    return {"classification": "class", "regression": "target", "multilabel": "label"}[scene.task]
