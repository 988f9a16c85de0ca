"""The table of the data sets that are known by name, with their published sizes."""

import difflib
from dataclasses import dataclass, field, replace

from graphdiffusion.data.heterophily import (
    FOLDER,
    GEOM_GCN,
    NEWER,
    OLDER,
    SPLITS,
    Heterophilous,
    geom_gcn_files,
)
from graphdiffusion.errors import DataError


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What is known of a data set before it is read.

    `nodes` and `edges` (undirected, each counted once) are those of the largest connected
    component, `all_nodes` and `all_edges` those of the whole graph. `development` is the size of
    the development set in the paper's random splits; 0 where the split is fixed. `raw` is the
    folder, below the data folder, that holds `files`; `urls` is where they can be fetched from.
    `sums` are the SHA-256 of the files, of an .npz those of its `arrays` (see `rawfiles.checksum`). A file
    with the sum "" is not verified, nor are those of ogbn-arxiv, which has none.
    """

    name: str
    family: str
    nodes: int
    edges: int
    features: int
    classes: int
    all_nodes: int
    all_edges: int
    development: int = 1500
    source: str
    aliases: tuple[str, ...] = ()
    raw: str = ""
    files: tuple[str, ...] = field(default=(), repr=False)
    urls: tuple[str, ...] = field(default=(), repr=False)
    sums: tuple[str, ...] = field(default=(), repr=False)
    arrays: tuple[str, ...] = field(default=(), repr=False)


_SEN = "Sen et al., Collective Classification in Network Data, AI Magazine 2008"
_YANG = "split: Yang et al., Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016"
_NAMATA = "Namata et al., Query-driven Active Surveying for Collective Classification, MLG 2012"
_SHCHUR = "Shchur et al., Pitfalls of Graph Neural Network Evaluation, 2018"
_HU = "Hu et al., Open Graph Benchmark, NeurIPS 2020; licence ODC-BY"
_PEI = "Pei et al., Geom-GCN: Geometric Graph Convolutional Networks, ICLR 2020"
_PLATONOV = "Platonov et al., A Critical Look at the Evaluation of GNNs under Heterophily, ICLR 2023"


def _planetoid_files(name: str) -> tuple[str, ...]:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return tuple(f"ind.{name}.{part}" for part in parts)


def _planetoid_urls(name: str) -> tuple[str, ...]:
    base = "https://github.com/kimiyoung/planetoid/raw/master/data"
    return tuple(f"{base}/{file}" for file in _planetoid_files(name))


_SHCHUR_ARRAYS = (
    *(f"adj_{part}" for part in ("data", "indices", "indptr", "shape")),
    *(f"attr_{part}" for part in ("data", "indices", "indptr", "shape")),
    "labels",
)


def _shchur_url(file: str) -> str:
    return f"https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{file}"


_HETEROPHILOUS_ARRAYS = (
    "node_features", "node_labels", "edges", "train_masks", "val_masks", "test_masks",
)  # fmt: skip


def _heterophilous(own: Heterophilous, source: str) -> DatasetInfo:
    """A graph whose neighbours often differ in class, with ten fixed splits; the whole graph is kept."""
    nodes, edges, features, classes = own.sizes
    return DatasetInfo(
        name=own.name,
        family="heterophilous",
        nodes=nodes,
        edges=edges,
        features=features,
        classes=classes,
        all_nodes=nodes,
        all_edges=edges,
        development=0,
        source=source + ("; without duplicate nodes" if "filtered" in own.file else ""),
        aliases=own.aliases,
        raw="heterophilous",
        files=(own.file,),
        urls=(f"{FOLDER}/{own.file}",),
        sums=(own.checksum,),
        arrays=_HETEROPHILOUS_ARRAYS,
    )


def _geom_gcn(plain: DatasetInfo) -> DatasetInfo:
    """A citation graph, the whole of it, with the ten splits of Geom-GCN."""
    splits = geom_gcn_files(plain.name)
    return replace(
        plain,
        name=plain.name + GEOM_GCN,
        family="Geom-GCN",
        nodes=plain.all_nodes,
        edges=plain.all_edges,
        development=0,
        source=f"{plain.source}; ten splits: {_PEI}",
        aliases=(f"{plain.name}-geom",),
        files=plain.files + splits,
        urls=plain.urls + tuple(f"{SPLITS}/{file}" for file in splits),
        sums=plain.sums + ("",) * len(splits),
    )


_LISTED = (
    DatasetInfo(
        name="cora",
        family="Planetoid",
        nodes=2485,
        edges=5069,
        features=1433,
        classes=7,
        all_nodes=2708,
        all_edges=5278,
        source=f"{_SEN}; {_YANG}",
        raw="Cora/raw",
        files=_planetoid_files("cora"),
        urls=_planetoid_urls("cora"),
        sums=(
            "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
            "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
            "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
            "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
            "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
            "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
            "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
            "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        ),
    ),
    DatasetInfo(
        name="citeseer",
        family="Planetoid",
        nodes=2120,
        edges=3679,
        features=3703,
        classes=6,
        all_nodes=3327,
        all_edges=4552,
        source=f"{_SEN}; {_YANG}",
        raw="CiteSeer/raw",
        files=_planetoid_files("citeseer"),
        urls=_planetoid_urls("citeseer"),
        sums=(
            "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
            "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
            "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        ),
    ),
    DatasetInfo(
        name="pubmed",
        family="Planetoid",
        nodes=19717,
        edges=44324,
        features=500,
        classes=3,
        all_nodes=19717,
        all_edges=44324,
        source=f"{_NAMATA}; {_YANG}",
        raw="PubMed/raw",
        files=_planetoid_files("pubmed"),
        urls=_planetoid_urls("pubmed"),
        sums=(
            "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
            "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
            "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
            "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
            "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
            "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
            "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
            "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
        ),
    ),
    DatasetInfo(
        name="coauthor-cs",
        family="Coauthor",
        nodes=18333,
        edges=81894,
        features=6805,
        classes=15,
        all_nodes=18333,
        all_edges=81894,
        development=5000,
        source=_SHCHUR,
        aliases=("cs", "coauthorcs"),
        raw="CS/raw",
        files=("ms_academic_cs.npz",),
        urls=(_shchur_url("ms_academic_cs.npz"),),
        sums=("fe411bcad5879cbb3e0228865285bb502670d91f6a3ccfb2428dadf190a058a4",),
        arrays=_SHCHUR_ARRAYS,
    ),
    DatasetInfo(
        name="computers",
        family="Amazon",
        nodes=13381,
        edges=245778,
        features=767,
        classes=10,
        all_nodes=13752,
        all_edges=245861,
        source=_SHCHUR,
        aliases=("amazon-computers", "amazoncomputers"),
        raw="Computers/raw",
        files=("amazon_electronics_computers.npz",),
        urls=(_shchur_url("amazon_electronics_computers.npz"),),
        sums=("7a953d5e0f9aa710e6713298b881373db4182b6626254f21858b240cd7626e09",),
        arrays=_SHCHUR_ARRAYS,
    ),
    DatasetInfo(
        name="photo",
        family="Amazon",
        nodes=7487,
        edges=119043,
        features=745,
        classes=8,
        all_nodes=7650,
        all_edges=119081,
        source=_SHCHUR,
        aliases=("amazon-photo", "amazonphoto"),
        raw="Photo/raw",
        files=("amazon_electronics_photo.npz",),
        urls=(_shchur_url("amazon_electronics_photo.npz"),),
        sums=("f9b02767081fe7bcacf5459b1f5dad2b30b0921bd4b226989a7dc4fe5f6dfbef",),
        arrays=_SHCHUR_ARRAYS,
    ),
    DatasetInfo(
        name="ogbn-arxiv",
        family="OGB",
        nodes=169343,
        edges=1157799,
        features=128,
        classes=40,
        all_nodes=169343,
        all_edges=1157799,
        development=0,
        source=_HU,
        aliases=("arxiv", "ogbn_arxiv"),
        raw="ogbn_arxiv/raw",
        files=tuple(
            f"{part}.csv.gz"
            for part in (
                "edge",
                "node-feat",
                "node-label",
                "node_year",
                "num-node-list",
                "num-edge-list",
            )
        ),
        urls=("https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",),
    ),
    DatasetInfo(
        name="ogbn-arxiv-topology",
        family="OGB",
        nodes=169343,
        edges=1157799,
        features=0,
        classes=40,
        all_nodes=169343,
        all_edges=1157799,
        development=0,
        source=_HU,
        raw="ogbn-arxiv",
        files=("topology.npz",),
        sums=("c014ed1eed68095bdb4cadc0e0411b37caa86974721f1779a2d06c4f85decd80",),
        arrays=("edge_index", "y", "year"),
    ),
    DatasetInfo(
        name="cora-embedded",
        family="embedded",
        nodes=2485,
        edges=5069,
        features=1433,
        classes=7,
        all_nodes=2708,
        all_edges=5278,
        source=f"{_SEN}; from the package graphdatascience 2.2, licence Apache-2.0",
        aliases=("embedded-cora",),
    ),
)
_ALL = (
    *_LISTED,
    *(_heterophilous(own, f"{_PEI}; {_PLATONOV}") for own in OLDER),
    *(_heterophilous(own, _PLATONOV) for own in NEWER),
    *(_geom_gcn(info) for info in _LISTED if info.family == "Planetoid"),
)

DATASETS: dict[str, DatasetInfo] = {info.name: info for info in _ALL}

_BY_ALIAS = {alias: info for info in _ALL for alias in (info.name, *info.aliases)}


def is_dataset(name: str) -> bool:
    """Whether `name` is the name or an alias of a known data set, in whatever case."""
    return name.strip().lower() in _BY_ALIAS


def dataset_info(name: str) -> DatasetInfo:
    """The entry for a name or an alias; otherwise a `DataError` that suggests the nearest one."""
    key = name.strip().lower()
    if key in _BY_ALIAS:
        return _BY_ALIAS[key]
    nearest = difflib.get_close_matches(key, _BY_ALIAS, n=1, cutoff=0.5)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise DataError(f"there is no data set {name!r}.{hint} Known are: {', '.join(DATASETS)}")
