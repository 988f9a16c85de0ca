"""Damaged arrays and archives, in the formats that are built of them."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from fuzz import damage
from fuzzed_files import Files, Source, X, bounded_memory, folder, saved, source, unsealed

__all__ = ["bounded_memory", "folder", "source"]  # fixtures

Change = Callable[[np.ndarray, Random], "np.ndarray | bytes"]


def with_value(value: float | int) -> Change:
    def change(array: np.ndarray, chance: Random) -> np.ndarray:
        dtype = array.dtype
        if not isinstance(value, bool) and (
            dtype.kind == "b" or not np.can_cast(np.min_scalar_type(value), dtype)
        ):
            dtype = (
                np.result_type(dtype, np.min_scalar_type(value)) if dtype.kind in "biuf" else np.dtype("f8")
            )
        out = array.astype(dtype).copy()
        if out.size:
            out.flat[chance.randrange(out.size)] = value
        return out

    return change


def header(descr: str, shape: str, order: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def claims(descr: str, shape: str, **how: str) -> Change:
    return lambda array, chance: header(descr, shape, **how) + array.tobytes()


ARRAYS: dict[str, Change] = {
    f"the value {value}": with_value(value)
    for value in (
        -1,
        -2,
        0,
        12,
        2**31 - 1,
        2**31,
        2**53,
        2**63 - 1,
        2**64 - 1,
        -(2**63),
        np.nan,
        np.inf,
        1e39,
    )
} | {
    "float": lambda array, chance: array.astype(np.float64),
    "complex": lambda array, chance: array.astype(np.complex128),
    "float16": lambda array, chance: array.astype(np.float16),
    "bool": lambda array, chance: array.astype(bool),
    "int8": lambda array, chance: array.astype(np.int8),
    "unsigned": lambda array, chance: array.astype(np.uint64),
    "text": lambda array, chance: array.astype(str),
    "byte strings": lambda array, chance: array.astype("S"),
    "dates": lambda array, chance: array.astype(np.int64).astype("M8[s]"),
    "objects": lambda array, chance: array.astype(object),
    "records": lambda array, chance: np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
    "big endian": lambda array, chance: array.astype(array.dtype.newbyteorder(">")),
    "Fortran order": lambda array, chance: np.asfortranarray(array),
    "a number": lambda array, chance: np.array(3),
    "empty": lambda array, chance: array[:0],
    "no columns": lambda array, chance: np.zeros((3, 0), dtype=array.dtype),
    "one dimension less": lambda array, chance: array.ravel(),
    "one dimension more": lambda array, chance: array[None],
    "transposed": lambda array, chance: array.T,
    "one entry less": lambda array, chance: array[..., :-1],
    "one entry more": lambda array, chance: np.concatenate([array, array[..., -1:]], -1),
    "rows shuffled": lambda array, chance: array[chance.sample(range(len(array)), len(array))],
    "all zero": lambda array, chance: np.zeros_like(array),
    "all one": lambda array, chance: np.ones_like(array),
    "a header that claims 2**40 rows": claims("'<f4'", "(1099511627776, 4)"),
    "a header that claims 2**63 rows": claims("'<i8'", "(9223372036854775808,)"),
    "a header that claims 10**9 empty rows": claims("'<i8'", "(1000000000, 0)"),
    "a header with a negative shape": claims("'<i8'", "(-1, -24)"),
    "a header with a shape of words": claims("'<i8'", "('a',)"),
    "a header without a shape": claims("'<i8'", "None"),
    "a header with texts of no length": claims("'<U0'", "(1000000000,)"),
    "a header with nothings": claims("'|V0'", "(1000000000,)"),
    "a header with an unknown type": claims("'<q9'", "(3,)"),
    "a header with a nested type": claims("[('a', [('b', '<i4')])]", "(3,)"),
    "a header with objects": claims("'|O'", "(3,)"),
    "a header with code": claims("__import__('os').getcwd()", "(3,)"),
    "a header with a deep nest": claims("(" * 90 + ")" * 90, "(3,)"),
    "a header of 20,000 characters": claims("'<i8'" + " " * 20_000, "(3,)"),
    "a header with no order": claims("'<i8'", "(3,)", order="'no'"),
    "a header of version 3": lambda array, chance: b"\x93NUMPY\x03\x00" + saved(array)[8:],
    "a header of version 9": lambda array, chance: b"\x93NUMPY\x09\x00" + saved(array)[8:],
    "a header cut": lambda array, chance: saved(array)[:20],
    "no array": lambda array, chance: b"text",
    "a pickle": lambda array, chance: b"\x80\x04K\x01.",
}


def members(content: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def zipped(entries: Files, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()


def loaded(content: bytes) -> np.ndarray:
    return np.load(io.BytesIO(content), allow_pickle=False)


def array_bytes(change: Change, array: np.ndarray, chance: Random) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = change(array, chance)
    if isinstance(out, bytes):
        return out
    stream = io.BytesIO()
    np.lib.format.write_array(stream, out, allow_pickle=True)
    return stream.getvalue()


WITH_ARRAYS = (
    "npz", "npz of other forms", "scipy coo", "scipy csr", "scipy csc", "scipy bsr", "scipy dia", "shchur",
    "shchur with sums", "cache",
)  # fmt: skip


@pytest.mark.parametrize("source", WITH_ARRAYS, indirect=True)
def test_arrays(source: Source, folder: Path) -> None:
    reader = unsealed(source)
    for file, content in source.files.items():
        if file == "features.npz" and source.name != "scipy csr":
            continue  # it is the same in all of them
        entries = members(content)
        for kind, change in ARRAYS.items():
            for member, stored in entries.items():
                case = f"{source.name.split()[0]} array: {kind}"
                try:
                    damaged = array_bytes(change, loaded(stored), Random(f"{case} {file} {member}"))
                except (ValueError, TypeError, IndexError, OverflowError):
                    continue  # this array cannot be changed so
                damage(case)
                whole = source.files | {file: zipped(entries | {member: damaged})}
                reader.check(folder, whole, f"{source.name}: {kind}, {file}, {member}")


@pytest.mark.parametrize("source", ["npy"], indirect=True)
def test_bare_array(source: Source, folder: Path) -> None:
    for kind, change in ARRAYS.items():
        try:
            damaged = array_bytes(change, X, Random(kind))
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        damage(f"npy array: {kind}")
        source.check(folder, source.files | {"features.npy": damaged}, f"npy: {kind}")


def declared(content: bytes, size: int, offset: int) -> bytes:
    """Another number in the directory's entry of the last member."""
    out = bytearray(content)
    struct.pack_into("<I", out, out.rindex(b"PK\x01\x02") + offset, size)
    return bytes(out)


ARCHIVES: dict[str, Callable[[Files, str], bytes]] = {
    "a member missing": lambda entries, member: zipped({k: v for k, v in entries.items() if k != member}),
    "a member renamed": lambda entries, member: zipped(
        {(k if k != member else f"my_{k}"): v for k, v in entries.items()}
    ),
    "a member without its suffix": lambda entries, member: zipped(
        {(k if k != member else k.removesuffix(".npy")): v for k, v in entries.items()}
    ),
    "a member in a folder": lambda entries, member: zipped(
        {(k if k != member else f"../{k}"): v for k, v in entries.items()}
    ),
    "a member with and without its suffix": lambda entries, member: zipped(
        entries | {member.removesuffix(".npy"): entries[member]}
    ),
    "a member twice": lambda entries, member: zipped_twice(entries, member),
    "a member emptied": lambda entries, member: zipped(entries | {member: b""}),
    "a member cut": lambda entries, member: zipped(entries | {member: entries[member][:-4]}),
    "a member too long": lambda entries, member: zipped(entries | {member: entries[member] + b"more"}),
    "a member of text": lambda entries, member: zipped(entries | {"README": b"a graph"}),
    "a folder as a member": lambda entries, member: zipped(entries | {"folder/": b""}),
    "an array too many": lambda entries, member: zipped(entries | {"more.npy": saved(X)}),
    "an array with objects too many": lambda entries, member: zipped(
        entries | {"more.npy": array_bytes(lambda array, _: array.astype(object), X, Random(0))}
    ),
    "no members": lambda entries, member: zipped({}),
    "bzip2": lambda entries, member: zipped(entries, zipfile.ZIP_BZIP2),
    "LZMA": lambda entries, member: zipped(entries, zipfile.ZIP_LZMA),
    "a size of 4 GB": lambda entries, member: declared(zipped(entries), 0xFFFFFFF0, 24),
    "a size of 0": lambda entries, member: declared(zipped(entries), 0, 24),
    "a compressed size of 4 GB": lambda entries, member: declared(zipped(entries), 0xFFFFFFF0, 20),
    "a compressed size of 0": lambda entries, member: declared(zipped(entries), 0, 20),
    "another checksum": lambda entries, member: declared(zipped(entries), 7, 16),
    "an offset outside": lambda entries, member: declared(zipped(entries), 0xFFFFFFF0, 42),
    "an offset inside another member": lambda entries, member: declared(zipped(entries), 3, 42),
    "an encrypted member": lambda entries, member: declared(zipped(entries), 1, 8),
    "an archive in an archive": lambda entries, member: zipped({member: zipped(entries)}),
    "zeros that were compressed": lambda entries, member: zipped(
        entries | {member: header("'<f8'", "(2000000,)") + bytes(16_000_000)}, zipfile.ZIP_DEFLATED
    ),
}


def zipped_twice(entries: Files, member: str) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for name, content in [*entries.items(), (member, entries[member])]:
            archive.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize("source", ["npz", "scipy csr", "shchur with sums", "cache"], indirect=True)
def test_archives(source: Source, folder: Path) -> None:
    reader = unsealed(source)
    for file, content in source.files.items():
        entries = members(content)
        for kind, change in ARCHIVES.items():
            for member in entries:
                damage(f"archive: {kind}")
                damaged = change(entries, member)
                reader.check(
                    folder, source.files | {file: damaged}, f"{source.name}: {kind}, {file}, {member}"
                )
