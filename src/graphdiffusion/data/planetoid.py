"""Cora, CiteSeer and PubMed from the eight files of Planetoid.

Seven of them are pickles of Python 2. A pickle is a program, and loading one runs it. Here it is read as
data instead: of the operations of the format only those are known that these files use, and what would be
called or built becomes a `_Call` with its name, arguments and state. Nothing is imported or called.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from pickletools import genops
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from graphdiffusion.data.foreign import csr_matrix, reason
from graphdiffusion.data.limits import check_claim, check_memory
from graphdiffusion.data.structure import feature_tensor, tidy_edges
from graphdiffusion.errors import DataError

VALIDATION = 500

_NAMES = (
    "__builtin__ list",
    "collections defaultdict",
    "numpy dtype",
    "numpy ndarray",
    "numpy.core.multiarray _reconstruct",
    "scipy.sparse.csr csr_matrix",
)
_DTYPES = ("i4", "i8", "f4", "f8")


def read_planetoid(raw: Path, prefix: str) -> Data:
    """The whole graph, undirected, with the public split; -1 is the class of a node without label.

    `allx` and `ally` are the rows of all nodes but the test nodes, `x` and `y` the first of them, which
    train; the next 500 validate. Row k of `tx` and `ty` belongs to node `test.index[k]`. CiteSeer's
    index has gaps: 15 nodes that have edges, but neither features nor a label; they are in no mask.
    """

    def pickled(part: str) -> tuple[Any, str]:
        file = raw / f"ind.{prefix}.{part}"
        check_memory(file.stat().st_size, file.name)
        return _parse(file.read_bytes(), file.name), file.name

    rest, test = (_matrix(*pickled(part)) for part in ("allx", "tx"))
    rest_y, test_y, train_y = (_classes(*pickled(part)) for part in ("ally", "ty", "y"))
    index = _test_index(raw / f"ind.{prefix}.test.index", first=rest.shape[0], count=test.shape[0])
    if rest_y.size != rest.shape[0] or test_y.size != index.size or rest.shape[1] != test.shape[1]:
        raise DataError(
            f"ind.{prefix}: features {rest.shape} and {test.shape} do not fit {rest_y.size} and "
            f"{test_y.size} labels; all files must be of one data set"
        )
    n = int(index.max()) + 1
    x = sp.csr_matrix(
        (
            np.concatenate([rest.data, test.data]),
            (np.concatenate([rest.row, index[test.row]]), np.concatenate([rest.col, test.col])),
        ),
        shape=(n, rest.shape[1]),
    )
    y = np.full(n, -1)
    y[: rest_y.size], y[index] = rest_y, test_y
    edges, _ = tidy_edges(_edges(*pickled("graph"), n), n)
    data = Data(x=feature_tensor(x), edge_index=edges, y=torch.from_numpy(y))
    number = np.arange(n)
    validation = (number >= train_y.size) & (number < min(train_y.size + VALIDATION, rest_y.size))
    for key, chosen in (
        ("train_mask", number < train_y.size),
        ("val_mask", validation),
        ("test_mask", np.isin(number, index)),
    ):
        data[key] = torch.from_numpy(chosen & (y >= 0))
    return data


@dataclass(eq=False)
class _Call:
    """A call or an object that a pickle describes."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Name:
    name: str


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_VALUES = ("BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING")


def _parse(content: bytes, file: str) -> Any:
    """The value that a pickle describes, made of numbers, strings, lists, dicts, tuples and `_Call`."""
    try:
        return _run(content, file)
    except DataError:
        raise
    except Exception as error:  # damaged bytes fail at any place
        raise DataError(f"{file} is damaged ({type(error).__name__}: {reason(error)})") from error


def _run(content: bytes, file: str) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def top(start: int) -> list[Any]:
        values = stack[start:]
        del stack[start:]
        return values

    value: Any
    for operation, value, _ in genops(content):
        match operation.name:
            case name if name in _CONSTANTS:
                stack.append(_CONSTANTS[name]())
            case name if name in _VALUES:
                stack.append(value)
            case "BINPUT" | "LONG_BINPUT":
                memo[value] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[value])
            case "MARK":
                marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(top(marks.pop())))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(top(-int(operation.name[-1]))))
            case "APPEND":
                last = stack.pop()
                stack[-1].append(last)
            case "APPENDS":
                values = top(marks.pop())
                stack[-1].extend(values)
            case "SETITEMS":
                values = top(marks.pop())
                # the hash of a tuple of tuples can take any time
                if not all(type(key) in (int, str) for key in values[::2]):
                    raise DataError(f"{file} is no file of Planetoid: a key is neither a number nor a text")
                target = stack[-1].items if isinstance(stack[-1], _Call) else stack[-1]
                target.update(zip(values[::2], values[1::2], strict=True))
            case "GLOBAL":
                if value not in _NAMES:
                    raise DataError(
                        f"{file} names {'.'.join(value.split())!r}, which is no part of an array or a "
                        "graph, and which loading a pickle could run; replace the file by a fresh copy"
                    )
                stack.append(_Name(value))
            case "REDUCE" | "NEWOBJ":
                arguments, called = stack.pop(), stack.pop()
                stack.append(_Call(called.name, arguments))
            case "BUILD":
                state = stack.pop()
                stack[-1].state = state
            case "PROTO":
                continue
            case "STOP":
                return stack.pop()
            case other:
                raise DataError(f"{file} is no file of Planetoid: it holds the pickle operation {other}")
    raise DataError(f"{file} ends too early")


def _array(value: Any, file: str) -> NDArray:
    match value:
        case _Call(
            name="numpy.core.multiarray _reconstruct",
            state=(
                _,
                tuple(shape),
                _Call(name="numpy dtype", arguments=(str(code), *_), state=(_, "<" | ">" as order, *_)),
                bool(fortran),
                str(content),
            ),
        ) if code in _DTYPES and all(isinstance(size, int) and size >= 0 for size in shape):
            dtype = np.dtype(order + code)
            held = content.encode("latin1")
            if math.prod(shape) * dtype.itemsize == len(held):
                array = np.frombuffer(held, dtype).astype(dtype.newbyteorder("="))
                return array.reshape(shape, order="F" if fortran else "C")
            raise DataError(f"{file} holds {len(held)} bytes for an array of {dtype} and shape {shape}")
    raise DataError(f"{file} does not hold an array of numbers")


def _matrix(value: Any, file: str) -> sp.coo_matrix:
    """A sparse matrix of finite numbers, checked entry by entry."""
    match value:
        case _Call(
            name="scipy.sparse.csr csr_matrix",
            state={"_shape": (int(rows), int(columns)), "data": data, "indices": indices, "indptr": indptr},
        ):
            parts = [_array(part, file) for part in (data, indices, indptr)]
            check_claim(columns, sum(part.size for part in parts), f"{file} claims {columns:,} features")
            try:
                matrix = csr_matrix(parts, (rows, columns))
            except (ValueError, TypeError, IndexError) as error:
                raise DataError(f"{file} does not hold a sparse matrix ({reason(error)})") from error
            if not np.isfinite(matrix.data).all() or 0 in matrix.shape:
                raise DataError(f"{file} holds an empty matrix, or values that are NaN or infinite")
            return matrix.tocoo()
    raise DataError(f"{file} does not hold a sparse matrix")


def _classes(value: Any, file: str) -> NDArray[np.int64]:
    """(n,) classes from rows with one 1 each; -1 for a row without."""
    rows = _array(value, file)
    wrong = (
        np.flatnonzero(((rows != 0) & (rows != 1)).any(axis=1) | (rows.sum(axis=1) > 1))
        if rows.ndim == 2 and rows.size
        else [0]
    )
    if len(wrong):
        raise DataError(f"{file}, row {wrong[0]}: expected a single 1 in the column of the class, or none")
    return np.where(rows.any(axis=1), rows.argmax(axis=1), -1)


def _test_index(path: Path, first: int, count: int) -> NDArray[np.int64]:
    """The numbers of the test nodes, which follow all others, in the order of their rows."""
    try:
        index = [int(line) for line in path.read_text("ascii").split()]
    except ValueError as error:
        raise DataError(f"{path.name}: expected a node number in each line ({reason(error)})") from error
    if not index or min(index) != first or len(set(index)) != len(index) or len(index) != count:
        raise DataError(
            f"{path.name}: expected {count} different node numbers, the smallest of them {first}, as tx "
            f"and allx have {count} and {first} rows"
        )
    check_claim(max(index), len(index), f"{path.name} names node {max(index)}")
    return np.array(index)


def _edges(value: Any, file: str, n: int) -> NDArray[np.int64]:
    """(2, E) from a dictionary of lists of neighbours."""
    match value:
        case _Call(name="collections defaultdict", items=neighbours) if neighbours:
            lists = list(neighbours.values())
            if all(isinstance(nodes, list) for nodes in lists):
                target = list(chain.from_iterable(lists))
                if all(type(node) is int and 0 <= node < n for node in [*neighbours, *target]):
                    source = np.repeat(list(neighbours), [len(nodes) for nodes in lists])
                    return np.stack([source, np.array(target, dtype=np.int64)])
    raise DataError(f"{file} does not hold lists of neighbours, all of them nodes from 0 to {n - 1}")
