"""Superpixels: digits, graphs of images, their diffusion, results files, pictures, the commands."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from graphdiffusion.cli import main
from graphdiffusion.data import mnist
from graphdiffusion.data.images import SIDE, as_image, read_image
from graphdiffusion.data.superpixels import superpixel_graph
from graphdiffusion.errors import ConfigError, DataError
from graphdiffusion.experiments import image as demo
from graphdiffusion.experiments import superpixels
from graphdiffusion.experiments.results import Results, read_results
from graphdiffusion.experiments.superpixels import PixelDiffusion, Settings, edge_figures
from graphdiffusion.graph import Graph
from graphdiffusion.report import animate_superpixels, plot_superpixels

needs_skimage = pytest.mark.skipif(find_spec("skimage") is None, reason="needs scikit-image")
TINY = Settings(images=6, digits=4, epochs=2, parts=2, seeds=1)


def digits(count: int = 10) -> np.ndarray:
    """White bars on black, each at a place of its own, with some noise."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 40, (count, 28, 28)).astype(np.uint8)
    for k, picture in enumerate(images):
        picture[4:24, 4 + k : 12 + k] = 230 + k
    return images


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with files as MNIST's, of ten images."""
    images, labels = digits(), np.arange(10, dtype=np.uint8)
    labels[[6, 7]] = superpixels.SHOWN  # among those that are measured
    folder = tmp_path / "data" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    shapes = dict(zip(mnist.SHAPES, (images.shape, labels.shape), strict=True))
    sums = {}
    for (name, shape), values in zip(shapes.items(), (images, labels), strict=True):
        content = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes() + values.tobytes()
        (folder / name).write_bytes(gzip.compress(content))
        sums[name] = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(mnist, "SHAPES", shapes)
    monkeypatch.setattr(mnist, "SUMS", sums)
    return tmp_path / "data"


def test_digits(root):
    images, labels = mnist.read_mnist(root)
    assert (images == digits()).all() and labels[6] == superpixels.SHOWN[0]
    path = root / mnist.RAW / "t10k-images-idx3-ubyte.gz"
    good = gzip.decompress(path.read_bytes())
    for content, says in (
        (gzip.compress(good[:-1]), "not an idx file of 10 × 28 × 28 bytes"),
        (gzip.compress(good + b"0"), "not an idx file"),
        (gzip.compress(good[:-1] + bytes([good[-1] ^ 1])), "not the published file"),
        (gzip.compress(b"\0\0\x09" + good[3:]), "not an idx file"),
        (path.read_bytes()[:-9], "cannot be unpacked"),
        (good, "cannot be unpacked"),
        (b"", "not an idx file"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=says):
            mnist.read_mnist(root)
    path.unlink()
    with pytest.raises(DataError, match=r"did not find t10k-images.*--root"):
        mnist.read_mnist(root)


@needs_skimage
@pytest.mark.parametrize("colour", [False, True])
def test_graph_of_an_image(colour):
    """Against a loop over pixels."""
    rng = np.random.default_rng(1)
    picture = rng.random((17, 23, 3)) if colour else rng.random((17, 23))
    data, patches = superpixel_graph(picture, segments=20, compactness=100.0 if colour else 1.0)
    n = int(patches.max()) + 1
    assert patches.shape == (17, 23) and data.num_nodes == n > 5
    pairs = set()
    for r, c in np.ndindex(17, 23):
        for r2, c2 in ((r + 1, c), (r, c + 1)):
            if r2 < 17 and c2 < 23 and patches[r, c] != patches[r2, c2]:
                pairs |= {(patches[r, c], patches[r2, c2]), (patches[r2, c2], patches[r, c])}
    assert {tuple(edge) for edge in data.edge_index.T.tolist()} == {(int(a), int(b)) for a, b in pairs}
    for k in range(n):
        own = picture[patches == k]
        mean = own.reshape(len(own), -1).mean(0)
        assert data.x[k].numpy() == pytest.approx(mean, rel=1e-5)
        assert int(data.y[k]) == (mean.mean() >= 0.5)
        assert data.pos[k].numpy() == pytest.approx(np.argwhere(patches == k)[:, ::-1].mean(0), rel=1e-5)


@needs_skimage
def test_graph_of_what_is_no_image():
    with pytest.raises(DataError, match=r"\(4, 4, 2\)"):
        superpixel_graph(np.zeros((4, 4, 2)), segments=4, compactness=1.0)


def ring(n: int = 8) -> tuple[torch.Tensor, Graph, torch.Tensor]:
    """Pixel values, graph and labels: half of a ring is bright."""
    ends = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    x = torch.linspace(0.1, 0.9, n)[:, None]
    return x, Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), n), (x[:, 0] > 0.5).long()


def test_states_of_the_laplacian_are_euler_steps():
    x, graph, _ = ring()
    model = PixelDiffusion("laplacian", x, Settings()).eval()
    states, attention = model.states(x, graph)
    dense = graph.dense(torch.ones(graph.num_edges, dtype=torch.float64))
    matrix = dense / dense.sum(1, keepdim=True)
    state = x.double()
    assert model.times == pytest.approx([0, 0.8, 1.6, 2.4, 3.2, 4.0, 4.8])
    for own in states:
        torch.testing.assert_close(own.double(), state, rtol=1e-5, atol=1e-6)
        state = state + 0.8 * (matrix @ state - state)
    torch.testing.assert_close(graph.dense(attention[0]).double(), matrix, rtol=1e-6, atol=1e-6)


def test_states_of_grand_follow_the_attention():
    torch.manual_seed(0)
    x, graph, _ = ring()
    model = PixelDiffusion("nonlinear", x, Settings()).eval()
    for parameter in model.layer.equation.diffusivity.parameters():
        torch.nn.init.normal_(parameter)
    states, attention = model.states(x, graph)
    assert (attention[0] - attention[-1]).abs().max() > 1e-3  # nonlinear
    for k in range(6):
        flow = graph.dense(attention[k]) @ states[k] - states[k]
        torch.testing.assert_close(states[k + 1], states[k] + 0.8 * flow, rtol=1e-4, atol=1e-5)


def test_figures_of_the_edge():
    """By hand: on a path of three, dark, dark, bright, the Laplacian's first step is known."""
    from torch_geometric.data import Data

    x = torch.tensor([[0.0], [0.0], [1.0]])
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    data = Data(x=x, edge_index=edges, y=torch.tensor([0, 0, 1]))
    model = PixelDiffusion("laplacian", x, Settings(time=0.5, step=0.5)).eval()
    found = edge_figures(model, [data, Data(x=x, edge_index=edges, y=torch.zeros(3, dtype=torch.long))])
    # x(0.5) = (0, 1/4, 1/2); the middle pays 1/2 across, the bright end all
    assert found["contrast"] == [pytest.approx(0.25)] and found["crossing"] == [pytest.approx(0.75)]
    assert found["contrast_at"] == pytest.approx([1, 0.25])


def test_training_tells_the_halves_apart():
    from torch_geometric.data import Data

    x, graph, y = ring(32)
    data = Data(x=x, edge_index=graph.edge_index, y=y)
    settings = Settings(epochs=60, parts=1, input_dropout=0.0)
    shares = []
    model, accuracy = superpixels.train(
        [data], "nonlinear", 0, settings, torch.device("cpu"), shares.append
    )
    assert accuracy > 90 and shares[-1] == 1 and not model.training


def test_verdict():
    def point(model: str, seed: int, contrast: float, crossing: float) -> dict:
        near = {
            "contrast": (contrast - 0.01, contrast + 0.01),
            "crossing": (crossing - 0.01, crossing + 0.01),
        }
        return {"model": model, "seed": seed, **{key: list(ends) * 8 for key, ends in near.items()}}

    ours = [point("nonlinear", k, *own) for k, own in enumerate([(0.9, 0.1), (0.2, 0.1), (0.9, 0.7)])]
    said = superpixels.verdict([*ours, *(point("laplacian", k, 0.05, 0.4) for k in range(3))])
    assert "holds in 1 of 3 trainings: GRAND-nl finds the edges in 2 and keeps the image in 2" in said
    assert "(contrast at T: 90%, 20%, 90%); the Laplacian blurs it away (5%)" in said
    said = superpixels.verdict([*ours, point("laplacian", 0, 0.8, 0.4)])
    assert "holds in 0 of 3" in said and "the Laplacian keeps it too (80%)" in said


def test_documentation_has_the_figures_of_the_results():
    docs = Path(__file__).parent.parent / "docs"
    found, page = read_results(docs / "results" / "superpixels.json"), (docs / "experiments.md").read_text()
    for own in found["figures"].values():
        ranges = [
            f"{100 * v['mean']:.1f} ({100 * v['low']:.1f} to {100 * v['high']:.1f})"
            for v in (own["contrast"], own["crossing"])
        ]
        accuracy = f"{own['accuracy']:.1f} ± {own['accuracy_std']:.1f}"
        assert f"| {own['title']} | {accuracy} | {ranges[0]} | {ranges[1]} |" in page
    assert found["verdict"] == superpixels.verdict(found["points"])
    assert found["verdict"].partition(":")[0].removeprefix("The paper's ") in page


def test_interval():
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(0).normal(0.5, 0.1, 30)
    found, known = superpixels.interval(values), ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((known.low, known.high)) and found["count"] == 30


def test_results_file(tmp_path):
    measured, lines = [], []

    def compute(point, tick):
        if point["k"] == 2 and len(measured) < 3:
            raise KeyboardInterrupt
        measured.append(point["k"])
        tick(0.5)
        return {"model": "none", "value": point["k"] ** 2, "nothing": float("nan")}

    wanted = [{"k": k} for k in range(4)]
    with pytest.raises(KeyboardInterrupt):
        Results(tmp_path / "a", {"n": 4}, lines.append).measure(wanted, compute)
    path = tmp_path / "a" / "results.json"
    assert [p["value"] for p in read_results(path)["points"]] == [0, 1]
    measured.append(None)
    results = Results(tmp_path / "a", {"n": 4}, lines.append)
    results.measure(wanted, compute)
    results.conclude(lambda: {"verdict": "yes"})
    assert measured == [0, 1, None, 2, 3]  # nothing twice
    with pytest.raises(DataError, match="lacks points that the picture needs"):
        plot_superpixels(path)
    found = read_results(path)
    assert [p["value"] for p in found["points"]] == [0, 1, 4, 9] and found["verdict"] == "yes"
    assert found["points"][0]["nothing"] is None
    assert any("2 of 4 points are in" in line for line in lines) and "50% of the work, about" in lines[-2]
    with pytest.raises(ConfigError, match="other settings"):
        Results(tmp_path / "a", {"n": 5}, print)
    path.write_text(path.read_text().replace('"value": 4', '"value": 5'))
    with pytest.raises(DataError, match="was changed or damaged"):
        Results(tmp_path / "a", {"n": 4}, print)


@needs_skimage
def test_reproduce(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(superpixels, "SMALL", TINY)
    command = ["reproduce", "superpixels", "--small", "--root", str(root), "--device", "cpu"]
    assert main(command) == 0
    shown = capsys.readouterr()
    folder = "results/superpixels-small"
    last = [f"Results: {folder}/results.json", f"Picture: {folder}/picture.png"]
    assert shown.out.splitlines()[-2:] == last
    assert "The paper's claim" in shown.out and "GRAND-nl" in shown.out and "% of the work" in shown.err
    found = read_results(tmp_path / folder / "results.json")
    assert [p["model"] for p in found["points"]] == list(superpixels.TITLES)
    assert all(len(p["contrast"]) == 4 for p in found["points"])
    monkeypatch.setattr(superpixels, "train", lambda *_: pytest.fail("trained again"))
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == last


def test_without_scikit_image(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "skimage.segmentation", None)
    assert main(["reproduce", "superpixels", "--root", str(root), "--device", "cpu"]) == 2
    shown = capsys.readouterr().err.splitlines()
    assert shown[-1].endswith("pip install scikit-image") and not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            [],
            "table1, table2, or an experiment (claims, depth, schemes, sparsity, steps, successors, "
            "superpixels), before options; got nothing",
        ),
        (["depht"], "got 'depht'"),
        (["--splits", "3", "table2"], "before options; got '--splits'"),
        (["superpixels", "--device", "tpu"], "device must be one of auto, cpu, cuda"),
        (["superpixels", "--root", "nowhere"], "which is not a folder"),
        (["superpixels", "--splits", "3"], "no such option --splits"),
    ],
)
def test_bad_experiment(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    shown = capsys.readouterr()
    assert says in shown.err and shown.err.count("\n") == 1 and shown.out == ""
    assert not list(tmp_path.iterdir())


def half(dtype=np.uint8, high=255, channels=()):
    """Dark left, bright right."""
    picture = np.zeros((24, 30, *channels), dtype)
    picture[:, 15:] = high
    return picture


@needs_skimage
def test_kinds_of_images(tmp_path):
    from PIL import Image

    expected = half() / 255.0
    ready = {
        "grey.png": Image.fromarray(half()),
        "colour.png": Image.fromarray(half(channels=(3,))),
        "sixteen.png": Image.fromarray(half(np.uint16, 65535)),
        "bits.png": Image.fromarray(half() > 0),
        "palette.png": Image.fromarray(half()).convert("P"),
        "palette.gif": Image.fromarray(half()),
        "printer.tif": Image.fromarray(half(channels=(3,))).convert("CMYK"),
    }
    for name, picture in ready.items():
        picture.save(tmp_path / name)
        found, notes = read_image(tmp_path / name)
        assert found == pytest.approx(expected) and not notes, name
    turned, exif = Image.fromarray(np.ascontiguousarray(half().T)), Image.Exif()
    exif[0x0112] = 5  # rows are columns
    turned.save(tmp_path / "camera.png", exif=exif)
    assert read_image(tmp_path / "camera.png")[0] == pytest.approx(expected)
    transparent = np.concatenate([np.zeros((24, 30, 3), np.uint8), 255 - half()[..., None]], 2)
    Image.fromarray(transparent).save(tmp_path / "alpha.png")  # white shows through on the right
    assert read_image(tmp_path / "alpha.png")[0] == pytest.approx(expected)
    for key, mode in ((7, "L"), ((7, 7, 7), "RGB")):  # one grey or colour stands for transparent
        marked = Image.fromarray(np.where(half() > 0, 7, 0).astype(np.uint8)).convert(mode)
        marked.save(tmp_path / "key.png", transparency=key)
        assert read_image(tmp_path / "key.png")[0] == pytest.approx(expected), mode
    first = Image.fromarray(half())
    first.save(tmp_path / "film.gif", save_all=True, append_images=[Image.fromarray(255 - half())])
    found, (note,) = read_image(tmp_path / "film.gif")
    assert found == pytest.approx(expected) and "first frame" in note
    wide = 1e308 * (2 * half(float, 1.0) - 1)  # the difference of its ends is infinite
    floats = (half(float, 1.0), half(float, 700.0), wide)
    for array in (half(), half(bool, True), half(np.uint16, 65535), *floats):
        np.save(tmp_path / "array.npy", array)
        assert read_image(tmp_path / "array.npy")[0] == pytest.approx(expected)
    found, (note,) = as_image(np.zeros((40, 2 * SIDE, 3)), "wide")
    assert found.shape == (20, SIDE) and "shrunk to 256 × 20" in note


@needs_skimage
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("none.png", None, "none.png is not a file"),
        ("text.png", b"no image", "text.png cannot be read as an image"),
        ("cut.png", b"cut", "cut.png cannot be read as an image"),
        ("grey.npy", np.full((9, 9), 0.5), "has one brightness everywhere"),
        ("dot.npy", np.zeros((1, 1)), "has one brightness everywhere"),
        ("nan.npy", np.full((9, 9), np.nan), "holds NaN or infinity"),
        ("words.npy", np.array([["a", "b"]]), "must hold numbers"),
        ("flat.npy", np.zeros(9), "got an array of shape (9,)"),
        ("empty.npy", np.zeros((0, 9)), "got an array of shape (0, 9, 1)"),
        ("deep.npy", np.zeros((3, 3, 5)), "got an array of shape (3, 3, 5)"),
    ],
)
def test_bad_images(tmp_path, monkeypatch, capsys, name, content, says):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    if name == "cut.png":
        Image.fromarray(digits(1)[0]).save("whole.png")
        (tmp_path / name).write_bytes((tmp_path / "whole.png").read_bytes()[:100])
    elif isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        np.save(tmp_path / name, content)
    assert main(["demo", "superpixels", name, "--device", "cpu"]) == 2
    shown = capsys.readouterr()
    assert says in shown.err and shown.err.count("\n") == 1 and shown.out == ""
    assert not (tmp_path / "results").exists()


@needs_skimage
def test_images_of_too_many_pixels(tmp_path, monkeypatch):
    from PIL import Image

    Image.fromarray(half()).save(tmp_path / "a.png")
    np.save(tmp_path / "a.npy", half())
    monkeypatch.setattr("graphdiffusion.data.images.PIXELS", 700)
    for name in ("a.png", "a.npy"):
        with pytest.raises(DataError, match=f"{name} has more than 700 pixels"):
            read_image(tmp_path / name)


@needs_skimage
@pytest.mark.parametrize("shape", [(30, 40, 3), (1, 20)])
def test_demo(tmp_path, monkeypatch, capsys, shape):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "SETTINGS", replace(demo.SETTINGS, epochs=3))
    picture = np.zeros(shape)
    picture[:, shape[1] // 2 :] = 0.9
    np.save("mine.npy", picture)
    assert main(["demo", "superpixels", "mine.npy", "--out", "here", "--device", "cpu"]) == 0
    assert "bright and" in (shown := capsys.readouterr()).err and "here/animation.gif" in shown.out
    with Image.open("here/animation.gif") as film:
        moments = json.loads((tmp_path / "here/results.json").read_text())["points"][0]["shown"][0]["times"]
        assert film.n_frames == len(moments) == 13 and film.width > film.height
    before = [(tmp_path / "here" / name).read_bytes() for name in ("picture.png", "animation.gif")]
    again = (plot_superpixels("here/results.json"), animate_superpixels("here/results.json", "again.gif"))
    assert [path.read_bytes() for path in again] == before  # from the file alone, the same each time


@needs_skimage
@pytest.mark.parametrize("shape", [(256, 1), (2, 200)])
def test_pictures_of_narrow_images(tmp_path, monkeypatch, shape):
    """Neither grows without bound, and the words beside and above an image have room."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "SETTINGS", replace(demo.SETTINGS, epochs=1))
    picture = np.zeros(shape)
    picture.reshape(-1)[: picture.size // 2] = 0.9
    np.save("a name that is longer than its row is tall.npy", picture)
    assert main(["demo", "superpixels", next(tmp_path.glob("*.npy")).name, "--out", "here"]) == 0
    with Image.open("here/animation.gif") as film:
        assert 340 <= film.width <= 660 and film.height <= 660
    with Image.open("here/picture.png") as drawn:
        assert 400 <= drawn.height <= 1200


@needs_skimage
def test_demo_without_an_image(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "SETTINGS", replace(demo.SETTINGS, epochs=1))
    assert main(["demo", "superpixels", "--device", "cpu"]) == 0
    assert "photographer" in capsys.readouterr().err
    assert (tmp_path / "results/demo-superpixels/animation.gif").exists()
