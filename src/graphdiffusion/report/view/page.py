"""The page of a graph: its markup, and what its script is given."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from ... import __version__
from ...nn.continuous import Continuous
from ...training.summary import counted
from ..page.html import Html, colours, element, page
from .data import OUTPUTS, page_data
from .scene import Scene

SCRIPTS = ("arrays.js", "draw.js", "node.js", "view.js", "controls.js")
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
        element("button", "Show all", id="all", type="button", style="visibility: hidden"),
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
        told.append("Shares by distance are not known for this model.")
    elif scene.reach.exact:
        told.append("Shares by distance follow from the closed form of x(T).")
    else:
        told.append(
            f"Shares by distance follow from the attention at {len(scene.times)} times; x(T) is met "
            f"with an error of {100 * (scene.reach.error or 0):.2g}%."
        )
    return told
