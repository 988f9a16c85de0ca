"""Frames a second of ``grand view`` in Chromium, with the seconds and bytes that its pages take.

    python benchmarks/view.py [--nodes 100000 --edges 500000] [--seconds 5] [--out view.json]

Cora, and a synthetic graph of 200 communities, each with a GRAND-nl that is trained for two epochs. Frames
are counted while the graph is moved, a step in every frame, and while it plays from t = 0 to T. Needs the
extra ``test`` and Chromium; where there is no GPU, Chromium draws in software (SwiftShader), and the output
says so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from graphdiffusion.cli import main as grand
from graphdiffusion.report.page.server import PageServer
from graphdiffusion.report.view import view_routes, write_view
from graphdiffusion.report.view.scene import read_scene

COMMUNITIES, CLASSES, FEATURES, INSIDE = 200, 10, 16, 0.8
MOVE = """async (seconds) => {
  const canvas = document.getElementById("graph"), begun = performance.now();
  const from = Number(canvas.dataset.drawn), keys = ["ArrowLeft", "ArrowRight"];
  let k = 0, now = begun;
  while (now - begun < 1000 * seconds) {
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key: keys[Math.floor(k++ / 10) % 2] }));
    now = await new Promise((done) => requestAnimationFrame(() => done(performance.now())));
  }
  return [1000 * (Number(canvas.dataset.drawn) - from) / (now - begun), Number(canvas.dataset.edges)];
}"""
PLAY = """async (seconds) => {
  const canvas = document.getElementById("graph"), play = document.getElementById("play");
  const begun = performance.now(), from = Number(canvas.dataset.drawn);
  let now = begun;
  while (now - begun < 1000 * seconds) {
    if (play.textContent === "Play") play.click();
    now = await new Promise((done) => requestAnimationFrame(() => done(performance.now())));
  }
  const found = 1000 * (Number(canvas.dataset.drawn) - from) / (now - begun);
  if (play.textContent !== "Play") play.click();
  return [found, Number(canvas.dataset.edges)];
}"""
WHOLE = """async (pairs) => {
  const canvas = document.getElementById("graph"), gl = canvas.getContext("webgl2");
  const rest = async () => {
    do await new Promise(requestAnimationFrame);
    while (Number(canvas.dataset.edges) < pairs);
  };
  await rest();
  const begun = performance.now();
  window.dispatchEvent(new Event("resize"));
  await rest();
  gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4)); // waits until it is drawn
  return (performance.now() - begun) / 1000;
}"""
NAME = """() => {
  const gl = document.getElementById("graph").getContext("webgl2");
  return gl.getParameter(gl.getExtension("WEBGL_debug_renderer_info").UNMASKED_RENDERER_WEBGL);
}"""


def write_synthetic(path: Path, nodes: int, edges: int) -> None:
    """A graph of communities: most edges stay inside one, and the class is that of the community."""
    random = np.random.default_rng(0)
    group = np.sort(random.integers(0, COMMUNITIES, nodes))
    begin = np.searchsorted(group, np.arange(COMMUNITIES + 1))
    source = random.integers(0, nodes, edges)
    low, size = begin[group[source]], np.diff(begin)[group[source]]
    inside = low + (random.random(edges) * size).astype(np.int64)
    target = np.where(random.random(edges) < INSIDE, inside, random.integers(0, nodes, edges))
    y = group % CLASSES
    x = (random.normal(size=(nodes, FEATURES)) + 1.5 * np.eye(CLASSES, FEATURES)[y]).astype(np.float32)
    np.savez(path, edge_index=np.stack([source, target]), x=x, y=y)


def trained(data: str, out: Path) -> Path:
    if (out / "summary.json").exists():
        return out
    how = ["--variant", "nonlinear", "--solver", "rk4", "--step-size", "1", "--time", "4", "--hidden", "16"]
    few = ["--epochs", "2", "--splits", "1", "--no-report", "--quiet", "--out", str(out)]
    if grand(["train", data, "--model", "grand", *how, *few]):
        raise SystemExit("the training failed")
    return out


def measured(page: Page, url: str, pairs: int, seconds: float) -> dict[str, Any]:
    begun = time.perf_counter()
    page.goto(url, timeout=600_000)
    page.wait_for_selector("#graph[data-ready]", timeout=600_000)
    found: dict[str, Any] = {"open_s": time.perf_counter() - begun, "renderer": page.evaluate(NAME)}
    page.evaluate(MOVE, 2.0)  # the number of edges drawn in motion settles
    for name, script in (("moving", MOVE), ("playing", PLAY)):
        found[f"{name}_fps"], found[f"{name}_edges"] = page.evaluate(script, seconds)
    found["whole_s"] = page.evaluate(WHOLE, pairs)
    begun = time.perf_counter()
    page.fill(
        "#find", page.evaluate("JSON.parse(document.getElementById('data').textContent).ids?.[7] ?? '7'")
    )
    page.press("#find", "Enter")
    page.wait_for_selector("#node[data-node='7']", timeout=600_000)
    return found | {"node_s": time.perf_counter() - begun}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=500_000)
    parser.add_argument("--runs", type=Path, help="Folder to keep the trained runs in.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = []
    quiet = ["--no-sandbox", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        folder = Path(name) if given.runs is None else given.runs
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "synthetic.npz").exists():
            write_synthetic(folder / "synthetic.npz", given.nodes, given.edges)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium") or "chromium", args=quiet)
        for data in ("cora-embedded", str(folder / "synthetic.npz")):
            run, said = trained(data, folder / f"run of {Path(data).stem}"), []
            begun = time.perf_counter()
            scene = read_scene(run, note=said.append)
            routes = view_routes(scene, said.append)
            built = time.perf_counter() - begun
            begun = time.perf_counter()
            file = write_view(run, folder / "graph.html", note=said.append)
            exported = time.perf_counter() - begun
            server = PageServer(routes).start()
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            own = {
                "data": Path(data).stem,
                "nodes": scene.graph.num_nodes,
                "pairs": len(scene.pairs.first),
                "times": len(scene.times),
                "build_s": built,
                "export_s": exported,
                "file_mb": file.stat().st_size / 1e6,
                "said": said,
                "browser": browser.version,
                **measured(page, server.url, len(scene.pairs.first), given.seconds),
            }
            page.close()
            server.close()
            results.append(own)
            print(json.dumps(own, indent=1), flush=True)
        browser.close()
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
