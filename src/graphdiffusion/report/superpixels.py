"""Diffusion of images: figure 5 of the paper, and an animation of one image, from a results file."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..experiments.results import read_results
from ..experiments.superpixels import TITLES
from ..files import write_bytes
from .style import new_figure, save

MOST = 7  # moments side by side
WIDEST = 640  # pixels of an animation, for both images together; as many high
CAPTION = 170  # pixels that the words above an image need
LETTERS = 18  # of a title, in a line beside its row
FRAME_MS, LAST_MS = 120, 1500


def plot_superpixels(results: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """The picture of a results file, by default ``picture.png`` beside it.

    For each image a row for GRAND-nl and one for the constant Laplacian: the state as patches at some
    moments from 0 to T, attention as colour and width of the edges between the centres of patches.
    """
    results = Path(results)
    points = _shown(results)
    titles = [own["title"] for own in points["nonlinear"]]
    moments = _moments(points["nonlinear"][0]["times"])
    rows = [(kind, k) for k in range(len(titles)) for kind in TITLES]
    height, width = np.shape(points["nonlinear"][0]["patches"])
    tall = 1.75 * min(max(height / width, 0.75), 2.0) + 0.03  # the words beside a row need that height
    figure, axes = new_figure(
        figsize=(1.75 * len(moments) + 0.9, tall * len(rows) + 0.35), nrows=len(rows), ncols=len(moments)
    )
    top = max(np.quantile(_lines(own, m)[1], 0.98) for v in points.values() for own in v for m in moments)
    for axis, moment in zip(axes[0], moments, strict=True):
        axis.set_title(f"t = {points['nonlinear'][0]['times'][moment]:g}", fontsize=11)
    for place, (kind, k) in zip(axes, rows, strict=True):
        own = points[kind][k]
        for axis, moment in zip(place, moments, strict=True):
            lines = _draw(axis, own, moment, top)
        place[0].set_ylabel(f"{fill(titles[k], LETTERS)}\n{TITLES[kind]}", fontsize=10)
    bar = figure.colorbar(lines, ax=axes, shrink=0.6, pad=0.01, aspect=30)
    bar.set_label("attention $a_{ij}$ (mean of both directions)", fontsize=10)
    return save(figure, results.with_name("picture.png") if path is None else path)


def animate_superpixels(results: str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """The first image of a results file as an animated GIF: GRAND-nl left, the constant Laplacian right."""
    from PIL import Image, ImageDraw

    points = {kind: own[0] for kind, own in _shown(Path(results)).items()}
    height, width = np.shape(points["nonlinear"]["patches"])
    factor = max(1, min(WIDEST // (2 * width), WIDEST // height))
    apart = max(factor * width, CAPTION) + 8
    frames = []
    for moment, time in enumerate(points["nonlinear"]["times"]):
        both = [np.kron(_pixels(own, moment), np.ones((factor, factor, 1))) for own in points.values()]
        sheet = Image.new("RGB", (2 * apart - 8, factor * height + 18), "white")
        pen = ImageDraw.Draw(sheet)
        for k, (kind, pixels) in enumerate(zip(points, both, strict=True)):
            left = k * apart
            sheet.paste(Image.fromarray((255 * pixels).astype(np.uint8)), (left, 18))
            pen.text((left + 2, 3), f"{TITLES[kind]}, t = {time:.1f}", fill="black")
        frames.append(sheet)
    content, path = io.BytesIO(), Path(path)
    shown_ms = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:], duration=shown_ms, loop=0)
    write_bytes(path, content.getvalue())
    return path


def _shown(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The images of each model that the results file keeps for a picture."""
    found = {p["model"]: p["shown"] for p in read_results(path)["points"] if "shown" in p}
    if not found.keys() >= TITLES.keys():
        raise DataError(f"{path} lacks points that the picture needs: let the experiment come to its end.")
    return {kind: found[kind] for kind in TITLES}


def _moments(times: list[float]) -> list[int]:
    """Some moments at equal distances, the first and the last among them."""
    return np.unique(np.linspace(0, len(times) - 1, min(MOST, len(times))).round().astype(int)).tolist()


def _pixels(own: Mapping[str, Any], moment: int) -> NDArray[np.float64]:
    """The state as an image ``(h, w, 3)``."""
    state = np.asarray(own["states"][moment]).clip(0, 1)
    return np.broadcast_to(state[np.asarray(own["patches"])], (*np.shape(own["patches"]), 3))


def _lines(own: Mapping[str, Any], moment: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends ``(m, 2, 2)`` of the undirected edges, and the mean attention of their two directions."""
    target, source = np.asarray(own["targets"]), np.asarray(own["sources"])
    n, attention = len(own["centres"]), np.asarray(own["attention"][moment])
    dense = np.zeros((n, n))
    dense[target, source] = attention
    once = target < source
    i, j = target[once], source[once]
    centres = np.asarray(own["centres"])
    return np.stack([centres[i], centres[j]], 1), (dense[i, j] + dense[j, i]) / 2


def _draw(axis: Any, own: Mapping[str, Any], moment: int, top: float) -> Any:
    from matplotlib.collections import LineCollection

    axis.imshow(_pixels(own, moment), interpolation="nearest")
    ends, attention = _lines(own, moment)
    share = (attention / top).clip(0, 1)
    thin = min(1.0, np.sqrt(50 / len(own["centres"])))  # where patches are small
    lines = LineCollection(list(ends), cmap="plasma", linewidths=thin * (0.3 + 2.7 * share))
    lines.set_array(attention)
    lines.set_clim(0, top)
    axis.add_collection(lines)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    return lines
