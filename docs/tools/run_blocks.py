"""Runs every code block of README and docs, and says how many ran, at what size, and which were skipped.

    python docs/tools/run_blocks.py [PAGE ...] [--jobs 2]

A page runs in a process and a folder of its own, which holds copies of examples, benchmarks and docs; its
blocks run in order. Blocks of Python share one namespace, those of bash have ``grand`` and ``python`` on
their path. ``blocks.py`` has the comments that change what is run. Cells of notebooks are run by Sphinx and
only counted here.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from blocks import PYTHON, ROOT, Block, BlockError, pages, read_blocks
from forked import Server, commands_of

COPIED = ("examples", "benchmarks", "docs", "src", "README.md", "constraints.txt", "pyproject.toml")
LIMIT = 600  # seconds for a command, on a machine that others use, too
KINDS = ("run", "at a reduced size", "cell", "skipped", "text")


def kind_of(block: Block) -> str:
    if block.is_cell:
        return "cell"
    if "skip" in block.marks:
        return "skipped"
    if not block.is_code:
        return "text"
    return "at a reduced size" if {"run", "change"} & block.marks.keys() else "run"


def run_page(page: Path, root: Path, scratch: Path) -> list[dict[str, Any]]:
    """Run the blocks of a page in this process; the working folder becomes ``scratch``."""
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, scratch / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, scratch / name)
    shims = scratch / ".bin"
    shims.mkdir()
    for name, words in (("grand", "-m graphdiffusion.cli"), ("python", "")):
        shim = shims / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        shim.chmod(0o755)
    os.environ["PATH"] = f"{shims}{os.pathsep}{os.environ['PATH']}"
    os.chdir(scratch)
    blocks = read_blocks(page, root)
    # forked before any code of the page runs
    server = Server() if any("grand" in block.text for block in blocks if block.is_code) else None
    namespace: dict[str, Any] = {"__name__": "__main__"}
    results = [_run(block, namespace, scratch, server) for block in blocks]
    if server is not None:
        server.close()
    return results


def _run(block: Block, namespace: dict[str, Any], scratch: Path, server: Server | None) -> dict[str, Any]:
    kind = kind_of(block)
    result = {"place": block.place, "kind": kind, "reason": block.marks.get("skip", ""), "error": ""}
    begin = time.perf_counter()
    try:
        if "file" in block.marks:
            path = scratch / block.marks["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        if kind == "text":
            _parse(block)
        elif kind in ("run", "at a reduced size"):
            code = block.to_run()
            in_python = block.language in PYTHON and "run" not in block.marks
            output = _python(block, code, namespace) if in_python else _shell(code, scratch, server)
            wanted = block.marks.get("prints", "")
            if wanted not in output:
                raise BlockError(f"{block.place}: does not print {wanted!r}:\n{output[-2000:]}")
    except (Exception, SystemExit) as error:
        text = str(error) if isinstance(error, BlockError) else traceback.format_exc()
        result["error"] = text
    return result | {"seconds": time.perf_counter() - begin}


def _python(block: Block, code: str, namespace: dict[str, Any]) -> str:
    output = io.StringIO()
    padded = "\n" * block.line + code  # tracebacks name the line of the page
    with contextlib.redirect_stdout(output):
        exec(compile(padded, block.page, "exec"), namespace)
    return output.getvalue()


def _shell(code: str, scratch: Path, server: Server | None) -> str:
    """The output of commands; those of ``grand`` run in a process that has the library imported."""
    outputs = []
    for words in commands_of(code) or [["bash", "-euo", "pipefail", "-c", code]]:
        if words[0] == "grand" and server is not None:
            status, output = server.run(words, scratch, LIMIT)
        else:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=LIMIT, check=False, stdin=subprocess.DEVNULL
            )
            status, output = done.returncode, done.stdout + done.stderr
        if status:
            raise BlockError(f"exit code {status} of {' '.join(words)}\n{output[-4000:]}")
        outputs.append(output)
    return "".join(outputs)


def _parse(block: Block) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)


def in_process(page: Path, root: Path = ROOT) -> list[dict[str, Any]]:
    """Run a page in a process and a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="blocks-") as folder:
        answer = Path(folder, "answer.json")
        scratch = Path(folder, "checkout")
        scratch.mkdir()
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "GRAND_CACHE": str(Path(folder, "cache")),
            "MPLBACKEND": "agg",
            "COLUMNS": "120",
            "PYTHONWARNINGS": "ignore:Sparse CSR tensor support is in beta",
        }
        environment.pop("GRAND_DATA", None)
        done = subprocess.run(
            [sys.executable, __file__, "--worker", str(page), str(root), str(scratch), str(answer)],
            capture_output=True, text=True, env=environment, check=False,
        )  # fmt: skip
        if done.returncode or not answer.exists():
            name = str(page.relative_to(root))
            return [{"place": name, "kind": "run", "reason": "", "error": done.stderr, "seconds": 0.0}]
        return json.loads(answer.read_text(encoding="utf-8"))


def main() -> int:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("pages", nargs="*", type=Path, help="documents; all of them by default")
    parser.add_argument("--jobs", type=int, default=2, help="pages at the same time")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        page, root, scratch, answer = map(Path, given.worker)
        answer.write_text(json.dumps(run_page(page, root, scratch)), encoding="utf-8")
        return 0
    try:
        chosen = [page for page in map(Path.resolve, given.pages or pages()) if read_blocks(page)]
    except BlockError as error:
        print(error, file=sys.stderr)
        return 1
    begin = time.perf_counter()
    # pages with many commands first, so that no long one is left at the end
    chosen.sort(key=lambda page: -sum(kind_of(b).startswith(("run", "at")) for b in read_blocks(page)))
    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(in_process, chosen))
    for page, own in zip(chosen, results, strict=True):
        counts = {kind: sum(r["kind"] == kind for r in own) for kind in KINDS}
        shown = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
        print(f"{page.relative_to(ROOT)}: {shown} ({sum(r['seconds'] for r in own):.0f} s)")
    return report([r for own in results for r in own], time.perf_counter() - begin)


def report(results: list[dict[str, Any]], seconds: float) -> int:
    """Print the counts, what was skipped and why, and what failed."""
    counts = {kind: sum(r["kind"] == kind for r in results) for kind in KINDS}
    for result in results:
        if result["kind"] == "skipped":
            print(f"skipped {result['place']}: {result['reason']}")
    failed = [r for r in results if r["error"]]
    for result in failed:
        print(f"\nFAILED {result['place']}\n{result['error']}", file=sys.stderr)
    slow = sorted(results, key=lambda r: -r["seconds"])[:3]
    print("slowest: " + ", ".join(f"{r['place']} {r['seconds']:.0f} s" for r in slow))
    code = len(results) - counts["text"]
    print(
        f"{code} code blocks in {seconds:.0f} s: {counts['run']} run as they are, "
        f"{counts['at a reduced size']} at a reduced size, {counts['cell']} cells run by the notebooks, "
        f"{counts['skipped']} skipped, {len(failed)} failed; {counts['text']} blocks of data and output"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
