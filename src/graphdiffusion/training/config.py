"""One dataclass describes a training: it drives the library, TOML files and the command line."""

from __future__ import annotations

import difflib
import json
import math
import numbers
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..errors import ConfigError


def _option(
    default: Any, help: str, group: str, low: float | None = None, high: float | None = None
) -> Any:
    meta = {"help": help, "group": group, "low": low, "high": high}
    return field(default=default, metadata=meta)


# A split has its own seed, below MOST_SEEDS, and MOST_INITS seeds for its initialisations: no two trainings
# of a run share one, and those of a search, which begin at MOST_SEEDS, are others.
MOST_SEEDS, MOST_INITS = 1_000_000, 1_000

# Bounds of options that have no others: products of whole numbers fit in 64 bits, numbers in float32.
_LARGEST = {int: 2**31 - 1, float: 3.4e38}


@dataclass(frozen=True)
class Config:
    """Everything that determines a training. Defaults are the best settings we know for Cora."""

    data: str = _option("cora-embedded", "Data set by name, or path of a folder or .npz file.", "data")
    lcc: bool = _option(True, "Keep only the largest connected component of a named data set.", "data")
    split: Literal["random", "planetoid", "given"] = _option(
        "random",
        "Random splits, Planetoid's fixed one, or the masks given with the data, "
        "which an own graph that has them takes by default.",
        "data",
    )
    splits: int = _option(5, "Number of random splits.", "data", 1)
    inits: int = _option(1, "Initialisations for each split.", "data", 1, MOST_INITS)
    seed: int = _option(0, "First seed of splits and initialisations.", "data", 0, MOST_SEEDS - 1)
    development: int = _option(0, "Nodes for training and validation; 0: the paper's.", "data", 0)
    per_class: int = _option(
        0,
        "Training nodes of each class in a random split; 0: the paper's 20, fewer on a small graph.",
        "data",
        0,
    )
    directed: bool = _option(False, "Keep the directions of the edges of one's own graph.", "data")
    self_loops: float = _option(
        1.0, "Weight of the self-loop of every node (with reweight); 0: no loops.", "data", 0
    )

    variant: Literal["linear", "nonlinear", "nonlinear-rewired"] = _option(
        "linear", "GRAND-l, GRAND-nl or GRAND-nl-rw.", "model"
    )
    hidden: int = _option(80, "Channels of the diffused state.", "model", 1)
    time: float = _option(18.3, "Integration time T, the depth of the model.", "model", 0)
    learn_time: bool = _option(False, "Learn T.", "model")
    diffusivity: Literal["scaled-dot", "bahdanau", "cosine", "pearson", "exponential", "laplacian"] = (
        _option("scaled-dot", "Attention function.", "model")
    )
    heads: int = _option(8, "Attention heads.", "model", 1)
    attention_dim: int = _option(128, "Width of all heads together.", "model", 1)
    scale: Literal["sqrt", "dim"] = _option("sqrt", "Scaled dot: divide by √d_k or by d_k.", "model")
    normaliser: Literal["softmax", "squareplus"] = _option("squareplus", "Edge normaliser.", "model")
    over: Literal["rows", "columns"] = _option("columns", "What sums to one.", "model")
    reweight: bool = _option(True, "Multiply the attention by edge weights, if there are any.", "model")
    alpha: float = _option(0.5, "Start of α, learnt in (0, 1); 1: fixed at 1.", "model", 0, 1)
    source: bool = _option(True, "Add the source term βx₀ with learnt β.", "model")
    detach_source: bool = _option(False, "No gradient through the source's x₀.", "model")
    input_dropout: float = _option(0.5, "Dropout of the input features.", "model", 0, 0.999)
    dropout: float = _option(0.05, "Dropout before the decoder.", "model", 0, 0.999)
    mlp: bool = _option(False, "Two hidden layers in the encoder.", "model")
    batch_norm: bool = _option(False, "Batch normalisation after the encoder.", "model")
    augment: int = _option(0, "Zero channels added for the diffusion (ANODE).", "model", 0)
    relu: bool = _option(True, "ReLU before the decoder.", "model")
    label_rate: float = _option(
        0.0, "Share of training labels given as input features; 0: none.", "model", 0, 0.999
    )
    kinetic: float = _option(0.0, "Weight of the kinetic-energy regulariser.", "model", 0)
    jacobian: float = _option(0.0, "Weight of the Jacobian-norm regulariser.", "model", 0)

    rewire: Literal["none", "ppr", "heat"] = _option(
        "none", "Densify the graph by diffusion first.", "rewiring"
    )
    rewire_alpha: float = _option(0.15, "Teleport probability of personalised PageRank.", "rewiring", 0, 1)
    rewire_t: float = _option(3.0, "Time of the heat kernel.", "rewiring", 0)
    rewire_k: int = _option(32, "Entries kept for each node.", "rewiring", 1)
    keep: float = _option(0.9, "nonlinear-rewired: share of edges kept by attention.", "rewiring", 0, 1)
    threshold: float = _option(
        0.0, "nonlinear-rewired: keep edges of attention above this instead; 0: off.", "rewiring", 0, 1
    )
    mass: float = _option(
        0.0,
        "nonlinear-rewired: keep edges that hold this share of attention instead; 0: off.",
        "rewiring",
        0,
        1,
    )

    solver: Literal[
        "auto",
        "exponential",
        "dopri5",
        "bosh3",
        "heun21",
        "euler",
        "midpoint",
        "heun",
        "rk4",
        "adams-bashforth",
        "adams-moulton",
        "semi-implicit",
    ] = _option("auto", "Scheme; auto: the closed form for the linear variant, else dopri5.", "solver")
    step_size: float = _option(1.0, "Step τ of the fixed-step schemes.", "solver", 0)
    rtol: float = _option(
        1e-3, "Relative tolerance of the adaptive schemes and of Adams-Moulton.", "solver", 0
    )
    atol: float = _option(1e-4, "Absolute tolerance likewise.", "solver", 0)
    gradient: Literal["backprop", "checkpoint", "adjoint"] = _option(
        "backprop", "How gradients are computed.", "solver"
    )
    adjoint_rtol: float = _option(1e-4, "Relative tolerance of the adjoint.", "solver", 0)
    adjoint_atol: float = _option(1e-6, "Absolute tolerance of the adjoint.", "solver", 0)
    max_evaluations: int = _option(5000, "Evaluations allowed in one integration.", "solver", 1)

    optimiser: Literal["adam", "adamax", "rmsprop", "sgd"] = _option("adamax", "Optimiser.", "training")
    rate: float = _option(0.02, "Learning rate.", "training", 0)
    decay: float = _option(0.005, "Weight decay.", "training", 0)
    epochs: int = _option(100, "Most epochs.", "training", 1)
    patience: int = _option(0, "Stop after so many epochs without improvement; 0: never.", "training", 0)
    sweep: float = _option(
        0.0,
        "Evaluate at times up to this multiple of T and keep the best by validation; 0: only at T.",
        "training",
        0,
    )
    sweep_points: int = _option(12, "Number of times in the sweep.", "training", 2)
    device: Literal["auto", "cpu", "cuda"] = _option("auto", "Where to compute.", "training")

    def __post_init__(self) -> None:
        hints = _hints()
        for f in fields(self):
            object.__setattr__(
                self, f.name, _coerced(f.name, getattr(self, f.name), hints[f.name], f.metadata)
            )
        for name in ("time", "rate", "step_size"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be greater than 0, got {getattr(self, name)}.")
        if self.alpha == 0:
            raise ConfigError("alpha must lie in (0, 1]: with 0 nothing diffuses.")
        last = self.seed + (self.splits if self.split == "random" else 1)
        if last > MOST_SEEDS:
            raise ConfigError(
                f"seed + splits must be at most {MOST_SEEDS}, got {self.seed} + {self.splits}: larger "
                "seeds belong to searches."
            )
        if self.attention_dim % self.heads:
            raise ConfigError(
                f"attention_dim must be a multiple of heads, got {self.attention_dim} and {self.heads}."
            )
        if self.solver == "exponential" and self.variant != "linear":
            raise ConfigError("solver exponential is for the linear variant only; take dopri5 or rk4.")
        if self.threshold and self.mass:
            raise ConfigError(f"give threshold or mass, not both; got {self.threshold} and {self.mass}.")
        if self.keep == 0:
            raise ConfigError("keep must lie in (0, 1]: with 0 no edge would be left.")
        if self.rtol == 0 and self.atol == 0:
            raise ConfigError("rtol and atol must not both be 0.")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """From names and values; an unknown name is answered with the nearest known one."""
        check_names(values)
        return cls(**values)

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        return cls.from_dict(read_toml(path))

    def to_toml(self) -> str:
        """All options as TOML, under the headings of their groups (as comments)."""
        lines: list[str] = []
        group = ""
        for f in fields(self):
            if f.metadata["group"] != group:
                group = f.metadata["group"]
                lines.append(f"\n# {group}" if lines else f"# {group}")
            lines.append(f"{f.name} = {_toml(getattr(self, f.name))}")
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def but(self, **changes: Any) -> Config:
        """A copy with some options changed."""
        check_names(changes)
        return replace(self, **changes)


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Config)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The options in a TOML file, unchecked but for their syntax."""
    try:
        content = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    return parse_toml(content, str(path))


def parse_toml(content: str, origin: str) -> dict[str, Any]:
    """Options from TOML text; ``origin`` names it in messages."""
    try:
        return tomllib.loads(content)
    except (ValueError, RecursionError) as error:  # also numbers too long, and tables in tables without end
        raise ConfigError(f"{origin} is not valid TOML: {error}.") from None


def check_names(names: Iterable[str]) -> None:
    known = [f.name for f in fields(Config)]
    for name in names:
        if name == "root":
            raise ConfigError(
                "root is no option of a configuration, which must not depend on one machine: "
                "give --root, or set GRAND_DATA."
            )
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}."
            raise ConfigError(f"unknown option {name!r}: {hint}")


def _coerced(name: str, value: Any, hint: Any, meta: Mapping[str, Any]) -> Any:
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        if not isinstance(value, str) or value not in choices:
            near = difflib.get_close_matches(value if isinstance(value, str) else "", choices, 1)
            hint_text = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                f"{name} must be one of {', '.join(choices)}, got {_shown(value)}.{hint_text}"
            )
        return value
    if not isinstance(value, bool):  # numbers of NumPy are numbers too
        if hint is float and isinstance(value, numbers.Real):
            try:
                value = float(value)
            except OverflowError:
                value = math.inf
        elif hint is int and isinstance(value, numbers.Integral):
            value = int(value)
    if type(value) is not hint:
        raise ConfigError(f"{name} must be {_article(hint)}, got {_shown(value)}.")
    if hint is str:
        _check_text(name, value)
    elif hint is not bool:
        _check_bounds(name, value, meta["low"], meta["high"])
    return value


def _check_text(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:  # a path of other bytes, which no configuration file can hold
        raise ConfigError(f"{name} must be text in UTF-8, got {value!r}.") from None


def _check_bounds(name: str, value: float, low: float | None, high: float | None) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} must be finite, got {value}.")
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ConfigError(f"{name} must be {bounds}, got {_shown(value)}.")
    if value > _LARGEST[type(value)]:
        raise ConfigError(f"{name} must be at most {_LARGEST[type(value)]}, got {_shown(value)}.")


def _shown(value: Any) -> str:
    """A value for a message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # whole numbers of thousands of digits have no decimal form
        text = f"a number of {value.bit_length()} bits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _article(hint: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[hint]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # a JSON string is a TOML string, but for the character DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
