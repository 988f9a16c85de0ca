"""A small server for pages on this machine: loopback only, a few routes, nothing from a request is run.

Another page in the same browser can send requests here, and a name of its own can lead here (DNS
rebinding). So the ``Host`` of every request must be this server's, the ``Origin`` of a POST too, and a POST
must be ``application/json``, which no form sends. There are no CORS headers.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from ...errors import ConfigError, GraphDiffusionError

HOST = "127.0.0.1"
LARGEST = 1_000_000  # bytes in the body of a request
PATIENCE = 10.0  # seconds for a request to arrive
MOST = 32  # requests at a time
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # a page adds its own rules
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """What a route is given.

    Attributes:
        query: What stands behind the ``?``; of a name that occurs twice, the last value.
        content: The JSON value of a POST; ``None`` for a GET.
    """

    query: Mapping[str, str] = field(default_factory=dict)
    content: Any = None


@dataclass(frozen=True)
class Reply:
    """What a route gives back."""

    body: bytes
    kind: str = "application/octet-stream"
    status: int = 200

    @classmethod
    def html(cls, text: str) -> Self:
        return cls(text.encode(), "text/html; charset=utf-8")

    @classmethod
    def json(cls, value: Any, status: int = 200) -> Self:
        """A value; NaN and infinity, which JSON does not have, are refused."""
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
        return cls(text.encode(), "application/json", status)

    @classmethod
    def error(cls, sentence: str, status: int = 400) -> Self:
        """A sentence for the page to show, as ``{"error": sentence}``."""
        return cls.json({"error": sentence}, status)


Route = Callable[[Request], Reply]
Routes = Mapping[tuple[str, str], Route]  # by method and path: ("GET", "/"), ("POST", "/simulate")


class PageServer(ThreadingHTTPServer):
    """Serves routes on the loopback interface.

    A route that raises a :class:`~graphdiffusion.errors.GraphDiffusionError` answers with its sentence and
    status 400; any other error is logged, and answered with status 500. Routes are called one at a time.

    Args:
        routes: What is called for a method and a path.
        port: 0 takes a free one.
        largest: Bytes that the body of a request may have.
    """

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"

    def __init__(self, routes: Routes, port: int = 0, *, largest: int = LARGEST) -> None:
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no such port"
            raise ConfigError(f"port {port} cannot be used ({reason}): name another, or 0.") from None
        self.routes, self.largest = dict(routes), largest
        self.one = threading.Lock()
        self.room = threading.BoundedSemaphore(MOST)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a request may call this server."""
        return tuple(f"{name}:{self.server_address[1]}" for name in (HOST, "localhost"))

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Refuse a connection beyond so many at a time."""
        return self.room.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is no news."""
        LOG.debug("a connection ended early", exc_info=True)

    def start(self) -> Self:
        """Serve in the background until :meth:`close`."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = PATIENCE
    server_version, sys_version = "graphdiffusion", ""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug(format, *args)

    def _answer(self, method: str) -> None:
        try:
            reply = self._reply(method)
        except GraphDiffusionError as error:
            reply = Reply.error(str(error))
        except TimeoutError:
            raise
        except Exception:
            LOG.exception("a request failed")
            reply = Reply.error("the server met an error of its own, which the terminal shows.", 500)
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(reply.status)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

    def _reply(self, method: str) -> Reply:
        given = self.headers.get_all("Host") or []
        if len(given) != 1 or given[0].lower() not in self.server.hosts:
            return Reply.error(f"this server is called {self.server.hosts[0]}, and by no other name.", 403)
        parts = urlsplit(self.path)
        known = {path for _, path in self.server.routes}
        route = self.server.routes.get((method, parts.path))
        if route is None:
            status = 405 if parts.path in known else 404
            return Reply.error(f"there is nothing to {method} at {parts.path}.", status)
        content = None
        if method == "POST":
            refused = self._refused()
            if refused is not None:
                return refused
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                content = json.loads(body.decode(), parse_constant=_no_number)
            except (ValueError, RecursionError):
                return Reply.error("the body of the request is not JSON in UTF-8.")
        with self.server.one:
            return route(Request(dict(parse_qsl(parts.query)), content))

    def _refused(self) -> Reply | None:
        """What is wrong with the head of a POST, or ``None``."""
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.server.hosts}:
            return Reply.error("only a page of this server may send requests to it.", 403)
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return Reply.error(f"a request must be application/json, got {kind or 'no type'}.", 415)
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") or not (length.isascii() and length.isdigit()):
            return Reply.error("a request must say its length.", 411)
        if len(length) > 18 or int(length) > self.server.largest:
            return Reply.error(f"a request may have {self.server.largest:,} bytes, got {length}.", 413)
        return None


def _no_number(name: str) -> float:
    raise ValueError(name)  # NaN and infinity are not JSON


def open_page(url: str) -> bool:
    """Open an address in the user's browser; without a screen nothing is opened."""
    screen = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in screen):
        return False  # a browser for the terminal would take it over
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False


def serve(routes: Routes, port: int = 0, *, browser: bool = True, said: Callable[[str], None]) -> None:
    """Serve routes until Ctrl-C.

    Args:
        routes: As of :class:`PageServer`.
        port: 0 takes a free one.
        browser: Open the page ``/`` in a browser.
        said: Called with the address once it can be opened.
    """
    with PageServer(routes, port) as server:
        said(server.url)
        if browser:
            open_page(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)
