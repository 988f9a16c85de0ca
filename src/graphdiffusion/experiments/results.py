"""The results file of an experiment: points that are measured one after the other, each written at once.

An experiment of the paper is a file of this room that measures its points by :class:`Results`, and a file
of the report that draws the picture from what they left. Several processes may measure one experiment: each
takes points that no other one has in hand, and all of them come to the same end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..ensemble.progress import PAUSE
from ..errors import ConfigError, FolderInUse, NotEnoughMemory
from ..training.lock import holding, writing
from ..training.memory import free_memory, is_out_of_memory
from ..training.storage import digest, dumps, read_json, write_json
from ..training.summary import counted, duration

FILE, KIND = "results.json", "experiment"
TAKEN = "taken"  # folder of the locks of points that are being measured
LOOK = 1.0  # seconds between two looks at what other processes have in hand

Note = Callable[[str], None]
Tick = Callable[[float], None]  # takes the share of a point that is done


class Results:
    """Points of an experiment, in a folder that other processes may write to as well.

    Points that are there are kept if they were measured with the same settings; otherwise the folder is
    refused. What does not change the figures, as the device, is no setting.

    Args:
        folder: For the file.
        settings: What the figures depend on.
        note: Called with each line that reports progress.
        lists: Settings that only list which points are measured. They may change, and a mapping may gain
            entries of new data sets: what is measured stays as it is.

    Attributes:
        path: The file.
        content: What it holds: ``settings``, ``points`` and what :meth:`conclude` added.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], note: Note, lists: Sequence[str] = ()
    ) -> None:
        self.folder, self.path, self.note, self.lists = folder, folder / FILE, note, lists
        self.content: dict[str, Any] = {"settings": _stored(settings), "points": []}
        self._read()

    @property
    def points(self) -> list[dict[str, Any]]:
        return self.content["points"]

    def missing(self, wanted: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The points that the file does not hold."""
        return [p for p in wanted if not self.held([p])]

    def held(self, wanted: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What the file holds of some points, in their order."""
        return [own for p in wanted for own in self.points if _is_at(own, p)]

    def measure(
        self,
        wanted: Sequence[Mapping[str, Any]],
        compute: Callable[[Mapping[str, Any], Tick], Mapping[str, Any]],
        cost: Callable[[Mapping[str, Any]], float] = lambda point: 1.0,
    ) -> None:
        """Compute the points that the file does not hold, and write it after each.

        A point that another process has in hand is left to it, and so is one for which a training or a
        search is needed that another process has in hand. The method ends when the file holds all points,
        those of other processes included. A point that does not fit in memory, which other processes may
        use as well, is tried again after the others.

        Args:
            wanted: What identifies each point, for example model and seed.
            compute: Gives the figures of a point; it calls its second argument now and then.
            cost: Of a point, relative to the others: from it follows the time that is left.
        """
        left = self.missing(wanted)
        if len(left) < len(wanted):
            self.note(f"{len(wanted) - len(left)} of {len(wanted)} points are in {self.path} already.")
        progress = _Progress(self, left, cost)
        waited, late, last = False, list[Mapping[str, Any]](), False
        try:
            while left or (late and not last):
                if not left:
                    left, late, last = self.missing(late), [], True
                before, held = len(left), None
                for point in left:
                    try:
                        with holding(self.folder / TAKEN / digest(_stored(point))[:16]):
                            self._read()
                            if self.missing([point]):
                                self._one(point, compute, progress)
                    except FolderInUse as error:
                        held = error
                    except Exception as error:
                        if not is_out_of_memory(error):
                            raise
                        reason = (str(error) or type(error).__name__).splitlines()[0]
                        more = "" if last else " It is tried again after the others."
                        self.note(f"{_label(point)}: {reason}{more}")
                        late.append(point)
                    if point in late:
                        free_memory()  # here, where no error holds the tensors any more
                self._read()
                left = [p for p in self.missing(left) if p not in late]
                if left and len(left) == before:
                    if not waited:
                        self.note(f"the points that are left need what another process has in hand: {held}")
                    waited = True
                    time.sleep(LOOK)
            if late:
                raise NotEnoughMemory(
                    f"{counted(len(late), 'point')} did not fit in memory, the first is {_label(late[0])}: "
                    "others may use this device. The same command tries them again."
                )
        finally:
            with suppress(OSError):  # there is something in it, such as locks of other processes
                (self.folder / TAKEN).rmdir()
                self.folder.rmdir()

    def _one(
        self,
        point: Mapping[str, Any],
        compute: Callable[[Mapping[str, Any], Tick], Mapping[str, Any]],
        progress: _Progress,
    ) -> None:
        began = time.monotonic()
        figures = compute(point, lambda share: progress.within(point, share))
        seconds = time.monotonic() - began
        with writing(self.folder, wait=True):
            self._read()
            self.points.append(_stored({**point, **figures, "seconds": round(seconds, 2)}))
            write_content(self.path, self.content)
        self.note(f"{_label(point)}: measured in {duration(seconds)}; {progress.now()}")

    def conclude(self, find: Callable[[], Mapping[str, Any]]) -> None:
        """Add what follows from all points that the file holds, such as the verdict on a claim."""
        with writing(self.folder, wait=True):
            self._read()
            self.content |= _stored(find())
            write_content(self.path, self.content)

    def _read(self) -> None:
        """Take what the file holds now."""
        if not self.path.exists():
            return
        own = self.content["settings"]
        content = read_results(self.path)
        if not _same(content["settings"], own, self.lists):
            raise ConfigError(
                f"{self.path} was made with other settings: delete its folder, or name another one with "
                "--out."
            )
        self.content = content | {"settings": own}


class _Progress:
    """How much of the work is done, that of other processes included, and the time that is left."""

    def __init__(
        self,
        results: Results,
        points: Sequence[Mapping[str, Any]],
        cost: Callable[[Mapping[str, Any]], float],
    ) -> None:
        self.results, self.points, self.cost = results, points, cost
        self.total = sum(map(cost, points))
        self.started = self.shown = time.monotonic()

    def now(self, more: float = 0.0) -> str:
        """In words; ``more`` is what is done besides the points that the file holds."""
        self.shown = time.monotonic()
        share = 1 - (sum(map(self.cost, self.results.missing(self.points))) - more) / self.total
        seconds = (self.shown - self.started) * (1 - share) / share if share > 0 else 0.0
        left = f", about {duration(seconds)} left" if 0 < share < 1 else ""
        return f"{100 * share:.0f}% of the work{left}."

    def within(self, point: Mapping[str, Any], share: float) -> None:
        """Say it now and then while a point is measured."""
        if time.monotonic() - self.shown >= PAUSE:
            self.results.note(self.now(share * self.cost(point)))


def require_known(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that an experiment does not have."""
    known = list(known)
    if unknown := [name for name in given if name not in known]:
        raise ConfigError(f"{option} must be among {', '.join(known)}; got {', '.join(unknown)}.")


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


def _label(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in point.items())


def _is_at(own: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    return all(own.get(key) == value for key, value in point.items())
