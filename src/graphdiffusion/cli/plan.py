"""``grand info DATA --plan``: what a training would take, and what to type next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .messages import command
from .options import flag

if TYPE_CHECKING:
    from ..training import Config
    from ..training.plan import Plan


def show_plan(
    flags: dict[str, Any], file: Path | None, preset: str, root: str | None, plugins: list[Path]
) -> None:
    """Print the plan of the training that these options describe."""
    from ..training import load_problem, pick_device, protocol
    from ..training.memory import feature_bytes
    from ..training.plan import make_plan, readable
    from .settled import settle
    from .tables import print_facts

    settled = settle(flags, file, preset)
    settled.tell()
    config = settled.config
    device = pick_device(config.device)
    problem = load_problem(config, root=root).to(device)
    plan, members = make_plan(problem, config), len(protocol(config, problem.data))
    kind = f"sparse, {plan.entries:,} numbers" if plan.sparse else "dense"
    held = readable(feature_bytes(problem) + problem.graph.num_edges * 20)
    facts: list[tuple[str, Any]] = [
        ("model", config.title),
        ("nodes", f"{plan.nodes:,}"),
        ("edges", f"{plan.edges:,} directed, self-loops included"),
        ("features", f"{plan.features:,} ({kind})"),
        ("parameters", f"{plan.parameters:,}"),
        ("graph and features", held),
        ("precision", _precision(config)),
        *_modes(plan),
        (f"free on {device}", readable(plan.free)),
        ("fit together", f"{plan.members:,} of {members}" if plan.members else "none"),
    ]
    if plan.parts is not None:
        facts.append(("parts needed", f"{plan.parts}, each on a device with as much memory"))
    elif plan.fitting is None:
        facts.append(("parts needed", "more than 4096: take a smaller hidden or fewer heads"))
    facts.append(("next", _next(plan, flags, file, preset, root, plugins)))
    print_facts(f"training on {config.data}", facts)


def _modes(plan: Plan) -> list[tuple[str, str]]:
    from ..training.plan import readable

    def verdict(size: int) -> str:
        return f"about {readable(size)}, {'fits' if size <= plan.free else 'does not fit'}"

    found = [
        (f"one member, {mode}" if mode else "one member", verdict(v)) for mode, v in plan.modes.items()
    ]
    if plan.rounded:
        mode = min(plan.rounded, key=plan.rounded.__getitem__)
        found.append((f"{mode}, --precision bfloat16", verdict(plan.rounded[mode])))
    return found


def _precision(config: Config) -> str:
    half = config.to_dict().get("precision") == "bfloat16"
    return "float32, powers of A bfloat16" if half else "float32"


def _next(
    plan: Plan,
    flags: dict[str, Any],
    file: Path | None,
    preset: str,
    root: str | None,
    plugins: list[Path],
) -> str:
    """The command that starts the training, with what it needs to fit."""
    left = {"data"} if plan.parts is None else {"data", "batches", "batch_parts", "batch_cut"}
    given = {name: value for name, value in flags.items() if name not in left}
    words = [command(), "train", str(flags.get("data", ""))]
    words += ["--config", str(file)] if file is not None else []
    words += ["--preset", preset] if preset != "auto" else []
    words += ["--root", root] if root else []
    words += [word for path in plugins for word in ("--plugin", str(path))]
    mode = plan.fitting if plan.parts is None else plan.least
    if mode and mode != plan.gradient:
        given["gradient"] = mode
    for name, value in given.items():
        if isinstance(value, bool):
            words.append(flag(name) if value else f"--no-{flag(name)[2:]}")
        else:
            words += [flag(name), str(value)]
    if plan.parts is not None:
        words += ["--parts", str(plan.parts)]
    return shlex.join(words)
