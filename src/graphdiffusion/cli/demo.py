"""``grand demo``: the method at work on something to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .figures import Device
from .messages import say


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="The method at work on something to look at.", no_args_is_help=True)
    group.callback()(lambda: None)  # a group, though it has one command
    group.command("superpixels")(superpixels)
    app.add_typer(group, name="demo")


def superpixels(
    image: Annotated[
        Path | None, typer.Argument(help="PNG, JPEG or .npy file.", show_default="one of scikit-image")
    ] = None,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("results/demo-superpixels"),
) -> None:
    """Diffuse an image by GRAND-nl and by the constant Laplacian: an animation and a picture.

    Superpixels are nodes; the attention learns to tell bright ones from dark ones (Otsu's threshold) on
    half of them. Needs scikit-image.
    """
    from ..experiments.image import diffuse_image
    from ..report import animate_superpixels, plot_superpixels
    from .figures import chosen_device

    results = diffuse_image(image, out, device=chosen_device(device), note=say)
    made = (plot_superpixels(results), animate_superpixels(results, out / "animation.gif"))
    print(f"Results:   {results}")
    for name, path in zip(("Picture:  ", "Animation:"), made, strict=True):
        print(name, path, flush=True)
