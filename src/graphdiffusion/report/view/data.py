"""What the script of the page of a graph is given: small whole numbers, and what does not fit."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .reach import FURTHEST
from .scene import Scene

MOST_PAIRS = 1_000_000  # that are drawn
OUTPUTS = 8  # numbers or labels that nodes can be coloured by
ROOM = 24 << 20  # bytes of details that an exported file may hold, before they are compressed
WORK = 2e10  # multiplications for the shares of all nodes, some tens of seconds
ABSENT = 65535  # no such edge


def page_data(scene: Scene, served: bool) -> tuple[dict[str, Any], list[str]]:
    """What the script is given, and sentences on what is left out."""
    left_out: list[str] = []
    pairs, count = scene.pairs, scene.graph.num_nodes
    drawn = slice(0, MOST_PAIRS)
    if len(pairs.first) > MOST_PAIRS:
        rest = len(pairs.first) - MOST_PAIRS
        left_out.append(f"{rest:,} of the weakest pairs of neighbours are not drawn.")
    peak = max(float(np.abs(scene.edges).max(initial=0)), 1e-12)
    strength = np.maximum(
        _field(np.abs(scene.edges), pairs.there[drawn], 0),
        _field(np.abs(scene.edges), pairs.back[drawn], 0),
    )
    width = np.where(strength > 0, 1 + 254 * np.sqrt(strength / peak), 0).round()
    names = scene.run.names
    arrays = {
        "places": packed(65535 * scene.places, "u2"),
        "pairs": packed(np.stack([pairs.first[drawn], pairs.second[drawn]]), "u4"),
        "width": packed(width, "u1"),
        "plane": packed(255 * scene.plane, "u1"),
        "parts": packed(scene.parts, "u1"),
    }
    low, high = _range(scene)
    if scene.task == "classification":
        arrays |= {
            "classes": packed(scene.truth, "i2"),
            "predicted": packed(scene.answers.argmax(-1), "u2"),
        }
        shown = ["class", "predicted", "right"]
        if (scene.truth >= 0).mean() < 0.5:
            shown = ["predicted", "class", "right"]
    else:
        truth = _share(scene.truth[:, :OUTPUTS].T, low[:OUTPUTS, None], high[:OUTPUTS, None])
        arrays["truth"] = packed(np.where(np.isnan(truth), ABSENT, 65534 * truth), "u2")
        said = _share(scene.answers[..., :OUTPUTS], low[:OUTPUTS], high[:OUTPUTS])
        arrays["said"] = packed(65534 * said, "u2")
        if scene.task == "regression":  # a small number beside a large one would be lost in 16 bits
            arrays["exact"] = packed(scene.truth[:, :OUTPUTS].T, "f4")
        shown = ["truth", "said"]
        if len(names) > OUTPUTS:
            left_out.append(
                f"Nodes can be coloured by the first {OUTPUTS} of {len(names)} {_noun(scene)}s."
            )
    ids = scene.run.data.get("node_ids")
    data: dict[str, Any] = {
        "count": count,
        "ids": None if ids is None else [str(own) for own in ids],
        "task": scene.task,
        "noun": _noun(scene),
        "names": [str(name) for name in names],
        "times": scene.times,
        "colours": [*shown, "state"],
        "ranges": np.stack([low, high], 1).tolist(),
        "edge": {"kind": "attention" if scene.attention else "weight", "peak": peak},
        "furthest": FURTHEST,
        "served": served,
        "arrays": arrays,
    }
    if not served:
        left_out += _add_details(scene, data)
    return data, left_out


def _add_details(scene: Scene, data: dict[str, Any]) -> list[str]:
    """Put the details of all nodes into the data of a page; sentences on those that do not fit."""
    left_out, pairs = [], scene.pairs
    room, otherwise = ROOM, "without --out they are computed for each node that is chosen"
    low, high = np.array(data["ranges"]).T
    exact = scene.task == "regression"
    size = (4 if exact else 2) * scene.answers.size
    if size <= room:
        stored = scene.answers if exact else 65534 * _share(scene.answers, low, high)
        data["arrays"]["answers"] = packed(stored, "f4" if exact else "u2")
        room -= size
    else:
        left_out.append(f"The answers of each node along t would make the file too large: {otherwise}.")
    if (2 if scene.attention else 4) * scene.edges.size <= room and len(pairs.first) <= MOST_PAIRS:
        ends = float(scene.edges.min(initial=0)), data["edge"]["peak"]
        data["edge"]["range"] = ends
        for name, edges in (("there", pairs.there), ("back", pairs.back), ("loops", pairs.loops)):
            if scene.attention:
                own = packed(_field(_share(scene.edges, *ends) * 65534, edges, ABSENT), "u2")
            else:  # weights can have any size
                own = packed(_field(scene.edges, edges, np.nan), "f4")
            data["arrays"][name] = own
    else:
        kind = data["edge"]["kind"]
        left_out.append(f"The {kind}s of each node would make the file too large: {otherwise}.")
    if scene.reach is not None:
        if scene.reach.work * data["count"] <= WORK:
            shares = scene.reach.shares(np.arange(data["count"]))
            data["arrays"]["shares"] = packed(65535 * shares, "u2")
        else:
            left_out.append(f"The shares of far nodes would take too long for all nodes: {otherwise}.")
    return left_out


def packed(values: NDArray[Any], kind: str) -> dict[str, str]:
    """An array of numbers of a kind such as ``u2`` or ``f4``, compressed: the kind, and bytes as base64."""
    whole = not kind.startswith("f") and np.issubdtype(np.asarray(values).dtype, np.floating)
    numbers = np.rint(values) if whole else values
    content = np.ascontiguousarray(numbers, dtype=f"<{kind}").tobytes()
    return {"kind": kind, "data": base64.b64encode(zlib.compress(content, 6)).decode()}


def _field(values: NDArray[Any], edges: NDArray[np.int64], absent: float) -> NDArray[Any]:
    """Values ``(m, E)`` at some edges, ``(m, k)``; where there is no edge, another value."""
    if values.shape[-1] == 0:
        return np.full((len(values), len(edges)), absent)
    return np.where(edges >= 0, values[:, edges], absent)


def _share(values: NDArray[Any], low: Any, high: Any) -> NDArray[Any]:
    """Where values lie between two ends, in [0, 1]."""
    return ((values - low) / np.maximum(high - low, 1e-300)).clip(0, 1)


def _range(scene: Scene) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the numbers that are shown, of each output."""
    if scene.task != "regression":
        return np.zeros(len(scene.run.names)), np.ones(len(scene.run.names))
    both = np.concatenate([scene.truth[None], scene.answers.astype(float)])
    return np.nanmin(both, (0, 1)), np.nanmax(both, (0, 1))


def _noun(scene: Scene) -> str:
    return {"classification": "class", "regression": "target", "multilabel": "label"}[scene.task]
