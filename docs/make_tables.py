"""Writes the tables of the documents: measurements from docs/results, names from the registries.

    python docs/make_tables.py [--check]

A table stands between ``<!-- NAME -->`` and ``<!-- end -->``. ``--check`` changes nothing; it fails if one
is out of date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from graphdiffusion.docstrings import summary_of
from graphdiffusion.experiments import paper
from graphdiffusion.experiments.ranking import grand_and_rival, ranks
from graphdiffusion.experiments.results import read_results
from graphdiffusion.experiments.tables import rows_of
from graphdiffusion.options import options_of
from graphdiffusion.registry import registries
from graphdiffusion.report.successor_tables import successor_tables
from graphdiffusion.training.choices import AFTER, BEFORE

DOCS = Path(__file__).resolve().parent
DATA = {
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "pubmed": "PubMed",
    "coauthor-cs": "CoauthorCS",
    "computers": "Computers",
    "photo": "Photo",
}
Cells = dict[tuple[str, str], dict[str, Any]]


def read(table: str, reading: str = "") -> Cells:
    content = json.loads((DOCS / "results" / f"{table}.json").read_text(encoding="utf-8"))
    cells = [cell for cell in content["cells"] if cell.get("reading", "") == reading]
    return {(cell["data"], cell["row"]): cell for cell in cells}


def complete(column: Mapping[str, Any], table: str) -> bool:
    """Whether every model of a table has been measured: only then there is a best rival."""
    return set(rows_of(table)) <= set(column)


def accuracies(cells: Cells, table: str) -> str:
    """A row for each model, a column for each data set.

    Of a column that is complete the best is bold, and a last line has the paired difference of the best
    GRAND and the best rival.
    """
    shown = [name for name in DATA if any(data == name for data, _ in cells)]
    lines = ["| | " + " | ".join(DATA[name] for name in shown) + " |", "|---" * (len(shown) + 1) + "|"]
    column = {name: {row: cell for (data, row), cell in cells.items() if data == name} for name in shown}
    place = {name: ranks(column[name]) for name in shown}
    for row in (row for row in paper.ROWS if any(row in own for own in column.values())):
        texts = []
        for name in shown:
            cell = column[name].get(row)
            if cell is None:
                texts.append("–")
                continue
            text = _accuracy(cell, place[name][row] == 1 and complete(column[name], table))
            texts.append(text if cell["paper"] is None else f"{text} ({cell['paper']:.1f})")
        lines.append(f"| {paper.TITLES[row]} | " + " | ".join(texts) + " |")
    ahead = [grand_and_rival(own) if complete(own, table) else None for own in column.values()]
    if any(ahead):
        texts = ["–" if d is None else f"{d.mean:+.2f} ± {d.half:.2f}" for d in ahead]
        lines.append("| best GRAND − best rival | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def rivals(cells: Cells) -> str:
    """A row for each data set: the models of GRAND, the best of all others, and which is ahead."""
    heads = [
        "",
        *(paper.TITLES[row] for row in paper.GRAND),
        "best rival",
        "its accuracy",
        "best GRAND − best rival",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    ahead: dict[str, list[str]] = {"GRAND": [], "a rival": [], "neither": []}
    for name, title in DATA.items():
        column = {row: cell for (data, row), cell in cells.items() if data == name}
        known = complete(column, "table2")
        best = max(column, key=lambda row: column[row]["mean"]) if known else ""
        others = [row for row in column if row not in paper.GRAND]
        rival = max(others, key=lambda row: column[row]["mean"], default="")
        texts = [_accuracy(column.get(row), row == best) for row in paper.GRAND]
        difference = grand_and_rival(column) if known else None
        if difference is None:
            texts += ["–", "–", "–"]
        else:
            texts += [paper.TITLES[rival], _accuracy(column[rival], rival == best)]
            texts += [f"{difference.mean:+.2f} ± {difference.half:.2f}"]
            decided = abs(difference.mean) > difference.half
            ahead[("GRAND" if difference.mean > 0 else "a rival") if decided else "neither"].append(title)
        lines.append(f"| {title} | " + " | ".join(texts) + " |")
    said = [f"{who} on {', '.join(names)}" for who, names in ahead.items() if names]
    return "\n".join([*lines, "", f"Ahead beyond the interval: {'; '.join(said)}."])


def _accuracy(cell: dict[str, Any] | None, bold: bool) -> str:
    if cell is None:
        return "–"
    text = f"{cell['mean']:.1f} ± {cell['std']:.1f}"
    return f"**{text}**" if bold else text


def details(tables: dict[str, Cells]) -> str:
    """What stands behind each figure."""
    lines = [
        "| table | data | model | rank | test % | paper | diff. | trainings | trials | parameters | "
        "seconds | of the search |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for table, cells in tables.items():
        for name in DATA:
            column = {row: cell for (data, row), cell in cells.items() if data == name}
            for row, place in sorted(ranks(column).items(), key=lambda own: own[1]):
                cell = column[row]
                known = cell["paper"] is not None
                lines.append(
                    f"| {table} | {DATA[name]} | {paper.TITLES[row]} | {place} | "
                    f"{cell['mean']:.2f} ± {cell['std']:.2f} | {cell['paper'] if known else ''} | "
                    f"{format(cell['difference'], '+.2f') if known else ''} | "
                    f"{cell['splits']} × {cell['inits']} | {cell.get('trials', 'earlier')} | "
                    f"{cell['parameters']:,} | {cell['seconds']:.0f} | "
                    f"{format(cell['search_seconds'], '.0f') if 'search_seconds' in cell else ''} |"
                )
    return "\n".join(lines)


def depth() -> str:
    """A row for each data set, kind of tuning and model, a column for each depth; then the verdict."""
    content = read_results(DOCS / "results" / "depth.json")
    settings, points = content["settings"], content["points"]
    heads = ["data", "tuned", "model", *map(str, settings["depths"]), "energy at the deepest"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
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


def claims() -> str:
    """A row for each smaller claim of the paper: the full measurement, or else the small one."""
    full, small = (
        {own["name"]: own for own in read_results(DOCS / "results" / f"{name}.json")["figures"]}
        for name in ("claims", "claims-small")
    )
    lines = ["| claim | measured | on | verdict |", "|---|---|---|---|"]
    for name, own in (small | full).items():
        about = [*own["on"], *([f"{own['splits']} splits"] if own["splits"] else [])]
        if own["missing"]:
            about.append(f"not yet {', '.join(own['missing'])}")
        kind = "full" if name in full else "**small**"
        lines.append(
            f"| {own['says']} (section {own['section']}; `--only {name}`) | {own['measured']} | "
            f"{kind}{': ' * bool(about)}{', '.join(about)} | **{own['word']}** |"
        )
    return "\n".join(lines)


def batches() -> str:
    """A row for each training on groups of parts, after the exact one."""
    rows = json.loads((DOCS / "results" / "batches.json").read_text(encoding="utf-8"))["rows"]
    heads = ["data", "model", "groups", "edges left out", "test %", "paired difference"]
    heads += ["epochs", "ms an epoch", "MB of an update"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    exact = {(row["data"], row["variant"]): row["tests"] for row in rows if not row["batches"]}
    for row in rows:
        groups = f"{row['batches']}, {row['cut']}" if row["batches"] else "exact"
        name = DATA[row["data"].removesuffix("-embedded")]
        apart = np.subtract(row["tests"], exact[row["data"], row["variant"]])
        half = scipy.stats.t.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / len(apart) ** 0.5
        difference = f"{apart.mean():+.1f} ± {half:.1f}" if row["batches"] else ""
        lines.append(
            f"| {name} | {row['variant']} | {groups} | "
            f"{row['left_out']:.0%} | {row['test']:.1f} ± {row['std']:.1f} | {difference} | "
            f"{row['epochs']:.0f} | {1000 * row['seconds_epoch']:.0f} | {row['megabytes']:.0f} |"
        )
    return "\n".join(lines)


def memory() -> str:
    """A row for each solver, a column for each gradient mode: measured, and the ratio of the estimate."""
    rows = json.loads((DOCS / "results" / "memory.json").read_text(encoding="utf-8"))["rows"]
    modes = list(dict.fromkeys(row["gradient"] for row in rows))
    lines = ["| | " + " | ".join(modes) + " |", "|---" * (len(modes) + 1) + "|"]
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
    rows = json.loads((DOCS / "results" / "precision.json").read_text(encoding="utf-8"))["rows"]
    heads = ["data", "model", "error of x(T)", "error of the gradient", "other class", "test %, float32"]
    heads += ["test %, bfloat16", "paired difference", "ms an epoch"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        full, less = (np.asarray(row["tests"][name]) for name in ("full", "bfloat16"))
        apart, times = less - full, row["seconds_epoch"]
        half = scipy.stats.t.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / len(apart) ** 0.5
        lines.append(
            f"| {DATA[row['data'].removesuffix('-embedded')]} | {row['variant']} | {row['state']:.1e} | "
            f"{row['gradient']:.1e} | {row['classes']:.2%} | {full.mean():.1f} ± {full.std(ddof=1):.1f} | "
            f"{less.mean():.1f} ± {less.std(ddof=1):.1f} | {apart.mean():+.2f} ± {half:.2f} | "
            f"{1000 * times['full']:.0f}, {1000 * times['bfloat16']:.0f} |"
        )
    return "\n".join(lines)


def equations() -> str:
    """A row for each equation: evaluations of an integral, cost beside GRAND-nl and beside plain torch."""
    rows = json.loads((DOCS / "results" / "equations.json").read_text(encoding="utf-8"))["rows"]
    heads = ["preset", "evaluations or products", "time, GRAND-nl is 1", "faster than plain torch"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        times = f"{row['times_nonlinear']:.1f} | {row['times_plain']:.1f}"
        lines.append(f"| `{row['name']}` | {row['evaluations']} | {times} |")
    return "\n".join(lines)


def equations_errors() -> str:
    """A row for each scheme, a column for each equation."""
    found = json.loads((DOCS / "results" / "equations_errors.json").read_text(encoding="utf-8"))["rows"]
    lines = [
        "| scheme | " + " | ".join(f"`{name}`" for name in found) + " |",
        "|---" * (len(found) + 1) + "|",
    ]
    for rows in zip(*found.values(), strict=True):
        cells = (
            f"{'infinite' if own['error'] is None else format(own['error'], '.0e')} ({own['evaluations']})"
            for own in rows
        )
        lines.append(f"| {rows[0]['scheme']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def own_classes() -> dict[str, dict[str, type]]:
    """The registered classes of the library by kind and name; those of installed packages are left out."""
    return {
        kind: {
            name: cls
            for name, cls in sorted(registry.classes().items())
            if cls.__module__.startswith("graphdiffusion.")
        }
        for kind, registry in sorted(registries().items())
    }


def names(classes: dict[str, dict[str, type]]) -> str:
    """A row for each registry."""
    lines = ["| kind | names |", "|---|---|"]
    lines += [
        f"| {kind} | " + ", ".join(f"`{name}`" for name in own) + " |" for kind, own in classes.items()
    ]
    return "\n".join(lines)


def registered(kind: str, classes: dict[str, type]) -> str:
    """A row for each class of one registry."""
    more = ["order", "limit of τα"] * (kind == "solver")
    heads = ["name", "class", "what it is", *more, "options and their defaults"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, cls in classes.items():
        numbers = _numbers(cls) if kind == "solver" else []
        options = ", ".join(f"`{o.name}={json.dumps(o.default)}`" for o in options_of(cls).values())
        row = [f"`{name}`", f"`{cls.__name__}`", summary_of(cls), *numbers, options or "none"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)


def training_options() -> str:
    """A row for each option that every training has."""
    lines = ["| option | default | what it is |", "|---|---|---|"]
    for part in (*BEFORE, *AFTER):
        for own in options_of(part).values():
            default = json.dumps(own.default)
            lines.append(f"| `{own.name}` | `{default}` | {own.help.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def _numbers(cls: Any) -> list[str]:
    """Order of a scheme, and the largest stable step of one that is explicit and has steps of one size."""
    solver = cls()
    limited = solver.explicit and hasattr(solver, "step_size")
    return [str(getattr(solver, "order", "exact")), f"{solver.limit:.3g}" if limited else ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if one is stale")
    check = parser.parse_args().check
    tables = {f"table1 {reading}": read("table1", reading) for reading in paper.READINGS}
    tables["table2"] = read("table2")
    made = {name: accuracies(cells, name.split()[0]) for name, cells in tables.items()}
    made |= {"details": details(tables), "rivals": rivals(tables["table2"])}
    made |= successor_tables(read_results(DOCS / "results" / "successors.json"))
    classes = own_classes()
    made |= {"names": names(classes), "claims": claims(), "depth": depth(), "options": training_options()}
    made |= {"batches": batches(), "memory": memory(), "precision": precision()}
    made |= {"equations": equations(), "equations errors": equations_errors()}
    made |= {f"registry {kind}": registered(kind, own) for kind, own in classes.items()}
    stale = False
    for path in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))):
        before = after = path.read_text(encoding="utf-8")
        for name, table in made.items():
            pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
            after = re.sub(pattern, lambda m, t=table: f"{m[1]}\n{t}\n\n{m[2]}", after, flags=re.DOTALL)
        stale |= after != before
        if not check:
            path.write_text(after, encoding="utf-8")
    if check and stale:
        sys.exit("tables are out of date: run python docs/make_tables.py")


if __name__ == "__main__":
    main()
