"""How the raw files of each family of benchmarks are read; those of Planetoid have a file of their own."""

import contextlib
import gzip
import io
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from graphdiffusion.data.arrays import load_arrays
from graphdiffusion.data.foreign import csr_matrix, reason
from graphdiffusion.data.rawfiles import DOWNLOAD_BYTES
from graphdiffusion.data.structure import MASKS, feature_tensor, tidy_edges
from graphdiffusion.errors import DataError


def read_shchur(path: Path, names: tuple[str, ...]) -> Data:
    """Coauthor and Amazon sets; as in PyG, every positive count becomes a one."""
    arrays = load_arrays(path, names)
    x, adjacency = (
        csr_matrix(
            (arrays[f"{part}_{key}"] for key in ("data", "indices", "indptr")),
            tuple(arrays[f"{part}_shape"].tolist()),
        )
        for part in ("attr", "adj")
    )
    x.sum_duplicates()
    x.data[x.data > 0] = 1
    labels = arrays["labels"]
    n = labels.size
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or (x.shape[0], *adjacency.shape) != (n, n, n):
        raise DataError(
            f"{path.name}: attributes {x.shape}, adjacency {adjacency.shape} and labels {labels.shape}, "
            f"{labels.dtype}, are not of one graph"
        )
    edges, _ = tidy_edges(np.stack(adjacency.nonzero()), n)
    return Data(x=feature_tensor(x), edge_index=edges, y=torch.from_numpy(labels.astype(np.int64)))


def read_arxiv(raw: Path) -> Data:
    """ogbn-arxiv from the raw CSV files of the Open Graph Benchmark, undirected, split by year.

    The files are not verified, but they are read as tables of numbers, and their size is bounded.
    """
    try:
        import pandas as pd
        from ogb.io.read_graph_raw import read_csv_graph_raw
    except ImportError as error:
        raise DataError(
            f"ogbn-arxiv is read by the package ogb, which cannot be imported ({reason(error)}); "
            "install it with: pip install ogb"
        ) from error
    _check_unpacked(sorted(raw.glob("*.csv.gz")))
    # ogb prints its progress on standard output, where the results of a command go.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        graph = read_csv_graph_raw(str(raw), additional_node_files=["node_year"])[0]
    labels = pd.read_csv(raw / "node-label.csv.gz", header=None).to_numpy().ravel()
    data = _arxiv_graph(graph["edge_index"], labels, graph["node_year"].ravel())
    data.x = torch.from_numpy(np.ascontiguousarray(graph["node_feat"], dtype=np.float32))
    return data


def _check_unpacked(paths: list[Path]) -> None:
    """Unpack once to count the bytes: what gzip writes about the size cannot be relied on."""
    size = 0
    for path in paths:
        with gzip.open(path) as file:
            while block := file.read(1 << 20):
                size += len(block)
                if size > DOWNLOAD_BYTES:
                    raise DataError(
                        f"{path} and the files before it unpack to more than {DOWNLOAD_BYTES:,} bytes, far "
                        "more than ogbn-arxiv has; replace them by fresh copies"
                    )


def read_arxiv_topology(path: Path, names: tuple[str, ...]) -> Data:
    """ogbn-arxiv without features, from a `topology.npz` with edge_index, y and year."""
    arrays = load_arrays(path, names)
    return _arxiv_graph(arrays["edge_index"], arrays["y"], arrays["year"])


def _arxiv_graph(edge_index: NDArray, y: NDArray, year: NDArray) -> Data:
    edges, _ = tidy_edges(edge_index, y.size)
    years = torch.from_numpy(year.astype(np.int64))
    data = Data(edge_index=edges, y=torch.from_numpy(y.astype(np.int64)), num_nodes=y.size)
    data.train_mask, data.val_mask, data.test_mask = years <= 2017, years == 2018, years >= 2019
    return data


def read_heterophilous(path: Path, names: tuple[str, ...]) -> Data:
    """A graph with several fixed splits, its masks (n, splits); its edges are listed once."""
    arrays = load_arrays(path, names)
    x, labels, edges = (arrays[key] for key in ("node_features", "node_labels", "edges"))
    n = labels.size
    masks = {key: arrays[f"{key}s"] for key in MASKS}
    fit = x.ndim == 2 and labels.shape == x.shape[:1] and edges.shape[1:] == (2,)
    kinds = x.dtype.kind in "fbiu" and labels.dtype.kind in "iu" and edges.dtype.kind in "iu"
    split = all(mask.dtype == bool and mask.ndim == 2 and mask.shape[1] == n for mask in masks.values())
    if not (fit and kinds and split) or (edges.size and not 0 <= edges.min() <= edges.max() < n):
        raise DataError(f"{path.name}: its features, labels, edges and masks are not of one graph")
    edge_index, _ = tidy_edges(edges.T, n)
    data = Data(x=feature_tensor(x), edge_index=edge_index, y=torch.from_numpy(labels.astype(np.int64)))
    for key, mask in masks.items():
        data[key] = torch.from_numpy(np.ascontiguousarray(mask.T))
    return data


def read_embedded_cora() -> Data:
    """Cora from `cora.npz`, which travels with the package; see `cora.md` for its origin."""
    source = files("graphdiffusion.data").joinpath("cora.npz")
    with np.load(io.BytesIO(source.read_bytes()), allow_pickle=False) as arrays:
        words = np.unpackbits(arrays["words"], axis=1, count=int(arrays["num_words"]))
        ids, labels = arrays["ids"], arrays["labels"].astype(np.int64)
        class_names = [str(name) for name in arrays["class_names"]]
        edges, _ = tidy_edges(arrays["citations"], ids.size)
    data = Data(x=feature_tensor(words), edge_index=edges, y=torch.from_numpy(labels))
    data.node_ids = [str(paper) for paper in ids.tolist()]
    data.class_names = class_names
    return data
