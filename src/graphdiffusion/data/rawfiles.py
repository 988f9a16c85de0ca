"""The raw files of a benchmark: where they lie, how they are fetched, and whether they are the right ones.

Reading them takes about a second at most, so nothing processed is ever stored, nothing is written beside
a user's data, and a killed run leaves nothing behind that could spoil the next one.
"""

import hashlib
import os
import shutil
import tempfile
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path

from graphdiffusion.data.arrays import load_arrays
from graphdiffusion.data.catalogue import DatasetInfo
from graphdiffusion.data.limits import ZIP_METHODS
from graphdiffusion.errors import DataError

DOWNLOAD_TIMEOUT_S = 30
DOWNLOAD_BYTES = 1 << 30  # of a file, and of all that it unpacks to: some times more than ogbn-arxiv has


def cache_folder() -> Path:
    """Where downloads go: `~/.cache/graphdiffusion`."""
    return Path("~/.cache/graphdiffusion").expanduser()


def data_folders(root: str | os.PathLike[str] | None) -> list[Path]:
    """The folders to look in: `root`, else the one that GRAND_DATA names; then the cache."""
    chosen = root if root is not None else os.environ.get("GRAND_DATA") or None
    if chosen is None:
        return [cache_folder()]
    folder = Path(chosen).expanduser()
    if not os.path.isdir(folder):
        origin = "root" if root is not None else "the environment variable GRAND_DATA"
        raise DataError(
            f"{origin} names {str(folder)!r}, which is not a folder; "
            "give a folder that holds the raw files, for instance Cora/raw/ind.cora.x"
        )
    return list(dict.fromkeys([folder, cache_folder()]))


def verify(folder: Path, info: DatasetInfo) -> None:
    """Refuse raw files that are not the published ones, by their SHA-256.

    The published files never change, so another sum means damage, or another graph, whose results could
    not be compared with those of the paper. This is not too strict for an .npz: its sum is taken over
    the arrays that are read from it, so that the same arrays packed by another program are accepted.
    The files of ogbn-arxiv, the newer heterophilous sets and the splits of Geom-GCN are not verified: their
    sums are not known here.
    """
    for file, expected in zip(info.files, info.sums, strict=bool(info.sums)):
        if not expected:
            continue
        try:
            found = checksum(folder / file, info.arrays)
        except (DataError, OSError) as error:
            raise DataError(f"{info.name}: in {folder}, {error}; replace it by a fresh copy") from error
        if found != expected:
            raise DataError(
                f"{info.name}: {folder / file} is not the published file: its SHA-256 is {found}, not "
                f"{expected}. Replace it by a fresh copy; a graph of your own is read with read_graph"
            )


def checksum(path: Path, arrays: Sequence[str] = ()) -> str:
    """SHA-256 of a file; of an .npz, that of the named arrays with their names, types and shapes."""
    digest = hashlib.sha256()
    if path.suffix == ".npz":
        content = load_arrays(path, arrays)
        for name in sorted(content):
            array = content[name]
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
    else:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def download(info: DatasetInfo, folder: Path) -> None:
    """Fetch the raw files into `folder`; they appear there only if all are complete and verified.

    Of a `.zip` only the files of the data set are unpacked, under their base names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as name:
        scratch = Path(name)
        for url in info.urls:
            part = scratch / url.rpartition("/")[2]
            _fetch(url, part)
            if part.suffix == ".zip":
                _unpack(part, info.files)
        missing = [file for file in info.files if not (scratch / file).is_file()]
        if missing:
            raise OSError(f"{info.urls[0]} does not contain {', '.join(missing)}")
        verify(scratch, info)
        for file in info.files:
            (scratch / file).replace(folder / file)


def _fetch(url: str, target: Path) -> None:
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as response, target.open("wb") as out:
        while (block := response.read(1 << 20)) and out.tell() <= DOWNLOAD_BYTES:
            out.write(block)
        size, expected = out.tell(), response.headers.get("Content-Length")
    if size > DOWNLOAD_BYTES:
        raise OSError(f"{url} is larger than {DOWNLOAD_BYTES:,} bytes")
    if expected is not None and size != int(expected):
        raise OSError(f"{url} ended after {size} of {expected} bytes")


def _unpack(archive: Path, wanted: Sequence[str]) -> None:
    """Replace an archive by those of its files that are wanted; zipfile reads no more than it declares."""
    with zipfile.ZipFile(archive) as bundle:
        chosen = {Path(member.filename).name: member for member in bundle.infolist()}
        chosen = {name: member for name, member in chosen.items() if name in wanted}
        size = sum(member.file_size for member in chosen.values())
        if size > DOWNLOAD_BYTES:
            raise OSError(f"{archive.name} unpacks to {size:,} bytes, more than {DOWNLOAD_BYTES:,}")
        for name, member in chosen.items():
            if member.compress_type not in ZIP_METHODS:
                raise OSError(f"{archive.name}: {name} is compressed by a method that is not supported")
            with bundle.open(member) as source, Path(archive.parent, name).open("wb") as out:
                shutil.copyfileobj(source, out)
    archive.unlink()
