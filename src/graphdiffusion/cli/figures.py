"""``grand reproduce NAME``: the experiments of the paper besides its tables, one command for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from ..options import split_names
from .messages import draw, say
from .options import ROOT, require_folder

if TYPE_CHECKING:
    import torch

Small = Annotated[bool, typer.Option("--small", help="Less of everything, for a laptop.")]
Out = Annotated[Path, typer.Option(help="Folder for the folder of the results.")]
DEVICES = ("auto", "cpu", "cuda")
Device = Annotated[str, typer.Option(help=f"Where to compute. One of: {', '.join(DEVICES)}.")]


def add_to(group: typer.Typer) -> None:
    group.command("claims")(claims)
    group.command("depth")(depth)
    group.command("schemes")(schemes)
    group.command("sparsity")(sparsity)
    group.command("steps")(steps)
    group.command("successors")(successors)
    group.command("superpixels")(superpixels)


def claims(
    small: Small = False,
    only: Annotated[str, typer.Option(help="Claims, with commas.", show_default="all")] = "",
    data: Annotated[str, typer.Option(help="Data sets, with commas.", show_default="all")] = "",
    root: Annotated[str, ROOT] = "",
    device: Device = "auto",
    out: Out = Path("results"),
) -> None:
    """The smaller claims of sections 4 and 5.1 and of the appendices, each with figures and a verdict.

    Three to six data sets, 20 splits (5 of large graphs): for a GPU. Some claims fit one core on one data
    set: --only attention --data cora. With --small the Cora that comes with the library, small models and
    3 splits, a few minutes on one core. Points that are measured are not repeated, and further ones join
    the same file.
    """
    from .tables import print_table

    path, found = measure(
        "claims", out, small=small, root=root or None, device=device, only=split_names(only),
        data=split_names(data),
    )  # fmt: skip
    rows = [
        (own["name"], own["section"], own["says"], own["measured"], _basis(own), own["word"])
        for own in found["figures"]
    ]
    print_table("claims", ("name", "section", "claim", "measured", "on", "verdict"), rows)
    conclude(path, found, "plot_claims")


def depth(
    small: Small = False,
    only: Annotated[str, typer.Option(help="Data sets, with commas.", show_default="all")] = "",
    model: Annotated[str, typer.Option(help="Models, with commas.", show_default="all")] = "",
    tuned: Annotated[
        str, typer.Option(help="This kind of tuning alone: once or every. By default both.")
    ] = "",
    deepest: Annotated[
        int | None, typer.Option(min=1, help="Up to this depth.", show_default="128")
    ] = None,
    root: Annotated[str, ROOT] = "",
    device: Device = "auto",
    out: Out = Path("results"),
) -> None:
    """Figure 3: accuracy and Dirichlet energy against depth, of GRAND and of stacked layers.

    Three data sets, depths up to 128, each model tuned once and at every depth: for a GPU. A part of it
    fits one core: --only cora --tuned once. With --small Cora alone, whose files it needs too, up to depth
    16, without a search, in a few minutes. Points that are measured are not repeated, and further ones join
    the same file.
    """
    from .tables import print_table

    path, found = measure(
        "depth", out, small=small, root=root or None, device=device, only=split_names(only),
        model=split_names(model), tuned=tuned, deepest=deepest,
    )  # fmt: skip
    rows = [
        (
            own["data"],
            own["tuned"],
            own["title"],
            f"{own['best']:.1f} at {own['best_depth']}",
            f"{own['deepest']:.1f} at {own['deepest_depth']}",
        )
        for own in found["figures"]
    ]
    heads = ("data", "tuned", "model", "best accuracy", "at the deepest")
    print_table("depth, test accuracy in percent", heads, rows)
    conclude(path, found, "plot_depth")


def sparsity(
    small: Small = False,
    device: Device = "auto",
    out: Out = Path("results"),
) -> None:
    """Figure 4, right: Cora rewired with K edges a node, accuracy and seconds an epoch of several schemes.

    K = 4 to 128, personalised PageRank and heat, GRAND-l and GRAND-nl: for a GPU. With --small three K of
    PageRank, in about four minutes on one core. Points that are measured are not repeated.
    """
    from .tables import print_table

    path, found = measure("sparsity", out, small=small, root=None, device=device)
    heads = ("model", "scheme", "as it is", *(f"K = {k}" for k in found["settings"]["ks"]))
    for key, title, cell in (
        ("speed", "seconds an epoch · evaluations of an integral", "{seconds:.3g} · {evaluations}"),
        ("accuracy", "test accuracy in percent", "{mean:.1f} ± {std:.1f}"),
    ):
        rows = [
            (own["model"], _scheme(found, own), *_cells(cell, own["graphs"], found["settings"]["ks"]))
            for own in found["figures"][key]
        ]
        print_table(f"sparsity: {title}", heads, rows)
    conclude(path, found, "plot_sparsity")


def steps(
    scheme: Annotated[
        str, typer.Option(help="Schemes by name, with commas.", show_default="figure 1's")
    ] = "",
    out: Out = Path("results"),
) -> None:
    """Figure 1: block diagrams of a step of each scheme, drawn from the coefficients in the code.

    Nothing is measured or trained.
    """
    from ..report import FIGURE_1, plot_steps

    made = plot_steps(out / "steps" / "picture.png", split_names(scheme) or FIGURE_1)
    print(f"Picture: {made}", flush=True)


def _check_part(part: str, known: Sequence[str]) -> None:
    if part not in ("", *known):
        raise ConfigError(f"part must be one of {', '.join(known)}, got {part!r}.")


def schemes(
    small: Small = False,
    part: Annotated[
        str, typer.Option(help="Measure this alone: accuracy, errors or stability. By default all three.")
    ] = "",
    root: Annotated[str, ROOT] = "",
    device: Device = "auto",
    out: Out = Path("results"),
) -> None:
    """Figure 4, left: accuracy against seconds, error against cost, and stability, scheme by scheme.

    The constant Laplacian, GRAND-l and GRAND-nl on Cora with every scheme and step: for a GPU. With --small
    fewer schemes, steps and epochs on the embedded Cora. torchdiffeq's Adams schemes are measured where it
    is installed. Points that are measured are not repeated.
    """
    from ..experiments.schemes import PARTS
    from .tables import print_table

    _check_part(part, PARTS)
    path, found = measure("schemes", out, small=small, root=root or None, device=device, part=part)
    rows = [
        (
            own["model"],
            own["title"],
            "" if own["amount"] is None else f"{own['amount']:g}",
            "" if own["test"] is None else f"{own['test']:.1f}",
            ", ".join(own["reasons"]) or {True: "stable", False: "unstable", None: ""}[own["stable"]],
            *("" if own[key] is None else f"{own[key]:.3g}" for key in ("error", "evaluations")),
            "" if own["train_seconds"] is None else f"{own['train_seconds']:.1f}",
        )
        for own in found["figures"]
    ]
    if rows:
        heads = ("model", "scheme", "τ or scale", "test", "", "error", "evaluations", "s")
        print_table("schemes: trainings", heads, rows)
    limits = [
        (own["title"], *(f"{_limit(own[s], 'limit')} ({_limit(own[s], 'theory')})" for s in own["spectra"]))
        for own in found["limits"]
    ]
    if limits:
        print_table(
            "longest stable τα: measured (theory)", ("scheme", *found["limits"][0]["spectra"]), limits
        )
    conclude(path, found, "plot_schemes")


def successors(
    small: Small = False,
    part: Annotated[
        str,
        typer.Option(
            help="Measure this alone: sets, labels, edges, attack or adaptive. By default all of them."
        ),
    ] = "",
    only: Annotated[str, typer.Option(help="Data sets, with commas.", show_default="all")] = "",
    trials: Annotated[
        int, typer.Option(min=0, help="Of every search.", show_default="by data set, for one core")
    ] = 0,
    root: Annotated[str, ROOT] = "",
    device: Device = "auto",
    out: Out = Path("results"),
) -> None:
    """The equations of GRAND's successors beside GRAND, GCN, GAT and MLP, each with one search budget.

    Six heterophilous sets, few labels on three citation graphs, and Cora with random edges and under
    attack: some hours on one core. With --small the Cora that comes with the library, seven models, no
    search. Points that are measured are not repeated.
    """
    from ..experiments.successors import PARTS
    from .tables import print_table

    _check_part(part, PARTS)
    path, found = measure(
        "successors", out, small=small, root=root or None, device=device, part=part, only=split_names(only),
        trials=trials,
    )  # fmt: skip
    rows = [
        (
            own["part"],
            own["data"],
            f"{own['level']:g}",
            own["title"],
            f"{own['test']:.1f}{_half(own['half'])}",
            "" if own["difference"] is None else f"{own['difference']:+.1f}{_half(own['difference_half'])}",
            own["trials"],
        )
        for own in found["figures"]
    ]
    heads = ("part", "data", "level", "model", "test", "− GRAND-l", "trials")
    print_table("successors, test accuracy in percent with 95% intervals", heads, rows)
    conclude(path, found, "plot_successors")


def superpixels(
    small: Small = False,
    root: Annotated[str, ROOT] = "",
    device: Device = "auto",
    out: Out = Path("results"),
) -> None:
    """Figure 5: digits of MNIST as superpixels, diffused by GRAND-nl and by the constant Laplacian.

    Needs scikit-image, and MNIST's test digits in ROOT/MNIST/raw. A few minutes on one core, half a minute
    with --small. Points that are measured are not repeated.
    """
    from .tables import print_table

    path, found = measure("superpixels", out, small=small, root=root or None, device=device)
    rows = [
        (
            own["title"],
            f"{own['accuracy']:.2f} ± {own['accuracy_std']:.2f}",
            *(_percent(own[key]) for key in ("contrast", "crossing")),
        )
        for own in found["figures"].values()
    ]
    heads = ("model", "test accuracy", "contrast kept", "attention across")
    print_table("superpixels, in percent, with 95% intervals over digits", heads, rows)
    print(f"Always background: {found['background']:.2f}% of the nodes.")
    conclude(path, found, "plot_superpixels")


def chosen_device(name: str) -> torch.device:
    """The device of an option."""
    from ..training.problem import pick_device

    if name not in DEVICES:
        raise ConfigError(f"device must be one of {', '.join(DEVICES)}, got {name!r}.")
    return pick_device(name)


def measure(name: str, out: Path, *, device: str, **options: Any) -> tuple[Path, dict[str, Any]]:
    """Run an experiment; the path of its results file, and what it holds."""
    from ..experiments.results import read_results

    require_folder(out, "--out")
    run = import_module(f"..experiments.{name}", __package__).reproduce
    path = run(out, device=chosen_device(device), note=say, **options)
    return path, read_results(path)


def conclude(path: Path, found: Mapping[str, Any], picture: str) -> None:
    """The last lines: the verdict on the paper's claim, and where results and picture are."""
    print(found["verdict"])
    print(f"Results: {path}", flush=True)
    print(f"Picture: {draw(picture, path)}", flush=True)


def _basis(own: Mapping[str, Any]) -> str:
    """Cases and splits that the verdict on a claim stands on."""
    splits = [f"{own['splits']} splits"] if own["splits"] else []
    missing = [f"not yet {', '.join(own['missing'])}"] if own["missing"] else []
    return "; ".join([", ".join([*own["on"], *splits]), *missing])


def _scheme(found: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Scheme of a row, with the method where graphs are rewired by several."""
    return found["titles"][own["scheme"]] + (f", {own['rewire']}" if "rewire" in own else "")


def _cells(form: str, graphs: Sequence[Mapping[str, Any]], ks: Sequence[int]) -> list[str]:
    """Figures of the graph as it is and of each K; empty where there are none."""
    known = {graph["k"]: form.format(**graph) for graph in graphs}
    return [known.get(k, "") for k in (0, *ks)]


def _limit(own: Mapping[str, Any], key: str) -> str:
    """A limit of stability for a table."""
    if key not in own or (key == "theory" and not own["known"]):
        return "–"
    return "none" if own[key] is None else f"{own[key]:.3g}"


def _half(value: float | None) -> str:
    """Half of an interval; none where there is one split alone."""
    return "" if value is None else f" ± {value:.1f}"


def _percent(own: Mapping[str, float]) -> str:
    return f"{100 * own['mean']:.1f} ({100 * own['low']:.1f} to {100 * own['high']:.1f})"
