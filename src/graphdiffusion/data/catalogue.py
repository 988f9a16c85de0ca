"""The table of the data sets that are known by name, with the figures of the paper's appendix A."""

import difflib
from dataclasses import dataclass, field

from graphdiffusion.errors import DataError


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What is known of a data set before it is read.

    `nodes` and `edges` (undirected, each counted once) are those of the largest connected
    component, `all_nodes` and `all_edges` those of the whole graph. `development` is the size of
    the development set in the paper's random splits; 0 where the split is fixed. `raw` is the
    folder, below the data folder, that holds `files`; `urls` is where they can be fetched from.
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


_SEN = "Sen et al., Collective Classification in Network Data, AI Magazine 2008"
_YANG = "split: Yang et al., Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016"
_NAMATA = "Namata et al., Query-driven Active Surveying for Collective Classification, MLG 2012"
_SHCHUR = "Shchur et al., Pitfalls of Graph Neural Network Evaluation, 2018"
_HU = "Hu et al., Open Graph Benchmark, NeurIPS 2020; licence ODC-BY"


def _planetoid_files(name: str) -> tuple[str, ...]:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return tuple(f"ind.{name}.{part}" for part in parts)


def _planetoid_urls(name: str) -> tuple[str, ...]:
    base = "https://github.com/kimiyoung/planetoid/raw/master/data"
    return tuple(f"{base}/{file}" for file in _planetoid_files(name))


def _shchur_url(file: str) -> str:
    return f"https://github.com/shchur/gnn-benchmark/raw/master/data/npz/{file}"


_ALL = (
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
        urls=("http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",),
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
