"""``grand data``, ``grand info`` and ``grand --version``: what there is."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from ..errors import ConfigError
from .messages import say
from .options import ROOT, Plugins, given, with_config

if TYPE_CHECKING:
    from torch_geometric.data import Data

_PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "scikit-learn", "safetensors", "matplotlib")
_EXTRAS = {
    "parquet": "pyarrow",
    "knn": "pynndescent",
    "images": "scikit-image",
    "ogb": "ogb",
    "parts": "pymetis",
    "cluster": "ray",
}


def add_to(app: typer.Typer, configured: bool) -> None:
    app.callback()(_top)
    app.command("info")(with_config(info, configured))
    data = typer.Typer(help="Data sets that are known by name.", no_args_is_help=True)
    data.command("list")(list_data)
    data.command("info")(data_info)
    app.add_typer(data, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"grand {__version__}")
        raise typer.Exit


def _top(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Graph neural diffusion: train, evaluate and use GRAND on graphs."""


def info(
    ctx: typer.Context,
    data: Annotated[
        str, typer.Argument(help="With --plan: the graph of a training.", show_default=False)
    ] = "",
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Show what a training on DATA takes, and what fits; options are those of train."
        ),
    ] = False,
    config: Annotated[Path | None, typer.Option(help="With --plan: TOML file with options.")] = None,
    preset: Annotated[str, typer.Option(help="With --plan: as in train.")] = "auto",
    plugin: Plugins = None,
    root: Annotated[str, ROOT] = "",
    **options: Any,
) -> None:
    """Show versions, device, threads, backends, extras, and every class that can be chosen by name.

    With DATA and --plan: memory that a training takes, by gradient mode, what is free, how many members
    fit, the number of parts where none does, and the next command.
    """
    if plan != bool(data):
        raise ConfigError(
            "--plan needs the graph of a training: grand info DATA --plan."
            if plan
            else f"add --plan for what a training on {data} takes, or see it by: grand data info {data}."
        )
    if plan:
        from .plan import show_plan

        show_plan(given(ctx), config, preset, root or None, plugin or [])
        return
    import torch

    from ..docstrings import summary_of
    from ..registry import registries
    from .tables import print_facts, print_table

    devices = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    triton = "on CUDA" if devices else "installed, no CUDA device"
    print_facts(
        f"grand {__version__}",
        [
            ("python", f"{platform.python_version()} on {platform.platform()}"),
            *((name, _version_of(name)) for name in _PACKAGES),
            ("device", ", ".join(devices) or f"CPU, {platform.machine()}"),
            ("threads", torch.get_num_threads()),
            ("backend torch", "everywhere"),
            ("backend triton", triton if find_spec("triton") else "not installed"),
            *((f"extra {name}", _version_of(package)) for name, package in _EXTRAS.items()),
        ],
    )
    for kind, registry in registries().items():
        rows = [(name, summary_of(cls)) for name, cls in registry.classes().items()]
        print_table(f"{kind} by name", ("name", "what it is"), rows)


def list_data(root: Annotated[str, ROOT] = "") -> None:
    """List the data sets, with the sizes of their largest components."""
    from ..data import DATASETS, find_raw
    from .tables import print_table

    rows = [
        (d.name, d.nodes, d.edges, d.features, d.classes, "yes" if find_raw(d, root or None) else "no")
        for d in DATASETS.values()
    ]
    print_table("", ("name", "nodes", "edges", "features", "classes", "here"), rows)


def data_info(
    name: Annotated[str, typer.Argument(help="Data set by name, or path of your own graph.")],
    root: Annotated[str, ROOT] = "",
) -> None:
    """Show statistics, splits, source and files of a data set, or of your own graph."""
    from ..data import dataset_info, find_raw, is_dataset, labelled, open_data, task_of
    from .tables import print_facts

    if not is_dataset(name):
        data = open_data(name)
        task = task_of(data)
        kind, names = (
            ("classes", "class_names") if task == "classification" else ("targets", "target_names")
        )
        facts = [
            ("nodes", f"{data.num_nodes:,}"),
            ("edges", f"{data.edge_index.shape[1] // 2:,}"),
            ("features", f"{data.x.shape[1]:,}"),
            ("task", task),
            (kind, ", ".join(data.get(names) or []) or "none"),
            ("labelled", f"{int(labelled(data).sum()):,}"),
            ("split", _given_splits(data)),
        ]
        print_facts(str(data.name), facts)
        for note in data.get("notes") or []:
            say(note)
        return
    known = dataset_info(name)
    place = find_raw(known, root or None)
    files = "inside the package" if not known.files else place or "not here"
    if place is None and known.urls:
        files = f"not here; would be downloaded from {known.urls[0].rpartition('/')[0]}"
    random = f"random: {known.development:,} development nodes, 20 of each class to train"
    fixed = [name for family, name in _FIXED.items() if family == known.family]
    facts = [
        ("nodes", f"{known.nodes:,} in the largest component of {known.all_nodes:,}"),
        ("edges", f"{known.edges:,} of {known.all_edges:,}, undirected"),
        ("features", f"{known.features:,}"),
        ("classes", f"{known.classes}"),
        ("splits", "; ".join([random] * bool(known.development) + fixed)),
        ("source", known.source),
        ("aliases", ", ".join(known.aliases) or "none"),
        ("files", str(files)),
    ]
    print_facts(known.name, facts)


_FIXED = {
    "Planetoid": "fixed: --split planetoid",
    "OGB": "fixed: --split given",
    "heterophilous": "ten fixed ones: --split given",
    "Geom-GCN": "ten fixed ones: --split given",
}


def _given_splits(data: Data) -> str:
    """Sizes of the splits that a graph carries."""
    from ..data import given_split, number_of_splits

    found = []
    for number in range(number_of_splits(data)):
        split = given_split(data, number)
        sizes = [int(mask.sum()) for mask in (split.train, split.val, split.test)]
        found.append("{:,} train, {:,} val, {:,} test".format(*sizes))
    return "; ".join(found) or "none given"


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
