"""``grand train`` on a graph of one's own: the automatic choice, told step by step."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..training.summary import FIGURES, class_counts, counted, describe_sizes, part_sizes, shown
from .messages import command, say
from .messages import report as write_report
from .tables import described_figures, print_facts, print_table

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from ..ensemble import Candidate
    from ..training import Config


SHOWN = 12  # classes whose labels are counted in a line


def train_automatically(
    base: Config,
    data: Data,
    out: Path,
    *,
    candidates: Sequence[Candidate] | None = None,
    refit: bool | None,
    compare: bool,
    budget: float,
    resume: bool,
    quiet: bool,
    report: bool,
) -> None:
    """Carry out an automatic choice in a folder and print what it found."""
    from ..ensemble import choose
    from ..ensemble.folder import is_chosen, read_summary
    from ..ensemble.progress import Stages
    from ..training.folder import require_free
    from ..training.problem import pick_device

    if resume and is_chosen(out):
        say("this run is finished.")
        print_choice(out, read_summary(out), write_report(out, data=data) if report else None)
        return
    pick_device(base.device)
    if not resume:
        require_free(out)
    for sentence in about_data(base, data):
        say(sentence)
    progress = None if quiet else Stages(say)
    summary = choose(
        base, data, out, candidates=candidates, refit=refit, compare=compare, budget=budget, resume=resume,
        progress=progress,
    )  # fmt: skip
    print_choice(out, summary, write_report(out, data=data) if report else None)


def evaluate_choice(folder: Path, root: str | None) -> None:
    """Compute the figures of an automatic choice again, from its folder."""
    from ..ensemble.automatic import assess_runs
    from ..ensemble.folder import read_summary
    from ..ensemble.result import crossed_runs

    runs, weights = crossed_runs(folder, root)
    for run in runs[1:]:
        run.remember(runs[0].data)
    temperature, figures = assess_runs(runs, weights)
    found = read_summary(folder) | {"temperature": temperature, "figures": figures}
    print_facts(f"{', '.join(found['chosen'])} on {found['data']}", described_figures(found))


def about_data(base: Config, data: Data) -> list[str]:
    """What is trained on: sizes, split, and classes that are too rare to be validated."""
    from ..data.shares import RARE, rare_classes
    from ..data.targets import known, task_of
    from ..training.problem import member_splits, protocol, split_kind

    found = [*(data.get("notes") or [])]
    task, kind = task_of(data), split_kind(base, data)
    labelled = int(known(data.y).sum())
    names = data.get("class_names" if task == "classification" else "target_names") or []
    what = {
        "classification": "1 class" if len(names) == 1 else f"{len(names) or '?'} classes",
        "regression": counted(len(names), "target"),
        "multilabel": f"any of {counted(len(names), 'label')}",
    }[task]
    found.append(
        f"{data.get('name') or 'the graph'}: {counted(data.x.shape[0], 'node')}, "
        f"{counted(data.edge_index.shape[1] // (1 if base.directed else 2), 'edge')}, "
        f"{counted(data.x.shape[1], 'feature')}; "
        f"{counted(labelled, 'node')} with a label, {what}."
    )
    members = list({member.split: member for member in protocol(base, data)}.values())
    found.append(f"split {describe_sizes(kind, part_sizes(base, data, members))}.")
    validated = data.get("val_mask")
    if kind == "given" and (validated is None or not bool(validated.any(0).all())):
        found.append("of a split without validation nodes, a fifth of the training nodes validates.")
    if task == "classification" and len(names) > 1:
        first = member_splits(base, data, members[:1])
        found.append(_about_classes(class_counts(first, data.y, names), len(members)))
    if kind in ("shares", "folds") and task == "classification":
        for k, number in rare_classes(data.y).items():
            name = names[k] if k < len(names) else str(k)
            found.append(
                f"class {name!r} has {counted(number, 'label')}, fewer than {RARE}: it trains in every "
                "split and is never validated. If it is a typing error, correct it."
            )
    return found


def _about_classes(counts: Mapping[str, Mapping[str, int]], splits: int) -> str:
    """How many labels of each class train, validate and test; the largest classes first."""
    order = sorted(counts, key=lambda name: -sum(counts[name].values()))
    most = SHOWN if len(order) > SHOWN + 1 else len(order)
    told = [f"{name!r} {'/'.join(map(str, counts[name].values()))}" for name in order[:most]]
    more = f", and {len(order) - most} more classes" if len(order) > most else ""
    where = " in the first split" if splits > 1 else ""
    return f"labels that train/validate/test{where}: {', '.join(told)}{more}."


def print_choice(folder: Path, found: Mapping[str, Any], page: Path | None = None) -> None:
    """What the summary of an automatic choice says."""

    def text(score: float | None) -> str:
        return "" if score is None else shown(score, bool(found["unit"]))

    print_table(
        "What was tried",
        ("configuration", f"validation {found['metric']}", "loss", "trainings", "weight"),
        [
            (
                r["name"],
                text(r["val"]) or "failed",
                "" if r["loss"] is None else f"{r['loss']:.3f}",
                r["rounds"],
                f"{r['weight']:.2f}" if r["weight"] else "",
            )
            for r in found["race"]
        ],
    )
    print_facts(f"{', '.join(found['chosen'])} on {found['data']}", described_figures(found))
    if found["baselines"]:
        own = found["figures"].get(FIGURES[found["metric"]])
        rows = [(name, text(score)) for name, score in found["baselines"].items()]
        part = "test" if found["figures"].get("part") == "test" else "validation"
        print_table(
            f"Does the graph pay? {found['metric']} on {part} nodes",
            ("method", found["metric"]),
            [*rows, ("this ensemble", text(own))],
        )
    print(f"Results: {folder}")
    if page is not None:
        print(f"Report:  {page}")
    print(f"Next:    {command()} predict {shlex.quote(str(folder))} --out predictions.csv", flush=True)
