"""Edges that do not fit in memory, sorted into the rows of a graph on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, DtypeError, GraphError, ShapeError
from ..files import naming
from .fields import dealt, pieces
from .neighbours import Array

Source = Path | str | Array | Iterable[Array]


class FileColumn:
    """Whole numbers in a file without a head. A slice is read, not mapped: memory stays bounded."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self.path, self.dtype = path, np.dtype(dtype)

    def __len__(self) -> int:
        return self.path.stat().st_size // self.dtype.itemsize if self.path.exists() else 0

    def __getitem__(self, places: slice) -> Array:
        start, stop, _ = places.indices(len(self))
        if start >= stop:
            return np.empty(0, self.dtype)
        return np.fromfile(self.path, self.dtype, stop - start, offset=start * self.dtype.itemsize)

    def append(self, values: Array) -> None:
        with naming(self.path), open(self.path, "ab") as file:
            file.write(np.ascontiguousarray(values, dtype=self.dtype).data)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class Edges:
    """Edges in chunks ``(2, m)`` of int64, sources and targets, as often as they are asked for.

    Args:
        source: Path of a ``.npy`` file ``(2, E)``, an array of that shape, perhaps memory-mapped, or chunks
            of it. Chunks are written to a file first, because they are read more than once.
        num_nodes: Every number must lie below it.
        work: Folder for that file.
        chunk: Edges to read at once.
    """

    def __init__(self, source: Source, num_nodes: int, work: Path, chunk: int) -> None:
        self.source, self.n, self.chunk = source, num_nodes, chunk
        self.spool: FileColumn | None = None
        if isinstance(source, (str, Path)):
            self.width = self._checked(_opened(Path(source))).shape[1]
        elif isinstance(source, np.ndarray):
            self.width = self._checked(source).shape[1]
        else:
            self.spool = FileColumn(work / "edges", np.int64)
            for piece in source:
                self.spool.append(self._checked(np.asarray(piece)).T)
            self.width = len(self.spool) // 2

    def __iter__(self) -> Iterator[Array]:
        for start in range(0, self.width, self.chunk):
            yield self._in_range(self._read(start, min(start + self.chunk, self.width)))

    def _read(self, start: int, stop: int) -> Array:
        if self.spool is not None:
            return self.spool[2 * start : 2 * stop].reshape(-1, 2).T
        # a map of its own for each chunk: what was read does not stay mapped
        source = _opened(Path(self.source)) if isinstance(self.source, (str, Path)) else self.source
        return np.array(source[:, start:stop], dtype=np.int64)  # type: ignore[index]

    @staticmethod
    def _checked(found: Array) -> Array:
        if found.ndim != 2 or found.shape[0] != 2:
            raise ShapeError(f"edges must have shape (2, E), got {found.shape}.")
        if found.dtype.kind not in "iu":
            raise DtypeError(f"edges must hold integers, got {found.dtype}.")
        return found

    def _in_range(self, found: Array) -> Array:
        low, high = int(found.min()), int(found.max())
        if low < 0 or high >= self.n:
            raise GraphError(
                f"edges hold node {low if low < 0 else high}, but num_nodes={self.n}: nodes are numbered "
                f"from 0 to {self.n - 1}."
            )
        return found


def _opened(path: Path) -> Array:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            found.close()
            raise ValueError("an archive of arrays")
        return found
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"cannot read edges from {path} ({error}): give a .npy file of shape (2, E)."
        ) from None


def sort_edges(
    edges: Edges, work: Path, name: str, undirected: bool, self_loops: float | None, limit: int
) -> tuple[Array, FileColumn]:
    """The rows of a graph on disk: ``rowptr`` in memory, columns in a file, every edge once.

    Edges are counted, written to buckets of consecutive targets, and each bucket is sorted alone. On disk,
    besides the columns: 8 bytes an edge, duplicates and both directions included.

    Args:
        edges: Of the graph.
        work: Folder for the files.
        name: Of the file of columns.
        undirected: Whether each edge stands for both directions.
        self_loops: As in :meth:`~graphdiffusion.graph.Graph.from_edge_index`.
        limit: Most edges of a bucket; a longer row is sorted as a whole.
    """
    n = edges.n
    counts, sends = np.zeros(n, np.int64), np.zeros(n, bool)
    for source, target in _ends(edges, undirected, self_loops):
        np.add.at(counts, target, 1)
        sends[source] = True
    looped = np.ones(n, bool) if self_loops else (counts == 0) | ~sends
    upper = np.concatenate([[0], (counts + looped).cumsum()])
    runs = list(pieces(upper, limit))
    firsts = np.array([start for start, _ in runs])
    buckets = [FileColumn(work / f"{name}-{number}", np.int64) for number in range(len(runs))]
    for source, target in _ends(edges, undirected, self_loops):
        bucket = np.searchsorted(firsts, target, side="right") - 1
        key = (target - firsts[bucket]) * n + source
        for number, own in dealt(bucket):
            buckets[number].append(key[own])
    found = FileColumn(work / name, np.int32 if n < 2**31 else np.int64)
    for (start, stop), file in zip(runs, buckets, strict=True):
        loops = np.flatnonzero(looped[start:stop])
        key = np.concatenate([file[:], loops * n + loops + start])
        key.sort()
        key = key[np.concatenate([[True], key[1:] != key[:-1]])] if len(key) else key
        counts[start:stop] = np.bincount(key // n, minlength=stop - start)
        found.append(key % n)
        file.remove()
    return np.concatenate([[0], counts.cumsum()]), found


def _ends(edges: Edges, undirected: bool, self_loops: float | None) -> Iterator[tuple[Array, Array]]:
    """Sources and targets of the edges that are kept, in both directions if asked."""
    for source, target in edges:
        if self_loops is not None:
            apart = source != target
            source, target = source[apart], target[apart]
        if undirected:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
        yield source, target
