"""``grand train``."""

from __future__ import annotations

import logging
import math
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from ..errors import ConfigError
from .messages import go_on, say
from .messages import report as write_report
from .options import ROOT, Plugins, flag, given, with_config
from .settled import Settled, planned, resumed, settle

if TYPE_CHECKING:
    from ..nn import Model
    from ..training import Config, Problem

CHOICE = ("--budget", "--baselines", "--no-baselines")  # options of the choice alone

_DATA = "Data set by name, or path of a folder or .npz file with your own graph, or of a graph in parts."


def add_to(app: typer.Typer, configured: bool) -> None:
    app.command("train")(with_config(train, configured))


def train(
    ctx: typer.Context,
    data: Annotated[str, typer.Argument(help=_DATA)] = "cora-embedded",
    config: Annotated[
        Path | None, typer.Option(help="TOML file with options; those on the command line win.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Preset by name; auto: the one for data and model; none: plain defaults.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the run.", show_default="runs/DATA-MODEL-TIME")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Own graph: one model on one split, without a race.")
    ] = False,
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="A last fit on all labels, for the epochs that validation found.",
            show_default="own graph without a split: yes",
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Own graph: seconds that may cut the plan.", show_default="none")
    ] = math.inf,
    baselines: Annotated[
        bool, typer.Option(help="Own graph: compare with simple methods on the same labels.")
    ] = True,
    parts: Annotated[
        int,
        typer.Option(
            help="Cut the graph into so many parts, and train on all at once, a process for each.",
            show_default="1, or the processes of torchrun",
            min=0,
        ),
    ] = 0,
    cut: Annotated[
        str, typer.Option(help="How: metis (extra parts), ldg, random; auto: metis where it is installed.")
    ] = "auto",
    engine: Annotated[
        str,
        typer.Option(
            help="Who starts processes: local, or ray, for parts or for several trainings at once (extra "
            "cluster)."
        ),
    ] = "local",
    report: Annotated[bool, typer.Option(help="Write report.html, a page to look at.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    plugin: Plugins = None,
    root: Annotated[str, ROOT] = "",
    **options: Any,
) -> None:
    """Train a model: every split with every initialisation, and say how well it does on the test nodes.

    On a graph of one's own, and without options of a model, several configurations race, and the best ones
    become an ensemble.

    Everything is kept in a folder: config.toml, fingerprint.json, metrics.jsonl, model.safetensors,
    summary.json, log.txt, report.html. A run that was stopped goes on with --resume --out FOLDER.
    """
    from ..ensemble import portfolio
    from ..ensemble.folder import holds_choice
    from ..ensemble.portfolio import SHARED
    from ..training.partfolder import holds_parts
    from .parts import ENGINES, started_by_launcher, train_on_parts

    launched = started_by_launcher()
    parted = bool(parts) or launched > 1
    flags, own_graph = given(ctx), _given(ctx, "quick", "refit", "budget", "baselines", "preset", "config")
    if not budget > 0:
        raise ConfigError(f"--budget must be a positive number of seconds, got {budget:g}.")
    if resume:
        if out is None:
            raise ConfigError("--resume needs --out FOLDER, the folder of the run to go on with.")
        automatic = holds_choice(out)
        if automatic and own_graph:
            raise ConfigError(
                f"the run in {out} goes on as it was planned: leave out {', '.join(own_graph)}."
            )
        if automatic and parted:
            raise ConfigError(
                f"the run in {out} compares several configurations, each in one process: leave out --parts."
            )
        settled = Settled(planned(out, flags) if automatic else resumed(out, flags, config, ctx), None)
        parted = parted or holds_parts(Path(settled.config.data))
    else:
        settled = settle({"splits": 1, **flags} if quick else flags, config, preset)
        parted = parted or holds_parts(Path(settled.config.data))  # it is cut already
        if quick and set(flags) <= SHARED and config is None and not settled.published:
            first = portfolio()[0]
            settled = Settled(first.config(settled.config), None, first.name)
        plain = config is None and preset == "auto" and not (quick or settled.published or plugin)
        plain = plain and set(flags) <= SHARED and not parted
        automatic = plain or refit is True
        if parted and refit is True:
            raise ConfigError("--refit is for a training in one process: leave it out, or --parts.")
        if not automatic and (unused := [name for name in own_graph if name in CHOICE]):
            raise ConfigError(
                f"{', '.join(unused)} is for a choice of configurations on a graph of one's own, and this "
                f"trains {settled.shown} alone: leave it out, or --quick and options of a model."
            )
        if launched > 1 and out is None:
            raise ConfigError("processes that torchrun starts need one folder: add --out FOLDER.")
        out = out or _new_folder(settled.config, plain)
        if holds_choice(out):
            raise ConfigError(
                f"{out} holds a run already: add --resume to go on with it, or name another folder."
            )
    try:
        if engine not in ENGINES:
            raise ConfigError(f"--engine must be one of {', '.join(ENGINES)}, got {engine!r}.")
        if automatic and engine != "local":
            raise ConfigError(
                f"--engine {engine} is for one configuration or for parts, and this compares several: "
                "leave it out, or add --parts, --quick or options of a model."
            )
        if parted:
            job: dict[str, Any] = {
                "parts": parts,
                "method": cut,
                "engine": engine,
                "quiet": quiet,
                "report": report,
            }
            train_on_parts(settled, out, resume, root or None, plugin or [], flags, **job)
        elif automatic:
            how = {"refit": refit, "compare": baselines, "budget": budget, "resume": resume, "quiet": quiet}
            how["report"] = report
            own = None if resume or plain else settled
            _choose(settled.config, own, out, root or None, how)
        else:
            _train(settled, out, resume, quiet, root or None, plugin or [], flags, report, engine)
    except KeyboardInterrupt:
        begun = (out / "config.toml").exists() or holds_choice(out)
        again = f"interrupted; go on with: {go_on(out, plugin or [], root, parts, engine)}"
        say(again if begun else "interrupted.")
        raise typer.Exit(130) from None


def _given(ctx: typer.Context, *names: str) -> list[str]:
    """Which of some options stand on the command line, as they are written there."""
    sources = {name: ctx.get_parameter_source(name) for name in names}
    written = [
        name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"
    ]
    return [f"--no-{name}" if ctx.params.get(name) is False else f"--{name}" for name in written]


def _choose(base: Config, own: Settled | None, out: Path, root: str | None, how: dict[str, Any]) -> None:
    """An automatic choice: of the portfolio, or of one configuration that is fitted again to all labels."""
    from ..ensemble import Candidate
    from ..ensemble.portfolio import KEPT
    from ..training.problem import read_data
    from .automatic import train_automatically

    candidates = None
    if own is not None:
        options = {name: value for name, value in own.config.to_dict().items() if name not in KEPT}
        candidates = [Candidate(own.candidate or own.config.row, options)]
    train_automatically(base, read_data(base, root), out, candidates=candidates, **how)


def _new_folder(config: Config, automatic: bool) -> Path:
    data, kind = Path(config.data).stem.lower(), "auto" if automatic else config.row
    name = f"{data}-{kind}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = (Path("runs", name if k == 1 else f"{name}-{k}") for k in count(1))
    return next(path for path in numbered if not path.exists())  # several may begin in one second


def _train(
    settled: Settled,
    out: Path,
    resume: bool,
    quiet: bool,
    root: str | None,
    plugins: list[Path],
    flags: dict[str, Any],
    report: bool,
    engine: str,
) -> None:
    from ..data import is_dataset
    from ..training import Trainer, load_problem, load_run, open_folder, pick_device, protocol
    from ..training.folder import is_finished, require_free, require_place, tidy
    from ..training.plan import fitted
    from ..training.runs import read_summary
    from .automatic import about_data
    from .parts import spread
    from .progress import watching
    from .tables import error_console, print_summary

    config = settled.config
    if resume and is_finished(out):
        found = load_run(out)
        tidy(out)
        say("this run is finished.")
        page = write_report(out, root=root) if report else None
        print_summary(out, found.summary, plugins, page)
        return
    if resume:
        require_place(config)
    else:
        require_free(out)
    device = pick_device(config.device)
    problem = load_problem(config, root=root)
    problem = problem.to(device)
    rehearse(config, problem, flags)
    if not resume:
        config, sentences = fitted(problem, config, settled.given)
        for sentence in sentences:
            say(sentence)
    if not resume and not is_dataset(config.data):
        for sentence in about_data(config, problem.data):
            say(sentence)
        more = "--quick" if settled.candidate else "options of a model"
        say(f"one configuration, {settled.shown}: without {more}, several are compared.")
    settled.tell()
    members = protocol(config, problem.data)

    console = error_console()
    watched = watching(len(members), console, quiet)
    with open_folder(out, config, problem.data, resume) as folder, watched as watcher:
        logging.getLogger("graphdiffusion").info("grand %s", __version__)
        if engine == "ray":
            spread(problem, config, members, folder, plugins, root).run()
        else:
            Trainer(problem, config, members, folder, watcher).run()
    page = write_report(out, root=root, data=problem.data) if report else None
    print_summary(out, read_summary(out), plugins, page)


def rehearse(config: Config, problem: Problem, flags: dict[str, Any]) -> Model:
    """Meet, before anything is written, the errors that splits and model would raise later."""
    from ..training import build_model, protocol
    from ..training.memory import require_room
    from ..training.problem import member_splits, split_kind

    require_room(problem, config)
    model = build_model(config, problem.in_channels, problem.out_channels, 0, problem.num_nodes)
    for sentence in model.warnings():
        say(sentence)
    for first in {member.split: member for member in protocol(config, problem.data)}.values():
        member_splits(config, problem.data, [first])
    kind = split_kind(config, problem.data)
    if kind != "random" and (unused := {"development", "per_class"} & set(flags)):
        raise ConfigError(
            f"{flag(min(unused))} is for --split random, and {config.data} is split by {kind}: "
            "leave it out, or choose the split."
        )
    return model
