"""The features of another graph as a training had them, found by their names."""

from collections import Counter
from collections.abc import Sequence

from torch import Tensor
from torch_geometric.data import Data

from graphdiffusion.data.structure import select_columns
from graphdiffusion.errors import DataError

_NAMED = 3  # features that a message names
_MANY = 0.5  # share of missing features that is worth a note


def match_features(data: Data, names: Sequence[str]) -> tuple[Tensor, list[str]]:
    """The features `names` of a graph in this order (n, F), and notes on what is left out or missing.

    Features of other names are left out. One that the graph does not have is refused; where the graph lists
    only what is not zero, which `data.absent_is_zero` says, it is zero.
    """
    graph = data.get("name") or "the graph"
    found = [str(name) for name in data.feature_names]
    if found == list(names):
        return data.x, []
    counts, wanted = Counter(found), Counter(names)
    for name, count in wanted.items():
        if count > 1 or counts[name] > 1:
            owner = "the training" if count > 1 else graph
            raise DataError(
                f"{owner} has several features named {name!r}, so that they cannot be matched: give each a "
                "name of its own."
            )
    missing = [name for name in names if name not in counts]
    if len(missing) == len(names):
        raise DataError(
            f"{graph} has none of the {len(names):,} features of the training: it has {_some(found)}, and "
            f"the training {_some(names)}."
        )
    if missing and not data.get("absent_is_zero"):
        raise DataError(
            f"{graph} lacks the feature{'s' * (len(missing) > 1)} {_some(missing)} of the training: add "
            "the columns, or train again without them."
        )
    notes = []
    if extra := [name for name in found if name not in wanted]:
        what = "features are left out, because the training has none of these names"
        if len(extra) == 1:
            what = "feature is left out, because the training has none of this name"
        notes.append(f"{graph}: {len(extra):,} {what}: {_some(extra)}")
    if len(missing) > _MANY * len(names):
        notes.append(
            f"{graph}: {len(missing):,} of {len(names):,} features of the training do not occur and are "
            f"zero: {_some(missing)}"
        )
    place = {name: k for k, name in enumerate(found)}
    return select_columns(data.x, [place.get(name, -1) for name in names]), notes


def _some(names: Sequence[str]) -> str:
    """The first of some names."""
    shown = ", ".join(map(repr, names[:_NAMED]))
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED:,} more"
