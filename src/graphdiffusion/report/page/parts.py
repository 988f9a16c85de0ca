"""The parts of a report, each from what :class:`~graphdiffusion.report.page.report.Report` holds."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING

from ... import __version__
from ...ensemble.baselines import simple_scores
from ...training.problem import member_splits
from ...training.runs import Run
from ...training.summary import FIGURES, counted, describe, describe_parts, duration, shown, wilson
from ..curves import plot_curves, read_curves
from ..ensemble import plot_baselines, plot_race
from ..run import plot_members
from ..style import PANEL, axes_of
from .answers import calibration, confusion, errors
from .diffusion import along, nodes
from .html import Html, Part, element, pictures, section, table

if TYPE_CHECKING:
    from .report import Report


FEW = 5  # splits on which simple methods are computed for a report

NOUNS = {
    "classification": ("class", "classes"),
    "regression": ("target", "targets"),
    "multilabel": ("label", "labels"),
}


def title(report: Report) -> str:
    data = report.summary["data"].rstrip("/").rsplit("/", 1)[-1]
    several = report.choice and len(report.summary["race"]) > 1
    model = "the best of several models" if several else report.runs[0].config.title
    return f"{data}: {model}"


def heading(report: Report) -> list[Html]:
    """Title, the score, and setting and data in a paragraph."""
    found = report.summary
    return [
        element("h1", title(report)),
        *_score(report),
        element("p", _setting(report)),
        element("p", f"Split {describe_parts(found['split'])}. {_made(report)}"),
    ]


def _score(report: Report) -> list[Html]:
    found, own = report.summary, report.summary["figures"]
    metric = report.runs[0].task.metric
    key = FIGURES[metric]
    if not report.choice and found["test"] is not None:
        score = found["test"]
        big = f"{score['mean']:.2f}{score['unit']}" if score["unit"] else f"{score['mean']:z.4f}"
        return [
            element("p", f"{big} test {metric}", class_="figure"),
            element("p", describe(score), class_="soft"),
        ]
    if key not in own:
        return []
    unit = report.runs[0].task.percent
    big = f"{100 * own[key]:.2f}%" if unit else f"{own[key]:z.4f}"
    part = report.part
    low, high = wilson(own[key], own["nodes"]) if metric == "accuracy" else (0.0, 0.0)
    ends = f"95% interval {100 * low:.1f} to {100 * high:.1f}, " if metric == "accuracy" else ""
    count = counted(own["nodes"], f"{part} node")
    soft = f"{ends}{count}, each answered by models that have not seen its label"
    return [element("p", f"{big} {part} {metric}", class_="figure"), element("p", soft, class_="soft")]


def _setting(report: Report) -> str:
    found = report.summary
    ways = 1 if report.runs[0].config.directed else 2  # an undirected edge is stored both ways
    given = found.get("edges", found.get("edges_given", 0)) // ways
    names, noun = len(found["names"]), NOUNS[report.task]
    what = f"{names} {noun[names != 1]}"
    return (
        f"A graph of {counted(found['nodes'], 'node')} and {counted(given, 'edge')}, with "
        f"{counted(found['features'], 'feature')} and {what}; "
        f"{counted(found['split']['labelled'], 'node')} have a label."
    )


def _made(report: Report) -> str:
    found = report.summary
    took = f"{duration(found['seconds'])} on {found['device']}"
    if report.choice:
        models, tried = counted(found["members"], "model"), [r["name"] for r in found["race"]]
        if len(tried) == 1:
            return f"One configuration, {tried[0]}: the answer is the mean of {models}. It took {took}."
        joined = f"Of {len(tried)} configurations the best are joined"
        return f"{joined}: the answer is the weighted mean of {models}. It took {took}."
    trainings = counted(found["members"], "training")
    return f"{trainings} of {found['model']} with {found['parameters']:,} parameters, in {took}."


def footer(report: Report) -> Html:
    versions = ", ".join(f"{name} {text}" for name, text in report.summary["versions"].items())
    made = f"Written by grand report, graphdiffusion {__version__}; the training used {versions}."
    return element("p", made, class_="soft")


def _beside(run: Run) -> Html:
    """A model beside methods without a graph, which learn from the same training nodes, on a few splits."""
    firsts = list({result.member.split: result.member for result in run.results}.values())[:FEW]
    splits = member_splits(run.config, run.problem.data, firsts)
    part = "test" if bool(splits.test.any()) else "val"
    chosen = {member.split for member in firsts}
    own = [getattr(r, part) for r in run.results if r.member.split in chosen]
    found = {run.config.title: fmean(own)} | simple_scores(run.problem, splits)
    rows = [(name, shown(score, run.task.percent)) for name, score in found.items()]
    nodes = "test" if part == "test" else "validation"
    where = "one split" if len(firsts) == 1 else f"{len(firsts)} splits"
    caption = f"Beside methods without a graph, from the same training nodes: {nodes} nodes of {where}"
    return table(("method", run.task.metric), rows, caption)


def scores(report: Report) -> Part | None:
    """Every training, simple methods, and the table of figures."""
    own, found = report.summary["figures"], report.summary
    content: list[Html] = []
    if report.choice:
        figure, ax = axes_of(None, figsize=(6.4, 0.36 * len(found["race"]) + 1.0))
        plot_race(found, ax=ax)
        caption = "Score on validation nodes of every configuration; the chosen ones in blue."
        content.append(pictures([figure], "race", caption))
        percent = report.runs[0].task.percent
        rows = [
            (
                r["name"],
                "failed" if r["val"] is None else shown(r["val"], percent),
                r["rounds"],
                f"{r['weight']:.2f}" if r["weight"] else "",
            )
            for r in found["race"]
        ]
        heads = ("configuration", f"validation {found['metric']}", "trainings", "weight")
        content.append(table(heads, rows, "What was tried, and its weight in the answer"))
        if found["baselines"]:
            figure, ax = axes_of(None, figsize=(6.4, 2.6))
            plot_baselines(found, ax=ax)
            content.append(
                pictures([figure], "baselines", "Simple methods with the same labels, on the same nodes.")
            )
    elif found["test"] is not None or found["val"] is not None:
        figure, ax = axes_of(None, figsize=(5.2, 3.2))
        plot_members(found, ax=ax)
        content.append(
            pictures([figure], "members", "Every training a dot; mean and 95% interval beside them.")
        )
        content.append(_beside(report.runs[0]))
    facts = [
        (name, f"{100 * own[key]:.2f}%" if share else f"{own[key]:.4g}")
        for key, name, share in _NAMES
        if key in own
    ]
    if facts:
        part = report.part
        content.append(
            table(("figure", "value"), facts, f"Mean answer of all models, {own['nodes']:,} {part} nodes")
        )
    return ("scores", "Scores", section("Scores", *content, name="scores")) if content else None


_NAMES = (
    ("accuracy", "accuracy", True), ("balanced_accuracy", "balanced accuracy", True),
    ("macro_f1", "macro F1", True), ("weighted_f1", "weighted F1", True), ("micro_f1", "micro F1", True),
    ("all_right", "all labels right", True), ("roc_auc", "ROC-AUC", False), ("log_loss", "log loss", False),
    ("r2", "R²", False), ("rmse", "root mean square error", False), ("mae", "mean absolute error", False),
    ("calibration_error", "calibration error", False),
)  # fmt: skip


def curves(report: Report) -> Part | None:
    """Loss, validation score and evaluations against the epoch."""
    metric, unit = report.runs[0].task.metric, report.runs[0].task.percent
    found = {name: [read_curves(own) for own in folders] for name, folders in report.journals.items()}
    drawn = []
    for key, head, factor in (
        ("loss", "training loss", 1.0),
        ("val", f"validation {metric}" + (", %" if unit else ""), 100.0 if unit else 1.0),
        ("evaluations", "evaluations of the right-hand side", 1.0),
    ):
        groups = {
            name: {(k, m): own for k, one in enumerate(each) for m, own in one[key].items()}
            for name, each in found.items()
        }
        figure, ax = axes_of(None, figsize=PANEL)
        plot_curves(groups, head, factor, ax=ax)
        drawn.append(figure)
    ax.set_ylim(bottom=0)
    caption = (
        "Thin lines are trainings, thick ones their median, bands hold 80% of them. The line of a training "
        "that was stopped early ends there."
    )
    return "curves", "Training", section("Training", pictures(drawn, "curves", caption), name="curves")


PARTS: tuple[Callable[[Report], Part | None], ...] = (
    scores, nodes, along, confusion, calibration, curves, errors,
)  # fmt: skip
