"""``grand reproduce NAME``: the experiments of the paper besides its tables, one command for each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .messages import draw, say
from .options import ROOT

if TYPE_CHECKING:
    import torch

Small = Annotated[bool, typer.Option("--small", help="Less of everything, for a laptop.")]
Out = Annotated[Path, typer.Option(help="Folder for the folder of the results.")]
DEVICES = ("auto", "cpu", "cuda")
Device = Annotated[str, typer.Option(help=f"Where to compute. One of: {', '.join(DEVICES)}.")]


def add_to(group: typer.Typer) -> None:
    group.command("claims")(claims)
    group.command("depth")(depth)
    group.command("superpixels")(superpixels)


def claims(
    small: Small = False,
    only: Annotated[list[str] | None, typer.Option(help="Name of a claim; may be repeated.")] = None,
    root: Annotated[str, ROOT] = "",
    device: Device = "auto",
    out: Out = Path("results"),
) -> None:
    """The smaller claims of sections 4 and 5.1 and of the appendices, each with figures and a verdict.

    Three to six data sets, 20 splits: for a GPU. With --small the Cora that comes with the library, small
    models and 3 splits, a few minutes on one core. Points that are measured are not repeated.
    """
    from .tables import print_table

    path, found = measure("claims", out, small=small, root=root or None, device=device, only=only or ())
    rows = [
        (own["name"], own["section"], own["says"], own["measured"], own["word"]) for own in found["figures"]
    ]
    print_table("claims", ("name", "section", "claim", "measured", "verdict"), rows)
    conclude(path, found, "plot_claims")


def depth(
    small: Small = False,
    root: Annotated[str, ROOT] = "",
    device: Device = "auto",
    out: Out = Path("results"),
) -> None:
    """Figure 3: accuracy and Dirichlet energy against depth, of GRAND and of stacked layers.

    Three data sets, depths up to 128, each model tuned once and at every depth: for a GPU. With --small
    Cora alone, up to depth 32, without a search. Points that are measured are not repeated.
    """
    from .tables import print_table

    path, found = measure("depth", out, small=small, root=root or None, device=device)
    rows = [
        (
            own["data"],
            own["tuned"],
            own["title"],
            f"{own['best']:.1f} at {own['best_depth']}",
            f"{own['deepest']:.1f}",
        )
        for own in found["figures"]
    ]
    heads = ("data", "tuned", "model", "best accuracy", "at the deepest")
    print_table("depth, test accuracy in percent", heads, rows)
    conclude(path, found, "plot_depth")


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

    run = import_module(f"..experiments.{name}", __package__).reproduce
    path = run(out, device=chosen_device(device), note=say, **options)
    return path, read_results(path)


def conclude(path: Path, found: Mapping[str, Any], picture: str) -> None:
    """The last lines: the verdict on the paper's claim, and where results and picture are."""
    print(found["verdict"])
    print(f"Results: {path}", flush=True)
    made = draw(picture, path)
    if made is None:
        say("there is no picture: it needs matplotlib (pip install matplotlib).")
    else:
        print(f"Picture: {made}", flush=True)


def _percent(own: Mapping[str, float]) -> str:
    return f"{100 * own['mean']:.1f} ({100 * own['low']:.1f} to {100 * own['high']:.1f})"
