"""Parts of a report on answers: classes, calibration, and the surest errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..ensemble import plot_reliability
from ..style import BLUE, ORANGE, PANEL, axes_of, tidy
from .html import Html, Part, element, pictures, section, table

if TYPE_CHECKING:
    from .report import Report

MOST = 30  # classes whose confusion can be read
WRONG = 20  # nodes in the list of sure errors


def confusion(report: Report) -> Part | None:
    """What is taken for what, and a row for every class, target or label."""
    own = report.summary["figures"]
    names = report.summary["names"]
    content: list[Html] = []
    if "confusion" in own:
        if len(names) <= MOST:
            content.append(_matrix(names, own["confusion"]))
        content.append(_shares("class", own["per_class"]))
    elif "per_target" in own:
        rows = [
            (t["target"], *(f"{t[key]:.4g}" for key in ("r2", "rmse", "mae"))) for t in own["per_target"]
        ]
        heads = ("target", "R²", "root mean square error", "mean absolute error")
        content += [_agreement(report), table(heads, rows, "Each target")]
    elif "per_label" in own:
        content.append(_shares("label", own["per_label"]))
    head = "Classes" if report.task == "classification" else "Answers"
    return ("classes", head, section(head, *content, name="classes")) if content else None


def _shares(kind: str, each: Sequence[Mapping[str, Any]]) -> Html:
    """Precision, recall and F1 of every class or label."""
    keys = ("precision", "recall", "f1")
    rows = [(own[kind], *(_percent(own[key]) for key in keys), f"{own['nodes']:,}") for own in each]
    return table((kind, "precision", "recall", "F1", "nodes"), rows, f"Each {kind}")


def _matrix(names: list[str], counts: list[list[int]]) -> Html:
    """The confusion matrix as a table whose cells are darker where more nodes of a class are."""
    rows = []
    for name, row in zip(names, counts, strict=True):
        cells = []
        for count in row:
            share = count / max(sum(row), 1)
            style = f"background: rgba(var(--heat), {0.75 * share:.3f})" if count else None
            cells.append(element("td", count or "", class_="cell", style=style))
        rows.append([name, *cells])
    return table(
        ("class", *names), rows, "Rows: the class of a node; columns: what was predicted", "matrix"
    )


def _agreement(report: Report) -> Html:
    """Predicted against true numbers, one panel a target for the first three."""
    found = report.answers.numpy()
    y = report.truth.reshape(report.answers.shape).numpy()
    names = report.summary["names"][:3]
    drawn = []
    for k, name in enumerate(names):
        figure, ax = axes_of(None, figsize=PANEL)
        ax.scatter(y[:, k], found[:, k], s=8, alpha=0.5, color=BLUE, linewidths=0)
        ends = [float(min(y[:, k].min(), found[:, k].min())), float(max(y[:, k].max(), found[:, k].max()))]
        ax.plot(ends, ends, color=ORANGE, linewidth=1)
        ax.set_title(str(name).replace("$", "\\$"), fontsize=10)
        ax.set_xlabel("true")
        ax.set_ylabel("predicted")
        tidy(ax)
        drawn.append(figure)
    return pictures(drawn, "agreement", "Predicted against true numbers; on the line they are equal.")


def calibration(report: Report) -> Part | None:
    own = report.summary["figures"]
    if "reliability" not in own:
        return None
    figure, ax = axes_of(None, figsize=(4.2, 3.8))
    plot_reliability(own, ax=ax)
    caption = (
        "How often answers of a confidence are right; on the dotted line, as often as they say. "
        f"Expected calibration error {own['calibration_error']:.3f}, "
        f"{own['uncalibrated_error']:.3f} before calibration."
    )
    body = section("Calibration", pictures([figure], "reliability", caption), name="calibration")
    return "calibration", "Calibration", body


def errors(report: Report) -> Part | None:
    """The nodes for which the models are surest and wrong."""
    heads, rows, caption = LISTS[report.task](report)
    if not rows:
        return None
    head = "Largest errors" if report.task == "regression" else "Surest errors"
    about = (
        "Each is answered by models that have not seen its label. A wrong label in the data is often "
        "among the first of this list."
    )
    body = section(head, element("p", about, class_="soft"), table(heads, rows, caption), name="errors")
    return "errors", head, body


List = tuple[tuple[str, ...], list[tuple[Any, ...]], str]  # headings, rows, caption


def _classes(report: Report) -> List:
    y, found = report.truth, report.answers
    sure, said = found.max(-1)
    wrong = (said != y).nonzero().flatten()
    order = wrong[sure[wrong].argsort(descending=True, stable=True)][:WRONG].tolist()
    names = report.summary["names"]
    rows = [
        (report.id(k), names[int(y[k])], names[int(said[k])], _percent(sure[k]), _percent(found[k, y[k]]))
        for k in order
    ]
    heads = ("node", "class", "predicted", "confidence", "probability of its class")
    return heads, rows, f"The surest of {len(wrong):,} wrong answers to {len(y):,} {report.part} nodes"


def _numbers(report: Report) -> List:
    found = report.answers
    y = report.truth.reshape(found.shape)
    error = (found - y).abs()
    relative = error / error.mean(0).clamp_min(1e-300)  # targets may have different sizes
    order = relative.max(-1).values.argsort(descending=True, stable=True)[:WRONG].tolist()
    rows = []
    for k in order:
        j = int(relative[k].argmax())
        name = report.summary["names"][j]
        rows.append((report.id(k), name, f"{float(y[k, j]):.5g}", f"{float(found[k, j]):.5g}"))
    heads = ("node", "target", "true", "predicted")
    return heads, rows, f"The largest errors on {len(y):,} {report.part} nodes"


def _labels(report: Report) -> List:
    y, found = report.truth.double(), report.answers
    missed, which = (found - y).abs().max(-1)
    order = missed.argsort(descending=True, stable=True)[:WRONG].tolist()
    rows = []
    for k in order:
        j = int(which[k])
        if missed[k] > 0.5:
            has = "yes" if y[k, j] > 0 else "no"
            rows.append((report.id(k), report.summary["names"][j], has, _percent(found[k, j])))
    heads = ("node", "label", "has it", "probability")
    return heads, rows, f"The surest wrong labels of {len(y):,} {report.part} nodes"


LISTS = {"classification": _classes, "regression": _numbers, "multilabel": _labels}


def _percent(share: Any) -> str:
    return f"{100 * float(share):.1f}%"
