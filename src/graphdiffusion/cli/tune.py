"""``grand tune``."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .messages import command, say
from .options import ROOT, Plugins, given, with_config
from .settled import settle

if TYPE_CHECKING:
    from ..experiments import Leaderboard, Plan
    from ..training import Config

_SHOWN = 12  # trials of the leaderboard on the screen


def add_to(app: typer.Typer, configured: bool) -> None:
    app.command("tune")(with_config(tune, configured))


def tune(
    ctx: typer.Context,
    data: Annotated[str, typer.Argument(help="Data set by name, or path of your own graph.")],
    trials: Annotated[int, typer.Option(help="Points of the space to try.")] = 200,
    families: Annotated[int, typer.Option(help="Structures among them, each a population.")] = 8,
    grace: Annotated[int, typer.Option(help="Epochs before the first cut.")] = 10,
    reduction: Annotated[float, typer.Option(help="One trial in so many goes on at each rung.")] = 2.0,
    race_seeds: Annotated[int, typer.Option(help="Trainings of each trial in the race.")] = 1,
    finalists: Annotated[int, typer.Option(help="Trials that are trained again on fresh splits.")] = 8,
    final_seeds: Annotated[int, typer.Option(help="Number of these splits.")] = 10,
    budget: Annotated[
        float, typer.Option(help="Seconds for the race; then the finals begin.", show_default="none")
    ] = math.inf,
    space: Annotated[
        Path | None,
        typer.Option(help="TOML file with the space, or small-MODEL.", show_default="the model's"),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="population: this machine; ray: a cluster, through Ray Tune.")
    ] = "population",
    sampler: Annotated[
        str, typer.Option(help="With ray: random, or optuna for the structures.")
    ] = "random",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the search.", show_default="results/search/DATA-MODEL-SPLIT"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with options; those on the command line win.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="Where to start: as in grand train; it is the first trial.")
    ] = "auto",
    plugin: Plugins = None,
    root: Annotated[str, ROOT] = "",
    **options: Any,
) -> None:
    """Search for better options: random trials, halved by validation as they train.

    Trials start from a preset. Options given here are fixed, the others vary over the space. The best
    trials are trained again on fresh splits, and the best mean validation accuracy wins: best.toml is a
    preset. Test nodes are never looked at. A search that was stopped goes on when it is called again.
    """
    from ..experiments import Plan
    from ..training.config import read_toml

    flags = given(ctx)
    for name in ("splits", "inits"):
        if name in flags:
            raise ConfigError(f"a search has no --{name}: take --race-seeds and --final-seeds.")
    if engine not in ("population", "ray"):
        raise ConfigError(f"--engine must be population or ray, got {engine!r}.")
    if sampler not in ("random", "optuna"):
        raise ConfigError(f"--sampler must be random or optuna, got {sampler!r}.")
    if sampler == "optuna" and engine != "ray":
        raise ConfigError("--sampler optuna needs --engine ray.")
    settled = settle(flags, config, preset)
    start = settled.config
    plan = Plan(trials, families, race_seeds, grace, reduction, finalists, final_seeds, start.seed, budget)
    fixed = set(flags) | set(read_toml(config) if config is not None else ())
    try:
        settled.tell()
        if start.split == "planetoid" and settled.preset and not settled.preset.endswith("-planetoid"):
            say(
                f"{settled.preset} may have been chosen on random splits, which show labels of this one's "
                "test nodes: for figures to report, start from --preset paper or a --config of your own."
            )
        board = _search(start, plan, fixed, space, engine, sampler, out, root)
    except KeyboardInterrupt:
        say("interrupted; the same command goes on with the search.")
        raise typer.Exit(130) from None
    _print(board, plugin or [])


def _search(
    config: Config,
    plan: Plan,
    fixed: set[str],
    file: Path | None,
    engine: str,
    sampler: str,
    out: Path | None,
    root: str,
) -> Leaderboard:
    from ..experiments.search import search
    from ..experiments.space import has_space, read_space
    from ..training.problem import read_data, split_kind

    if file is None and not has_space(config.row):
        raise ConfigError(
            f"there is no search space for the model {config.row}: name one with --space FILE."
        )
    space = {k: v for k, v in read_space(file or config.row).items() if k not in fixed}
    if not space:
        raise ConfigError("every option of the space is fixed on the command line: nothing to search.")
    graph = read_data(config, root or None)
    config = config.replace(split=split_kind(config, graph))
    name = f"{Path(config.data).stem.lower()}-{config.row}-{config.split}"
    out = out or Path("results", "search", name)
    if engine == "ray":
        from ..experiments.cluster import search_on_cluster

        return search_on_cluster(config, space, plan, out, sampler=sampler, data=graph, watcher=say)
    return search(config, space, plan, out, data=graph, watcher=say)


def _print(board: Leaderboard, plugins: list[Path]) -> None:
    from ..training.summary import shown
    from .tables import print_facts, print_table

    def text(score: float | None) -> str:
        return "" if score is None else shown(score, board.percent).removesuffix("%")

    rows = [
        (
            place + 1,
            e.trial,
            "" if e.mean is None else f"{text(e.mean)} ± {text(e.std or 0.0)}",
            text(e.score),
            e.epochs,
            e.state,
        )
        for place, e in enumerate(board.entries[:_SHOWN])
    ]
    unit = "%" if board.percent else board.metric
    heads = ("rank", "trial", f"validation {unit}", f"in the race {unit}", "epochs", "outcome")
    print_table(f"search {board.name}: {len(board.entries)} trials", heads, rows)
    print_facts(f"trial {board.entries[0].trial}", board.entries[0].options.items())
    print(f"Best:    {board.folder}/best.toml")
    print(
        f"Next:    {command()} train {shlex.quote(board.best.data)} --config {board.folder}/best.toml"
        + "".join(f" --plugin {shlex.quote(str(path))}" for path in plugins),
        flush=True,
    )
