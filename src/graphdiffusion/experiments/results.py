"""The results file of an experiment: points that are measured one after the other, each written at once.

An experiment of the paper is a file of this room that measures its points by :class:`Results`, and a file
of the report that draws the picture from what they left.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..ensemble.progress import PAUSE
from ..errors import ConfigError
from ..training.lock import writing
from ..training.storage import dumps, read_json, write_json
from ..training.summary import duration

FILE, KIND = "results.json", "experiment"

Note = Callable[[str], None]
Tick = Callable[[float], None]  # takes the share of a point that is done


class Results:
    """Points of an experiment; made by :func:`open_results`.

    Attributes:
        path: The file.
        content: What it holds: ``settings``, ``points`` and what :meth:`conclude` added.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], note: Note, lists: Sequence[str] = ()
    ) -> None:
        self.path, self.note = path, note
        self.content: dict[str, Any] = {"settings": _stored(settings), "points": []}
        if path.exists():
            own = self.content["settings"]
            self.content = read_results(path)
            if not _same(self.content["settings"], own, lists):
                raise ConfigError(
                    f"{path} was made with other settings: delete its folder, or name another one with "
                    "--out."
                )
            self.content["settings"] = own

    @property
    def points(self) -> list[dict[str, Any]]:
        return self.content["points"]

    def missing(self, wanted: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The points that the file does not hold."""
        return [p for p in wanted if not any(_is_at(own, p) for own in self.points)]

    def measure(
        self,
        wanted: Sequence[Mapping[str, Any]],
        compute: Callable[[Mapping[str, Any], Tick], Mapping[str, Any]],
        cost: Callable[[Mapping[str, Any]], float] = lambda point: 1.0,
    ) -> None:
        """Compute the points that the file does not hold, and write it after each.

        Args:
            wanted: What identifies each point, for example model and seed.
            compute: Gives the figures of a point; it calls its second argument now and then.
            cost: Of a point, relative to the others: from it follows the time that is left.
        """
        missing = self.missing(wanted)
        costs = [cost(point) for point in missing]
        if len(missing) < len(wanted):
            self.note(f"{len(wanted) - len(missing)} of {len(wanted)} points are in {self.path} already.")
        started = shown = time.monotonic()
        for done, point in enumerate(missing):

            def tick(share: float, done: int = done) -> None:
                nonlocal shown
                now = time.monotonic()
                if now - shown >= PAUSE:
                    shown = now
                    at = sum(costs[:done]) + share * costs[done]
                    self.note(_progress(now - started, at / sum(costs)))

            began = time.monotonic()
            figures = compute(point, tick)
            seconds = time.monotonic() - began
            self.points.append(_stored({**point, **figures, "seconds": round(seconds, 2)}))
            self._write()
            shown = time.monotonic()
            label = ", ".join(f"{key} {value}" for key, value in point.items())
            left = _progress(shown - started, sum(costs[: done + 1]) / sum(costs))
            self.note(f"{label}: measured in {duration(seconds)}; {left}")

    def conclude(self, **found: Any) -> None:
        """Add what follows from all points, such as the verdict on a claim."""
        self.content |= _stored(found)
        self._write()

    def _write(self) -> None:
        write_content(self.path, self.content)


def require_known(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that an experiment does not have."""
    known = list(known)
    if unknown := [name for name in given if name not in known]:
        raise ConfigError(f"{option} must be among {', '.join(known)}; got {', '.join(unknown)}.")


@contextmanager
def open_results(
    folder: Path, settings: Mapping[str, Any], note: Note, lists: Sequence[str] = ()
) -> Iterator[Results]:
    """The results in a folder, which no other process writes to meanwhile.

    Points that are there are kept if they were measured with the same settings; otherwise the folder is
    refused. What does not change the figures, as the device, is no setting.

    Args:
        lists: Settings that only list which points are measured. They may change, and a mapping may gain
            entries of new data sets: what is measured stays as it is.
    """
    with writing(folder):
        yield Results(folder / FILE, settings, note, lists)


def write_content(path: Path, content: Mapping[str, Any]) -> None:
    """Write a results file; on one line, because most of it are long lists of numbers."""
    write_json(path, KIND, content, indent=None)


def read_results(path: Path) -> dict[str, Any]:
    """The content of a results file."""
    return read_json(path, KIND, "measure it again in another folder (--out)")


def _stored(content: Mapping[str, Any]) -> dict[str, Any]:
    """As it will be read from the file."""
    return json.loads(dumps(content))


def _same(old: Mapping[str, Any], new: Mapping[str, Any], lists: Sequence[str]) -> bool:
    """Whether points of the old settings would be measured likewise with the new ones."""
    if set(old) != set(new):
        return False
    for name in set(old) - set(lists):
        a, b = old[name], new[name]
        if isinstance(a, dict) and isinstance(b, dict) and lists:
            a, b = ({key: own[key] for key in a.keys() & b.keys()} for own in (a, b))
        if a != b:
            return False
    return True


def _progress(seconds: float, share: float) -> str:
    left = f", about {duration(seconds * (1 - share) / share)} left" if 0 < share < 1 else ""
    return f"{100 * share:.0f}% of the work{left}."


def _is_at(own: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    return all(own.get(key) == value for key, value in point.items())
