"""The graph of a run as a page to look at: served on this machine, or written as one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ...errors import ConfigError, DataError
from ...files import write_bytes
from ..page.server import PageServer, Reply, Request, Routes, serve
from .page import view_page
from .scene import Scene, read_scene

__all__ = ["serve_view", "view_routes", "write_view"]

Note = Callable[[str], None]


def write_view(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    member: int | None = None,
    note: Note = lambda text: None,
) -> Path:
    """Write the graph of a finished training as one HTML file that needs no network.

    Args:
        folder: Of a run, or of an automatic choice.
        path: The file.
        root: Folder with raw data files, as in :func:`~graphdiffusion.data.load_data`.
        member: Number of the model that is shown; by default the one that a report shows.
        note: Called with what took time, and with what the file leaves out.
    """
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file to write.")
    text, left_out = view_page(read_scene(folder, root, member, note), served=False)
    for sentence in left_out:
        note(sentence)
    write_bytes(path, text.encode())
    return path


def serve_view(
    folder: str | os.PathLike[str],
    port: int = 0,
    *,
    root: str | os.PathLike[str] | None = None,
    member: int | None = None,
    browser: bool = True,
    said: Note,
    note: Note = lambda text: None,
) -> None:
    """Serve the graph of a finished training on this machine until Ctrl-C.

    Args:
        folder: As of :func:`write_view`.
        port: 0 takes a free one.
        root: As of :func:`write_view`.
        member: Likewise.
        browser: Open the page in a browser.
        said: Called with the address once it can be opened.
        note: As of :func:`write_view`.
    """
    PageServer({}, port).server_close()  # a port that cannot be used is refused before all work
    routes = view_routes(read_scene(folder, root, member, note), note)
    serve(routes, port, browser=browser, said=said)


def view_routes(scene: Scene, note: Note = lambda text: None) -> Routes:
    """The page at ``/``, and the details of a node at ``/node?number=``."""
    text, left_out = view_page(scene, served=True)
    for sentence in left_out:
        note(sentence)
    whole = Reply.html(text)

    def node(request: Request) -> Reply:
        number, count = request.query.get("number", ""), scene.graph.num_nodes
        if not (number.isascii() and number.isdigit() and len(number) < 12 and int(number) < count):
            raise DataError(f"number must be that of a node, 0 to {count - 1}, got {number[:40]!r}.")
        return Reply.json(scene.detail(int(number)))

    return {("GET", "/"): lambda request: whole, ("GET", "/node"): node}
