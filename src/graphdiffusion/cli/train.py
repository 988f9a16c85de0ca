"""``grand train``."""

from __future__ import annotations

import importlib.util
import logging
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from ..errors import ConfigError
from ..training.config import Config, check_names, read_toml
from .messages import say
from .options import ROOT, flag, given, with_config

if TYPE_CHECKING:
    from ..training import Problem

_DATA = "Data set by name, or path of a folder or .npz file with your own graph."


def add_to(app: typer.Typer) -> None:
    app.command("train")(with_config(train))


def train(
    ctx: typer.Context,
    data: Annotated[str, typer.Argument(help=_DATA)] = "cora-embedded",
    config: Annotated[
        Path | None, typer.Option(help="TOML file with options; those on the command line win.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Preset by name; auto: the one for data and variant; none: plain defaults.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the run.", show_default="runs/DATA-VARIANT-TIME")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    root: Annotated[str, ROOT] = "",
    **options: Any,
) -> None:
    """Train GRAND: every split with every initialisation, and say how well it does on the test nodes.

    Everything is kept in a folder: config.toml, fingerprint.json, metrics.jsonl, model.safetensors,
    summary.json, log.txt. A run that was stopped goes on with --resume --out FOLDER.
    """
    flags = given(ctx)
    if resume:
        if out is None:
            raise ConfigError("--resume needs --out FOLDER, the folder of the run to go on with.")
        settled = Settled(_resumed(out, flags, config, ctx), True, None)
    else:
        settled = settle(flags, config, preset)
        out = out or _new_folder(settled.config)
    try:
        _train(settled, out, resume, quiet, root or None)
    except KeyboardInterrupt:
        begun = (out / "config.toml").exists()
        say(f"interrupted; go on with: grand train --resume --out {out}" if begun else "interrupted.")
        raise typer.Exit(130) from None


@dataclass(frozen=True)
class Settled:
    """The options of a command, and where they come from."""

    config: Config
    split_chosen: bool
    preset: str | None

    def tell(self) -> None:
        if self.preset is not None:
            say(f"using the preset {self.preset}.")


def settle(flags: dict[str, Any], file: Path | None, preset: str) -> Settled:
    """Options from defaults, preset, file and command line, each over those before."""
    from ..configs import find_preset, read_preset

    values = read_toml(file) if file is not None else {}
    check_names(values)
    values = _absolute(values | flags)
    data, variant, split = (
        str(values.get(key, getattr(Config, key))) for key in ("data", "variant", "split")
    )
    name = find_preset(data, variant, preset, split)
    if name is not None:
        values = read_preset(name) | values
    return Settled(Config.from_dict(values), "split" in values, name)


def _resumed(folder: Path, flags: dict[str, Any], file: Path | None, ctx: typer.Context) -> Config:
    """The options of the run in a folder, which those given now must not contradict."""
    from ..training.folder import holds_run, read_config

    if not holds_run(folder):
        raise ConfigError(f"{folder} holds no run to go on with: leave out --resume to start one.")
    stored, _ = read_config(folder)
    source = ctx.get_parameter_source("preset")
    if source is not None and source.name == "COMMANDLINE":
        raise ConfigError(f"a resumed run keeps the options in {folder}: leave out --preset.")
    values = read_toml(file) if file is not None else {}
    check_names(values)
    values = _absolute(values | flags)
    for name, value in stored.but(**values).to_dict().items():
        if name in values and value != getattr(stored, name):
            written = "DATA" if name == "data" else flag(name)
            raise ConfigError(
                f"the run in {folder} was started with {written} {getattr(stored, name)}, not {value}: "
                "leave the option out, or start another run."
            )
    return stored


def _absolute(values: dict[str, Any]) -> dict[str, Any]:
    """Paths as they are from anywhere, so that a run finds its data again."""
    from ..data import is_dataset

    found = dict(values)
    if isinstance(data := found.get("data"), str) and not is_dataset(data):
        path = Path(data).expanduser()
        if path.exists():  # otherwise it is a name with a typo, and no path
            found["data"] = str(path.resolve())
    return found


def _new_folder(config: Config) -> Path:
    data = Path(config.data).stem.lower()
    return Path("runs", f"{data}-{config.variant}-{time.strftime('%Y%m%d-%H%M%S')}")


def _train(settled: Settled, out: Path, resume: bool, quiet: bool, root: str | None) -> None:
    from ..training import Trainer, load_problem, load_run, open_folder, pick_device, protocol
    from ..training.folder import is_finished, require_free, require_place, tidy
    from ..training.problem import has_fixed_split
    from ..training.runs import read_summary
    from .tables import error_console, print_summary

    config = settled.config
    if resume and is_finished(out):
        found = load_run(out)
        tidy(out)
        say("this run is finished.")
        print_summary(out, found.summary)
        return
    if resume:
        require_place(config)
    else:
        require_free(out)
    device = pick_device(config.device)
    problem = load_problem(config, root=root)
    if not settled.split_chosen and has_fixed_split(config, problem.data):
        config = config.but(split="given")
    problem = problem.to(device)
    _rehearse(config, problem)
    settled.tell()
    members = protocol(config)

    console = error_console()
    watched: AbstractContextManager[Any] = nullcontext()
    if console.is_terminal and not quiet:
        from ..training.progress import Bar

        watched = Bar(len(members), console)
    with open_folder(out, config, problem.data, resume) as folder, watched as watcher:
        logging.getLogger("graphdiffusion").info("grand %s", __version__)
        Trainer(problem, config, members, folder, watcher).run()
        _draw(out)
    print_summary(out, read_summary(out))


def _draw(folder: Path) -> None:
    """Curves beside the results, where matplotlib is at hand."""
    if importlib.util.find_spec("matplotlib") is not None:
        from ..report import plot_run

        plot_run(folder)


def _rehearse(config: Config, problem: Problem) -> None:
    """Meet, before anything is written, the errors that splits and model would raise later."""
    from ..solvers import FixedStep, warn_if_unstable
    from ..training import build_model, protocol
    from ..training.memory import require_room
    from ..training.problem import member_splits

    require_room(problem, config)
    layer = build_model(config, problem.in_channels, problem.classes, 0).diffusion
    if isinstance(layer.solver, FixedStep):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            warn_if_unstable(layer.solver, config.alpha)
        for warning in found:
            say(str(warning.message))
    for first in {member.split: member for member in protocol(config)}.values():
        member_splits(config, problem.data, [first])
