"""``grand train --parts``: a training on the parts of a graph, started here or by torchrun."""

from __future__ import annotations

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .messages import go_on, say
from .messages import report as write_report

if TYPE_CHECKING:
    from ..partition import About
    from ..training import Config, Member, Problem, Trainer
    from ..training.chunks import RunFolder
    from .settled import Settled

ENGINES = ("local", "ray")


def started_by_launcher() -> int:
    """How many processes torchrun, or another launcher, has started; 1 if none has."""
    text = os.environ.get("WORLD_SIZE", "1")
    return int(text) if text.isdigit() and "RANK" in os.environ else 1


def train_on_parts(
    settled: Settled,
    out: Path,
    resume: bool,
    root: str | None,
    plugins: list[Path],
    flags: dict[str, Any],
    *,
    parts: int,
    method: str,
    engine: str,
    quiet: bool,
    report: bool,
) -> None:
    """Cut the graph, train in a process for each part, and show what came of it."""
    from ..training.batches import refused_with_parts
    from ..training.chunks import PARTS
    from ..training.folder import check_options, holds_run, is_finished, require_free, require_place
    from ..training.launch import Order, launch_here, launch_ray, require_ray, work
    from ..training.lock import require_idle
    from ..training.partfolder import holds_parts

    launched, config = started_by_launcher(), settled.config
    if config.batches:
        raise ConfigError(refused_with_parts(config))
    if launched > 1 and (engine != "local" or parts not in (0, launched)):
        raise ConfigError(
            f"a launcher has started {launched} processes, one for each part: leave out --parts and "
            "--engine."
        )
    first = os.environ.get("RANK", "0") == "0"
    # a launcher, and a queue, repeat the same command after a failure
    resume = resume or (launched > 1 and holds_run(out))
    if resume and is_finished(out):
        if first:
            check_options(out, config)
            say("this run is finished.")
            _show(settled, out, root, plugins, report)
        return
    if engine == "ray":
        require_ray()  # before the graph is cut
    stored = Path(config.data)
    folder = stored if holds_parts(stored) else out / PARTS
    parts = launched if launched > 1 else parts
    data = None
    if first:
        if resume:
            require_place(config)
            require_idle(out)  # at once, and not as the failure of a process
        else:
            require_free(out)
        if folder is stored:
            parts = _check_stored(config, stored, parts, flags)
        else:
            data = _prepare(settled, out, folder, parts, method, root, flags, resume).data
    watching = _Watching(quiet)
    order = Order(
        config.to_dict(),
        tuple(str(p.resolve()) for p in plugins),
        out.resolve(),
        folder.resolve(),
        resume,
        watching,
        notes_failure=launched == 1,
        again=go_on(out, plugins, root, parts, engine),
    )
    if launched > 1:
        _await(folder, launched, out)
        work(order)
    else:
        (launch_ray if engine == "ray" else launch_here)(order, parts)
    if first:
        _show(settled, out, root, plugins, report, data)


def spread(
    problem: Problem,
    config: Config,
    members: list[Member],
    folder: RunFolder,
    plugins: list[Path],
    root: str | None,
) -> Trainer:
    """A trainer that spreads the members over a Ray cluster: as many in a task as fit on a GPU, or one."""
    from ..training.memory import chunk_size
    from ..training.spread import SpreadTrainer

    files = [str(path.resolve()) for path in plugins]
    each = chunk_size(problem, config, len(members))
    again = go_on(folder.path, plugins, root, engine="ray")
    return SpreadTrainer(problem, config, members, folder, each=each, plugins=files, say=say, again=again)


class _Watching:
    """Progress on the screen of the first process; sent to it."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    def __call__(self, members: int) -> AbstractContextManager[Any]:
        from .progress import watching
        from .tables import error_console

        return watching(members, error_console(), self.quiet)


def _prepare(
    settled: Settled,
    out: Path,
    folder: Path,
    parts: int,
    method: str,
    root: str | None,
    flags: dict[str, Any],
    resume: bool,
) -> Problem:
    """Read the graph, meet errors that would come later, and write the parts unless they are there."""
    from ..data import is_dataset
    from ..training import load_problem
    from ..training.folder import check_same
    from ..training.lock import require_idle
    from ..training.partfolder import holds_problem, write_problem
    from ..training.population import needs_whole_graph
    from .automatic import about_data
    from .train import rehearse

    config = settled.config
    problem = load_problem(config, root=root)
    if resume:
        check_same(out, config, problem.data)  # before other data replaces the parts of the run
    model = rehearse(config, problem, flags)
    if not model.takes_parts:
        raise ConfigError(needs_whole_graph(config))
    if not resume and not is_dataset(config.data):
        for sentence in about_data(config, problem.data):
            say(sentence)
    settled.tell()
    if folder.exists() and not holds_problem(folder, problem, parts, method, config):
        require_idle(folder.parent)  # otherwise a run that has just begun has these parts
        shutil.rmtree(folder)
    if not folder.exists():
        tell_parts(write_problem(folder, problem, parts, method, config))
    return problem


def _check_stored(config: Config, folder: Path, parts: int, flags: dict[str, Any]) -> int:
    from ..partition import read_about
    from ..training.partfolder import check_stored

    about = read_about(folder)
    if "self_loops" in flags:  # presets have it, too
        raise ConfigError(
            f"the graph in {folder} is cut already: give it self-loops before, and leave out --self-loops."
        )
    check_stored(config, about)
    if parts not in (0, about.parts):
        way = f"take --parts {about.parts}"
        if started_by_launcher() > 1:
            way = f"start as many processes, not {parts}"
        raise ConfigError(f"the graph in {folder} is cut into {about.parts} parts: {way}, or cut it again.")
    tell_parts(about)
    return about.parts


def tell_parts(about: About) -> None:
    """What was cut, in a sentence."""
    nodes, edges, halo = ([own[key] for own in about.sizes] for key in ("nodes", "edges", "halo"))
    count = f"{about.parts} part{'s' * (about.parts > 1)}"
    say(
        f"{count} ({about.method or 'given'}): {min(nodes):,} to {max(nodes):,} nodes, "
        f"{min(edges):,} to {max(edges):,} edges; {sum(halo):,} rows are exchanged in a product, "
        f"{sum(halo) / about.nodes:.1%} of the nodes."
    )


def _await(folder: Path, parts: int, out: Path) -> None:
    """Wait until the first process has written the parts; it may be on another machine."""
    import time

    from ..errors import DataError
    from ..partition import read_about

    deadline = time.monotonic() + 1800
    while time.monotonic() < deadline:
        try:
            if read_about(folder).parts == parts:
                return
        except DataError:
            pass
        time.sleep(0.5)
    raise ConfigError(
        f"no {parts} parts appeared in {folder} in half an hour: --out must be a folder that all machines "
        "see."
    )


def _show(
    settled: Settled, out: Path, root: str | None, plugins: list[Path], report: bool, data: Any = None
) -> None:
    from ..training.folder import tidy
    from ..training.partfolder import holds_parts
    from ..training.runs import read_summary
    from .tables import print_summary

    tidy(out)
    whole = not holds_parts(Path(settled.config.data))
    page = write_report(out, root=root, data=data) if report and whole else None
    print_summary(out, read_summary(out), plugins, page, whole)
