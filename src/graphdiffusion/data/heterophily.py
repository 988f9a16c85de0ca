"""Published sets and splits for the study of heterophily: graphs whose neighbours often differ in class.

Those of Pei et al. in the clean form of Platonov et al., five larger ones of Platonov et al., and
ten splits of Cora, CiteSeer and PubMed by Pei et al. (Geom-GCN).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphdiffusion.data.arrays import load_arrays
from graphdiffusion.data.splits import MASKS
from graphdiffusion.errors import DataError

FOLDER = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
SPLITS = "https://github.com/graphdml-uiuc-jlu/geom-gcn/raw/master/splits"
GEOM_GCN = "-geom-gcn"  # ending of the names of the citation graphs with these splits


class Heterophilous(NamedTuple):
    """A graph in one .npz file, with ten fixed splits; the whole graph is kept.

    Attributes:
        name: Of the data set.
        file: Of its arrays.
        sizes: Nodes, undirected edges, features, classes.
        checksum: Of the arrays; empty where it is not known here, so that only the sizes are checked.
        aliases: Other names.
    """

    name: str
    file: str
    sizes: tuple[int, int, int, int]
    checksum: str = ""
    aliases: tuple[str, ...] = ()


# 48, 32 and 20 percent train, validate and test
OLDER = (
    Heterophilous(
        "actor", "actor.npz", (7600, 26659, 932, 5),
        "ab8320026b0b936ed803707a9862e5b40dc746b25f1484f9ff9329f94c3274e5",
    ),
    Heterophilous(
        "chameleon", "chameleon_filtered.npz", (890, 8854, 2325, 5),
        "850054be163e1830a70bd19d2ed39cf8d16e5086914eb98fcf9eecfc1d58c83f", ("chameleon-filtered",),
    ),
    Heterophilous(
        "squirrel", "squirrel_filtered.npz", (2223, 46998, 2089, 5),
        "286f619e49be8425790d952d0e4d27e8f6ae5cd41c9c4fb051770c742cf082be", ("squirrel-filtered",),
    ),
    Heterophilous(
        "texas", "texas.npz", (183, 279, 1703, 5),
        "515e1e7f91aba5ed761ccfaf5417f64c92d1fcc7fee8743e9c47255371892b1f",
    ),
    Heterophilous(
        "wisconsin", "wisconsin.npz", (251, 450, 1703, 5),
        "a10d29eb31678765b027308f8e96d3e47857b1b544146a9711f431a911867e3c",
    ),
    Heterophilous(
        "cornell", "cornell.npz", (183, 277, 1703, 5),
        "9a2028e72460876f11d78a71857c2741c7b57aa49d31310fa187fbe56f5c84cc",
    ),
)  # fmt: skip

# 50, 25 and 25 percent; the paper measures the area under the ROC curve on those with two classes
NEWER = (
    Heterophilous("roman-empire", "roman_empire.npz", (22662, 32927, 300, 18), aliases=("roman_empire",)),
    Heterophilous(
        "amazon-ratings", "amazon_ratings.npz", (24492, 93050, 300, 5), aliases=("amazon_ratings",)
    ),
    Heterophilous("minesweeper", "minesweeper.npz", (10000, 39402, 7, 2)),
    Heterophilous("tolokers", "tolokers.npz", (11758, 519000, 10, 2)),
    Heterophilous("questions", "questions.npz", (48921, 153540, 301, 2)),
)  # fmt: skip


def geom_gcn_files(name: str) -> tuple[str, ...]:
    """The files of the ten splits of a citation graph, 60, 20 and 20 percent by their names."""
    return tuple(f"{name}_split_0.6_0.2_{number}.npz" for number in range(10))


def read_geom_gcn(folder: Path, name: str, nodes: int) -> dict[str, Tensor]:
    """The masks ``(n, 10)`` of the splits of a citation graph, by name."""
    found: dict[str, list[Tensor]] = {key: [] for key in MASKS}
    for file in geom_gcn_files(name):
        arrays = load_arrays(folder / file, MASKS)
        for key in MASKS:
            mask = arrays.get(key)
            if mask is None or mask.shape != (nodes,) or mask.dtype.kind not in "biu" or mask.max() > 1:
                raise DataError(f"{file}: expected {key} with a 0 or 1 for each of {nodes} nodes")
            found[key].append(torch.from_numpy(mask.astype(bool)))
        if bool((np.sum([arrays[key].astype(int) for key in MASKS], 0) > 1).any()):
            raise DataError(f"{file}: a node is in two of {', '.join(MASKS)}")
    return {key: torch.stack(masks, 1) for key, masks in found.items()}
