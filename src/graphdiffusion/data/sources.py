"""Where the raw files of a benchmark lie, how they are fetched, and how each family is read.

Reading the raw files takes about a second at most, so nothing processed is ever stored, nothing is
written beside a user's data, and a killed run leaves nothing behind that could spoil the next one.
"""

import contextlib
import io
import os
import shutil
import tempfile
import urllib.request
import zipfile
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data
from torch_geometric.io import read_npz, read_planetoid_data

from graphdiffusion.data.structure import feature_tensor, tidy_edges
from graphdiffusion.errors import DataError

DOWNLOAD_TIMEOUT_S = 30


def cache_folder() -> Path:
    """Where downloads go: `~/.cache/graphdiffusion`."""
    return Path("~/.cache/graphdiffusion").expanduser()


def data_folders(root: str | os.PathLike[str] | None) -> list[Path]:
    """The folders to look in: `root`, else the one that GRAND_DATA names; then the cache."""
    chosen = root if root is not None else os.environ.get("GRAND_DATA") or None
    if chosen is None:
        return [cache_folder()]
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        origin = "root" if root is not None else "the environment variable GRAND_DATA"
        raise DataError(
            f"{origin} names {str(folder)!r}, which is not a folder; "
            "give a folder that holds the raw files, for instance Cora/raw/ind.cora.x"
        )
    return list(dict.fromkeys([folder, cache_folder()]))


def download(urls: dict[str, str], folder: Path) -> None:
    """Fetch `{file name: url}` into `folder`; a file appears there only once it is complete.

    A `.zip` is unpacked instead: its files land in `folder` under their own base names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
        for name, url in urls.items():
            part = Path(scratch, name)
            with (
                urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as response,
                part.open("wb") as out,
            ):
                shutil.copyfileobj(response, out)
                expected = response.headers.get("Content-Length")
            if expected is not None and part.stat().st_size != int(expected):
                raise OSError(f"{url} ended after {part.stat().st_size} of {expected} bytes")
            if part.suffix == ".zip":
                _unpack(part)
        for part in sorted(Path(scratch).iterdir()):
            part.replace(folder / part.name)


def _unpack(archive: Path) -> None:
    with zipfile.ZipFile(archive) as bundle:
        for member in bundle.infolist():
            if not member.is_dir():
                with bundle.open(member) as source:
                    Path(archive.parent, Path(member.filename).name).write_bytes(source.read())
    archive.unlink()


def read_planetoid(raw: Path, prefix: str) -> Data:
    """Cora, CiteSeer, PubMed, with the public split. Their files are pickles, hence PyG's reader."""
    data = read_planetoid_data(str(raw), prefix)
    return _finish(data)


def read_shchur(raw: Path, file: str) -> Data:
    """Coauthor and Amazon sets; PyG turns every positive count into a one."""
    data = read_npz(str(raw / file))
    return _finish(data)


def _finish(data: Data) -> Data:
    data.x = feature_tensor(data.x.numpy())
    data.edge_index, _ = tidy_edges(data.edge_index.numpy(), data.y.numel())
    return data


def read_arxiv(raw: Path) -> Data:
    """ogbn-arxiv from the raw CSV files of the Open Graph Benchmark, undirected, split by year."""
    try:
        import pandas as pd
        from ogb.io.read_graph_raw import read_csv_graph_raw
    except ImportError as error:
        raise DataError(
            f"ogbn-arxiv is read by the package ogb, which cannot be imported ({error}); "
            "install it with: pip install 'graphdiffusion[ogb]'"
        ) from error
    # ogb reports its progress on standard output, which belongs to our caller.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        graph = read_csv_graph_raw(str(raw), additional_node_files=["node_year"])[0]
    labels = pd.read_csv(raw / "node-label.csv.gz", header=None).to_numpy().ravel()
    data = _arxiv_graph(graph["edge_index"], labels, graph["node_year"].ravel())
    data.x = torch.from_numpy(np.ascontiguousarray(graph["node_feat"], dtype=np.float32))
    return data


def read_arxiv_topology(raw: Path) -> Data:
    """ogbn-arxiv without features, from a `topology.npz` with edge_index, y and year."""
    with np.load(raw / "topology.npz", allow_pickle=False) as arrays:
        return _arxiv_graph(arrays["edge_index"], arrays["y"], arrays["year"])


def _arxiv_graph(edge_index: NDArray, y: NDArray, year: NDArray) -> Data:
    edges, _ = tidy_edges(edge_index, y.size)
    years = torch.from_numpy(year.astype(np.int64))
    data = Data(edge_index=edges, y=torch.from_numpy(y.astype(np.int64)), num_nodes=y.size)
    data.train_mask, data.val_mask, data.test_mask = years <= 2017, years == 2018, years >= 2019
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
