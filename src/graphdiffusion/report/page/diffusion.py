"""Parts of a report on diffusion: the nodes in the plane with a slider over t, and what changes along t."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...solvers import Exponential, Stats
from ...training.summary import counted
from ..style import BLUE, GREEN, ORANGE, PANEL, axes_of, tidy
from .html import Html, Part, element, numbers, pictures, section

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .report import Report

COLOURS = {"class": "class", "predicted": "prediction", "right": "right or wrong", "value": "target"}
LABEL = "Scatter plot of the nodes; the slider above moves them along t"


def nodes(report: Report) -> Part | None:
    """The nodes as they diffuse, with a slider over t."""
    course = report.course
    last = len(course.times) - 1
    moving = course.times[-1] > 0
    hidden = None if moving else "hidden"
    slider = element("input", type="range", id="time", min="0", max=last, value=last, step="1")
    now = element("output", "", id="time-value", for_="time")
    controls = element(
        "div",
        element("label", "t ", slider, now, hidden=hidden),
        element("button", "Play", id="play", type="button", hidden=hidden),
        element("label", "places ", _select("embedding", {name: name for name in course.places})),
        element(
            "label",
            "colour ",
            _select("colour", {key: COLOURS[key] for key in _colours(report)}),
            hidden=None if report.task == "classification" else "hidden",
        ),
        class_="controls",
    )
    panel = element(
        "div",
        controls,
        element("canvas", "", id="nodes-canvas", role="img", aria_label=LABEL),
        element("p", "", id="about", class_="soft", aria_live="polite"),
        element("ul", "", id="legend"),
        class_="panel",
    )
    count = len(course.nodes)
    sample = "all nodes" if count == report.summary["nodes"] else f"a sample of {count:,} nodes"
    about = (
        f"The states of {sample} in {report.shown.config.title}, the best of its trainings by validation. "
        + ("One map for all t, so that points move and do not jump. " if moving else "")
        + f"PCA: the plane shows {100 * course.explained:.0f}% of the variance. t-SNE: near points are "
        "alike; distances between clusters say little. Click a point to see which node it is."
        + _scale(report)
    )
    name = "Nodes as they diffuse" if moving else "Nodes"
    return "nodes", name, section(name, element("p", about, class_="soft"), panel, name="nodes")


def _select(name: str, options: dict[str, str]) -> Html:
    return element(
        "select", *(element("option", text, value=key) for key, text in options.items()), id=name
    )


def _colours(report: Report) -> list[str]:
    """What nodes can be coloured by, the most telling first."""
    if report.task == "regression":
        return ["value"]
    if report.task != "classification":
        return ["class"]
    if report.course.predicted is None:
        return ["class"]
    known = report.summary["split"]["labelled"] / report.summary["nodes"]
    return ["class", "predicted", "right"] if known > 0.5 else ["predicted", "class", "right"]


def nodes_data(report: Report) -> dict[str, Any]:
    """What the script of the page draws."""
    course, task = report.course, report.runs[0].problem.task
    ids = report.ids
    found: dict[str, Any] = {
        "ids": [str(ids[k]) for k in course.nodes],
        "times": course.times,
        "places": {name: numbers((65535 * at).round(), "u2") for name, at in course.places.items()},
        "names": [],
    }
    y = task.y.cpu().numpy()[course.nodes]
    if report.task == "classification":
        found |= {"names": [str(n) for n in report.summary["names"]], "classes": numbers(y, "i2")}
        if course.predicted is not None:
            found["predicted"] = numbers(course.predicted, "u2")
    elif report.task == "regression":
        first, known, low, high = _target(report)
        share = (first - low) / max(high - low, 1e-300)
        found["values"] = numbers(np.where(known, 1 + (65534 * share).clip(0, 65534).round(), 0), "u2")
    return found


def _target(report: Report) -> tuple[NDArray[np.float64], NDArray[np.bool_], float, float]:
    """The first target of the nodes that are shown, where it is known, and its ends."""
    task, shown = report.runs[0].problem.task, report.course.nodes
    y, known = task.y.cpu().numpy()[shown], task.labelled.cpu().numpy()[shown]
    first = y.reshape(len(y), -1)[:, 0].astype(float)
    low, high = (first[known].min(), first[known].max()) if known.any() else (0.0, 0.0)
    return first, known, float(low), float(high)


def _scale(report: Report) -> str:
    """What the colours of a target say."""
    if report.task != "regression":
        return ""
    _, known, low, high = _target(report)
    name, grey = report.summary["names"][0], "" if known.all() else "; grey where it is not known"
    return f" The colour is {name}, from violet at {low:.4g} to yellow at {high:.4g}{grey}."


def along(report: Report) -> Part | None:
    """Dirichlet energy and separation of the classes along t, and what the integral cost."""
    course = report.course
    if course.steps is None or course.times[-1] == 0:
        return None
    energy, ax = _panel("Dirichlet energy over its size")
    ax.plot(course.times, course.energy, color=BLUE)
    if min(course.energy) > 0 and max(course.energy) / min(course.energy) > 20:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    drawn = [energy]
    caption = "The energy ½ Σ ‖xᵢ − xⱼ‖² / Σ dᵢ‖xᵢ‖² over the edges: 0 where all neighbours are alike."
    if course.separation is not None:
        figure, ax = _panel("variance between classes, %")
        ax.plot(course.times, [100 * s for s in course.separation], color=ORANGE)
        ax.set_ylim(0, 100)
        drawn.append(figure)
        caption += (
            " The share of the variance of labelled nodes that lies between the means of their classes: "
            "the larger it is, the better classes are separated."
        )
    if sizes := [float(h.max()) for h in course.steps.steps]:
        figure, ax = _panel("step size")
        ax.stairs(sizes, np.cumsum([0.0, *sizes]), color=GREEN, baseline=None)
        ax.set_ylim(bottom=0)
        drawn.append(figure)
    content = [pictures(drawn, "along", caption), element("p", _cost(report, course.steps))]
    return "along", "Along t", section("Along t", *content, name="along")


def _panel(title: str) -> tuple[Figure, Axes]:
    """A picture against t."""
    figure, ax = axes_of(None, figsize=PANEL)
    ax.set_title(title, fontsize=10)
    ax.set_xlabel("t")
    tidy(ax)
    return figure, ax


def _cost(report: Report, stats: Stats) -> str:
    solver, end = report.shown.solver, report.course.times[-1]
    if isinstance(solver, Exponential):
        return f"The closed form took {counted(stats.evaluations, 'sparse product')} to t = {end:.3g}."
    rejected = f" and {stats.rejected:,} rejected" if stats.rejected else ""
    return (
        f"{solver!r} took {counted(stats.accepted, 'step')}{rejected} to t = {end:.3g}, with "
        f"{counted(stats.evaluations, 'evaluation')} of the right-hand side; the last step has the size "
        f"{float(stats.last_step.max()):.3g}."
    )
