"""The page of the playground: served, or written as one file with examples computed beforehand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import ConfigError, DataError
from ...files import write_bytes
from ..page.html import Html, element, page
from ..page.server import Reply, Request, Routes, serve
from .experiment import DIFFUSIVITIES, LARGEST, NODES, NUMBERS, SCHEMES, SUMS, Experiment, settings
from .graphs import GRAPHS, draw_graph
from .measured import packed
from .scenes import EXPORTED, FRAMES, SCENES, STEPS, examples
from .simulate import simulate

TITLE = "Diffusion on a small graph"
SCRIPTS = ("drawing.js", "charts.js", "editing.js", "playground.js")
TOOLS = {"look": "Look", "draw": "Draw", "paint": "Paint", "delete": "Delete"}
CHARTS = {
    "values": "values xᵢ",
    "range": "largest and smallest xᵢ",
    "energy": "Dirichlet energy",
    "mass": "mass",
    "error": "error, max |x − exact|",
}


def serve_playground(port: int = 0, *, browser: bool = True, said: Callable[[str], None]) -> None:
    """Serve the playground on the loopback interface until Ctrl-C; arguments as of ``serve``."""
    serve(routes(), port, browser=browser, said=said)


def routes() -> Routes:
    """The page, graphs by name, and integrals."""
    text = playground_page(served=True)
    return {
        ("GET", "/"): lambda request: Reply.html(text),
        ("POST", "/graph"): _graph,
        ("POST", "/simulate"): _simulate,
    }


def _simulate(request: Request) -> Reply:
    return Reply.json(packed(simulate(Experiment.read(request.content))))


def _graph(request: Request) -> Reply:
    content = request.content
    if not isinstance(content, dict) or set(content) != {"name", "size"}:
        raise DataError("a graph is asked for by name and size.")
    return Reply.json(draw_graph(content["name"], content["size"]).packed())


def write_playground(path: str | os.PathLike[str]) -> Path:
    """Write the playground as one HTML file that needs no server, with examples computed beforehand."""
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file to write.")
    write_bytes(path, playground_page(served=False).encode())
    return path


def playground_page(served: bool) -> str:
    """The whole page.

    Args:
        served: Whether a server computes; otherwise the page holds the scenes and some examples.
    """
    own = files(__package__)
    parts = [own.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    style = own.joinpath("playground.css").read_text(encoding="utf-8")
    lead = element("div", *_lead(served), class_="lead")
    left = element("div", *_controls(served), class_="choose")
    middle = element("div", *_stage(served), class_="stage")
    right = element("div", *_told(), class_="told")
    below = element("section", element("h2", "Against t"), *_charts(), class_="charts")
    about = (
        "Nodes by their value, edges by their attention. The numbers are those of the library's solvers; "
        "dashed lines are the exact solution."
    )
    content = [
        element("h1", TITLE),
        element("p", about, class_="soft"),
        element("div", lead, middle, right, left, below, class_="playground"),
        element("p", f"Made by grand demo, graphdiffusion {__version__}.", class_="soft"),
    ]
    return page(TITLE, content, _data(served), script=script, style=style, served=served)


def _data(served: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"served": served, "most": NODES, "scenes": [], "graphs": {}, "examples": {}}
    for scene in SCENES:
        own: dict[str, Any] = {"name": scene.name, "text": scene.text, "graph": scene.graph}
        own |= {"size": scene.size, "drawing": scene.drawing.packed(), "settings": settings(scene.given)}
        if not served:
            own["result"] = packed(simulate(scene.experiment, 60))
        found["scenes"].append(own)
    for name, kind in GRAPHS.items():
        own = {key: value for key, value in asdict(kind).items() if key != "make"}
        found["graphs"][name] = own | {"drawing": None if not served else kind.make(kind.size).packed()}
    if not served:
        for name, drawing, experiment in examples():
            found["graphs"][name]["drawing"] = drawing.packed()
            key = f"{name} {experiment.scheme} {_step(experiment.scheme, experiment.step)}"
            found["examples"][key] = packed(simulate(experiment, FRAMES))
        found |= {"settings": settings({"time": experiment.time}), "steps": STEPS}
    return found


def _step(scheme: str, step: float) -> str:
    return "" if scheme == "exponential" else f"{step:g}"


def _select(name: str, options: Mapping[str, str], **attributes: Any) -> Html:
    made = (element("option", text, value=key) for key, text in options.items())
    return element("select", *made, id=name, **attributes)


def _field(name: str, title: str, control: Html, hint: str | None = None) -> Html:
    return element("label", element("span", title), control, title=hint, id=f"{name}-field", class_="field")


def _number(name: str, title: str, hint: str, off: str | None = None) -> Html:
    least, most = (f"{end:g}" for end in NUMBERS[name])
    given = element(
        "input", type="number", id=name, min=least, max=most, step="any", disabled=off, autocomplete="off"
    )
    return _field(name, title, given, hint)


def _group(title: str, *content: Html) -> Html:
    return element("fieldset", element("legend", title), *content)


def _lead(served: bool) -> list[Html]:
    scenes = {"": "of your own", **{scene.name: scene.title for scene in SCENES}}
    note = "This file holds examples computed beforehand. To draw a graph and change more, run grand demo."
    return [
        _field("scene", "Scene", _select("scene", scenes)),
        element("p", "", id="scene-text", aria_live="polite"),
        element("p", note, class_="soft", id="file-note", hidden="hidden" if served else None),
    ]


def _controls(served: bool) -> list[Html]:
    off = None if served else "disabled"
    graphs = {"": "drawn", **{name: kind.title for name, kind in GRAPHS.items()}}
    schemes = SCHEMES if served else {name: SCHEMES[name] for name in EXPORTED}
    if served:
        step = _number("step", "τ, step", "The longest step; T is cut into equal ones")
    else:
        step = _field("step", "τ, step", _select("step", {f"{own:g}": f"{own:g}" for own in STEPS}))
    size = element("input", type="number", id="size", step="1", disabled=off, autocomplete="off")
    kinds = {"linear": "linear: A(x(0))", "nonlinear": "nonlinear: A(x(t))"}
    buttons = {"given": "given", "hot": "one hot", "random": "random"}
    return [
        _group(
            "Graph",
            _field("graph", "graph", _select("graph", graphs)),
            _field("size", "size", size),
            _field("image", "your image", element("input", type="file", id="image", accept="image/*")),
            _field("loops", "self-loops", element("input", type="checkbox", id="loops", disabled=off)),
            element(
                "div",
                element("span", "x(0)", title="One hot: the node that is chosen, or the first"),
                element(
                    "div",
                    *(element("button", text, type="button", data_values=k, disabled=off)
                      for k, text in buttons.items()),
                    class_="buttons",
                ),
                class_="field",
                role="group",
                aria_label="Initial values",
            ),
        ),
        _group(
            "Equation",
            _field("diffusivity", "A", _select("diffusivity", DIFFUSIVITIES, disabled=off)),
            _number("strength", "s, strength", "Of the attention; 0 is none", off),
            _number("width", "ℓ, width", "A difference of two values that counts as large", off),
            _field("over", "sum to one", _select("over", SUMS, disabled=off)),
            _field("linear", "kind", _select("linear", kinds, disabled=off)),
            _number("alpha", "α", "Speed of diffusion", off),
            _number("beta", "β, source", "Of x(0)", off),
        ),
        _group(
            "Scheme",
            _field("scheme", "scheme", _select("scheme", schemes)),
            step,
            _number("tolerance", "tolerance", "Of schemes that choose their steps", off),
            _number("time", "T", "Where the integral ends", off),
        ),
    ]  # fmt: skip


def _stage(served: bool) -> list[Html]:
    off = None if served else "hidden"
    tools = [
        element("button", text, type="button", data_tool=name, aria_pressed=str(name == "look").lower())
        for name, text in TOOLS.items()
    ]
    free = {"type": "number", "value": "1", "min": -LARGEST, "max": LARGEST, "step": "any"}
    brush = element("input", id="brush", autocomplete="off", **free)
    slider = element("input", type="range", id="time-slider", min="0", max="1", value="0", step="1")
    label = "The graph. Arrow keys choose a node; its value stands below. Space plays."
    small: dict[str, Any] = {"type": "number", "min": "0", "step": "1", "autocomplete": "off"}
    return [
        element(
            "div",
            element("span", *tools, role="group", aria_label="Tool", class_="buttons"),
            element("label", "value ", brush, id="brush-field"),
            class_="controls",
            id="tools",
            hidden=off,
        ),
        element("p", "", id="tool-text", class_="soft", hidden=off),
        element("canvas", "", id="graph-canvas", tabindex="0", role="application", aria_label=label),
        element("div", "", id="legend"),
        element(
            "div",
            element("button", "Play", type="button", id="play"),
            element("label", "t ", slider),
            element("output", "", id="time-value", for_="time-slider"),
            class_="controls",
        ),
        element("p", "", id="about", class_="soft", aria_live="polite"),
        element("p", "", id="error", role="alert", hidden="hidden"),
        element(
            "details",
            element("summary", "Change the graph by keyboard"),
            element(
                "div",
                element("label", "node ", element("input", id="key-from", value="0", **small)),
                element("label", "other node ", element("input", id="key-to", value="1", **small)),
                element("label", "value ", element("input", id="key-value", autocomplete="off", **free)),
                class_="controls",
            ),
            element(
                "div",
                *(element("button", text, type="button", data_key=name) for name, text in KEYS.items()),
                class_="buttons",
            ),
            hidden=off,
        ),
    ]  # fmt: skip


KEYS = {
    "add-node": "Add a node",
    "add-edge": "Add the edge",
    "remove-edge": "Remove the edge",
    "remove-node": "Remove the node",
    "set-value": "Set the value",
    "clear": "Remove all",
}


def _told() -> list[Html]:
    verdicts = (("theory", "Stable by theory?"), ("happened", "What happened"))
    return [
        *(
            element(
                "div",
                element("h2", title),
                element("p", "", id=name, aria_live="polite"),
                class_="verdict",
                id=f"{name}-box",
            )
            for name, title in verdicts
        ),
        element("div", element("h2", "Equation"), element("div", "", id="formulas"), class_="formula"),
        element("table", element("caption", "Measured"), element("tbody", "", id="facts")),
    ]


def _charts() -> list[Html]:
    return [
        element(
            "figure",
            element("figcaption", element("span", title, id=f"{name}-title"), " ",
                    element("output", "", id=f"{name}-now")),
            Html(f'<svg id="{name}-chart" role="img"></svg>'),
            id=f"{name}-figure",
        )
        for name, title in CHARTS.items()
    ]  # fmt: skip
