"""The viewer: places of nodes, what is shown of a model, the page in a browser, and its server."""

from __future__ import annotations

import base64
import http.client
import json
import zlib
from functools import partial
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.spatial import cKDTree
from test_page import EVIL, Reader, write_graph

from graphdiffusion.cli import main
from graphdiffusion.data import load_data
from graphdiffusion.errors import ConfigError, DataError
from graphdiffusion.nn.trajectory import last_state
from graphdiffusion.report.nodes import principal
from graphdiffusion.report.page.server import PageServer
from graphdiffusion.report.view import view_routes, write_view
from graphdiffusion.report.view.data import page_data
from graphdiffusion.report.view.layout import layout, repulsion
from graphdiffusion.report.view.page import notes
from graphdiffusion.report.view.reach import FURTHEST, matrix_of
from graphdiffusion.report.view.scene import Scene, read_scene
from graphdiffusion.training import load_run

NODE = 7  # that is chosen


def trained(folder: Path, target: str, *options: str) -> Path:
    graph, out = write_graph(folder / "graph", target), folder / "run"
    few = ["--epochs", "5", "--splits", "2", "--no-report", "--quiet", "--out", str(out)]
    assert main(["train", str(graph), *options, *few]) == 0
    return out


def unpacked(data: dict, name: str) -> np.ndarray:
    own = data["arrays"][name]
    return np.frombuffer(zlib.decompress(base64.b64decode(own["data"])), f"<{own['kind']}")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A model whose attention changes along t."""
    how = ["--model", "grand", "--variant", "nonlinear", "--solver", "rk4", "--step-size", "0.25"]
    more = ["--hidden", "8", "--time", "3", "--rate", "0.1", "--preset", "none"]
    return trained(tmp_path_factory.mktemp("nonlinear"), "classes", *how, *more)


@pytest.fixture(scope="module")
def linear(tmp_path_factory) -> Path:
    more = ["--model", "grand", "--hidden", "8", "--time", "3", "--rate", "0.1"]
    return trained(tmp_path_factory.mktemp("linear"), "classes", *more)


@pytest.fixture(scope="module")
def scene(run) -> Scene:
    return read_scene(run)


# Places


def test_neighbours_are_near():
    data = load_data("cora-embedded")
    edges = data.edge_index.numpy()
    places = layout(edges, data.num_nodes)
    assert places.shape == (data.num_nodes, 2) and places.min() >= 0 and places.max() <= 1
    np.testing.assert_array_equal(places, layout(edges, data.num_nodes))
    far = np.linalg.norm(places[edges[0]] - places[edges[1]], axis=1)
    random = np.random.default_rng(0).permutation(data.num_nodes)
    assert np.median(far) < 0.25 * np.median(np.linalg.norm(places - places[random], axis=1))
    # communities can be seen: of the nearest nodes in the picture most have the same class
    gaps, nearest = cKDTree(places).query(places, 6)
    same = data.y.numpy()[nearest[:, 1:]] == data.y.numpy()[:, None]
    assert same.mean() > 0.7
    assert gaps[:, 1].min() > 1e-3  # and no node covers another


@pytest.mark.parametrize("kind", ["none", "one", "two", "loops", "path", "star", "isolated"])
def test_places_of_odd_graphs(kind):
    path = np.stack([np.arange(199), np.arange(1, 200)])
    edges, nodes = {
        "none": (np.zeros((2, 0), int), 0),
        "one": (np.zeros((2, 0), int), 1),
        "two": (np.zeros((2, 0), int), 2),
        "loops": (np.stack([np.arange(5)] * 2), 5),
        "path": (path, 200),
        "star": (np.stack([np.zeros(199, int), np.arange(1, 200)]), 200),
        "isolated": (path, 500),
    }[kind]
    places = layout(edges, nodes)
    assert places.shape == (nodes, 2) and np.isfinite(places).all()
    assert ((places >= -1e-9) & (places <= 1 + 1e-9)).all()
    assert len(np.unique(places.round(6), axis=0)) == nodes


def test_repulsion_is_the_sum_over_all_pairs():
    random = np.random.default_rng(3)
    places, charge = random.random((400, 2)) * 30, random.random(400) + 0.5
    away = places[:, None] - places[None]
    square = (away**2).sum(-1) + np.eye(400)
    wanted = (charge[None, :, None] * away / square[..., None]).sum(1)
    found = repulsion(places, charge)
    size = np.linalg.norm(wanted, axis=1)
    assert np.median(np.linalg.norm(found - wanted, axis=1) / size) < 0.1


# Shares by distance


def coefficients(found: Scene) -> tuple[float, float, float]:
    """α, β and T of the model that is shown."""
    layer = found.run.model(found.member).diffusion
    with torch.no_grad():
        return float(layer.equation.alpha()), float(layer.equation.terms[0].beta()), float(layer.span)


def test_shares_of_the_linear_model_follow_its_closed_form(linear):
    found = read_scene(linear)
    assert found.reach is not None and found.reach.exact and found.reach.error < 1e-5
    assert found.edges.shape == (1, found.graph.num_edges)
    alpha, beta, time = coefficients(found)
    matrix = found.graph.dense(torch.from_numpy(found.edges[0]).double()).numpy()
    n = len(matrix)
    # [x, x(0)]' = [[α(A − I), βI], [0, 0]] [x, x(0)]
    block = np.zeros((2 * n, 2 * n))
    block[:n, :n], block[:n, n:] = alpha * (matrix - np.eye(n)), beta * np.eye(n)
    whole = expm(time * block)
    wanted = whole[:n, :n] + whole[:n, n:]
    np.testing.assert_allclose(found.reach.rows(np.arange(n)), wanted, atol=1e-6)
    shares = found.reach.shares(np.arange(n))
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(found.graph.edge_index.flip(0).t().tolist())
    for node in (0, 1, NODE, 31):
        distance = networkx.single_source_shortest_path_length(graph, node)
        by = np.zeros(FURTHEST + 2)
        for other in range(n):
            by[min(distance.get(other, FURTHEST + 1), FURTHEST + 1)] += abs(wanted[node, other])
        np.testing.assert_allclose(shares[node], by / by.sum(), atol=1e-6)


def test_shares_of_the_nonlinear_model_follow_its_trajectory(scene):
    assert scene.reach is not None and not scene.reach.exact
    x0, last = (way.numpy() for way in states(scene))
    rows = scene.reach.rows(np.arange(len(x0)))
    error = np.linalg.norm(rows @ x0 - last) / np.linalg.norm(last)
    assert error == pytest.approx(scene.reach.error, rel=1e-3) and error < 0.01
    # the propagator of the attention that is shown, linear between its times, by another solver
    alpha, beta, time = coefficients(scene)
    graph, n = scene.graph, len(x0)
    matrices = [matrix_of(graph, torch.from_numpy(own)).toarray() for own in scene.edges]

    def slope(t, flat):
        place = min(t / time * (len(matrices) - 1), len(matrices) - 1)
        low = int(place)
        high = min(low + 1, len(matrices) - 1)
        a = matrices[low] * (1 - place + low) + matrices[high] * (place - low)
        x = flat.reshape(n, n)
        return (alpha * (a @ x - x) + beta * np.eye(n)).ravel()

    way = solve_ivp(slope, (0, time), np.eye(n).ravel(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(rows, way.y[:, -1].reshape(n, n), atol=2e-3)


def states(scene: Scene) -> tuple[torch.Tensor, torch.Tensor]:
    """x(0) and x(T)."""
    way = scene.run.trajectory([0.0, 1.0], scene.member)
    return way.states[0].double(), way.states[-1].double()


# What is shown


def test_what_is_shown_is_what_the_model_does(scene, run):
    found = load_run(run)
    assert scene.member == found.best
    np.testing.assert_allclose(scene.answers[-1], found.predict(member=found.best), atol=1e-5)
    layer, problem = found.model().diffusion, found.problem
    way = found.trajectory([k / 20 for k in range(21)])
    for k in (0, 10, 20):
        with torch.no_grad():
            wanted = layer.equation.diffusivity(problem.graph, way.states[k])
        np.testing.assert_allclose(scene.edges[k], wanted, atol=1e-6)
    assert np.abs(scene.edges[-1] - scene.edges[0]).max() > 0.01
    split = found.split()
    for k, part in enumerate(("train", "val", "test")):
        np.testing.assert_array_equal(scene.parts == k + 1, getattr(split, part))
    assert (scene.parts == 0).sum() == 12  # every fifth node has no label
    plane, explained = principal(way.states.numpy())
    assert scene.explained == pytest.approx(explained, abs=1e-6) and scene.plane.shape == plane.shape


def test_pairs_know_both_directions(scene):
    pairs, (row, col) = scene.pairs, scene.ends
    both = set(zip(row.tolist(), col.tolist(), strict=True))
    assert {(a, b) for a, b in both if a < b} == set(
        zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)
    )
    for p in range(0, len(pairs.first), 7):
        assert (row[pairs.there[p]], col[pairs.there[p]]) == (pairs.first[p], pairs.second[p])
        assert (col[pairs.back[p]], row[pairs.back[p]]) == (pairs.first[p], pairs.second[p])
    assert (row[pairs.loops] == np.arange(60)).all() and (col[pairs.loops] == np.arange(60)).all()
    strength = np.maximum(*(scene.edges.max(0)[e] for e in (pairs.there, pairs.back)))
    assert (np.diff(strength) <= 0).all()


def test_an_edge_in_one_direction(tmp_path):
    found = read_scene(trained(tmp_path, "classes", "--directed", "--model", "grand", "--hidden", "4"))
    assert (found.pairs.there < 0).any() or (found.pairs.back < 0).any()
    node = int(found.pairs.first[found.pairs.back < 0][0])
    other = int(found.pairs.second[found.pairs.back < 0][0])
    neighbours = {k: (there, back) for k, there, back in found.detail(node)["neighbours"]}
    assert neighbours[other][0] is not None and neighbours[other][1] is None
    data, _ = page_data(found, served=False)
    assert {"there", "back", "loops", "shares"} <= data["arrays"].keys()


@pytest.mark.parametrize(("target", "model"), [("numbers", "gcn"), ("labels", "gde")])
def test_other_tasks_and_models(tmp_path, target, model):
    found = read_scene(trained(tmp_path, target, "--model", model, "--hidden", "4"))
    told = " ".join(notes(found))
    assert not found.attention and found.reach is None and len(found.answers) == 1
    assert "weights of the graph" in told and "Shares by distance are not known" in told
    assert ("no integral" in told) == (model == "gcn") and ("answers are those at T" in told) == (
        model == "gde"
    )
    np.testing.assert_allclose(found.answers[-1], found.run.predict(member=found.member), atol=1e-4)
    data, left_out = page_data(found, served=False)
    assert data["colours"] == ["truth", "said", "state"] and left_out == []
    if target == "numbers":
        y = found.run.problem.task.y[:, 0]
        low, high = data["ranges"][0]
        assert low <= float(y[y.isfinite()].min()) and high >= float(y[y.isfinite()].max())
        # one large number does not blur the others
        found.truth[3], found.edges[0, 0] = 1e6, 1e6
        data, _ = page_data(found, served=False)
        np.testing.assert_allclose(unpacked(data, "exact"), found.truth[:, 0], rtol=1e-6)
        np.testing.assert_allclose(unpacked(data, "answers"), found.answers.ravel(), rtol=1e-6)
        there = found.pairs.there
        np.testing.assert_array_equal(
            unpacked(data, "there"), np.where(there < 0, np.nan, found.edges[0, there])
        )


def test_the_attention_of_a_layer(tmp_path):
    """GAT: that of the last layer, by PyG's own."""
    from torch_geometric.nn import GATConv

    how = ["--model", "gat", "--hidden", "4", "--output-heads", "2"]
    found = read_scene(trained(tmp_path, "classes", *how))
    model, problem = found.run.model(found.member), found.run.problem
    assert found.attention and "in the last layer" in " ".join(notes(found))
    own, (given, _) = model.layers[-1], last_state(model, problem.x, problem.graph)
    conv = GATConv(given.shape[1], 2, heads=2, concat=False, add_self_loops=False)
    with torch.no_grad():
        conv.lin.weight.copy_(own.linear.weight)
        conv.att_dst.copy_(own.vector[..., 0][None])
        conv.att_src.copy_(own.vector[..., 1][None])
        _, (_, wanted) = conv(given, problem.graph.edge_index, return_attention_weights=True)
    np.testing.assert_allclose(found.edges[0], wanted.mean(1), atol=1e-5)


# Pages


def test_the_file_loads_nothing(run, tmp_path, monkeypatch):
    said: list[str] = []
    path = write_view(run, tmp_path / "graph.html", note=said.append)
    text = path.read_text()
    assert said[0].startswith("GRAND-nl, member ") and "by validation, at 21 times: " in said[0]
    assert said[1].startswith("layout of 60 nodes: ") and len(said) == 2
    reader = Reader(text)
    for tag, attributes in reader.tags:
        assert tag not in ("img", "iframe", "object", "embed"), tag
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href"):
            assert attributes.get(name, "data:,") == "data:,"
    rules = next(a["content"] for _, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in str(rules) and "connect-src" not in str(rules)
    assert json.loads(reader.scripts[0])["ids"][3] == f"3 {EVIL}"
    assert write_view(run, tmp_path / "again.html").read_text() == text
    # what does not fit is left out, and said
    monkeypatch.setattr("graphdiffusion.report.view.data.ROOM", 100)
    monkeypatch.setattr("graphdiffusion.report.view.data.WORK", 100)
    said.clear()
    small = write_view(run, tmp_path / "small.html", note=said.append)
    assert small.stat().st_size < path.stat().st_size
    assert len([line for line in said if "without --out" in line]) == 3
    assert said[-1] in Reader(small.read_text()).shown


def test_what_the_script_is_given(scene):
    data, _ = page_data(scene, served=False)
    array = partial(unpacked, data)
    pairs = scene.pairs
    wanted = np.maximum(scene.edges[:, pairs.there], scene.edges[:, pairs.back])
    width = array("width").reshape(wanted.shape).astype(float)
    np.testing.assert_allclose(((width - 1) / 254) ** 2 * data["edge"]["peak"], wanted, atol=5e-3)
    np.testing.assert_allclose(array("places").reshape(-1, 2) / 65535, scene.places, atol=1e-5)
    np.testing.assert_allclose(array("plane").reshape(scene.plane.shape) / 255, scene.plane, atol=3e-3)
    np.testing.assert_array_equal(array("classes"), scene.truth)
    np.testing.assert_array_equal(array("predicted"), scene.answers.argmax(-1).ravel())
    served, _ = page_data(scene, served=True)
    assert not {"answers", "there", "shares"} & served["arrays"].keys()


def test_refusals(run, tmp_path, capsys):
    with pytest.raises(ConfigError, match="is a folder: name a file"):
        write_view(run, tmp_path)
    with pytest.raises(ConfigError, match="members 0 to 1, and no member 5"):
        read_scene(run, member=5)
    with pytest.raises(DataError, match="holds no run"):
        read_scene(tmp_path)
    for given, told in (
        (["--member", "5"], "--member must be a number from 0 to 1"),
        (["--member", "all"], "one model is shown"),
        (["--port", "99999"], "port 99999 cannot be used (no such port)"),
    ):
        assert main(["view", str(run), *given, "--no-open"]) == 2
        assert told in capsys.readouterr().err


def test_command(run, tmp_path, capsys, monkeypatch):
    path = tmp_path / "graph.html"
    assert main(["view", str(run), "--member", "0", "--out", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"Graph: {path}\n" and "layout of 60 nodes: 0." in shown.err and path.exists()

    def serve(routes, port, *, browser, said):
        assert set(routes) == {("GET", "/"), ("GET", "/node")} and port == 4321 and not browser
        said("http://127.0.0.1:4321/")

    monkeypatch.setattr("graphdiffusion.report.view.serve", serve)
    assert main(["view", str(run), "--port", "4321", "--no-open"]) == 0
    assert capsys.readouterr().out == "Graph: http://127.0.0.1:4321/ (Ctrl-C stops it)\n"


@pytest.fixture(scope="module")
def server(scene):
    own = PageServer(view_routes(scene)).start()
    yield own
    own.close()


def test_the_server_answers_for_its_page_alone(server, scene):
    def ask(path, method="GET", host=None):
        connection = http.client.HTTPConnection(*server.server_address[:2], timeout=5)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", server.hosts[0] if host is None else host)
        connection.endheaders()
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, content

    assert ask("/")[0] == 200
    status, content = ask(f"/node?number={NODE}")
    assert status == 200 and json.loads(content) == scene.detail(NODE)
    for path in ("/node", "/node?number=60", "/node?number=-1", "/node?number=1e3", "/node?number=%C2%B2"):
        assert ask(path)[0] == 400, path
    for path in ("/other", "/../etc/passwd", "/node/7", "/run/model.safetensors"):
        assert ask(path)[0] == 404, path
    assert ask("/", method="POST")[0] == 405
    assert ask("/", method="DELETE")[0] in (405, 501)
    for host in ("evil.example", "evil.example:80", "127.0.0.1"):
        assert ask("/", host=host)[0] == 403, host


def opened(browser, url: str, width: int = 1200, scheme: str = "light"):
    """A page, what it says in its console, and what it asks for."""
    context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
    tab, said, asked = context.new_page(), [], []
    # Chromium says so itself where it copies pictures that were drawn in software
    tab.on("console", lambda message: "GPU stall" in message.text or said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(url)
    tab.wait_for_selector("#graph[data-drawn]")
    return tab, said, asked


def pixels(tab) -> bytes:
    """The picture once all of it is drawn and seen, without the name of a node below the mouse."""
    tab.mouse.move(0, 0)
    tab.wait_for_function("() => document.getElementById('graph').dataset.busy === 'no'")
    found = [tab.locator("#graph").screenshot()]
    while len(found) < 2 or found[-1] != found[-2]:  # it is seen a little later than it is drawn
        tab.wait_for_timeout(60)
        found.append(tab.locator("#graph").screenshot())
    return found[-1]


def becomes(tab, picture: bytes, same: bool) -> bool:
    """Whether the picture is this one, or another, within a few seconds."""
    return any((pixels(tab) == picture) == same or tab.wait_for_timeout(100) for _ in range(30))


def place(tab, scene: Scene, node: int) -> dict[str, float]:
    """Where a node is in the picture that shows the whole graph."""
    box = tab.locator("#graph").bounding_box()
    side = 0.95 * min(box["width"], box["height"])
    x, y = scene.places[node]
    return {"x": box["width"] / 2 + (x - 0.5) * side, "y": box["height"] / 2 - (y - 0.5) * side}


@pytest.mark.parametrize(
    ("how", "width", "scheme"), [("file", 1200, "light"), ("served", 390, "dark")], ids=["desktop", "phone"]
)
def test_the_page_in_a_browser(browser, scene, run, server, tmp_path, how, width, scheme):
    url = server.url if how == "served" else write_view(run, tmp_path / "graph.html").as_uri()
    tab, said, asked = opened(browser, url, width, scheme)
    canvas, slider = tab.locator("#graph"), tab.locator("#time")
    told = [" ".join(str(scene.ids[k]).split()) for k in range(60)]

    # the slider and the animation
    last = pixels(tab)
    slider.fill("0")
    assert becomes(tab, last, same=False)  # classes stay, and the attention changes
    slider.fill("20")
    assert becomes(tab, last, same=True)
    tab.select_option("#colour", "state")
    assert becomes(tab, last, same=False)
    at_end = pixels(tab)
    slider.focus()
    tab.keyboard.press("Home")
    assert canvas.get_attribute("data-frame") == "0" and becomes(tab, at_end, same=False)
    assert tab.locator("#time-value").inner_text() == "t = 0.00"
    tab.keyboard.press("End")
    assert becomes(tab, at_end, same=True)
    play = tab.locator("#play")
    play.click()
    assert play.inner_text() == "Pause"
    tab.wait_for_function(
        "() => { const f = document.getElementById('graph').dataset.frame; return f > 1 && f < 10; }"
    )
    play.click()
    stopped = float(canvas.get_attribute("data-frame"))
    assert 1 < stopped < 20
    tab.wait_for_timeout(100)
    assert float(canvas.get_attribute("data-frame")) == stopped and play.inner_text() == "Play"
    slider.focus()
    tab.keyboard.press("End")

    # a click chooses a node: what is said is what Python computes
    canvas.click(position=place(tab, scene, NODE))
    tab.wait_for_selector(f"#node[data-node='{NODE}']")
    panel = tab.locator("#node")
    assert tab.locator("#node h2").inner_text() == f"Node {told[NODE]}"
    detail = scene.detail(NODE)
    for frame in (20, 5):
        slider.fill(str(frame))
        k = int(scene.answers[frame, NODE].argmax())
        verdict = "right" if k == scene.truth[NODE] else "wrong"
        assert panel.locator("dd").first.inner_text().endswith(f", {verdict}")
        values = [text.inner_text() for text in panel.locator(".answers .value").all()]
        wanted = sorted(scene.answers[frame, NODE], reverse=True)
        shown = sorted((float(v.rstrip("%")) / 100 for v in values), reverse=True)
        np.testing.assert_allclose(shown, wanted, atol=6e-4)
        rows = [
            [cell.inner_text() for cell in row.locator("th, td").all()]
            for row in panel.locator("tbody tr").all()
        ]
        neighbours = [(told[j], a[frame], b[frame]) for j, a, b in detail["neighbours"]]
        neighbours.append(("itself", detail["own"][frame], detail["own"][frame]))
        neighbours.sort(key=lambda own: -own[1])
        assert [row[0] for row in rows] == [own[0] for own in neighbours]
        np.testing.assert_allclose(
            [[float(v) for v in row[1:]] for row in rows], [own[1:] for own in neighbours], atol=6e-4
        )
    shares = [float(text.inner_text().rstrip("%")) / 100 for text in panel.locator(".shares .value").all()]
    np.testing.assert_allclose(shares, scene.reach.shares(np.array([NODE]))[0], atol=6e-4)
    assert panel.locator(".chart polyline").count() == 2

    # its neighbours are buttons
    other = panel.locator("tbody button").first
    number = int(other.get_attribute("data-node"))
    other.click()
    tab.wait_for_selector(f"#node[data-node='{number}']")
    assert canvas.get_attribute("data-chosen") == str(number)
    canvas.focus()
    tab.keyboard.press("Escape")
    assert canvas.get_attribute("data-chosen") == "-1"

    # search by an id, or by a part of it
    tab.fill("#find", str(scene.ids[31]))
    tab.press("#find", "Enter")
    tab.wait_for_selector("#node[data-node='31']")
    tab.fill("#find", "1 <")
    tab.press("#find", "Enter")
    tab.fill("#find", "no such node")
    tab.press("#find", "Enter")
    assert "No node has an id with “no such node” in it." in tab.locator("#results").inner_text()
    tab.fill("#find", "script")
    tab.press("#find", "Enter")
    assert tab.locator("#results button").count() == 8

    # filters
    canvas.focus()
    tab.keyboard.press("Escape")
    slider.fill("20")
    before = pixels(tab)
    tab.select_option("#part", "3")
    assert canvas.get_attribute("data-visible") == str((scene.parts == 3).sum())
    assert becomes(tab, before, same=False)
    tab.select_option("#answers", "1")
    wrong = (scene.answers[20].argmax(-1) != scene.truth) & (scene.truth >= 0) & (scene.parts == 3)
    assert canvas.get_attribute("data-visible") == str(wrong.sum())
    assert f"{wrong.sum()} of 60 nodes shown" in tab.locator("#status").inner_text()
    tab.click("#all")
    assert canvas.get_attribute("data-visible") == "60"
    tab.select_option("#colour", "class")
    button = tab.locator("#legend button").nth(1)
    assert button.inner_text().strip() == "odd"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert canvas.get_attribute("data-visible") == str((scene.truth != 1).sum())
    tab.click("#all")
    assert tab.locator("#legend button").nth(1).get_attribute("aria-pressed") == "true"

    # the keyboard moves, zooms and chooses
    canvas.focus()
    tab.keyboard.press("0")
    whole = pixels(tab)
    for key in ("ArrowLeft", "+", "-", "+"):
        tab.keyboard.press(key)
    assert becomes(tab, whole, same=False) and float(canvas.get_attribute("data-zoom")) > 1
    tab.keyboard.press("Enter")
    assert canvas.get_attribute("data-chosen") != "-1"
    tab.keyboard.press("Escape")
    tab.keyboard.press("0")
    assert becomes(tab, whole, same=True)
    tab.select_option("#edges", "none")
    assert becomes(tab, whole, same=False)

    assert tab.evaluate("window.broken") is None
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert said == []
    loaded = [own for own in asked if not own.startswith("data:")]
    assert all(own.startswith(url) for own in loaded) and (how == "served" or loaded == [url])
    tab.context.close()


def test_what_a_model_has_not_is_not_shown(browser, tmp_path):
    """Several labels, and a model without t."""
    out = trained(tmp_path, "labels", "--model", "gcn", "--hidden", "4")
    tab, said, _ = opened(browser, write_view(out, tmp_path / "graph.html").as_uri())
    for name in ("#time", "#play", "#answers"):
        assert not tab.locator(name).is_visible(), name
    before = pixels(tab)
    tab.select_option("#colour", "said")
    tab.select_option("#output", "1")
    assert becomes(tab, before, same=False)
    tab.fill("#find", "3 <")
    tab.press("#find", "Enter")
    tab.locator("#results button").first.click()
    tab.wait_for_selector("#node[data-node]")
    shown = tab.locator("#node").inner_text()
    assert "Its neighbours" in shown and "not known for this model" in shown
    assert said == []
    tab.context.close()


def test_without_webgl(browser, linear, tmp_path):
    """The graph is not drawn, and the rest works."""
    tab = browser.new_page()
    tab.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    tab.goto(write_view(linear, tmp_path / "graph.html").as_uri())
    tab.wait_for_selector("text=This browser has no WebGL 2")
    tab.fill("#find", f"5 {EVIL}")
    tab.press("#find", "Enter")
    tab.wait_for_selector("#node[data-node='5']")
    assert tab.locator("#node .shares li").count() == FURTHEST + 2
    tab.close()
