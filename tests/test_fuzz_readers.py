"""Damaged files of every format: the readers return a sound graph or say what is wrong, and nothing else.

Where a format has a checksum (the arrays of an .npz, raw files with a known SHA-256, the cache of rewired
graphs), a damaged file is refused or gives the same graph as before. Memory stays small throughout.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from fuzz import BYTES, damage
from fuzzed_files import NAMES, TRIALS, N, Source, X, bounded_memory, folder, make, packed, source, unsealed
from rawdata import PARTS

__all__ = ["bounded_memory", "folder", "source"]  # fixtures


@pytest.mark.parametrize("source", NAMES, indirect=True)
def test_bytes(source: Source, folder: Path) -> None:
    source.check(folder, source.files, f"{source.name}: whole")
    for kind, change in BYTES.items():
        for file, content in source.files.items():
            for trial in range(TRIALS):
                case = f"{source.name}: {kind}"
                damage(case)
                damaged = change(content, Random(f"{case} {file} {trial}"))
                source.check(folder, source.files | {file: damaged}, f"{case}, {file}, trial {trial}")


@pytest.mark.parametrize("source", NAMES, indirect=True)
def test_files(source: Source, folder: Path) -> None:
    """Whole files missing, or in the place of others."""
    for file in source.files:
        damage(f"{source.name}: a file missing")
        rest = {name: content for name, content in source.files.items() if name != file}
        unsealed(source).check(folder, rest, f"without {file}")
        for other in source.files:
            damage(f"{source.name}: a file in the place of another")
            swapped = source.files | {file: source.files[other]}
            unsealed(source).check(folder, swapped, f"{other} in the place of {file}")
        damage(f"{source.name}: a file of another format")
        unsealed(source).check(folder, source.files | {file: packed({"x": X})}, f"{file} is an .npz")
        damage(f"{source.name}: a file of HTML")
        source.check(folder, source.files | {file: b"<html>404: Not Found</html>"}, f"{file} is HTML")


EXTREME = (
    "1e999", "-1e999", "nan", "inf", "-0", "1e-400", "0x10", "1_000", "9" * 400, "9" * 5000, "-" + "9" * 30,
    "2000000000", "\u0663\u0664", "\u221e", "1,5", "1.5.5", "", " ", "?", "None", "True", "'", '"', '""',
    "=1+1", "\u00e9", "\U0001f600", "\x00", "\x1b[31m", "\u202e", "a" * 200_000,
)  # fmt: skip

TEXT: dict[str, Callable[[str, Random], str | bytes]] = {
    f"the cell {value[:12]!r}{'...' * (len(value) > 12)} of {len(value)} characters": (
        lambda text, chance, value=value: in_a_cell(text, chance, lambda _: value)
    )
    for value in EXTREME
} | {
    "a cell twice": lambda text, chance: in_a_cell(
        text, chance, lambda cell: f"{cell}{separator(text)}{cell}"
    ),
    "a cell quoted": lambda text, chance: in_a_cell(text, chance, lambda cell: f'"{cell}"'),
    "a quote left open": lambda text, chance: in_a_cell(text, chance, lambda cell: f'"{cell}'),
    "a cell with a line end": lambda text, chance: in_a_cell(text, chance, lambda cell: f'"{cell}\n"'),
    "a cell in upper case": lambda text, chance: in_a_cell(text, chance, str.upper),
    "a cell with spaces": lambda text, chance: in_a_cell(text, chance, lambda cell: f" {cell}\u00a0"),
    "a separator lost": lambda text, chance: in_a_line(
        text, chance, lambda line: line.replace(separator(text), "", 1)
    ),
    "semicolons": lambda text, chance: text.replace(separator(text), ";"),
    "the other separator": lambda text, chance: text.replace(
        separator(text), "\t" if separator(text) == "," else ","
    ),
    "a separator at the end": lambda text, chance: in_a_line(
        text, chance, lambda line: line + separator(text)
    ),
    "a line lost": lambda text, chance: in_a_line(text, chance, lambda line: ""),
    "a line twice": lambda text, chance: in_a_line(text, chance, lambda line: f"{line}\n{line}"),
    "a line cut": lambda text, chance: in_a_line(text, chance, lambda line: line[: len(line) // 2]),
    "a comment": lambda text, chance: in_a_line(text, chance, lambda line: f"# made by hand\n{line}"),
    "lines out of order": lambda text, chance: "\n".join(
        chance.sample(text.split("\n"), text.count("\n") + 1)
    ),
    "no header": lambda text, chance: text.partition("\n")[2],
    "only a header": lambda text, chance: text.partition("\n")[0],
    "two headers": lambda text, chance: f"{text.partition(chr(10))[0]}\n{text}",
    "carriage returns": lambda text, chance: text.replace("\n", "\r"),
    "mixed line ends": lambda text, chance: text.replace("\n", "\r\n", text.count("\n") // 2),
    "vertical tabs for line ends": lambda text, chance: text.replace("\n", "\v"),
    "blank lines": lambda text, chance: text.replace("\n", "\n\n \n"),
    "two byte order marks": lambda text, chance: "\ufeff\ufeff" + text,
    "UTF-16": lambda text, chance: text.encode("utf-16"),
    "Latin-1": lambda text, chance: in_a_cell(text, chance, lambda cell: cell + "\u00e9").encode("latin-1"),
    "EBCDIC": lambda text, chance: text.encode("cp500"),
    "half a character": lambda text, chance: (text + "\u20ac").encode()[:-1],
}


def separator(text: str) -> str:
    return "\t" if "\t" in text else ","


def in_a_line(text: str, chance: Random, change: Callable[[str], str]) -> str:
    lines = text.split("\n")
    k = chance.randrange(len(lines))
    lines[k] = change(lines[k])
    return "\n".join(lines)


def in_a_cell(text: str, chance: Random, change: Callable[[str], str]) -> str:
    def one(line: str) -> str:
        cells = line.split(separator(text))
        k = chance.randrange(len(cells))
        cells[k] = change(cells[k])
        return separator(text).join(cells)

    return in_a_line(text, chance, one)


@pytest.mark.parametrize("source", ["csv", "csv of other forms", "tsv"], indirect=True)
def test_text(source: Source, folder: Path) -> None:
    for kind, change in TEXT.items():
        for file, content in source.files.items():
            for trial in range(TRIALS):
                damage(f"text: {kind}")
                damaged = change(content.decode(), Random(f"{source.name} {kind} {file} {trial}"))
                damaged = (
                    damaged if isinstance(damaged, bytes) else damaged.encode("utf-8", "surrogatepass")
                )
                case = f"{source.name}: {kind}, {file}, trial {trial}"
                source.check(folder, source.files | {file: damaged}, case)


def test_parquet_columns(folder: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source = make("parquet", folder)
    nothing = pa.nulls(N)
    columns: dict[str, Callable[[], object]] = {
        "numbers": lambda: pa.array(range(N)),
        "fractions": lambda: pa.array([k + 0.5 for k in range(N)]),
        "text": lambda: pa.array([f"a{k}" for k in range(N)]),
        "large text": lambda: pa.array(["b" * 1000] * N, pa.large_string()),
        "categories": lambda: pa.array(["a", "b", None] * (N // 3)).dictionary_encode(),
        "nothing": lambda: nothing,
        "some nothing": lambda: pa.array([None, 1] * (N // 2)),
        "NaN": lambda: pa.array([float("nan")] * N),
        "infinity": lambda: pa.array([float("inf")] * N),
        "truth values": lambda: pa.array([True, False] * (N // 2)),
        "decimals": lambda: pa.array([1] * N).cast(pa.decimal128(25, 2)),
        "times": lambda: pa.array(range(N), pa.timestamp("us")),
        "times out of range": lambda: pa.array([2**60] * N, pa.timestamp("ms")),
        "dates": lambda: pa.array(range(N), pa.date32()),
        "bytes": lambda: pa.array([b"\xff"] * N),
        "fixed bytes": lambda: pa.array([b"\xff\x00"] * N, pa.binary(2)),
        "lists": lambda: pa.array([[1, 2]] * N),
        "structures": lambda: pa.array([{"a": 1}] * N),
        "maps": lambda: pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())),
        "half precision": lambda: pa.array(np.ones(N, np.float16)),
        "unsigned 64 bits": lambda: pa.array([2**64 - 1] * N, pa.uint64()),
    }
    for kind, column in columns.items():
        for file, content in source.files.items():
            table = pq.read_table(io.BytesIO(content)).slice(0, N)
            for k, name in enumerate(table.column_names):
                damage(f"parquet column: {kind}")
                out = io.BytesIO()
                pq.write_table(table.set_column(k, name, column()), out)
                source.check(
                    folder, source.files | {file: out.getvalue()}, f"parquet: {kind}, {file}, {name}"
                )
    shapes: dict[str, Callable[[object], object]] = {
        "no rows": lambda table: table.slice(0, 0),
        "no columns": lambda table: table.select([]),
        "one column": lambda table: table.select([0]),
        "a column twice": lambda table: table.append_column(table.field(0), table.column(0)),
        "a column more": lambda table: table.append_column("more", pa.array(range(table.num_rows))),
        "columns in another order": lambda table: table.select(table.column_names[::-1]),
        "an index of pandas": lambda table: table.append_column("__index_level_0__", table.column(0)),
        "a name of no length": lambda table: table.rename_columns(["", *table.column_names[1:]]),
        "rows in many groups": lambda table: table,
    }
    for kind, change in shapes.items():
        for file, content in source.files.items():
            damage(f"parquet table: {kind}")
            out = io.BytesIO()
            size = 2 if kind == "rows in many groups" else None
            pq.write_table(change(pq.read_table(io.BytesIO(content))), out, row_group_size=size)
            source.check(folder, source.files | {file: out.getvalue()}, f"parquet: {kind}, {file}")


OPERATIONS = b"()]}.0123abcdeghijlopqrstuBCDFGIJKLMNOPQRSTUVX" + bytes(range(0x80, 0x99))


@pytest.mark.parametrize("source", ["planetoid", "planetoid with sums"], indirect=True)
def test_pickles(source: Source, folder: Path) -> None:
    changes: dict[str, Callable[[bytes, Random], bytes]] = {
        f"the operation {chr(code)!r} somewhere": lambda content, chance, code=code: (
            content[: (k := chance.randrange(len(content)))] + bytes([code]) + content[k + 1 :]
        )
        for code in OPERATIONS
    }
    for name in (b"os\nsystem", b"__builtin__\neval", b"numpy\nload", b"builtins\ngetattr", b"torch\nload"):
        changes[f"the name {name.decode().replace(chr(10), '.')}"] = lambda content, chance, name=name: (
            content.replace(b"numpy\nndarray", name).replace(b"__builtin__\nlist", name)
        )
    for kind, change in changes.items():
        for part in PARTS:
            damage(f"pickle: {kind}")
            file = f"ind.cora.{part}"
            damaged = change(source.files[file], Random(f"{kind} {part}"))
            source.check(folder, source.files | {file: damaged}, f"{source.name}: {kind}, {file}")
