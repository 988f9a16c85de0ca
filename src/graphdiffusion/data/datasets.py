"""`load_data`: a benchmark by name, checked against its published size."""

import os
from pathlib import Path

from torch_geometric.data import Data

from graphdiffusion.data import rawfiles, sources
from graphdiffusion.data.catalogue import DatasetInfo, dataset_info
from graphdiffusion.data.check import check_data
from graphdiffusion.data.foreign import reason
from graphdiffusion.data.heterophily import GEOM_GCN, read_geom_gcn
from graphdiffusion.data.planetoid import read_planetoid
from graphdiffusion.data.structure import largest_component
from graphdiffusion.errors import DataError

WHOLE = ("heterophilous", "Geom-GCN")  # families whose protocol keeps the whole graph


def load_data(name: str, root: str | os.PathLike[str] | None = None, lcc: bool = True) -> Data:
    """Load a benchmark by name; `DATASETS` lists them.

    Args:
        name: a name or an alias, in whatever case: `"cora"`, `"CiteSeer"`, `"cs"`, ...
        root: a folder that holds the raw files as PyG lays them out, for instance
            `root/Cora/raw/ind.cora.x`. Default: the environment variable `GRAND_DATA`, else
            `~/.cache/graphdiffusion`. Nothing is ever written there, except that files found
            nowhere are downloaded to `~/.cache/graphdiffusion`. Files must be the published ones, by
            their SHA-256, where it is known here.
        lcc: keep the largest connected component only, as the paper does; without effect on the
            heterophilous sets and on the splits of Geom-GCN, whose protocol keeps the whole graph.

    Returns:
        `x` (n, F) float32, sparse CSR if less than a tenth is nonzero, else dense;
        `edge_index` (2, E) int64, both directions, sorted, no self-loops, no duplicates;
        `y` (n,) int64, -1 for the nodes of CiteSeer that have no label in its files (15, of which
        10 lie in the largest component); `train_mask`, `val_mask`, `test_mask` where a public split
        exists, (n,) bool, or (n, 10) where there are ten (the heterophilous sets, Geom-GCN); `task`,
        "classification"; `name`; `node_ids`, the numbers in the whole graph, where nodes were left out.
        `cora-embedded` has ids of its own and `class_names`, and `ogbn-arxiv-topology` no `x`.

    Raises:
        DataError: unknown name, files neither found nor downloadable, files that are not the
            published ones, or a graph whose size is not the published one.
    """
    info = dataset_info(name)
    data = sources.read_embedded_cora() if info.family == "embedded" else _read(info, root)
    data.name = info.name
    data.task = "classification"
    if data.x is not None:
        check_data(data)
    lcc = lcc and info.family not in WHOLE
    if lcc:
        data = largest_component(data)
    _check_statistics(data, info, lcc)
    return data


def _read(info: DatasetInfo, root: str | os.PathLike[str] | None) -> Data:
    raw = _raw_folder(info, root)
    rawfiles.verify(raw, info)
    try:
        if info.family == "Planetoid":
            return read_planetoid(raw, info.name)
        if info.family == "Geom-GCN":
            plain = info.name.removesuffix(GEOM_GCN)
            data = read_planetoid(raw, plain)
            data.update(read_geom_gcn(raw, plain, info.all_nodes))
            return data
        if info.family in ("Coauthor", "Amazon"):
            return sources.read_shchur(raw / info.files[0], info.arrays)
        if info.family == "heterophilous":
            return sources.read_heterophilous(raw / info.files[0], info.arrays)
        if info.name == "ogbn-arxiv":
            return sources.read_arxiv(raw)
        return sources.read_arxiv_topology(raw / info.files[0], info.arrays)
    except DataError:
        raise
    except Exception as error:  # a damaged table may raise anything
        raise DataError(
            f"{info.name}: the raw files in {raw} cannot be read "
            f"({type(error).__name__}: {reason(error)}); replace them by fresh copies"
        ) from error


def find_raw(info: DatasetInfo, root: str | os.PathLike[str] | None = None) -> Path | None:
    """The first folder that has all raw files of a data set, or None; nothing is downloaded."""
    for folder in rawfiles.data_folders(root):
        if all((folder / info.raw / file).is_file() for file in info.files):
            return folder / info.raw
    return None


def _raw_folder(info: DatasetInfo, root: str | os.PathLike[str] | None) -> Path:
    """The folder with the raw files, after a download into the cache if need be."""
    raw = find_raw(info, root)
    if raw is not None:
        return raw
    looked = " or ".join(str(folder / info.raw) for folder in rawfiles.data_folders(root))
    problem = f"{info.name}: did not find {', '.join(info.files)} in {looked}"
    advice = (
        f"Put the files there, or give the folder that holds {info.raw} as root (--root) or in the "
        "environment variable GRAND_DATA. 'cora-embedded' needs no files and no network."
    )
    if not info.urls:
        raise DataError(f"{problem}. {advice}")
    target = rawfiles.cache_folder() / info.raw
    try:
        rawfiles.download(info, target)
    except Exception as error:  # urllib, http, zipfile and zlib have errors of their own
        origin = info.urls[0].rpartition("/")[0]
        raise DataError(
            f"{problem}, and could not download them from {origin} ({reason(error)}). {advice}"
        ) from error
    return target


def _check_statistics(data: Data, info: DatasetInfo, lcc: bool) -> None:
    found = {
        "nodes": data.num_nodes,
        "undirected edges": data.edge_index.size(1) // 2,
        "features": 0 if data.x is None else data.x.size(1),
        "classes": int(data.y.max()) + 1,
    }
    sizes = (info.nodes, info.edges) if lcc else (info.all_nodes, info.all_edges)
    expected = dict(zip(found, (*sizes, info.features, info.classes), strict=True))
    wrong = [f"{found[key]} {key}, not {expected[key]}" for key in found if found[key] != expected[key]]
    if wrong:
        raise DataError(
            f"{info.name}: this is not the published graph: it has {'; '.join(wrong)}. "
            "Replace the raw files by fresh copies; a graph of your own is read with read_graph"
        )
