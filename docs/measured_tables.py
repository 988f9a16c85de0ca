"""Tables of single measurements in docs/results, a function for each; ``make_tables.py`` places them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from graphdiffusion.experiments.results import read_results
from graphdiffusion.experiments.scheme_list import MODELS, SCHEMES
from graphdiffusion.experiments.sparsity_claims import MODELS as GRAND
from graphdiffusion.training.summary import half_interval

DOCS = Path(__file__).resolve().parent
DATA = {
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "pubmed": "PubMed",
    "coauthor-cs": "CoauthorCS",
    "computers": "Computers",
    "photo": "Photo",
}


def rows_of(name: str) -> Any:
    """What a benchmark has measured."""
    return json.loads((DOCS / "results" / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def header(heads: list[str]) -> list[str]:
    """The first two lines of a table."""
    return ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]


def depth() -> str:
    """A row for each data set, kind of tuning and model, a column for each depth; then the verdict."""
    content = read_results(DOCS / "results" / "depth.json")
    settings, points = content["settings"], content["points"]
    heads = ["data", "tuned", "model", *map(str, settings["depths"]), "energy at the deepest"]
    lines = header(heads)
    for own in content["figures"]:
        known = {
            p["depth"]: p for p in points if all(p[key] == own[key] for key in ("data", "tuned", "model"))
        }
        cells = [
            f"{np.mean(known[at]['test']):.1f} ± {np.std(known[at]['test'], ddof=1):.1f}"
            if at in known
            else "–"
            for at in settings["depths"]
        ]
        energy = np.mean(known[own["deepest_depth"]]["energy"])
        head = f"{DATA[own['data']]} | {own['tuned']} | {own['title']}"
        lines.append(f"| {head} | " + " | ".join(cells) + f" | {energy:.2g} |")
    how = (
        f"Test accuracy in percent, mean and standard deviation over {settings['splits']} splits; –: not "
        f"measured. All models: width {settings['hidden']}, at most {settings['epochs']} epochs, a search "
        f"of {settings['trials']} trials."
    )
    return "\n".join([*lines, "", how, "", f"**Verdict.** {content['verdict']}"])


def scheme_limits() -> str:
    """A row for each scheme: its longest stable step on each spectrum, measured and by theory."""
    limits = read_results(DOCS / "results" / "schemes.json")["limits"]
    names = {"interval": "[−2, 0]", "disc": "disc"}
    spectra = limits[0]["spectra"]
    lines = header(
        ["scheme", *(f"{names[s]}: {kind}" for s in spectra for kind in ("measured", "beyond", "theory"))]
    )

    def number(limit: float | None) -> str:
        return "none" if limit is None else f"{limit:.2g}" if limit < 0.1 else f"{limit:.3g}"

    for row in limits:
        cells = []
        for own in (row[s] for s in spectra):
            cells += [number(own["limit"]), own["beyond"]] if "limit" in own else ["–", ""]
            cells.append(number(own["theory"]) if own.get("known") else "not known")
        lines.append(f"| {row['title']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def schemes() -> str:
    """A row for each model and scheme, a column for each step; then those without steps; the verdict."""
    content = read_results(DOCS / "results" / "schemes.json")
    settings = content["settings"]
    steps = sorted({*settings["explicit"], *settings["implicit"], *settings["stiff"]}, reverse=True)
    lines = header(["model", "scheme", *(f"τ = {step:g}" for step in steps)])
    free = header(["model", "scheme", "tolerance scale", "test %, seconds"])

    def cell(own: dict[str, Any]) -> str:
        if own["test"] is None:
            return ", ".join(own["reasons"])
        seconds = own["train_seconds"]
        text = f"{own['test']:.1f}" + ("" if seconds is None else f", {_short(seconds)} s")
        text += "" if own["ended"] == own["runs"] else f", {own['ended']} runs"
        return text if own["stable"] else f"*{text}*"

    found: dict[tuple[str, str], dict[float | None, dict[str, Any]]] = {}
    for own in content["figures"]:
        found.setdefault((own["model"], own["scheme"]), {})[own["amount"]] = own
    for (model, scheme), row in found.items():
        head = f"| {MODELS[model][0]} | {next(iter(row.values()))['title']} | "
        if SCHEMES[scheme].kind in ("adaptive", "closed"):
            free += [f"{head}{at or ''} | {cell(own)} |" for at, own in row.items()]
        else:
            lines.append(head + " | ".join(cell(row[at]) if at in row else "–" for at in steps) + " |")
    together = {p["together"] for p in content["points"] if p["part"] == "accuracy"}
    whose = "of one" if together == {1} else "in which they are trained together"
    how = (
        f"Test accuracy in percent, mean of {settings['runs']} runs of {settings['epochs']} epochs (of "
        "those that came to their end, where their number stands beside it), and "
        f"the seconds {whose}; italics: not stable; TimeLimit: stopped after {settings['limit']:g} s; "
        "–: not measured."
    )
    return "\n".join([*lines, "", *free, "", how, "", f"**Verdict.** {content['verdict']}"])


def _short(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 100 else f"{seconds:.2g}"


def sparsity(name: str = "sparsity") -> str:
    """Accuracy, then seconds and work of an epoch: a row for each model and scheme, a column for each K."""
    content = read_results(DOCS / "results" / f"{name}.json")
    titles, found = content["titles"], content["figures"]
    edges = {own["k"]: own["edges"] for case in found["speed"] for own in case["graphs"]}
    graphs = [f"{f'K = {k}' if k else 'as it is'}, {count:,} edges" for k, count in sorted(edges.items())]
    accuracy, speed = (header([first, *graphs]) for first in ("accuracy, %", "seconds of an epoch"))
    for case in found["accuracy"]:
        own = {row["k"]: f"{row['mean']:.1f} ± {row['std']:.1f}" for row in case["graphs"]}
        cells = (own.get(k, "–") for k in sorted(edges))
        head = f"{GRAND[case['model']]}, {titles[case['scheme']]}, {case['rewire']}"
        accuracy.append(f"| {head} | " + " | ".join(cells) + " |")
    for case in found["speed"]:
        own = {row["k"]: f"{row['seconds']:.2g} ({_work(row)})" for row in case["graphs"]}
        cells = (own.get(k, "–") for k in sorted(edges))
        speed.append(f"| {GRAND[case['model']]}, {titles[case['scheme']]} | " + " | ".join(cells) + " |")
    how = "In brackets the evaluations of an integral, after the oblique the iterations of an implicit one."
    return "\n".join([*accuracy, "", *speed, "", how, "", f"**Verdict.** {content['verdict']}"])


def _work(row: dict[str, Any]) -> str:
    return f"{row['evaluations']}" + (f"/{row['iterations']}" if row["iterations"] else "")


def claims() -> str:
    """A row for each smaller claim of the paper."""
    lines = header(["claim", "measured", "on", "verdict"])
    for own in read_results(DOCS / "results" / "claims.json")["figures"]:
        about = [*own["on"], *([f"{own['splits']} splits"] if own["splits"] else [])]
        if own["missing"]:
            about.append(f"not yet {', '.join(own['missing'])}")
        lines.append(
            f"| {own['says']} (section {own['section']}; `--only {own['name']}`) | {own['measured']} | "
            f"{', '.join(about)} | **{own['word']}** |"
        )
    return "\n".join(lines)


def batches() -> str:
    """A row for each training on groups of parts, after the exact one."""
    rows = rows_of("batches")
    heads = ["data", "model", "groups", "edges left out", "test %", "paired difference"]
    heads += ["epochs", "ms an epoch", "MB of an update"]
    lines = header(heads)
    exact = {(row["data"], row["variant"]): row["tests"] for row in rows if not row["batches"]}
    for row in rows:
        groups = f"{row['batches']}, {row['cut']}" if row["batches"] else "exact"
        name = DATA[row["data"].removesuffix("-embedded")]
        apart = np.subtract(row["tests"], exact[row["data"], row["variant"]])
        difference = f"{apart.mean():+.1f} ± {half_interval(apart.tolist()):.1f}" if row["batches"] else ""
        lines.append(
            f"| {name} | {row['variant']} | {groups} | "
            f"{row['left_out']:.0%} | {row['test']:.1f} ± {row['std']:.1f} | {difference} | "
            f"{row['epochs']:.0f} | {1000 * row['seconds_epoch']:.0f} | {row['megabytes']:.0f} |"
        )
    return "\n".join(lines)


def memory() -> str:
    """A row for each solver, a column for each gradient mode: measured, and the ratio of the estimate."""
    rows = rows_of("memory")
    modes = list(dict.fromkeys(row["gradient"] for row in rows))
    lines = header(["", *modes])
    for solver in dict.fromkeys(row["solver"] for row in rows):
        own = {row["gradient"]: row for row in rows if row["solver"] == solver}
        cells = (
            f"{own[m]['measured'] / 1e9:.2f} GB, {own[m]['estimate'] / own[m]['measured']:.2f}"
            if m in own
            else ""
            for m in modes
        )
        lines.append(f"| {solver} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def precision() -> str:
    """A row for each model trained in float32 and with powers in bfloat16."""
    rows = rows_of("precision")
    heads = ["data", "model", "error of x(T)", "error of the gradient", "other class", "test %, float32"]
    heads += ["test %, bfloat16", "paired difference", "ms an epoch"]
    lines = header(heads)
    for row in rows:
        full, less = (np.asarray(row["tests"][name]) for name in ("full", "bfloat16"))
        apart, times = less - full, row["seconds_epoch"]
        half = half_interval(apart.tolist())
        lines.append(
            f"| {DATA[row['data'].removesuffix('-embedded')]} | {row['variant']} | {row['state']:.1e} | "
            f"{row['gradient']:.1e} | {row['classes']:.2%} | {full.mean():.1f} ± {full.std(ddof=1):.1f} | "
            f"{less.mean():.1f} ± {less.std(ddof=1):.1f} | {apart.mean():+.2f} ± {half:.2f} | "
            f"{1000 * times['full']:.0f}, {1000 * times['bfloat16']:.0f} |"
        )
    return "\n".join(lines)


def equations() -> str:
    """A row for each equation: evaluations, cost beside GRAND-nl and beside plain torch, GPU and CPU."""
    gpu = {row["name"]: row for row in rows_of("equations_gpu")}
    heads = ["preset", "evaluations or products", "H200: trainings a second", "time, GRAND-nl is 1"]
    heads += ["faster than plain torch", "CPU: time, GRAND-nl is 1", "faster than plain torch"]
    lines = header(heads)
    for row in rows_of("equations"):
        own = gpu.get(row["name"])  # none yet of a preset whose scheme is new
        cells = [f"`{row['name']}`", str(row["evaluations"])]
        cells += ["–"] * 3 if own is None else [
            f"{own['trainings_per_second']:.3g}", f"{own['times_nonlinear']:.1f}",
            f"{own['times_plain']:.0f}",
        ]  # fmt: skip
        cells += [f"{row['times_nonlinear']:.1f}", f"{row['times_plain']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def largest() -> str:
    """The largest graphs of an epoch on one device, a row for each of the last sizes that fit."""
    lines = header(["model", "nodes", "edges", "seconds an epoch", "memory"])
    rows = rows_of("largest")
    for variant in dict.fromkeys(row["variant"] for row in rows):
        for row in [row for row in rows if row["variant"] == variant][-3:]:
            lines.append(
                f"| {variant} | {row['nodes'] / 1e6:.1f} million | {row['edges'] / 1e6:.0f} million | "
                f"{row['seconds']:.2f} | {row['bytes'] / 1e9:.1f} GB |"
            )
    return "\n".join(lines)


def equations_errors() -> str:
    """A row for each scheme, a column for each equation."""
    found = rows_of("equations_errors")
    lines = header(["scheme", *(f"`{name}`" for name in found)])
    own = {name: {row["scheme"]: row for row in rows} for name, rows in found.items()}

    def cell(row: dict[str, Any] | None) -> str:
        if row is None:  # refused
            return "–"
        error = "infinite" if row["error"] is None else format(row["error"], ".0e")
        return f"{error} ({row['evaluations']})"

    for scheme in max(own.values(), key=len):
        cells = (cell(rows.get(scheme)) for rows in own.values())
        lines.append(f"| {scheme} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
