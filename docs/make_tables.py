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

from measured_tables import (
    DATA,
    batches,
    claims,
    depth,
    equations,
    equations_errors,
    largest,
    memory,
    precision,
    scheme_limits,
    schemes,
    sparsity,
)

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
                    f"{_search_seconds(table, cell)} |"
                )
    return "\n".join(lines)


def _search_seconds(table: str, cell: dict[str, Any]) -> str:
    """Of table 1 once: a search serves all readings."""
    known = "search_seconds" in cell and table in ("table1 masks", "table2")
    return f"{cell['search_seconds']:.0f}" if known else ""


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
    made |= {"scheme limits": scheme_limits(), "schemes": schemes(), "sparsity": sparsity()}
    made |= {"sparsity small": sparsity("sparsity-small")}
    made |= {"batches": batches(), "memory": memory(), "precision": precision()}
    made |= {"equations": equations(), "equations errors": equations_errors(), "largest": largest()}
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
