"""Fields of nodes that are dealt to parts in one sweep: dense arrays, and sparse matrices in CSR form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from ..errors import ArgumentError, DataError, DtypeError, ShapeError
from ..pattern import Pattern
from .arrays import MEND, ArrayFile, load, save
from .neighbours import Array

_PIECE = 2**26  # bytes of a field that are read at once
_BITS = {torch.bfloat16: torch.int16}  # dtypes that NumPy lacks, and what they are stored as


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a sparse matrix (CSR), and where they stand in the whole of it.

    Attributes:
        rowptr: ``(n+1,)`` int64: row i holds the entries ``rowptr[i]:rowptr[i+1]``, their columns rising.
        col: Column of each entry, ``(nnz,)``.
        values: ``(nnz,)``.
        columns: Their number.
        first: Place of the first entry of each row among the entries of the whole matrix, ``(n,)`` int64.
        entries: Entries of the whole matrix.
    """

    rowptr: Tensor
    col: Tensor
    values: Tensor
    columns: int
    first: Tensor
    entries: int

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """A whole matrix, of torch (CSR or COO) or scipy; entries that occur twice are added up."""
        if isinstance(matrix, SparseRows):
            return matrix
        if isinstance(matrix, Tensor):
            coo = (matrix if matrix.layout == torch.sparse_coo else matrix.to_sparse_coo()).cpu().coalesce()
            col, values = coo.indices()[1], coo.values()
            counts = torch.bincount(coo.indices()[0], minlength=coo.shape[0])
        else:
            csr = scipy.sparse.csr_array(matrix)
            if not csr.has_canonical_format:
                csr = csr.copy()  # the caller's matrix stays as it is
                csr.sum_duplicates()
            counts = torch.from_numpy(np.diff(csr.indptr).astype(np.int64))
            col, values = torch.from_numpy(csr.indices), torch.from_numpy(csr.data)
        rowptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        index = torch.int32 if matrix.shape[1] < 2**31 else torch.int64
        return cls(rowptr, col.to(index), values, int(matrix.shape[1]), rowptr[:-1], len(values))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rowptr) - 1, self.columns

    @property
    def row(self) -> Tensor:
        """Row of each entry, ``(nnz,)`` int64."""
        return torch.repeat_interleave(torch.arange(self.shape[0]), torch.diff(self.rowptr))

    @property
    def pattern(self) -> Pattern:
        """Places of the entries, sorted in both orders. A copy."""
        return Pattern(**Pattern.indices(self.row, self.col.long(), *self.shape))

    @property
    def places(self) -> Tensor:
        """Place of each entry among the entries of the whole matrix, ``(nnz,)`` int64."""
        row = self.row
        return (self.first - self.rowptr[:-1])[row] + torch.arange(len(row))


Field = Tensor | SparseRows


def as_field(name: str, value: Any, nodes: int) -> Array | Field:
    """A field as it is dealt to parts: what is sparse in CSR form, all else as an array or a tensor."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ArgumentError(
            f"a field cannot be called {name!r}: letters, digits, _ and - make its file name."
        )
    field: Array | Field
    sparse = isinstance(value, SparseRows) or scipy.sparse.issparse(value)
    if sparse or (isinstance(value, Tensor) and value.layout != torch.strided):
        field = SparseRows.of(value)
    elif isinstance(value, Tensor):
        field = value.detach().cpu()
    else:
        field = array = np.asanyarray(value)  # perhaps a memory map
        if array.dtype.kind not in "biuf":
            raise DtypeError(f"the field {name!r} must hold numbers, got an array of {array.dtype}.")
    if len(field.shape) == 0 or field.shape[0] != nodes:
        raise ShapeError(
            f"the field {name!r} must have a row for each of the {nodes} nodes, got shape "
            f"{tuple(field.shape)}."
        )
    return field


def write_fields(
    folder: Path, assignment: Array, parts: int, fields: Mapping[str, Array | Field]
) -> list[dict[str, Any]]:
    """Write the rows of each part; for each part the descriptions of its fields, by name.

    Every field is read once, from its first row to its last.
    """
    found: list[dict[str, Any]] = [{} for _ in range(parts)]
    for name, field in fields.items():
        paths = [folder / str(number) / "fields" / name for number in range(parts)]
        if isinstance(field, SparseRows):
            written = _write_sparse(paths, field, assignment)
        else:
            written = _write_dense(paths, field, assignment)
        for own, described in zip(found, written, strict=True):
            own[name] = described
    return found


def _write_dense(paths: list[Path], field: Array | Tensor, assignment: Array) -> list[dict[str, Any]]:
    kept = field.dtype.name if isinstance(field, np.ndarray) else str(field.dtype).removeprefix("torch.")
    if isinstance(field, Tensor):
        field = field.view(_BITS.get(field.dtype, field.dtype)).numpy()
    dtype = field.dtype.newbyteorder("=")
    counts = np.bincount(assignment, minlength=len(paths)).tolist()
    files = [
        ArrayFile(path.with_suffix(".npy"), dtype, (count, *field.shape[1:]))
        for path, count in zip(paths, counts, strict=True)
    ]
    step = max(1, _PIECE // max(1, field[:1].nbytes))
    for start in range(0, len(field), step):
        rows = np.asarray(field[start : start + step])
        for number, own in dealt(assignment[start : start + step]):
            files[number].append(rows[own])
    return [{"kind": "dense", "dtype": kept, "file": file.close()} for file in files]


def _write_sparse(paths: list[Path], field: SparseRows, assignment: Array) -> list[dict[str, Any]]:
    rowptr, col, values = (own.numpy() for own in (field.rowptr, field.col, field.values))
    lengths = np.diff(rowptr)
    described: list[dict[str, Any]] = []
    files: list[list[ArrayFile]] = []
    for number, path in enumerate(paths):
        own = np.flatnonzero(assignment == number)
        pointer = np.concatenate([[0], lengths[own].cumsum()])
        notes = {"rowptr": save(Path(f"{path}.rowptr.npy"), pointer)}
        notes["first"] = save(Path(f"{path}.first.npy"), rowptr[own])
        described.append(
            {"kind": "sparse", "columns": field.columns, "entries": field.entries, "files": notes}
        )
        shape = (int(pointer[-1]),)
        files.append([ArrayFile(Path(f"{path}.col.npy"), col.dtype, shape)])
        files[-1].append(ArrayFile(Path(f"{path}.values.npy"), values.dtype, shape))
    for number, some in deal_entries(rowptr, (col, values), assignment):
        for file, piece in zip(files[number], some, strict=True):
            file.append(piece)
    for about, (cols, numbers) in zip(described, files, strict=True):
        about["files"] |= {"col": cols.close(), "values": numbers.close()}
    return described


def dealt(assignment: Array) -> Iterator[tuple[int, Array]]:
    """For each part that some nodes belong to: its number, and which of them, rising."""
    order = np.argsort(assignment, kind="stable")
    numbers, firsts = np.unique(assignment[order], return_index=True)
    if len(order):
        yield from zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True)


def deal_entries(
    rowptr: Array, columns: Sequence[Any], assignment: Array, limit: int = 2**22
) -> Iterator[tuple[int, list[Array]]]:
    """The entries of a CSR matrix by the part of their row: pieces of each part, in the order of its rows.

    Args:
        rowptr: ``(n+1,)``.
        columns: Arrays ``(nnz,)``, or what gives one for a slice: columns, values.
        assignment: Part of each row.
        limit: Entries that are read at once; a longer row is read as a whole.
    """
    for start, stop in pieces(rowptr, limit):
        pointer = np.asarray(rowptr[start : stop + 1], dtype=np.int64)
        first, last = int(pointer[0]), int(pointer[-1])
        read = [np.asarray(own[first:last]) for own in columns]
        starts, lengths = pointer[:-1] - first, np.diff(pointer)
        for number, rows in dealt(assignment[start:stop]):
            counts = lengths[rows]
            ends = counts.cumsum()
            places = np.repeat(starts[rows] - (ends - counts), counts) + np.arange(ends[-1])
            yield number, [own[places] for own in read]


def pieces(rowptr: Array, limit: int) -> Iterator[tuple[int, int]]:
    """Runs of rows with at most ``limit`` entries each, or of one row that has more."""
    start, n = 0, len(rowptr) - 1
    while start < n:
        stop = int(np.searchsorted(rowptr, int(rowptr[start]) + limit, side="right")) - 1
        stop = min(max(stop, start + 1), n)
        yield start, stop
        start = stop


def read_fields(folder: Path, about: Mapping[str, Any], verify: bool) -> dict[str, Field]:
    """The fields of a part, as memory maps.

    Args:
        folder: Of the part.
        about: What :func:`write_fields` said of this part.
        verify: As in :func:`~graphdiffusion.partition.arrays.load`.
    """
    found: dict[str, Field] = {}
    for name, own in about.items():
        if own["kind"] == "dense":
            value = load(folder / "fields" / f"{name}.npy", own["file"], verify)
            found[name] = value.view(getattr(torch, own["dtype"]))
        else:
            read = {
                key: load(folder / "fields" / f"{name}.{key}.npy", file, verify)
                for key, file in own["files"].items()
            }
            if len(read["first"]) + 1 != len(read["rowptr"]):
                raise DataError(f"the files of the field {name!r} in {folder} do not fit together: {MEND}.")
            found[name] = SparseRows(**read, columns=own["columns"], entries=own["entries"])
    return found
