"""A graph in parts on disk: a folder of arrays from which a process loads its part alone.

```text
FOLDER/about.json          nodes, edges, parts, method, seed, sizes of the parts, what the writer noted
FOLDER/assignment.npy      the part of each node
FOLDER/0/part.json         what the files of part 0 hold, with their checksums
FOLDER/0/row.npy ...       the arrays of part 0
FOLDER/0/fields/x.npy ...  the rows of its nodes in each field
```

Arrays are plain ``.npy`` files, read as memory maps; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import ArgumentError, DataError, StorageError
from ..files import naming
from ..graph import Graph
from .arrays import MEND, load, read_note, save, write_note
from .fields import Field, as_field, read_fields, write_fields
from .neighbours import Array
from .part import Part, checked, split

KIND, PART_KIND = "a graph in parts", "a part of a graph"
FORMAT = 1
ARRAYS = ("nodes", "halo", "send", "first_edge", "row", "col", "rowptr", "perm", "colptr")
EDGE_FIELDS = ("weight", "edge_attr")  # of those graphs that have them


@dataclass(frozen=True)
class About:
    """What a folder of parts holds.

    Attributes:
        nodes: Of the whole graph.
        edges: Of the whole graph, self-loops included.
        parts: Their number.
        method: How the graph was cut, as the writer said.
        seed: Of the cut.
        sizes: For each part its ``nodes``, ``edges`` and ``halo``.
        fields: Names of the node fields.
        about: What the writer noted.
    """

    nodes: int
    edges: int
    parts: int
    method: str
    seed: int | None
    sizes: list[dict[str, int]]
    fields: list[str]
    about: dict[str, Any]


def write_parts(
    folder: Path | str,
    graph: Graph,
    assignment: Tensor,
    fields: Mapping[str, Any] | None = None,
    *,
    method: str = "",
    seed: int | None = None,
    about: Mapping[str, Any] | None = None,
) -> About:
    """Write the parts of a graph in memory, each with the rows of its nodes.

    The folder appears when all is written. A graph of which the edges do not fit in memory:
    :func:`~graphdiffusion.partition.write_parts_of_edges`.

    Args:
        folder: To be made; it must not exist, or be empty.
        graph: The whole graph.
        assignment: The part of each node, from :func:`~graphdiffusion.partition.cut`.
        fields: Node fields by name: arrays or tensors ``(n, ...)``, memory-mapped ones included, and sparse
            matrices of torch or scipy.
        method: Name of the method of the cut.
        seed: Of the cut.
        about: What else to note, as in JSON.
    """
    n = graph.num_nodes
    ready = {name: as_field(name, value, n) for name, value in (fields or {}).items()}
    with new_folder(Path(folder)) as made:
        numbers = checked(assignment, n).cpu()
        parts = split(graph, numbers)
        notes = write_fields(made, numbers.numpy(), len(parts), ready)
        sizes = [
            write_part(made, part.number, _arrays(part), part.halo_counts, part.send_counts, own)
            for part, own in zip(parts, notes, strict=True)
        ]
        return finish(made, numbers.numpy(), graph.num_edges, sizes, list(ready), method, seed, about)


def _arrays(part: Part) -> dict[str, Array]:
    found = {name: getattr(part, name).numpy() for name in ARRAYS}
    own = {name: getattr(part, name) for name in EDGE_FIELDS}
    return found | {name: value.detach().numpy() for name, value in own.items() if value is not None}


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder under another name beside it, which gets its own name when all is written."""
    folder = Path(os.path.abspath(folder))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError(f"{folder} exists already: choose another folder, or remove it first.")
    made = folder.with_name(f".grand-{secrets.token_hex(8)}.part")
    with naming(folder):
        made.mkdir(parents=True)
    try:
        yield made
        with naming(folder):
            os.replace(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def write_part(
    folder: Path,
    number: int,
    arrays: Mapping[str, Array],
    halo_counts: tuple[int, ...],
    send_counts: tuple[int, ...],
    fields: Mapping[str, Any],
) -> dict[str, int]:
    """Write the arrays of a part, and what its files hold; its sizes.

    Args:
        folder: Of all parts.
        number: Of the part.
        arrays: Those of :class:`~graphdiffusion.partition.Part`, by name.
        halo_counts: As in the part.
        send_counts: As in the part.
        fields: What was said of its fields when they were written.
    """
    own = folder / str(number)
    files = {name: save(own / f"{name}.npy", array) for name, array in arrays.items()}
    note: dict[str, Any] = {"kind": PART_KIND, "format": FORMAT, "number": number}
    note |= {"halo_counts": list(halo_counts), "send_counts": list(send_counts)}
    write_note(own / "part.json", note | {"files": files, "fields": dict(fields)})
    sizes = {"nodes": "nodes", "edges": "row", "halo": "halo"}
    return {key: len(arrays[name]) for key, name in sizes.items()}


def finish(
    folder: Path,
    assignment: Array,
    edges: int,
    sizes: list[dict[str, int]],
    fields: list[str],
    method: str,
    seed: int | None,
    about: Mapping[str, Any] | None,
) -> About:
    """Write what the folder holds as a whole."""
    files = {"assignment": save(folder / "assignment.npy", assignment.astype(np.int32))}
    found = About(len(assignment), edges, len(sizes), method, seed, sizes, fields, dict(about or {}))
    write_note(folder / "about.json", {"kind": KIND, "format": FORMAT, "files": files} | vars(found))
    return found


def holds_parts(folder: Path | str) -> bool:
    """Whether a graph in parts lies in a folder."""
    return all((Path(folder) / name).is_file() for name in ("about.json", "assignment.npy"))


def read_about(folder: Path | str) -> About:
    """What a folder of parts holds."""
    return _about(Path(folder))[0]


def _about(folder: Path) -> tuple[About, dict[str, Any]]:
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}: write the parts of a graph first.")
    note = read_note(folder / "about.json", KIND, FORMAT)
    return About(**{key: note[key] for key in About.__dataclass_fields__}), note["files"]


def read_assignment(folder: Path | str) -> Tensor:
    """The part of each node, ``(n,)`` int64: a copy in memory."""
    files = _about(Path(folder))[1]
    return load(Path(folder) / "assignment.npy", files["assignment"], verify=True).long()


def read_part(folder: Path | str, number: int, *, verify: bool = True) -> tuple[Part, dict[str, Field]]:
    """One part of a graph on disk, and the fields of its nodes.

    All tensors lie on memory maps: nothing is copied, and the operating system holds in memory what is
    used, for all processes of a machine together. A copy is made by ``part.to(device)``, by operations that
    derive something from the arrays, and, page by page, by writing to a tensor: the files stay as they are.

    Args:
        folder: Of all parts.
        number: Of the part, from 0.
        verify: Read all its files once, and compare checksums. Otherwise dtypes, shapes and sizes alone are
            checked; damage then gives wrong numbers, or reads memory of others.

    Returns:
        The part; and its fields by name: tensors, or
        :class:`~graphdiffusion.partition.SparseRows` for what is sparse.
    """
    folder = Path(folder)
    about, _ = _about(folder)
    if not 0 <= number < about.parts:
        raise ArgumentError(f"{folder} holds the parts 0 to {about.parts - 1}, got {number}.")
    own = folder / str(number)
    note = read_note(own / "part.json", PART_KIND, FORMAT)
    read: dict[str, Any] = {
        name: load(own / f"{name}.npy", file, verify) for name, file in note["files"].items()
    }
    sizes = {"nodes": len(read["nodes"]), "edges": len(read["row"]), "halo": len(read["halo"])}
    if note["number"] != number or sizes != about.sizes[number]:
        raise DataError(f"{own} is not part {number} of what {folder / 'about.json'} describes: {MEND}.")
    n = sizes["nodes"]
    part = Part(
        rows=n,
        cols=n,
        halo_counts=tuple(note["halo_counts"]),
        send_counts=tuple(note["send_counts"]),
        number=number,
        parts=about.parts,
        all_nodes=about.nodes,
        all_edges=about.edges,
        **read,
    )
    return part, read_fields(own, note["fields"], verify)
