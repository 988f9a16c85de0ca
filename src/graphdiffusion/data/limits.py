"""How large a graph in a file may be: one policy for all readers.

A few bytes can claim any size: a header names the shape of an array, one node number implies all smaller
ones, and an archive unpacks to a thousand times its own size. Sizes are therefore compared with these
limits before anything is allocated:

- What is read from a file may take half of the memory of this machine, or of the container that the
  process runs in. A larger machine reads larger graphs.
- A count that is written in a file as a bare number (the largest node number, the shape of a sparse
  matrix) may be a million, or a hundred for each number that the file holds, whichever is more. Isolated
  nodes are legitimate; 2·10⁸ nodes with three edges are a mistake.
"""

import os
import zipfile
from pathlib import Path

from graphdiffusion.errors import DataError

CLAIMED = 1_000_000
CLAIMED_PER_ENTRY = 100

# Bytes in memory while a graph is read, from measurements; ids are Python strings.
NODE_BYTES = 300
EDGE_BYTES = 400
CELL_BYTES = 200
NUMBER_BYTES = 16  # of a cell of a column of numbers
TEXT_BYTES = 8  # for each byte of a line of a text file: the bytes, the string, and csv's copy of it
# For each byte of a Parquet file, decoded: pyarrow's pages and arrays, and the string, which takes four
# bytes a character as soon as one of them is an emoji.
PARQUET_BYTES = 10

ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks others without a limit

_UNKNOWN_MEMORY = 8 << 30  # on a system that does not say how much it has
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory() -> int:
    """Bytes that one file may take: half of the memory of this machine or container."""
    sizes = [_machine()]
    for file in _CGROUPS:
        try:
            sizes.append(int(Path(file).read_text()))
        except (OSError, ValueError):  # not in a container, or one without a limit ("max")
            continue
    return min(sizes) // 2


def _machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN_MEMORY


def check_memory(size: int, what: str) -> None:
    """Refuse `what` if its `size` in bytes is more than a file may take."""
    limit = memory()
    if size > limit:
        raise DataError(
            f"{what} would take {_readable(size)} of memory, but a file may take {_readable(limit)}, half "
            "of the memory here; keep a part of the graph, or read it on a machine with more memory"
        )


def check_graph(nodes: int, edges: int, file: str) -> None:
    """Refuse a graph that is too large for this machine."""
    size = nodes * NODE_BYTES + edges * EDGE_BYTES
    check_memory(size, f"{file}: a graph of {nodes:,} nodes and {edges:,} edges")


def check_claim(count: int, entries: int, what: str) -> None:
    """Refuse a `count` that is far beyond the `entries`, the numbers that the file holds."""
    limit = max(CLAIMED, CLAIMED_PER_ENTRY * entries)
    if count > limit:
        raise DataError(
            f"{what}, but at most {limit:,} are plausible for a file that holds {entries:,} numbers; "
            "number the nodes from 0 without large gaps, or give every node a row of features"
        )


def _readable(size: int) -> str:
    value, unit = float(size), "bytes"
    for larger in ("KB", "MB", "GB", "TB", "PB", "EB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
