"""What the paper reports: test accuracy in percent, mean and standard deviation (its tables 1 and 2)."""

from __future__ import annotations

SOURCE = "Chamberlain et al., GRAND: Graph Neural Diffusion, ICML 2021, tables 1 and 2"

# cheap ones first: a time budget then covers as many cells as it can
DATA = {
    "table1": ("cora", "citeseer", "pubmed"),
    "table2": ("cora", "citeseer", "photo", "computers", "coauthor-cs", "pubmed"),
}

ROWS = ("linear", "nonlinear", "nonlinear-rewired")

TABLES: dict[str, dict[tuple[str, str], tuple[float, float]]] = {
    "table1": {
        ("cora", "linear"): (84.7, 0.6),
        ("citeseer", "linear"): (73.3, 0.4),
        ("pubmed", "linear"): (80.4, 0.4),
        ("cora", "nonlinear"): (83.6, 0.5),
        ("citeseer", "nonlinear"): (70.8, 1.1),
        ("pubmed", "nonlinear"): (79.7, 0.3),
        ("cora", "nonlinear-rewired"): (82.9, 0.7),
        ("citeseer", "nonlinear-rewired"): (73.6, 0.3),
        ("pubmed", "nonlinear-rewired"): (81.0, 0.4),
    },
    "table2": {
        ("cora", "linear"): (83.6, 1.0),
        ("citeseer", "linear"): (73.4, 0.5),
        ("pubmed", "linear"): (78.8, 1.7),
        ("coauthor-cs", "linear"): (92.9, 0.4),
        ("computers", "linear"): (83.7, 1.2),
        ("photo", "linear"): (92.3, 0.9),
        ("cora", "nonlinear"): (82.3, 1.6),
        ("citeseer", "nonlinear"): (70.9, 1.0),
        ("pubmed", "nonlinear"): (77.5, 1.8),
        ("coauthor-cs", "nonlinear"): (92.4, 0.3),
        ("computers", "nonlinear"): (82.4, 2.1),
        ("photo", "nonlinear"): (92.4, 0.8),
        ("cora", "nonlinear-rewired"): (83.3, 1.3),
        ("citeseer", "nonlinear-rewired"): (74.1, 1.7),
        ("pubmed", "nonlinear-rewired"): (78.1, 2.1),
        ("coauthor-cs", "nonlinear-rewired"): (91.3, 0.7),
        ("computers", "nonlinear-rewired"): (85.8, 1.5),
        ("photo", "nonlinear-rewired"): (92.5, 1.0),
    },
}

SPLITS, INITS = 100, 20  # of the paper's protocol; table 1 has one fixed split
