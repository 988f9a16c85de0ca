"""Text files of nothing but whole numbers, such as lists of edges, read without an object for each cell."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_BYTES = 1 << 22  # read at a time
_DIGITS = b"0123456789"
_MOST_DIGITS = 18  # of a number that int64 holds


def read_whole_numbers(path: Path, separator: str, width: int) -> NDArray[np.int64] | None:
    """All lines but the first (lines, width); None where one holds anything but plain whole numbers.

    A number is plain if it is written as `str` writes it, so that its value gives the text again.
    """
    found = [np.empty((0, width), dtype=np.int64)]
    with path.open("rb") as file:
        first = file.readline().rstrip(b"\r\n")
        if not first.strip() or b"\r" in first:  # the first row is not the first line
            return None
        while block := file.read(_BYTES) + file.readline():
            numbers = _parse(block, separator, width)
            if numbers is None:
                return None
            found.append(numbers)
    return np.concatenate(found)


def _parse(block: bytes, separator: str, width: int) -> NDArray[np.int64] | None:
    block = block.replace(b"\r\n", b"\n")
    block = block if block.endswith(b"\n") else block + b"\n"
    mark = separator.encode()
    if block.translate(None, _DIGITS + mark + b"\n"):
        return None
    text = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero((text < _DIGITS[0]) | (text > _DIGITS[-1]))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    if lengths.min() < 1 or lengths.max() > _MOST_DIGITS or len(ends) % width:
        return None
    row = np.frombuffer(mark * (width - 1) + b"\n", dtype=np.uint8)
    zeros = (text[starts] == _DIGITS[0]) & (lengths > 1)  # 007 is no 7
    if (text[ends].reshape(-1, width) != row).any() or zeros.any():
        return None
    return np.fromstring(block.replace(b"\n", mark), dtype=np.int64, sep=separator).reshape(-1, width)
