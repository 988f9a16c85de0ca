"""The benchmarks: published sizes, tidy graphs, raw files found, fetched or missed with a clear word."""

import dataclasses
import gzip
import http.client
import importlib.util
import io
import os
import shutil
import sys
import types
import urllib.error
import urllib.request
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from rawdata import shchur_arrays, write_planetoid

from graphdiffusion.cli import main
from graphdiffusion.data import (
    DATASETS,
    check_data,
    dataset_info,
    datasets,
    given_split,
    load_data,
    number_of_splits,
    random_split,
    rawfiles,
    sources,
)
from graphdiffusion.data.planetoid import read_planetoid
from graphdiffusion.errors import DataError

ROOT = Path(os.environ.get("GRAND_DATA") or Path(__file__).parents[2] / "shared" / "data")
BENCHMARKS = ("cora", "citeseer", "pubmed", "coauthor-cs", "computers", "photo")

needs_data = pytest.mark.skipif(
    not (ROOT / "Cora" / "raw").is_dir(),
    reason=f"no raw data in {ROOT}; name the folder in the environment variable GRAND_DATA",
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home folder, no GRAND_DATA, and no network."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GRAND_DATA", raising=False)

    def offline(url, timeout):
        raise urllib.error.URLError("network is unreachable")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    return tmp_path / "home"


class Response(io.BytesIO):
    def __init__(self, content: bytes, length: int | None = None):
        super().__init__(content)
        self.headers = {"Content-Length": str(len(content) if length is None else length)}


def assert_tidy(data):
    source, target = data.edge_index.numpy()
    n = data.num_nodes
    keys = source * n + target
    assert data.edge_index.dtype == torch.int64
    assert (np.diff(keys) > 0).all(), "sorted, no duplicates"
    assert (source != target).all()
    assert np.array_equal(np.sort(target * n + source), keys), "both directions"


def to_dense(x):
    return x.to_dense() if x.layout == torch.sparse_csr else x


@needs_data
@pytest.mark.parametrize("name", BENCHMARKS)
def test_published_statistics(name, home):
    info = DATASETS[name]
    data = load_data(name, ROOT)
    assert (data.num_nodes, data.edge_index.size(1)) == (info.nodes, 2 * info.edges)
    assert data.x.shape == (info.nodes, info.features)
    assert data.y[data.y >= 0].unique().tolist() == list(range(info.classes))
    assert data.name == name
    assert data.x.dtype == torch.float32
    nonzeros = data.x.values().numel() if data.x.layout == torch.sparse_csr else data.x.count_nonzero()
    assert (data.x.layout == torch.sparse_csr) == (int(nonzeros) < 0.1 * data.x.numel())
    assert_tidy(data)
    check_data(data)
    assert not home.exists(), "reading raw files writes nothing"


@needs_data
@pytest.mark.parametrize("name", ["cora", "citeseer", "computers"])
def test_whole_graph(name, home):
    info = DATASETS[name]
    data = load_data(name, ROOT, lcc=False)
    assert (data.num_nodes, data.edge_index.size(1)) == (info.all_nodes, 2 * info.all_edges)
    assert_tidy(data)
    check_data(data)


HETEROPHILOUS = ("actor", "chameleon", "squirrel", "texas", "wisconsin", "cornell")


@needs_data
@pytest.mark.skipif(not (ROOT / "heterophilous").is_dir(), reason="the heterophilous sets are not at hand")
@pytest.mark.parametrize("name", HETEROPHILOUS)
def test_heterophilous(name, home):
    """The whole graph, undirected, with ten splits that take every node."""
    info = DATASETS[name]
    data = load_data(name, ROOT)
    assert (data.num_nodes, data.edge_index.size(1), data.x.size(1)) == (
        info.nodes,
        2 * info.edges,
        info.features,
    )
    assert (data.num_nodes, data.task) == (info.all_nodes, "classification")
    assert_tidy(data)
    with np.load(ROOT / info.raw / info.files[0]) as stored:
        assert np.array_equal(to_dense(data.x).numpy(), stored["node_features"])
        assert np.array_equal(data.val_mask.numpy(), stored["val_masks"].T)
        pairs = {(min(e), max(e)) for e in stored["edges"].tolist()}
    assert pairs == {(i, j) for i, j in data.edge_index.T.tolist() if i < j}
    assert number_of_splits(data) == 10
    for k in range(10):
        split = given_split(data, k)
        assert bool((split.train | split.val | split.test).all())
        shares = [float(mask.float().mean()) for mask in (split.train, split.val, split.test)]
        assert shares == pytest.approx([0.48, 0.32, 0.2], abs=0.03)


def test_heterophilous_arrays(tmp_path, home, monkeypatch):
    """Four nodes and two splits, and arrays that do not fit together."""
    info = dataclasses.replace(
        DATASETS["texas"], nodes=4, all_nodes=4, edges=3, all_edges=3, features=2, classes=2, sums=()
    )
    monkeypatch.setattr(datasets, "dataset_info", lambda name: info)
    (tmp_path / "heterophilous").mkdir()
    arrays = {
        "node_features": np.eye(4, 2, dtype=np.float32),
        "node_labels": np.array([0, 1, 0, 1]),
        "edges": np.array([[1, 0], [1, 2], [3, 2]]),
        **{
            f"{part}_masks": np.eye(4, dtype=bool)[[k, k + 1]]
            for k, part in enumerate(("train", "val", "test"))
        },
    }
    np.savez(tmp_path / "heterophilous" / "texas.npz", **arrays)
    data = load_data("texas", tmp_path)
    assert data.edge_index.tolist() == [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
    assert data.val_mask.tolist() == [[False, False], [True, False], [False, True], [False, False]]
    for key, wrong in (
        ("edges", np.array([[0, 4]])),
        ("edges", np.array([[0, -1]])),
        ("edges", np.array([[0, 1, 2]])),
        ("node_labels", np.zeros(3, int)),
        ("val_masks", np.ones((2, 3), bool)),
        ("test_masks", np.ones((2, 4), int)),
        ("node_features", np.ones(4, np.float32)),
    ):
        np.savez(tmp_path / "heterophilous" / "texas.npz", **{**arrays, key: wrong})
        with pytest.raises(
            DataError, match=r"texas.npz: its features, labels, edges and masks are not of one graph"
        ):
            load_data("texas", tmp_path)


@needs_data
@pytest.mark.parametrize(("name", "sizes"), [("cora", (140, 500, 1000)), ("citeseer", (120, 500, 1000))])
def test_planetoid_masks(name, sizes, home):
    whole = given_split(load_data(name, ROOT, lcc=False))
    assert tuple(int(mask.sum()) for mask in (whole.train, whole.val, whole.test)) == sizes
    part = given_split(load_data(name, ROOT))
    assert part.train.numel() == DATASETS[name].nodes
    assert 0 < int(part.train.sum()) <= sizes[0]


@needs_data
def test_citeseer_nodes_without_a_row_are_unlabelled(home, capsys):
    """15 nodes without features and label: class -1, in no mask, and no trouble further on."""
    data = load_data("citeseer", ROOT, lcc=False)
    unlabelled = data.y == -1
    assert int(unlabelled.sum()) == 15
    assert torch.equal(unlabelled, ~to_dense(data.x).any(dim=1))
    assert not (unlabelled & (data.train_mask | data.val_mask | data.test_mask)).any()
    check_data(data)
    split = random_split(data.y, 0)
    assert not (unlabelled & (split.train | split.val | split.test)).any()
    assert int((split.train | split.val | split.test).sum()) == 3327 - 15
    assert int((load_data("citeseer", ROOT).y == -1).sum()) == 10
    assert main(["data", "info", "citeseer", "--root", str(ROOT)]) == 0
    assert "3,327" in capsys.readouterr().out


@needs_data
@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_planetoid_equals_pyg(name, home):
    """Except that CiteSeer's nodes without a label are unlabelled here, and of class 0 there."""
    from torch_geometric.io import read_planetoid_data

    info = DATASETS[name]
    rawfiles.verify(ROOT / info.raw, info)  # PyG runs what is in these files
    expected = read_planetoid_data(str(ROOT / info.raw), name)
    data = load_data(name, ROOT, lcc=False)
    assert torch.equal(to_dense(data.x), expected.x)
    n = data.num_nodes
    keys = expected.edge_index[0] * n + expected.edge_index[1]
    assert torch.equal(data.edge_index[0] * n + data.edge_index[1], keys.sort().values)
    assert torch.equal(data.y.clamp(min=0), expected.y)
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert torch.equal(data[mask], expected[mask])


@needs_data
@pytest.mark.parametrize("name", ["coauthor-cs", "computers", "photo"])
def test_shchur_equals_pyg(name, home):
    from torch_geometric.io import read_npz

    info = DATASETS[name]
    expected = read_npz(str(ROOT / info.raw / info.files[0]))
    data = load_data(name, ROOT, lcc=False)
    assert torch.equal(to_dense(data.x), expected.x)
    assert torch.equal(data.edge_index, expected.edge_index)
    assert torch.equal(data.y, expected.y)


@needs_data
def test_component_keeps_rows_together(home):
    """Every node of the component has the features, label and mask it had in the whole graph."""
    from torch_geometric.transforms import LargestConnectedComponents

    whole = load_data("cora", ROOT, lcc=False)
    whole.x = whole.x.to_dense()
    expected = LargestConnectedComponents()(whole)
    data = load_data("cora", ROOT)
    assert torch.equal(data.x.to_dense(), expected.x)
    assert torch.equal(data.y, expected.y)
    assert torch.equal(data.test_mask, expected.test_mask)
    n = data.num_nodes
    assert torch.equal(
        data.edge_index[0] * n + data.edge_index[1],
        (expected.edge_index[0] * n + expected.edge_index[1]).sort().values,
    )


@needs_data
@pytest.mark.skipif(not (ROOT / "ogbn-arxiv").is_dir(), reason="ogbn-arxiv/topology.npz is not at hand")
def test_arxiv_topology(home):
    data = load_data("ogbn-arxiv-topology", ROOT)
    assert data.x is None
    assert (data.num_nodes, data.edge_index.size(1)) == (169343, 2 * 1157799)
    assert [int(data[f"{key}_mask"].sum()) for key in ("train", "val", "test")] == [90941, 29799, 48603]


@needs_data
def test_read_only_root_stays_untouched(tmp_path, home):
    root = tmp_path / "data"
    shutil.copytree(ROOT / "Cora", root / "Cora")
    before = sorted(root.rglob("*"))
    for path in [*before, root]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        load_data("cora", root)
        assert sorted(root.rglob("*")) == before
    finally:
        for path in [root, *before]:
            path.chmod(0o755)
    assert not home.exists()


@needs_data
def test_environment_variable_names_the_root(monkeypatch, home):
    monkeypatch.setenv("GRAND_DATA", str(ROOT))
    assert load_data("Photo").num_nodes == 7487


@needs_data
def test_download_goes_to_the_cache(tmp_path, monkeypatch, home):
    asked = []

    def serve(url, timeout):
        asked.append(url)
        return Response((ROOT / "Cora" / "raw" / url.rpartition("/")[2]).read_bytes())

    monkeypatch.setattr(urllib.request, "urlopen", serve)
    root = tmp_path / "mine"
    root.mkdir()
    assert load_data("cora", root).num_nodes == 2485
    assert len(asked) == 8
    assert not any(root.iterdir())
    raw = home / ".cache" / "graphdiffusion" / "Cora" / "raw"
    assert sorted(p.name for p in raw.iterdir()) == sorted(DATASETS["cora"].files)
    load_data("cora", root)
    assert len(asked) == 8, "the second time the cache serves"


@needs_data
def test_embedded_cora_is_planetoids_cora(home):
    """The same papers up to their order: matched by their words, labels and edges agree."""
    embedded, planetoid = (load_data(name, ROOT, lcc=False) for name in ("cora-embedded", "cora"))
    words = [[row.tobytes() for row in data.x.to_dense().numpy()] for data in (embedded, planetoid)]
    assert Counter(words[0]) == Counter(words[1])
    signatures = []
    for data, rows in zip((embedded, planetoid), words, strict=True):
        colour = [hash((row, label)) for row, label in zip(rows, data.y.tolist(), strict=True)]
        neighbours: list[list[int]] = [[] for _ in rows]
        for i, j in data.edge_index.T.tolist():
            neighbours[i].append(j)
        for _ in range(3):
            colour = [hash((c, *sorted(colour[j] for j in neighbours[i]))) for i, c in enumerate(colour)]
        signatures.append(Counter(colour))
    assert signatures[0] == signatures[1]


@pytest.mark.parametrize(("lcc", "nodes", "edges"), [(True, 2485, 5069), (False, 2708, 5278)])
def test_embedded_cora(lcc, nodes, edges, home):
    data = load_data("Cora-Embedded", lcc=lcc)
    assert (data.num_nodes, data.edge_index.size(1), data.x.size(1)) == (nodes, 2 * edges, 1433)
    assert data.x.layout == torch.sparse_csr
    assert data.x.values().unique().tolist() == [1.0]
    assert len(data.node_ids) == len(set(data.node_ids)) == nodes
    assert data.class_names[3] == "Neural_Networks"
    assert data.get("train_mask") is None
    assert_tidy(data)
    check_data(data)
    assert not home.exists()


def test_embedded_cora_paper_by_paper(home):
    """Paper 35, as in the published files: genetic algorithms, cited by 1033 and 103482."""
    data = load_data("cora-embedded")
    node = data.node_ids.index("35")
    assert data.class_names[int(data.y[node])] == "Genetic_Algorithms"
    neighbours = data.edge_index[1, data.edge_index[0] == node].tolist()
    assert {"1033", "103482"} <= {data.node_ids[i] for i in neighbours}


def test_missing_files_give_one_clear_sentence(tmp_path, home):
    with pytest.raises(DataError) as caught:
        load_data("cora", tmp_path)
    text = str(caught.value)
    for part in (
        "ind.cora.allx",
        str(tmp_path / "Cora" / "raw"),
        str(home / ".cache" / "graphdiffusion"),
        "network is unreachable",
        "GRAND_DATA",
        "'cora-embedded' needs no files",
    ):
        assert part in text


def test_interrupted_download_leaves_nothing(home, monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Response(b"half", length=8))
    with pytest.raises(DataError, match="ended after 4 of 8 bytes"):
        load_data("photo")
    assert not [path for path in home.rglob("*") if path.is_file()]


def serve_archive(monkeypatch, entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as bundle:
        for name, content in entries.items():
            bundle.writestr(name, content)
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Response(packed.getvalue()))


ARXIV = DATASETS["ogbn-arxiv"]


def test_archives_are_unpacked_flat_and_only_what_is_expected(tmp_path, monkeypatch):
    entries = {f"arxiv/raw/{file}": b"content" for file in ARXIV.files}
    entries |= {
        "../../edge.csv.gz": b"stays inside",
        "../../outside.txt": b"",
        "arxiv/split/train.csv.gz": b"",
    }
    serve_archive(monkeypatch, entries)
    rawfiles.download(ARXIV, tmp_path / "a" / "b")
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == sorted(ARXIV.files)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]


def test_archive_that_unpacks_to_too_much(home, monkeypatch):
    monkeypatch.setattr(rawfiles, "DOWNLOAD_BYTES", 10_000)
    serve_archive(monkeypatch, {f"arxiv/raw/{file}": bytes(2_000) for file in ARXIV.files})
    with pytest.raises(DataError, match=r"arxiv.zip unpacks to 12,000 bytes, more than 10,000"):
        load_data("ogbn-arxiv")
    assert not [path for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archive_that_cannot_be_unpacked_in_parts(method, home, monkeypatch):
    serve_archive(monkeypatch, {f"arxiv/raw/{file}": b"" for file in ARXIV.files}, method)
    with pytest.raises(DataError, match=r"arxiv.zip: edge.csv.gz is compressed by a method"):
        load_data("ogbn-arxiv")


def test_archive_that_is_none(home, monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Response(b"<html>moved</html>"))
    with pytest.raises(DataError, match=r"could not download .*File is not a zip file"):
        load_data("ogbn-arxiv")


@pytest.mark.parametrize("error", [http.client.BadStatusLine("?"), zlib.error("bad"), EOFError("end")])
def test_download_that_fails_in_any_way(error, home, monkeypatch):
    def fail(url, timeout):
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    with pytest.raises(DataError, match="could not download"):
        load_data("photo")


def test_archive_without_an_expected_file(home, monkeypatch):
    serve_archive(monkeypatch, {f"arxiv/raw/{file}": b"" for file in ARXIV.files[1:]})
    with pytest.raises(DataError, match=r"arxiv.zip does not contain edge.csv.gz"):
        load_data("ogbn-arxiv")
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_endless_download(home, monkeypatch):
    class Endless(Response):
        def read(self, size):
            return bytes(size)

    monkeypatch.setattr(rawfiles, "DOWNLOAD_BYTES", 1 << 22)
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Endless(b""))
    with pytest.raises(DataError, match=r"photo.npz is larger than 4,194,304 bytes"):
        load_data("photo")
    assert not [path for path in home.rglob("*") if path.is_file()]


@needs_data
@pytest.mark.parametrize("file", DATASETS["citeseer"].files)
def test_download_with_another_sum_is_refused(file, home, monkeypatch):
    def serve(url, timeout):
        name = url.rpartition("/")[2]
        content = (ROOT / "CiteSeer" / "raw" / name).read_bytes()
        return Response(content[:-1] + b"!" if name == file else content)

    monkeypatch.setattr(urllib.request, "urlopen", serve)
    with pytest.raises(DataError, match=rf"{file} is not the published file: its SHA-256 is"):
        load_data("citeseer")
    assert not [path for path in home.rglob("*") if path.is_file()]


@needs_data
@pytest.mark.parametrize("file", DATASETS["cora"].files)
def test_changed_raw_file_is_refused(file, tmp_path, home):
    """One flipped bit, in data rather than in structure: only a checksum can tell."""
    raw = shutil.copytree(ROOT / "Cora" / "raw", tmp_path / "Cora" / "raw")
    (raw / file).chmod(0o644)
    content = bytearray((raw / file).read_bytes())
    content[len(content) // 2] ^= 1
    (raw / file).write_bytes(content)
    with pytest.raises(DataError, match=rf"{file} is not the published file.*read with read_graph"):
        load_data("cora", tmp_path)


@needs_data
def test_npz_is_known_by_its_arrays(tmp_path, home):
    """Packed in another way, beside an entry that is never read, it is the same; one value is not."""
    info = DATASETS["photo"]
    with np.load(ROOT / info.raw / info.files[0]) as file:
        arrays = dict(file)
    raw = tmp_path / info.raw
    raw.mkdir(parents=True)
    np.savez(raw / info.files[0], class_names=np.array(["a", None], dtype=object), **arrays)
    assert load_data("photo", tmp_path).num_nodes == info.nodes
    arrays["labels"][17] = (arrays["labels"][17] + 1) % info.classes
    np.savez(raw / info.files[0], **arrays)
    with pytest.raises(DataError, match=r"photo.npz is not the published file"):
        load_data("photo", tmp_path)


NOT_AT_HAND = ("roman-empire", "amazon-ratings", "minesweeper", "tolokers", "questions")


def test_every_raw_file_has_a_sum_but_those_that_are_not_at_hand():
    for info in DATASETS.values():
        assert len(info.sums) == (0 if info is ARXIV else len(info.files))
        unverified = [file for file, own in zip(info.files, info.sums, strict=False) if not own]
        if info.name in NOT_AT_HAND:
            assert unverified == list(info.files)
        elif info.family == "Geom-GCN":
            assert unverified == [f"{info.files[0].split('.')[1]}_split_0.6_0.2_{k}.npz" for k in range(10)]
        else:
            assert not unverified
            assert bool(info.arrays) == any(file.endswith(".npz") for file in info.files)


@pytest.mark.parametrize("name", NOT_AT_HAND)
def test_newer_heterophilous_sets(name, tmp_path, home, monkeypatch, capsys):
    """Made files of the published form: read, split, and refused where their size is another."""
    info = dataset_info(name.replace("-", "_"))
    assert info.name == name and info.urls[0].endswith(f"/main/data/{name.replace('-', '_')}.npz")
    assert main(["data", "info", name, "--root", str(tmp_path)]) == 0
    assert "not here; would be downloaded" in capsys.readouterr().out
    n, folder = 12, tmp_path / "heterophilous"
    folder.mkdir()
    rng = np.random.default_rng(0)
    ring = np.arange(n - 2)  # the last two nodes are apart, and stay
    kinds = rng.integers(0, 3, (10, n))
    arrays = {
        "node_features": rng.integers(0, 2, (n, info.features)).astype(np.uint8),
        "node_labels": (np.arange(n) % info.classes).astype(np.uint8) if n >= info.classes else np.r_[
            np.arange(n - 1), info.classes - 1],
        "edges": np.stack([ring, (ring + 1) % (n - 2)], 1),
        **{f"{part}_masks": kinds == k for k, part in enumerate(("train", "val", "test"))},
    }  # fmt: skip
    np.savez(folder / info.files[0], **arrays)
    with pytest.raises(DataError, match=rf"{name}: this is not the published graph: it has 12 nodes, not"):
        load_data(name, tmp_path)
    sized = dataclasses.replace(info, nodes=n, all_nodes=n, edges=n - 2, all_edges=n - 2)
    monkeypatch.setattr(datasets, "dataset_info", lambda name: sized)
    data = load_data(name, tmp_path)
    assert data.num_nodes == n and number_of_splits(data) == 10
    assert np.array_equal(data.train_mask.numpy(), (kinds == 0).T)
    assert np.array_equal(to_dense(data.x).numpy(), arrays["node_features"])


def test_splits_of_geom_gcn(tmp_path, home, monkeypatch):
    """The citation graph as it is, whole, with ten splits in files of their own."""
    info = dataset_info("Cora-Geom")
    assert info.name == "cora-geom-gcn" and len(info.files) == len(info.urls) == 18
    assert info.urls[-1].endswith("/geom-gcn/raw/master/splits/cora_split_0.6_0.2_9.npz")
    sized = dataclasses.replace(
        info, nodes=12, all_nodes=12, edges=10, all_edges=10, features=5, classes=3, sums=()
    )
    monkeypatch.setattr(datasets, "dataset_info", lambda name: sized)
    raw = write_planetoid(tmp_path / "Cora" / "raw", "cora")
    with pytest.raises(DataError, match=r"did not find .*cora_split_0.6_0.2_0.npz"):
        monkeypatch.setattr(
            rawfiles, "download", lambda *given: (_ for _ in ()).throw(OSError("no network"))
        )
        load_data("cora-geom-gcn", tmp_path)
    kinds = np.random.default_rng(0).integers(0, 3, (10, 12))
    kinds[:, 10] = 3  # without a label
    for k, own in enumerate(kinds):
        masks = {
            f"{part}_mask": (own == v).astype(np.uint8) for v, part in enumerate(("train", "val", "test"))
        }
        np.savez(raw / f"cora_split_0.6_0.2_{k}.npz", **masks)
    data = load_data("cora-geom-gcn", tmp_path)
    plain = read_planetoid(raw, "cora")
    assert torch.equal(data.edge_index, plain.edge_index) and data.num_nodes == 12
    assert number_of_splits(data) == 10 and np.array_equal(data.val_mask.numpy(), (kinds == 1).T)
    for wrong in (
        {"train_mask": np.ones(11, bool)},
        {"val_mask": np.ones(12)},
        {"test_mask": masks["val_mask"]},
    ):
        np.savez(raw / "cora_split_0.6_0.2_9.npz", **{**masks, **wrong})
        with pytest.raises(DataError, match=r"cora_split_0.6_0.2_9.npz: (expected|a node is in two)"):
            load_data("cora-geom-gcn", tmp_path)


def test_topology_without_a_source_says_what_to_do(home):
    with pytest.raises(DataError, match=r"did not find topology.npz in .*Put the files there"):
        load_data("ogbn-arxiv-topology")


def test_damaged_raw_files(tmp_path, home):
    raw = tmp_path / "Photo" / "raw"
    raw.mkdir(parents=True)
    (raw / "amazon_electronics_photo.npz").write_bytes(b"PK not a zip")
    with pytest.raises(DataError, match=r"photo.npz cannot be read .* replace it by a fresh copy"):
        load_data("photo", tmp_path)


def test_another_graph_under_a_known_name(tmp_path, home):
    raw = tmp_path / "Photo" / "raw"
    raw.mkdir(parents=True)
    np.savez(raw / "amazon_electronics_photo.npz", **shchur_arrays())
    with pytest.raises(DataError, match=r"is not the published file.* a graph of your own is read with"):
        load_data("photo", tmp_path)


def test_statistics_of_another_graph(tmp_path, home, monkeypatch):
    """The sizes are compared as well, for the data set that has no sums."""
    info = dataclasses.replace(DATASETS["photo"], sums=())
    monkeypatch.setattr(datasets, "dataset_info", lambda name: info)
    raw = tmp_path / "Photo" / "raw"
    raw.mkdir(parents=True)
    np.savez(raw / "amazon_electronics_photo.npz", **shchur_arrays())
    with pytest.raises(DataError, match="9 nodes, not 7487; 9 undirected edges, not 119043"):
        load_data("photo", tmp_path)


def test_root_must_be_a_folder(tmp_path, monkeypatch, home):
    with pytest.raises(DataError, match=r"root names .*nowhere"):
        load_data("cora", tmp_path / "nowhere")
    monkeypatch.setenv("GRAND_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="GRAND_DATA names"):
        load_data("cora")


@pytest.mark.parametrize(
    ("name", "key"), [("CS", "coauthor-cs"), ("CoauthorCS", "coauthor-cs"), (" PubMed ", "pubmed")]
)
def test_aliases(name, key):
    assert dataset_info(name).name == key


def test_unknown_name():
    with pytest.raises(DataError, match=r"'citeser'. Did you mean 'citeseer'\? Known are: cora, "):
        load_data("citeser")
    with pytest.raises(DataError, match=r"there is no data set 'zzzz'. Known are"):
        load_data("zzzz")


def test_catalogue():
    assert all(info.name == key for key, info in DATASETS.items())
    assert DATASETS["coauthor-cs"].development == 5000
    assert DATASETS["cora"].development == 1500


def arxiv_folder(root: Path) -> None:
    raw = root / "ogbn_arxiv" / "raw"
    raw.mkdir(parents=True)
    for file in DATASETS["ogbn-arxiv"].files:
        (raw / file).touch()


def test_arxiv_without_ogb(tmp_path, monkeypatch, home):
    arxiv_folder(tmp_path)
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(DataError, match=r"pip install ogb"):
        load_data("ogbn-arxiv", tmp_path)


def fake_ogb(monkeypatch) -> None:
    """A stand-in for ogb's reader, and for pandas where it is not installed."""
    reader = types.ModuleType("ogb.io.read_graph_raw")
    reader.read_csv_graph_raw = lambda raw, additional_node_files: [
        {
            "edge_index": np.array([[0, 1, 1], [1, 0, 2]]),
            "node_feat": np.ones((3, 4), dtype=np.float32),
            "node_year": np.array([[2017], [2018], [2020]]),
        }
    ]
    for name in ("ogb", "ogb.io"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "ogb.io.read_graph_raw", reader)
    if importlib.util.find_spec("pandas") is None:
        monkeypatch.setitem(sys.modules, "pandas", types.ModuleType("pandas"))


def test_arxiv_files_that_unpack_to_too_much(tmp_path, monkeypatch):
    fake_ogb(monkeypatch)
    monkeypatch.setattr(sources, "DOWNLOAD_BYTES", 10_000)
    for file in ("edge.csv.gz", "node-feat.csv.gz"):
        (tmp_path / file).write_bytes(gzip.compress(bytes(6_000)))
    with pytest.raises(
        DataError, match=r"node-feat.csv.gz and the files before it unpack to more than 10,000"
    ):
        sources.read_arxiv(tmp_path)


def test_arxiv_through_ogb(tmp_path, monkeypatch):
    """Three papers in three years."""
    pd = pytest.importorskip("pandas")
    fake_ogb(monkeypatch)
    pd.DataFrame([4, 5, 6]).to_csv(tmp_path / "node-label.csv.gz", header=False, index=False)
    data = sources.read_arxiv(tmp_path)
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert data.y.tolist() == [4, 5, 6]
    assert data.test_mask.tolist() == [False, False, True]
    assert data.x.shape == (3, 4)
