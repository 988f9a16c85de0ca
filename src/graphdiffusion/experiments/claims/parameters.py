"""Parameters on ogbn-arxiv's shapes: GRAND at several depths beside GCN, SAGE and GAT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ...nn.baselines.gat import GAT
from ...nn.baselines.gcn import GCN
from ...nn.baselines.sage import SAGE
from ...training.template import model_template
from ..presets import preset_config
from .base import Claim, Finding, Panel, Points, graded
from .laboratory import Laboratory, Settings

FEATURES, CLASSES = 128, 40
PAPER = {"GRAND": 70_000, "GCN": 143_000, "SAGE": 219_000, "GAT": 1_630_000}
TIMES, LAYERS = (1.0, 3.676, 16.0, 64.0), (3, 6, 12)


class Parameters(Claim):
    """Counts of the modules; nothing is trained. Rivals have the settings of OGB's examples."""

    name = "parameters"
    section = "5.1"
    says = "layers share parameters: 70K on ogb-arxiv, against 143K (GCN), 219K (SAGE), 1.63M (GAT)"

    def points(self, settings: Settings) -> list[dict[str, Any]]:
        grand = [{"model": "GRAND", "depth": time} for time in TIMES]
        return [*grand, *({"model": own, "depth": n} for own in ("GCN", "SAGE", "GAT") for n in LAYERS)]

    def measure(self, point: Mapping[str, Any], lab: Laboratory) -> dict[str, Any]:
        model, depth = point["model"], point["depth"]
        if model == "GRAND":
            config = preset_config("ogbn-arxiv", "linear").replace(time=depth)
            labels = count(model_template(config, FEATURES, CLASSES))
            bare = count(model_template(config.replace(label_rate=0.0), FEATURES, CLASSES))
            return {"count": bare, "with_labels": labels}
        return {"count": rival(model, depth)}

    def conclude(self, points: Points) -> Finding:
        counts: dict[str, dict[float, int]] = {}
        for p in points:
            counts.setdefault(p["model"], {})[p["depth"]] = p["count"]
        panel = Panel("parameters on ogbn-arxiv", "depth: T or layers", "parameters", log="xy")
        for model, own in counts.items():
            panel.add(model, list(own), list(own.values()))
        grand = set(counts["GRAND"].values())
        least = {model: own[LAYERS[0]] for model, own in counts.items() if model != "GRAND"}
        grows = all(own[LAYERS[-1]] > own[LAYERS[0]] for model, own in counts.items() if model != "GRAND")
        shared, fewer = len(grand) == 1 and grows, max(grand) < min(least.values())
        word = graded(shared and fewer, shared or fewer)
        labels = next(p["with_labels"] for p in points if p["model"] == "GRAND")
        shown = ", ".join(f"{model} {least[model]:,} (paper {PAPER[model]:,})" for model in least)
        return Finding(
            word,
            f"GRAND-l {max(grand):,} for every T, {labels:,} with label features (paper "
            f"{PAPER['GRAND']:,}); 3 layers of {shown}.",
            "the count of GRAND is the same for every T and below that of each rival with 3 layers, whose "
            "counts grow with depth",
            panel,
            [
                {"model": model, "counts": {f"{d:g}": n for d, n in own.items()}}
                for model, own in counts.items()
            ],
        )


def rival(name: str, layers: int) -> int:
    """Parameters with the settings of OGB's examples.

    GCN and SAGE: hidden 256. GAT: 3 heads of 250, with a linear map beside every layer. All of them have
    batch normalisation after every layer but the last, which our modules do not have.
    """
    if name == "GAT":
        width, heads = 250, 3
        own: nn.Module = GAT(FEATURES, CLASSES, hidden=width, heads=heads, layers=layers)
        wide = heads * width
        beside = FEATURES * wide + (layers - 2) * wide * wide + wide * CLASSES
        return count(own) + beside + 2 * wide * (layers - 1)
    kind = {"GCN": GCN, "SAGE": SAGE}[name]
    return count(kind(FEATURES, CLASSES, hidden=256, layers=layers)) + 2 * 256 * (layers - 1)


def count(model: nn.Module) -> int:
    """Numbers that are learnt."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
