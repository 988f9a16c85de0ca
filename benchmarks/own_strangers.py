"""Graphs that played no part in any choice, for ``own.py``: made of facts at hand and of random numbers."""

from __future__ import annotations

import ast
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits, make_classification
from sklearn.neighbors import kneighbors_graph
from torch_geometric.data import Data

from graphdiffusion.data import check_data

SMALLEST, WORDS = 15, 700  # modules of a class of its own; words that are features


def digits() -> Data:
    """Scanned digits, each joined with the six that are nearest in pixels."""
    x, y = load_digits(return_X_y=True)
    near = kneighbors_graph(x, 6).tocoo()
    return _data("digits", np.stack([near.row, near.col]), x, y)


def modules(package: str) -> Data:
    """Modules of an installed package: imports as edges, words of docstrings, subpackages as classes."""
    root = Path(str(import_module(package).__file__)).parent
    paths = [p for p in sorted(root.rglob("*.py")) if "test" not in str(p.relative_to(root))]
    names = {
        ".".join((package, *p.relative_to(root).with_suffix("").parts)).removesuffix(".__init__"): p
        for p in paths
    }
    trees = {name: ast.parse(path.read_text(errors="ignore")) for name, path in names.items()}
    place = {name: k for k, name in enumerate(trees)}
    edges = [
        (place[name], place[other])
        for name, tree in trees.items()
        for other in _imports(name, tree, names[name].name == "__init__.py")
        if other in place and other != name
    ]
    words = [_words(tree) for tree in trees.values()]
    labels = [[*name.split("."), "root"][1] for name in trees]
    sizes = Counter(labels)
    labels = [label if sizes[label] >= SMALLEST else "other" for label in labels]
    often = Counter(word for own in words for word in own)
    known = [word for word, count in often.most_common(WORDS) if count >= 8 and word not in sizes]
    x = np.array([[word in own for word in known] for own in words], dtype=float)
    return _data(f"{package}-modules", np.array(edges).T, x, np.unique(labels, return_inverse=True)[1])


def _imports(name: str, tree: ast.Module, package: bool) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [node.module] if node.module else []
            if node.level:
                parts = name.split(".")
                base = parts[: len(parts) - node.level + package] + base
            source = ".".join(base)
            found |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
    return found


def _words(tree: ast.Module) -> set[str]:
    named = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    text = " ".join(f"{n.name} {ast.get_docstring(n) or ''}" for n in named)
    return {word.lower() for word in re.findall("[A-Za-z]{4,}", text)}


def cyclic() -> Data:
    """Five classes; most neighbours of a node are of the next class; features say a little."""
    random = np.random.default_rng(7)
    y = random.integers(0, 5, 3000)
    edges = _blocks(random, y, 4, 0.6, step=1)
    x = random.normal(size=(3000, 20))
    x[:, :5] += np.eye(5)[y]
    return _data("cyclic", edges, x, y)


def blocks() -> Data:
    """Four communities without features."""
    random = np.random.default_rng(8)
    y = random.integers(0, 4, 1500)
    return _data("blocks", _blocks(random, y, 5, 0.55), np.eye(1500), y)


def noise() -> Data:
    """Random edges: the features say all."""
    x, y = make_classification(4000, 40, n_informative=10, n_classes=4, random_state=3)
    return _data("noise", np.random.default_rng(9).integers(0, 4000, (2, 16000)), x, y)


def _blocks(
    random: np.random.Generator, y: np.ndarray, degree: int, share: float, step: int = 0
) -> np.ndarray:
    """Edges from every node, a share of them to the class ``step`` further on, the others to any class."""
    classes = int(y.max()) + 1
    own = [np.flatnonzero(y == k) for k in range(classes)]
    pairs = []
    for node in np.repeat(np.arange(len(y)), degree):
        wanted = (y[node] + step) % classes if random.random() < share else random.integers(classes)
        pairs.append((node, random.choice(own[wanted])))
    return np.array(pairs).T


def _data(name: str, edges: np.ndarray, x: np.ndarray, y: np.ndarray) -> Data:
    """As a user's graph is read: undirected, without loops and repetitions."""
    pairs = torch.from_numpy(np.concatenate([edges, edges[::-1]], 1).astype(np.int64))
    pairs = pairs[:, pairs[0] != pairs[1]].unique(dim=1)
    features, labels = torch.from_numpy(x).float(), torch.from_numpy(np.asarray(y, dtype=np.int64))
    return check_data(Data(x=features, edge_index=pairs, y=labels, name=name))


STRANGERS = {
    "digits": digits,
    "torch-modules": lambda: modules("torch"),
    "sympy-modules": lambda: modules("sympy"),
    "cyclic": cyclic,
    "blocks": blocks,
    "noise": noise,
}
