"""The places of the non-zeros of a sparse matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


@contextmanager
def lasting() -> Iterator[None]:
    """Make tensors that outlive inference mode: those made in it cannot be used in a training later."""
    recorded = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.set_grad_enabled(recorded):
        yield


@dataclass(frozen=True, eq=False, repr=False)
class Pattern:
    """The places of the non-zeros of a sparse ``rows × cols`` matrix, in both orders.

    Entries are sorted by row, then by column (CSR). The transpose is stored beside it: ``perm`` lists
    the entries sorted by column, then by row. Immutable; checked and sorted once, when it is built. What is
    derived from the places is kept beside them, and shared by all graphs that differ in weights alone.
    """

    rows: int
    cols: int
    row: Tensor  # (E,) row of each entry
    col: Tensor  # (E,) column of each entry
    rowptr: Tensor  # (rows+1,) row i holds the entries rowptr[i]:rowptr[i+1]
    perm: Tensor  # (E,) entries in the order of the transpose
    colptr: Tensor  # (cols+1,) column j holds the entries perm[colptr[j]:colptr[j+1]]
    derived: dict[Any, Any] = field(default_factory=dict, repr=False, kw_only=True)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What ``make`` gives, computed once for these places; in ``torch.export`` each time anew, if not
        before: what is made there has no numbers.
        """
        if key in self.derived:
            return self.derived[key]
        with lasting():
            found = make()
        if not getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)():
            self.derived[key] = found
        return found

    @staticmethod
    def indices(row: Tensor, col: Tensor, rows: int, cols: int) -> dict[str, Any]:
        """The fields above from coordinates that are sorted by row, then column, and unique."""
        perm = torch.argsort(col * rows + row)
        index = torch.int32 if max(row.numel(), rows, cols) < 2**31 else torch.int64
        tensors = {
            "row": row,
            "col": col,
            "rowptr": _pointer(row, rows),
            "perm": perm,
            "colptr": _pointer(col, cols),
        }
        return {"rows": rows, "cols": cols} | {k: v.to(index) for k, v in tensors.items()}

    @property
    def num_edges(self) -> int:
        """Number of entries; for a graph, of directed edges, self-loops included."""
        return self.row.numel()

    @property
    def device(self) -> torch.device:
        return self.row.device

    @property
    def transposed_row(self) -> Tensor:
        """Row of each entry in the order of the transpose, ``(E,)``."""
        return self.once("transposed_row", lambda: self.row[self.perm])

    @property
    def transposed(self) -> Pattern:
        """The pattern of the transpose; entry e of it is entry ``perm[e]`` here."""
        return self.once("transposed", self._transpose)

    def _transpose(self) -> Pattern:
        place = torch.arange(self.num_edges, dtype=self.perm.dtype, device=self.device)
        back = torch.empty_like(place).index_copy_(0, self.perm.long(), place)
        own: dict[str, Any] = {
            "row": self.col[self.perm],
            "rowptr": self.colptr,
            "perm": back,
            "colptr": self.rowptr,
        }
        return Pattern(rows=self.cols, cols=self.rows, col=self.transposed_row, **own)

    def to(self, device: torch.device | str) -> Self:
        """Copy on ``device`` (itself if it is there already)."""
        if torch.device(device) == self.device:
            return self
        with lasting():
            moved: dict[str, Any] = {
                f.name: value.to(device)
                for f in fields(self)
                if isinstance(value := getattr(self, f.name), Tensor)
            }
        return replace(self, derived={}, **moved)

    def __repr__(self) -> str:
        return f"Pattern({self.rows} × {self.cols}, {self.num_edges} entries, {self.device})"


def _pointer(sorted_index: Tensor, n: int) -> Tensor:
    counts = torch.bincount(sorted_index, minlength=n)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
