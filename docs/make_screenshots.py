"""Photograph the parts of a report for docs/report.md: python docs/make_screenshots.py [RUN]

Without a run the one of docs/own-data.md is trained first, about two minutes. Needs the extra `test` and
Chromium.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from graphdiffusion.report import write_report

DOCS = Path(__file__).resolve().parent
# parts of the page, and how many pixels of their height are shown
PARTS = {
    "scores": 845,
    "nodes": 980,
    "along": 420,
    "classes": 692,
    "calibration": 470,
    "curves": 610,
    "errors": 560,
}


def train(folder: Path) -> Path:
    """The run of docs/own-data.md."""
    graph, run = folder / "mygraph", folder / "runs" / "scipy"
    example = DOCS.parent / "examples" / "own-graph" / "make_graph.py"
    grand = [sys.executable, "-m", "graphdiffusion.cli"]
    subprocess.run([sys.executable, example, graph.name], cwd=folder, check=True)
    subprocess.run([*grand, "train", graph.name, "--out", "runs/scipy", "--quiet"], cwd=folder, check=True)
    return run


def photograph(page: Path, folder: Path) -> None:
    """One picture for each part of the page."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 900, "height": 1000})
        tab.goto(page.as_uri())
        tab.wait_for_timeout(500)
        tab.locator("#nodes select").first.select_option(label="t-SNE")
        for name, height in PARTS.items():
            part = tab.locator(f"#{name}")
            shot = part.screenshot(animations="disabled")
            picture = Image.open(io.BytesIO(shot)).convert("RGB")
            picture = picture.crop((0, 0, picture.width, min(picture.height, height)))
            path = folder / f"report-{name}.png"
            picture.quantize(128).save(path, optimize=True)
            print(path, picture.size)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else train(Path(scratch))
        photograph(write_report(run, Path(scratch, "report.html")), DOCS / "pictures")
