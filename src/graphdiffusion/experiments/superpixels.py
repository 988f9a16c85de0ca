"""Diffusion of images, section 5.4 and figure 5: GRAND-nl beside the constant Laplacian on superpixels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data

from ..data.mnist import read_mnist
from ..data.superpixels import skimage, superpixel_graph
from ..graph import Graph
from ..nn import GraphDiffusion
from ..training.summary import device_name, half_interval, versions
from .results import Note, Results, Tick

TITLES = {"nonlinear": "GRAND-nl", "laplacian": "constant Laplacian"}
SHOWN = (3, 6)  # one digit of each kind is in the picture


@dataclass(frozen=True)
class Settings:
    """What the figures depend on; defaults from the paper or the authors' script, or marked as ours.

    Attributes:
        images: Digits that a model is trained on, together.
        digits: Others, on which the diffusion is measured (ours).
        segments, compactness: Of SLIC; the compactness is for grey values from 0 to 255, as in the script.
        heads, attention_dim: Of the attention.
        lr, decay: Of Adam; the decay is that of the decoder (ours: with decay the attention stays uniform).
        input_dropout: Of the patches in training.
        epochs, parts: Passes over all images, each in so many steps.
        time, step: T and τ of explicit Euler, so that a step is a layer.
        seeds: Trainings of each model, each with its own half of the nodes (ours).
    """

    images: int = 512
    digits: int = 500
    segments: int = 60
    compactness: float = 200.0
    heads: int = 4
    attention_dim: int = 16
    lr: float = 0.016
    decay: float = 0.01
    input_dropout: float = 0.35
    epochs: int = 64
    parts: int = 16
    time: float = 4.8
    step: float = 0.8
    seeds: int = 5


FULL = Settings()
SMALL = replace(FULL, images=64, digits=50, epochs=32, seeds=1)


class PixelDiffusion(nn.Module):
    """Diffusion of the pixel values themselves, and a linear decoder of the state at T.

    There is no encoder, so that the state stays an image: the values are only shifted and scaled by two
    fixed numbers. A row of A sums to 1, and the constant Laplacian does not see either of them.

    Args:
        kind: ``"nonlinear"``, attention that follows the state, or ``"laplacian"``, the mean of the
            neighbours.
        colours: Mean colours ``(n, c)``, which give shift and scale.
        settings: Of the experiment.
    """

    offset: Tensor
    scale: Tensor

    def __init__(self, kind: str, colours: Tensor, settings: Settings) -> None:
        super().__init__()
        attention = {
            "diffusivity": "scaled-dot",
            "heads": settings.heads,
            "attention_dim": settings.attention_dim,
            "normaliser": "softmax",
        }
        self.layer = GraphDiffusion(
            colours.shape[1],
            settings.time,
            variant="nonlinear",
            terms="",
            alpha=1.0,
            solver="euler",
            step_size=settings.step,
            self_loops=0.0,
            over="rows",
            **(attention if kind == "nonlinear" else {"diffusivity": "laplacian"}),
        )
        self.dropout = nn.Dropout(settings.input_dropout)
        self.decoder = nn.Linear(colours.shape[1], 2)
        self.times = [k * settings.step for k in range(round(settings.time / settings.step) + 1)]
        self.register_buffer("offset", colours.mean())
        self.register_buffer("scale", colours.std())

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        """Logits ``(n, 2)``."""
        state = self.dropout((x - self.offset) / self.scale)
        return self.decoder(self.layer(state, graph, check=False))

    @torch.no_grad()
    def states(self, x: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
        """Pixel values ``(m, n, c)`` and attention ``(m, E)`` at the m moments 0, τ, ..., T."""
        state = (x - self.offset) / self.scale
        _, way = self.layer(state, graph, return_trajectory=True, at=self.times)
        attention = torch.stack([way.flow.attention(None, own) for own in way.solution.states])
        return way.solution.states * self.scale + self.offset, attention


@dataclass(frozen=True)
class Picture:
    """An image as superpixels.

    Attributes:
        title: What it shows.
        data: Its graph.
        patches: The superpixel of each pixel ``(h, w)``.
    """

    title: str
    data: Data
    patches: NDArray[np.int64]


def reproduce(out: Path, *, small: bool, root: str | None, device: torch.device, note: Note) -> Path:
    """Measure figure 5 in ``<out>/superpixels``, or ``superpixels-small``; the path of the results file."""
    settings = SMALL if small else FULL
    folder = out / ("superpixels-small" if small else "superpixels")
    images, labels = read_mnist(root)
    skimage("segmentation")  # before anything is made
    results = Results(folder, asdict(settings), note)
    count = settings.images + settings.digits
    note(f"superpixels of {count:,} digits.")
    pictures = [as_superpixels(images[k], f"digit {labels[k]}", settings) for k in range(count)]
    trained, others = pictures[: settings.images], pictures[settings.images :]
    shown = [next(p for p in others if p.title == f"digit {digit}") for digit in SHOWN]
    wanted = [{"model": kind, "seed": seed} for seed in range(settings.seeds) for kind in TITLES]

    def compute(point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
        graphs = [p.data for p in trained]
        model, accuracy = train(graphs, point["model"], point["seed"], settings, device, tick)
        found = {"accuracy": accuracy, "device": device_name(device), "versions": versions()}
        found |= edge_figures(model, [p.data for p in others])
        if point["seed"] == 0:
            found["shown"] = [drawn(model, p) for p in shown]
        return found

    def find() -> dict[str, Any]:
        background = fmean(float((p.data.y == 0).double().mean()) for p in trained)
        figures = {
            kind: {"title": title, **summary([p for p in results.points if p["model"] == kind])}
            for kind, title in TITLES.items()
        }
        return {"background": 100 * background, "figures": figures, "verdict": verdict(results.points)}

    results.measure(wanted, compute)
    results.conclude(find)
    return results.path


def as_superpixels(image: NDArray[np.uint8], title: str, settings: Settings) -> Picture:
    """A digit of MNIST: superpixels at least half as bright as white belong to it, others do not."""
    compactness = settings.compactness / 255
    return Picture(
        title, *superpixel_graph(image / 255, segments=settings.segments, compactness=compactness)
    )


def train(
    graphs: Sequence[Data], kind: str, seed: int, settings: Settings, device: torch.device, tick: Tick
) -> tuple[PixelDiffusion, float]:
    """Train one model on all images: a random half of the nodes trains, on the others it is tested.

    Returns the model and its test accuracy in percent.
    """
    torch.manual_seed(seed)
    model = PixelDiffusion(kind, torch.cat([g.x for g in graphs]), settings).to(device)
    draw = torch.Generator().manual_seed(seed)
    size = math.ceil(len(graphs) / settings.parts)
    parts = []
    for start in range(0, len(graphs), size):
        union = Batch.from_data_list(list(graphs[start : start + size]))  # disconnected
        train_mask = torch.randperm(union.num_nodes, generator=draw) < union.num_nodes // 2
        graph = Graph.from_edge_index(union.edge_index, union.num_nodes, self_loops=0.0)
        parts.append((graph.to(device), union.x.to(device), union.y.to(device), train_mask.to(device)))
    groups: list[dict[str, Any]] = [
        {"params": list(model.decoder.parameters()), "weight_decay": settings.decay},
        {"params": list(model.layer.parameters())},
    ]
    optimiser = torch.optim.Adam(groups, lr=settings.lr)
    for epoch in range(settings.epochs):
        for graph, x, y, mask in parts:
            optimiser.zero_grad()
            cross_entropy(model(x, graph)[mask], y[mask]).backward()
            optimiser.step()
        tick((epoch + 1) / settings.epochs)
    model.eval()
    with torch.no_grad():
        right = [(model(x, graph).argmax(1) == y)[~mask] for graph, x, y, mask in parts]
    return model, 100 * float(torch.cat(right).double().mean())


def edge_figures(model: PixelDiffusion, graphs: Sequence[Data]) -> dict[str, Any]:
    """How the edge between foreground and background fares in each image.

    Returns:
        ``contrast``, for each image the mean |x_i − x_j| over edges between the two at T, over that at 0;
        ``crossing``, the attention at t = 0 that nodes on either side of the edge pay to the other side,
        its mean over these nodes; and ``contrast_at``, the contrast at each moment, its mean over the
        images. An image without such an edge is left out.
    """
    device = model.offset.device
    ways, crossing = [], []
    for data in graphs:
        graph = Graph.from_edge_index(data.edge_index, data.num_nodes, self_loops=0.0).to(device)
        states, attention = model.states(data.x.to(device), graph)
        row, col, y = graph.row.long(), graph.col.long(), data.y.to(device)
        across = y[row] != y[col]
        gaps = (states[:, row[across]] - states[:, col[across]]).abs().mean((1, 2))
        if across.any() and float(gaps[0]) > 0:
            ways.append((gaps / gaps[0]).double().cpu())
            crossing.append(float(attention[0, across].sum()) / row[across].unique().numel())
    contrast = [round(float(way[-1]), 5) for way in ways]
    mean = torch.stack(ways).mean(0).tolist() if ways else []
    return {"contrast": contrast, "crossing": [round(c, 5) for c in crossing], "contrast_at": mean}


def drawn(model: PixelDiffusion, picture: Picture) -> dict[str, Any]:
    """What a picture of the diffusion of one image needs."""
    data, device = picture.data, model.offset.device
    graph = Graph.from_edge_index(data.edge_index, data.num_nodes, self_loops=0.0).to(device)
    states, attention = model.states(data.x.to(device), graph)
    return {
        "title": picture.title,
        "times": model.times,
        "patches": picture.patches.tolist(),
        "centres": _rounded(data.pos),
        "targets": graph.row.tolist(),
        "sources": graph.col.tolist(),
        "states": _rounded(states),
        "attention": _rounded(attention),
    }


def _rounded(values: Tensor) -> Any:
    return np.round(values.double().cpu().numpy(), 4).tolist()


def summary(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of one model over all seeds; intervals are over images."""
    accuracy = [p["accuracy"] for p in points]
    return {
        "accuracy": fmean(accuracy),
        "accuracy_std": stdev(accuracy) if len(accuracy) > 1 else 0.0,
        "contrast": interval(np.mean([p["contrast"] for p in points], axis=0)),
        "crossing": interval(np.mean([p["crossing"] for p in points], axis=0)),
    }


def interval(values: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """Mean of several images, with its 95% interval (Student's t)."""
    count = len(values)
    mean, half = float(np.mean(values)), half_interval([float(value) for value in values])
    return {"mean": mean, "low": mean - half, "high": mean + half, "count": count}


def verdict(points: Sequence[Mapping[str, Any]]) -> str:
    """The paper's claim, that GRAND-nl finds the edges and keeps the image and the Laplacian does not.

    A training finds the edges if less attention crosses them than the Laplacian's, by the intervals of
    both; a model keeps the image if more than half of the contrast is left, by its interval.
    """
    figures = {
        (p["model"], p["seed"]): {key: interval(p[key]) for key in ("contrast", "crossing")} for p in points
    }
    ours, constant = (
        [own for (model, _), own in figures.items() if model == kind] for kind in ("nonlinear", "laplacian")
    )
    uniform, blurred = constant[0]["crossing"], constant[0]["contrast"]  # the same in all trainings
    finding = [own["crossing"]["high"] < uniform["low"] for own in ours]
    keeping = [own["contrast"]["low"] > 0.5 for own in ours]
    lost = blurred["high"] < 0.5
    holding = sum(f and k and lost for f, k in zip(finding, keeping, strict=True))
    shares = ", ".join(f"{100 * own['contrast']['mean']:.0f}%" for own in ours)
    return (
        f"The paper's claim holds in {holding} of {len(ours)} trainings: GRAND-nl finds the edges in "
        f"{sum(finding)} and keeps the image in {sum(keeping)} (contrast at T: {shares}); the "
        f"Laplacian {'blurs it away' if lost else 'keeps it too'} ({100 * blurred['mean']:.0f}%)."
    )
