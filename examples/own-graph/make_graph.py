"""A real graph from facts at hand: the modules of SciPy, which import each other.

    python examples/own-graph/make_graph.py scipy-modules

writes three tables into a folder. A node is a module; an edge says that one imports the other; features are
the words of its text, in long format; the label is the subpackage that it belongs to, known for some of the
modules. ``truth.csv`` holds the labels of all of them, to check predictions with. Nothing is imported or
run: the files of the installed package are read as text.
"""

from __future__ import annotations

import argparse
import ast
import csv
import random
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

WORD = re.compile(r"[a-z]{3,}")
LEAST = 3  # modules that a word must occur in
SHARE = 0.2  # of the modules have a known label


def modules(package: str) -> dict[str, Path]:
    """Files of a package by the names of their modules, tests left out."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"there is no package {package}: name one that is installed.")
    root = Path(next(iter(spec.submodule_search_locations)))
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        if "tests" not in parts and len(parts) > 2:
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path
    return found


def imports(name: str, path: Path, tree: ast.AST) -> set[str]:
    """Names that a module imports, absolute."""
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *(node.module.split(".") if node.module else [])])
            found |= {start, *(f"{start}.{alias.name}" for alias in node.names)}
    return found


def check(folder: Path, predictions: Path) -> None:
    """Say how many of the modules without a label are predicted right."""
    truth, known = (dict(csv.reader((folder / file).open())) for file in ("truth.csv", "labels.csv"))
    asked = [row for row in csv.DictReader(predictions.open()) if row["id"] not in known]
    right = sum(truth[row["id"]] == row["class"] for row in asked)
    print(f"{right} of {len(asked)} unlabelled modules are right: {100 * right / len(asked):.1f}%")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--package", default="scipy")
    parser.add_argument("--check", type=Path, help="predictions to compare with the truth in the folder")
    chosen = parser.parse_args()
    if chosen.check is not None:
        check(chosen.folder, chosen.check)
        return
    files = modules(chosen.package)
    words, edges = {}, []
    for name, path in files.items():
        text = path.read_text(encoding="utf-8", errors="replace")
        words[name] = Counter(WORD.findall(text.lower()))
        edges += [(name, other) for other in sorted(imports(name, path, ast.parse(text))) if other in files]
    spread = Counter(word for own in words.values() for word in own)
    # the words of the answer are not given away
    known = {word for word, count in spread.items() if count >= LEAST} - {
        part for name in files for part in name.split(".")
    }
    labels = {name: name.split(".")[1] for name in files}
    chosen.folder.mkdir(parents=True, exist_ok=True)

    def table(file: str, rows: list[tuple[object, ...]]) -> None:
        with (chosen.folder / file).open("w", newline="", encoding="utf-8") as out:
            csv.writer(out).writerows(rows)

    shown = random.Random(0).sample(sorted(files), round(SHARE * len(files)))
    table("edges.csv", [("source", "target"), *edges])
    counts = [(n, w, c) for n, own in words.items() for w, c in sorted(own.items()) if w in known]
    table("features.csv", [("id", "feature", "value"), *counts])
    table("labels.csv", [("id", "label"), *((name, labels[name]) for name in sorted(shown))])
    table("truth.csv", [("id", "label"), *labels.items()])
    print(
        f"{chosen.folder}: {len(files)} modules, {len(edges)} imports, {len(known)} words, "
        f"{len(shown)} labels of {len(set(labels.values()))} subpackages"
    )


if __name__ == "__main__":
    main()
