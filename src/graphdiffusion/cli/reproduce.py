"""``grand reproduce``: the tables of the paper, and each of its other experiments by its name."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import ConfigError
from ..options import split_names
from . import figures
from .messages import say
from .options import ROOT, require_folder

if TYPE_CHECKING:
    from ..experiments.tables import Cell


TABLES = {"table1": "Table 1: Planetoid's splits.", "table2": "Table 2: random splits."}


class Experiments(TyperGroup):
    """A group whose first word must be one of its commands; otherwise one sentence lists them."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            others = ", ".join(name for name in self.commands if name not in TABLES)
            raise ConfigError(
                f"table must be one of {', '.join(TABLES)}, or an experiment ({others}), before options; "
                f"got {repr(args[0]) if args else 'nothing'}."
            )
        return super().parse_args(ctx, args)  # type: ignore[arg-type]

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            say("interrupted; what is measured is kept, and the same command goes on.")
            raise typer.Exit(130) from None


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Experiments,
        help=(
            "Measure the paper's tables and figures. Tables take options such as --splits, --inits and "
            "--budget: grand reproduce table2 --help."
        ),
    )
    for name, about in TABLES.items():
        group.command(name, short_help=about)(reproduce)
    figures.add_to(group)
    app.add_typer(group, name="reproduce")


def reproduce(
    context: typer.Context,
    only: Annotated[str, typer.Option(help="Data sets, with commas.", show_default="all")] = "",
    rows: Annotated[str, typer.Option(help="Models, with commas.", show_default="all")] = "",
    readings: Annotated[
        str,
        typer.Option(
            help="Of Planetoid's split, table 1 only, with commas: masks, whole, authors.",
            show_default="all",
        ),
    ] = "",
    splits: Annotated[int, typer.Option(min=1, help="Random splits, table 2 only.")] = 100,
    inits: Annotated[int, typer.Option(min=1, help="Initialisations of each split.")] = 20,
    preset: Annotated[str, typer.Option(help="auto: the tuned presets; paper: the paper's text.")] = "auto",
    search: Annotated[
        int,
        typer.Option(min=0, help="Search every model first with so many trials.", show_default="presets"),
    ] = 0,
    budget: Annotated[
        float, typer.Option(help="Seconds after which no further cell is begun.", show_default="none")
    ] = math.inf,
    root: Annotated[str, ROOT] = "",
    device: Annotated[str, typer.Option(help="Where to compute. One of: auto, cpu, cuda.")] = "auto",
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Most epochs, for a quick look.", show_default="the preset's")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and results.")] = Path("results"),
    summary: Annotated[
        Path | None,
        typer.Option(help="Folder for a results file without the members.", show_default="none"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard runs made with other options.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")] = False,
) -> None:
    """Measure a table of the paper: every cell by the paper's protocol, beside the paper's figure.

    The paper has 100 splits with 20 initialisations each: for a GPU. On a laptop take --inits 1, and
    in table 2 --splits 5. With --epochs the results are in a file of their own. Cells that are finished
    are not repeated; a run that was stopped goes on.
    """
    from ..experiments import Plan, paper
    from ..experiments.tables import cells
    from ..experiments.tables import reproduce as measure
    from ..training.problem import pick_device

    table = str(context.info_name)
    if not budget > 0:
        raise ConfigError(f"--budget must be greater than 0 seconds, got {budget:g}.")
    require_folder(out, "--out")
    if summary is not None:
        require_folder(summary, "--summary")
    if table == "table1" and splits != paper.SPLITS:
        raise ConfigError("--splits is for table2: the splits of table1 are Planetoid's.")
    if search and preset != "auto":
        raise ConfigError("--search finds the options of each model: leave out --preset.")
    wanted = cells(
        table,
        split_names(only),
        split_names(rows),
        readings=split_names(readings),
        splits=splits,
        inits=inits,
        preset=preset,
        searched=bool(search),
        device=device,
        epochs=epochs,
    )
    pick_device(device)
    if (table == "table2" and splits < paper.SPLITS) or inits < paper.INITS or epochs is not None:
        say(f"fewer trainings than the paper's protocol ({_protocol(table)}): figures are rough.")
    with ExitStack() as bars:
        found = measure(
            wanted,
            out,
            root=root or None,
            budget=budget,
            summary=summary,
            fresh=fresh,
            plan=Plan.of(search) if search else None,
            note=say,
            watch=lambda cell, members: None if quiet else _bar(bars, cell, members),
        )
    _print(found)
    if len(found["missing"]) == len(wanted):
        raise typer.Exit(2)
    print(f"Results: {out / wanted[0].file}", flush=True)


def _protocol(table: str) -> str:
    from ..experiments.paper import INITS, SPLITS

    return f"{SPLITS} splits, {INITS} initialisations" if table == "table2" else f"{INITS} initialisations"


def _bar(bars: ExitStack, cell: Cell, members: int) -> Any:
    """A progress bar on a terminal, in place of the cell's before."""
    from .progress import Bar, Lines
    from .tables import error_console

    bars.close()
    console = error_console()
    return bars.enter_context(Bar(members, console)) if console.is_terminal else Lines(members)


def _print(found: dict[str, Any]) -> None:
    from ..experiments.ranking import columns, grand_and_rival, ranks
    from .tables import print_table

    heads = ("rank", "model", "paper", "ours", "diff.", "runs", "trials")
    for (data, reading), column in columns(found["cells"]).items():
        place = ranks(column)
        rows = [
            (
                place[row],
                c["model"],
                "" if c["paper"] is None else f"{c['paper']:.1f} ± {c['paper_std']:.1f}",
                f"{c['mean']:.2f} ± {c['std']:.2f}",
                "" if c["difference"] is None else f"{c['difference']:+.2f}",
                f"{c['splits']} × {c['inits']}",
                c.get("trials", ""),
            )
            for row, c in sorted(column.items(), key=lambda entry: place[entry[0]])
        ]
        about = f", {reading}" if reading else ""
        print_table(f"{found['table']}, {data}{about}: test accuracy in percent", heads, rows)
        if difference := grand_and_rival(column):
            print(f"{difference}, paired over the same trainings, with a 95% interval\n")
