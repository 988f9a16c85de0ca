"""MNIST's test digits, from the published files in the idx format."""

import gzip
import hashlib
import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphdiffusion.data.foreign import reason
from graphdiffusion.data.rawfiles import data_folders
from graphdiffusion.errors import DataError

RAW = "MNIST/raw"
SHAPES = {
    "t10k-images-idx3-ubyte.gz": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte.gz": (10_000,),
}
# SHA-256 of the unpacked content: the same digits packed by another program are accepted
SUMS = {
    "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_UNSIGNED_BYTE = 8  # the type of the entries, as idx numbers types


def read_mnist(root: str | os.PathLike[str] | None = None) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The 10,000 test images (10000, 28, 28), black 0 to white 255, and the digit of each (10000,).

    Args:
        root: a folder that holds `MNIST/raw/t10k-images-idx3-ubyte.gz` and
            `MNIST/raw/t10k-labels-idx1-ubyte.gz`; by default as in `load_data`. Nothing is downloaded.
    """
    folders = [folder / RAW for folder in data_folders(root)]
    for folder in folders:
        if all((folder / file).is_file() for file in SHAPES):
            images, digits = (_read(folder / file, shape) for file, shape in SHAPES.items())
            return images, digits
    raise DataError(
        f"MNIST: did not find {' and '.join(SHAPES)} in {' or '.join(map(str, folders))}. Put the files "
        f"there, or give the folder that holds {RAW} as root (--root) or in the environment variable "
        "GRAND_DATA."
    )


def _read(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An idx file of bytes: its header must name the published shape, its sum be the published one."""
    header = bytes([0, 0, _UNSIGNED_BYTE, len(shape)]) + np.array(shape, ">u4").tobytes()
    size = len(header) + int(np.prod(shape))
    try:
        with gzip.open(path) as file:
            content = file.read(size + 1)  # a few bytes can unpack to any size
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be unpacked ({reason(error)}); replace it by a fresh copy"
        ) from error
    if content[: len(header)] != header or len(content) != size:
        raise DataError(
            f"{path} is not an idx file of {' × '.join(map(str, shape))} bytes; replace it by a fresh copy"
        )
    if (found := hashlib.sha256(content).hexdigest()) != SUMS[path.name]:
        raise DataError(
            f"{path} is not the published file: the SHA-256 of its unpacked content is {found}, not "
            f"{SUMS[path.name]}; replace it by a fresh copy"
        )
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
