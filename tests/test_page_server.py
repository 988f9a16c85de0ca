"""The server of local pages: who may ask, what, and how much."""

from __future__ import annotations

import http.client
import json
import socket
import threading

import pytest

from graphdiffusion.errors import ConfigError, DataError
from graphdiffusion.report.page import server as module
from graphdiffusion.report.page.server import PageServer, Reply, Request, open_page, serve


def echo(request: Request) -> Reply:
    return Reply.json({"content": request.content, "query": dict(request.query)})


def refuse(request: Request) -> Reply:
    raise DataError("this graph has no nodes.")


def fail(request: Request) -> Reply:
    raise KeyError("secret")


@pytest.fixture(scope="module")
def server():
    routes = {
        ("GET", "/"): lambda request: Reply.html("<p>page</p>"),
        ("GET", "/echo"): echo,
        ("POST", "/echo"): echo,
        ("POST", "/refuse"): refuse,
        ("POST", "/fail"): fail,
    }
    own = PageServer(routes, largest=1000).start()
    yield own
    own.close()


def ask(server, method="GET", path="/", body=None, **headers):
    """Status and content of an answer; headers that are ``None`` are left out."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=5)
    own = {"Host": server.hosts[0], "Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    body = body.encode() if isinstance(body, str) else body
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    if body is not None and "Content-Length" not in own:
        own["Content-Length"] = str(len(body))
    for name, value in own.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    reply = connection.getresponse()
    assert reply.getheader("Access-Control-Allow-Origin") is None
    found = reply.read()
    connection.close()
    return reply.status, found, reply.headers


def test_routes(server):
    status, body, headers = ask(server)
    assert (status, body) == (200, b"<p>page</p>") and headers["Content-Type"].startswith("text/html")
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    status, body, _ = ask(server, "POST", "/echo?a=1&a=2&b=%C3%BC", json.dumps([1, "é"]).encode())
    assert status == 200 and json.loads(body) == {"content": [1, "é"], "query": {"a": "2", "b": "ü"}}
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ({"Host": "evil.example"}, 403, "is called 127.0.0.1"),
        ({"Host": None}, 403, "is called"),
        ({"Host": "127.0.0.1"}, 403, "is called"),  # another port
        ({"path": "/nothing"}, 404, "nothing to GET at /nothing"),
        ({"path": "/../../etc/passwd"}, 404, "nothing to GET"),
        ({"path": "/refuse"}, 405, "nothing to GET at /refuse"),
        ({"method": "POST", "path": "/echo", "body": "1", "Content_Type": "text/plain"}, 415, "text/plain"),
        ({"method": "POST", "path": "/echo", "body": "1", "Content_Type": None}, 415, "no type"),
        ({"method": "POST", "path": "/echo", "body": "1", "Origin": "http://evil.org"}, 403, "only a page"),
        ({"method": "POST", "path": "/echo", "body": "1", "Origin": "null"}, 403, "only a page"),
        ({"method": "POST", "path": "/echo", "body": "x" * 1001}, 413, "1,000 bytes"),
        ({"method": "POST", "path": "/echo", "body": "1", "Content-Length": "9" * 40}, 413, "1,000 bytes"),
        ({"method": "POST", "path": "/echo", "body": "1", "Content-Length": "-1"}, 411, "length"),
        ({"method": "POST", "path": "/echo", "body": "1", "Transfer-Encoding": "chunked"}, 411, "length"),
        ({"method": "POST", "path": "/echo", "body": "{"}, 400, "not JSON"),
        ({"method": "POST", "path": "/echo", "body": "NaN"}, 400, "not JSON"),
        ({"method": "POST", "path": "/echo", "body": "[" * 999}, 400, "not JSON"),
        ({"method": "POST", "path": "/echo", "body": b"\xff"}, 400, "not JSON"),
        ({"method": "POST", "path": "/refuse", "body": "1"}, 400, "this graph has no nodes."),
        ({"method": "POST", "path": "/fail", "body": "1"}, 500, "an error of its own"),
    ],
)  # fmt: skip
def test_bad_requests(server, how, status, said):
    found, body, _ = ask(server, **how)
    assert found == status and said in json.loads(body)["error"]
    assert b"secret" not in body


def test_its_own_origin_and_name(server):
    for host in server.hosts:
        status, _, _ = ask(server, "POST", "/echo", "1", Host=host, Origin=f"http://{host}")
        assert status == 200


def test_a_request_that_does_not_arrive(server, monkeypatch):
    monkeypatch.setattr(module._Handler, "timeout", 0.2)
    with socket.create_connection(server.server_address[:2], timeout=5) as slow:
        slow.sendall(b"POST /echo HTTP/1.1\r\nHost: " + server.hosts[0].encode() + b"\r\n")
        assert slow.recv(100) == b""  # closed, without an answer
    assert ask(server)[0] == 200


def test_a_port_in_use(server):
    with pytest.raises(ConfigError, match=f"port {server.server_address[1]} cannot be used"):
        PageServer({}, server.server_address[1])
    with pytest.raises(ConfigError, match="port 99999 cannot be used"):
        PageServer({}, 99999)


def test_serve_until_interrupted(monkeypatch):
    heard, opened = [], []
    monkeypatch.setattr(module, "open_page", opened.append)

    def interrupted(self, poll_interval):
        raise KeyboardInterrupt

    monkeypatch.setattr(PageServer, "serve_forever", interrupted)
    serve({}, said=heard.append)
    assert heard == opened and heard[0].startswith("http://127.0.0.1:")
    serve({}, browser=False, said=heard.append)
    assert len(opened) == 1


def test_no_browser_without_a_screen(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail("opened"))
    assert not open_page("http://127.0.0.1:1/")


def test_only_so_many_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "MOST", 1)
    going, waiting = threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        going.set()
        waiting.wait(5)
        return Reply.json(1)

    own = PageServer({("GET", "/"): slow}).start()
    first = threading.Thread(target=ask, args=(own,))
    first.start()
    assert going.wait(5)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask(own)
    waiting.set()
    first.join()
    own.close()
