"""What fits, before a training starts: estimates of memory, the gradient mode, members and parts."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from ..errors import ConfigError, NotEnoughMemory
from ..nn import SparseFeatures
from ..partition.cut import chosen
from .config import Config
from .memory import ADVICE, SHARE, bytes_of, feature_entries, free_bytes, member_bytes
from .problem import Problem
from .template import model_template

MODES = ("backprop", "checkpoint", "adjoint")  # of gradients, in the order in which they are tried
_MOST_PARTS = 4096


@dataclass(frozen=True)
class Plan:
    """What a training takes, and what there is.

    Attributes:
        nodes: Of the graph as the model uses it.
        edges: Likewise, self-loops included.
        features: Width of the features.
        entries: Numbers in the features that are held.
        sparse: Whether the model takes them as a sparse matrix.
        parameters: Of one member.
        gradient: The mode of the configuration; empty for a model that has none.
        modes: Estimate of the bytes of one member by gradient mode; of modes that the solver has.
        free: Bytes that are free on the device.
        members: How many fit together by the mode of the configuration.
        fitting: The first mode that fits; ``None``: none does.
        parts: The fewest parts of the graph with which the mode that takes least fits; ``None``: more than
            4096, or one that does not need any.
        rounded: Estimate of the bytes of one member with powers in bfloat16, by gradient mode; empty where
            the solver has none, or they are bfloat16 already.
    """

    nodes: int
    edges: int
    features: int
    entries: int
    sparse: bool
    parameters: int
    gradient: str
    modes: dict[str, int]
    free: int
    members: int
    fitting: str | None
    parts: int | None
    rounded: dict[str, int]

    @property
    def least(self) -> str:
        """The mode that takes least memory."""
        return _least(self.modes)


def _least(modes: dict[str, int]) -> str:
    return min(modes, key=modes.__getitem__)


def make_plan(problem: Problem, config: Config) -> Plan:
    """The plan of a training on the device where the problem is."""
    model = model_template(config, problem.in_channels, problem.out_channels, problem.num_nodes)
    free, modes = free_bytes(problem.y.device), gradient_modes(problem, config)
    own = str(config.to_dict().get("gradient", ""))
    first = [own, *(mode for mode in modes if mode != own)]
    fitting = next((mode for mode in first if modes[mode] <= free), None)
    return Plan(
        problem.num_nodes,
        problem.num_edges,
        problem.in_channels,
        feature_entries(problem, model),
        isinstance(problem.x, SparseFeatures) and model.takes_sparse,
        sum(p.numel() for p in model.parameters()),
        own,
        modes,
        free,
        int(SHARE * free / modes[own]),
        fitting,
        None if fitting is not None else parts_needed(problem, config, free),
        _rounded(problem, config),
    )


def _rounded(problem: Problem, config: Config) -> dict[str, int]:
    if config.to_dict().get("precision") != "full":
        return {}
    try:
        return gradient_modes(problem, config.replace(precision="bfloat16"))
    except ConfigError:  # an equation without that
        return {}


def gradient_modes(problem: Problem, config: Config) -> dict[str, int]:
    """Estimate of the bytes of one member by gradient mode; under an empty name where there are none."""
    if "gradient" not in config.to_dict():
        return {"": member_bytes(problem, config)}
    found = {}
    for mode in MODES:
        try:
            found[mode] = member_bytes(problem, config.replace(gradient=mode))
        except ConfigError:  # a scheme without an adjoint
            continue
    return found


def parts_needed(problem: Problem, config: Config, free: int) -> int | None:
    """The fewest parts with which one member fits in 70% of ``free`` bytes on each device.

    A part is taken to read as many rows of others as it has itself; a good cut reads fewer.
    """
    modes = gradient_modes(problem, config)
    mode = _least(modes)
    best = config.replace(gradient=mode, batches=0) if mode else config.replace(batches=0)
    for parts in range(2, _MOST_PARTS + 1):
        if bytes_of(problem, best, min(1.0, 2 / parts), 1 / parts) <= SHARE * free:
            return parts
    return None


def fitted(problem: Problem, config: Config, given: Collection[str]) -> tuple[Config, list[str]]:
    """The configuration that a training starts with, and sentences about what was chosen.

    A gradient mode is chosen where the user gave none and that of the configuration does not fit. Powers in
    bfloat16 are never chosen, because they change the numbers: the error names them where they would fit.
    The method of a cut is written out, so that a run goes on with it wherever it is resumed.

    Args:
        problem: On the device that is to compute.
        config: Options as they are.
        given: Names of those that the user has given.

    Raises:
        NotEnoughMemory: no mode fits.
    """
    if config.batches and config.batch_cut == "auto":
        config = config.replace(batch_cut=chosen("auto"))
    plan = make_plan(problem, config)
    own, needs = plan.gradient, plan.modes[plan.gradient]
    if plan.fitting == own:
        return config, []
    device, free = problem.y.device, readable(plan.free)
    if plan.fitting is None:
        least = readable(plan.modes[plan.least])
        cut = f"--parts {plan.parts}" + (f" --gradient {plan.least}" if plan.least != own else "")
        cut = "" if plan.parts is None else f", cut the graph: {cut}, on as many devices"
        half = ""
        if mode := next((mode for mode, size in plan.rounded.items() if size <= plan.free), None):
            less = readable(plan.rounded[mode])
            half = f", round: --precision bfloat16 --gradient {mode}, with about {less}"
        raise NotEnoughMemory(
            f"one training takes about {least} of memory, and {free} are free on {device}: {ADVICE}{half}"
            f"{cut}, or train on groups of nodes: --batches {max(2, math.ceil(needs / plan.free))} and "
            "more."
        )
    other = readable(plan.modes[plan.fitting])
    takes = f"one training takes about {readable(needs)} by {own}, and {free} are free on {device}"
    if "gradient" in given:
        return config, [f"{takes}: --gradient {plan.fitting} takes about {other}."]
    same = "the same numbers" if plan.fitting == "checkpoint" else "gradients to a tolerance"
    sentence = f"{takes}: gradient {plan.fitting} is taken, with about {other} and {same}."
    return config.replace(gradient=plan.fitting), [sentence]


def readable(size: float) -> str:
    """Bytes for people."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{max(size / 1e6, 0.1):,.1f} MB"
