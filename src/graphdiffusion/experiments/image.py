"""One image of the user's, diffused by attention that is trained on it, and by the constant Laplacian."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.images import as_image, read_image
from ..data.superpixels import skimage, superpixel_graph
from ..errors import DataError
from .results import FILE, Note, write_content
from .superpixels import FULL, TITLES, Picture, Settings, drawn, edge_figures, train

# as figure 5, for one image with more superpixels and a longer time; without dropout, which would take away
# a third of the only image
SETTINGS = replace(
    FULL, images=1, digits=1, segments=300, input_dropout=0.0, epochs=200, parts=1, time=9.6, seeds=1
)
# of SLIC, beside differences of grey in [0, 1] and of colour in CIELAB
GREY, COLOUR = 0.1, 10.0


def diffuse_image(path: Path | None, folder: Path, *, device: torch.device, note: Note) -> Path:
    """Train on an image, diffuse it, and write ``results.json`` into a folder; the path of that file.

    Args:
        path: Of the image; ``None``: one that comes with scikit-image.
    """
    if path is None:
        pixels, title = skimage("data").camera(), "camera"
        image, notes = as_image(pixels, title)
        note("no image is named: the photographer of scikit-image is taken.")
    else:
        (image, notes), title = read_image(path), path.name
    for line in notes:
        note(f"{line}.")
    settings = replace(SETTINGS, compactness=GREY if image.ndim == 2 else COLOUR)
    picture = _superpixels(image, title, settings)
    n, bright = int(picture.data.num_nodes), int(picture.data.y.sum())
    note(f"{title}: {n} superpixels, {bright} bright and {n - bright} dark by Otsu's threshold.")
    points = []
    for kind in TITLES:
        model, accuracy = train([picture.data], kind, 0, settings, device, lambda share: None)
        figures = edge_figures(model, [picture.data])
        points.append({"model": kind, "accuracy": accuracy, **figures, "shown": [drawn(model, picture)]})
    write_content(folder / FILE, {"settings": asdict(settings), "points": points})
    return folder / FILE


def _superpixels(image: NDArray[np.float64], title: str, settings: Settings) -> Picture:
    brightness = image if image.ndim == 2 else image.mean(2)
    if brightness.max() - brightness.min() < 1 / 512:  # half a step of 8 bits
        raise DataError(
            f"{title} has one brightness everywhere: there is no edge in it; name another image"
        )
    found = superpixel_graph(
        image,
        segments=settings.segments,
        compactness=settings.compactness,
        threshold=float(skimage("filters").threshold_otsu(brightness)),
    )
    picture = Picture(title, *found)
    if len(picture.data.y.unique()) < 2:
        raise DataError(
            f"the superpixels of {title} are all bright or all dark: it is too small, or has too little "
            "contrast; name another image"
        )
    return picture
