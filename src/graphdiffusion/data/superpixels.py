"""An image as a graph: superpixels are nodes, and adjacent ones are joined. Needs the extra `images`."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from graphdiffusion.data.foreign import reason
from graphdiffusion.data.structure import tidy_edges
from graphdiffusion.errors import DataError


def superpixel_graph(
    image: NDArray[np.floating], *, segments: int, compactness: float, threshold: float = 0.5
) -> tuple[Data, NDArray[np.int64]]:
    """The graph of the superpixels of an image, which SLIC (Achanta et al., 2012) finds.

    Args:
        image: (h, w) grey or (h, w, 3) colour, in [0, 1].
        segments: about so many superpixels.
        compactness: the larger, the closer the superpixels are to a regular grid; it is compared with
            differences of grey in [0, 1], and of colour in CIELAB, whose lightness goes from 0 to 100.
        threshold: a superpixel has label 1 if its mean, for colours over the channels too, is at least this
            large, else 0.

    Returns:
        The graph, with `x` (n, 1) or (n, 3), the mean colour of each superpixel, `pos` (n, 2), its centre
        (column, row), `edge_index`, both directions, no self-loops, and `y` (n,); and the number of the
        superpixel of each pixel (h, w).
    """
    grey = image.ndim == 2
    if not grey and (image.ndim != 3 or image.shape[2] != 3):
        raise DataError(f"an image must have shape (h, w) or (h, w, 3), got {image.shape}")
    found = skimage("segmentation").slic(
        image,
        n_segments=segments,
        compactness=compactness,
        channel_axis=None if grey else -1,
        start_label=0,
    )
    patch = np.unique(found, return_inverse=True)[1].reshape(found.shape).astype(np.int64)
    size = np.bincount(patch.ravel())

    def mean(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.bincount(patch.ravel(), values.ravel()) / size

    row, column = np.mgrid[: patch.shape[0], : patch.shape[1]]
    channels = image[..., None] if grey else image
    beside = [(patch[:, 1:], patch[:, :-1]), (patch[1:], patch[:-1])]
    pairs = np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in beside], axis=1)
    edges, _ = tidy_edges(pairs, size.size)
    x = np.stack([mean(channels[..., k]) for k in range(channels.shape[2])], 1)
    data = Data(
        x=torch.from_numpy(x.astype(np.float32)),
        edge_index=edges,
        y=torch.from_numpy((x.mean(1) >= threshold).astype(np.int64)),
        pos=torch.from_numpy(np.stack([mean(column), mean(row)], 1).astype(np.float32)),
    )
    return data, patch


def skimage(part: str) -> Any:
    """A part of scikit-image."""
    from importlib import import_module

    try:
        return import_module(f"skimage.{part}")
    except ImportError as error:
        raise DataError(
            f"superpixels need scikit-image, which cannot be imported ({reason(error)}); install it with: "
            "pip install scikit-image"
        ) from error
