"""The models that the equations of GRAND's successors are compared with, and the search of each.

One space for all equations, besides their own coefficients; and one of the same size for the rivals.
"""

from __future__ import annotations

from typing import Any

from ..configs import read_preset
from ..training.config import Config
from .space import Range, Space

STEPS: dict[str, Any] = {"solver": "rk4", "step_size": 1.0}
REACTION = {"reaction": Range(0.01, 0.5, log=True)}

# title, row whose settings a search starts from, options that are fixed, what the search tries besides
Entry = tuple[str, str, dict[str, Any], dict[str, Any]]
MODELS: dict[str, Entry] = {
    "mlp": ("MLP", "mlp", {}, {}),
    "gcn": ("GCN", "gcn", {}, {"self_loops": [0.0, 1.0, 2.0], "residual": [False, True]}),
    "gat": ("GAT", "gat", {}, {}),
    "linear": ("GRAND-l", "linear", {"terms": "source"}, {}),
    "nonlinear": ("GRAND-nl", "nonlinear", {"terms": "source", "step_size": 1.0}, {}),
    "fisher": ("Fisher", "linear", {"terms": "source,fisher", **STEPS}, REACTION),
    "allen-cahn": ("Allen-Cahn", "linear", {"terms": "source,allen-cahn", **STEPS}, REACTION),
    "zeldovich": ("Zeldovich", "linear", {"terms": "source,zeldovich", **STEPS}, REACTION),
    "blurring-sharpening": (
        "blurring-sharpening", "linear", {"terms": "source,blurring-sharpening"}, REACTION
    ),
    "labelled-source": (
        "labelled source", "linear", {"terms": "source,labelled-source"},
        {"labelled": Range(0.1, 2.0, log=True)},
    ),
    "convection": (
        "convection", "linear", {"terms": "source,convection", **STEPS},
        {"convection": Range(0.05, 0.9, log=True)},
    ),
    "acmp": (
        "ACMP", "linear", {"equation": "acmp", "terms": "source", **STEPS},
        {**REACTION, "repulsion": Range(0.01, 0.5, log=True)},
    ),
    "graphcon": (
        "GraphCON", "linear",
        {"equation": "graphcon", "terms": "source", "solver": "symplectic-euler", "step_size": 0.5},
        {"stiffness": [0.5, 1.0, 2.0], "damping": [0.5, 1.0], "mix": [False, True]},
    ),
    "adc": ("ADC", "linear", {"equation": "adc", "terms": "source"}, {"pace": Range(0.2, 2.0, log=True)}),
    "blend": (
        "BLEND", "linear", {"equation": "blend", "terms": "source", "augment": 8, "positions": 8}, {}
    ),
    "fractional": (
        "fractional time", "linear", {"terms": "source", "solver": "fractional", "step_size": 0.5},
        {"derivative": [0.5, 0.7, 0.85, 1.0]},
    ),
}  # fmt: skip
RIVALS = ("mlp", "gcn", "gat")
GRAND = ("linear", "nonlinear")

TIMES = {"given": 2.0, "random": 6.0}  # T that a search starts from, by the kind of split
SHARED: Space = {
    "scaling": ["none", "rows"],
    "rate": Range(0.005, 0.05, log=True),
    "decay": Range(0.0003, 0.03, log=True),
    "dropout": Range(0.0, 0.8),
}
LAYERS: Space = {"layers": [2, 3]}
DIFFUSION: Space = {
    "diffusivity": ["scaled-dot", "cosine", "laplacian"],
    "over": ["rows", "columns", "symmetric"],
    "readout": [0, 1],
    "self_loops": [0.0, 1.0],
    "mlp": [False, True],  # two more layers in the encoder, as rivals may have more
    "input_dropout": Range(0.0, 0.8),
    "time": Range(0.15, 3.0, log=True, relative=True),
    "alpha": Range(0.2, 0.9),
}


def start_of(model: str, data: str, split: str, *, epochs: int, hidden: int, device: str = "cpu") -> Config:
    """What the search of a model starts from: the usual settings, with one width for all models.

    Where neighbours differ (``split="given"``) the decoder also reads x(0).
    """
    _, row, fixed, _ = MODELS[model]
    values = read_preset(f"own-{row}")
    if model not in RIVALS:
        values |= {"time": TIMES[split]} | ({"readout": 1} if split == "given" else {})
    given = {"data": data, "split": split, "device": device}
    config = Config.from_dict(given, values).replace(epochs=epochs, patience=epochs // 3, **fixed)
    return config.replace(hidden=hidden // config.heads if model == "gat" else hidden)


def space_of(model: str) -> Space:
    """What the search of a model tries."""
    own = {**SHARED, **(LAYERS if model in RIVALS else DIFFUSION), **MODELS[model][3]}
    return {name: choices for name, choices in own.items() if name not in MODELS[model][2]}
