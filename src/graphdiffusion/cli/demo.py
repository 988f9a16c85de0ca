"""``grand demo``: the method at work on something to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from .figures import Device
from .messages import say


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(invoke_without_command=True)
    group.callback()(playground)
    group.command("superpixels")(superpixels)
    app.add_typer(group, name="demo")


def playground(
    context: typer.Context,
    port: Annotated[
        int | None, typer.Option(help="Port of the server.", min=0, max=65535, show_default="a free one")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write in place of a server.", show_default="none"),
    ] = None,
) -> None:
    """A playground: diffusion on a small graph in your browser, computed by this library.

    Pick or draw a graph, choose equation, scheme and step, and see it diffuse, blow up or stay. A menu has
    scenes for a lesson. The page is served to this machine alone, until Ctrl-C.
    """
    if context.invoked_subcommand is not None:
        if port is not None or out is not None or not open_browser:
            raise ConfigError(f"name options of {context.invoked_subcommand} behind it.")
        return
    from ..report.playground import serve_playground, write_playground

    if out is not None:
        if port is not None:
            raise ConfigError("--out writes a file and needs no --port: give one of them.")
        say("computing the examples, which takes about half a minute.")
        print(f"Playground: {write_playground(out)}", flush=True)
        return

    def told(url: str) -> None:
        print(f"Playground: {url}", flush=True)
        say("press Ctrl-C to stop.")

    serve_playground(port or 0, browser=open_browser, said=told)


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
