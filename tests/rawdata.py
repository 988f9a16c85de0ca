"""Small raw files in the formats of Planetoid and of Shchur et al., for tests of their readers."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def pickled(value: Any) -> bytes:
    """`value` as Python 2 with protocol 2 pickled it: strings are bytes, arrays are strings."""
    return b"\x80\x02" + _pickled(value) + b"."


def _pickled(value: Any) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, str | bytes):
        content = value if isinstance(value, bytes) else value.encode()
        return b"T" + struct.pack("<i", len(content)) + content
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_pickled, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_pickled, value)) + b"e"
    if isinstance(value, np.ndarray):
        order, code = value.dtype.str[0], value.dtype.str[1:]
        dtype = b"cnumpy\ndtype\n" + _pickled((code, 0, 1)) + b"R"
        dtype += _pickled((3, order, None, None, None, -1, -1, 0)) + b"b"
        start = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _pickled((0,)) + _pickled("b")
        state = _pickled(1) + _pickled(value.shape) + dtype + _pickled(False) + _pickled(value.tobytes())
        return start + b"tR(" + state + b"tb"
    if sp.issparse(value):
        state = {"format": "csr", "_shape": value.shape, "maxprint": 50}
        state |= {"indptr": value.indptr, "indices": value.indices, "data": value.data}
        return b"cscipy.sparse.csr\ncsr_matrix\n)\x81" + _pickled(state) + b"b"
    assert isinstance(value, dict)
    graph = all(isinstance(key, int) for key in value)
    start = b"ccollections\ndefaultdict\n(c__builtin__\nlist\ntR" if graph else b"}"
    return start + b"(" + b"".join(_pickled(key) + _pickled(v) for key, v in value.items()) + b"u"


def planetoid_parts() -> dict[str, Any]:
    """12 nodes, of which 4 train and 8 to 11 test; node 10 is missing from the index, as in CiteSeer."""
    rng = np.random.default_rng(0)
    x = sp.csr_matrix((rng.random((11, 5)) < 0.4).astype(np.float32))
    y = np.eye(3, dtype=np.int32)[rng.integers(0, 3, 11)]
    graph: dict[int, list[int]] = {i: [(i + 1) % 12, (i + 11) % 12] for i in range(12) if i != 10}
    graph[11], graph[9], graph[10] = [0, 0, 11], [8], []
    return {
        "x": x[:4], "tx": x[8:], "allx": x[:8], "y": y[:4], "ty": y[8:], "ally": y[:8],
        "graph": graph, "test.index": [11, 8, 9],
    }  # fmt: skip


def write_planetoid(folder: Path, prefix: str, **changes: Any) -> Path:
    """The eight files; `changes` are other values for some parts, or bytes to write as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in (planetoid_parts() | changes).items():
        if part == "test.index" and not isinstance(value, bytes):
            value = "".join(f"{node}\n" for node in value).encode()
        content = value if isinstance(value, bytes) else pickled(value)
        (folder / f"ind.{prefix}.{part}").write_bytes(content)
    return folder


def shchur_arrays() -> dict[str, np.ndarray]:
    """9 nodes in a ring, 6 attributes, 3 classes."""
    rng = np.random.default_rng(1)
    attributes = sp.csr_matrix((rng.random((9, 6)) < 0.5) * 2.0, dtype=np.float32)
    ring = np.arange(9)
    adjacency = sp.csr_matrix((np.ones(9, np.float32), (ring, (ring + 1) % 9)), shape=(9, 9))
    out: dict[str, np.ndarray] = {"labels": ring % 3}
    for name, matrix in (("attr", attributes), ("adj", adjacency)):
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
        out |= {f"{name}_{key}": part for key, part in parts.items()}
        out[f"{name}_shape"] = np.array(matrix.shape)
    return out
