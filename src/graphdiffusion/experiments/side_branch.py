"""The model and training of a side branch of the authors' repository, which figure 4 was made with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SideBranch:
    """Settings that the experiments of figure 4 share.

    Attributes:
        hidden, augment, time, rate, decay, self_loops: Of model and training, by RMSprop.
        heads, attention_dim: Of the attention (ours: the branch has learnt none).
    """

    hidden: int = 16
    augment: int = 16
    time: float = 12.1
    rate: float = 0.0047
    decay: float = 5e-4
    self_loops: float = 0.555
    heads: int = 4
    attention_dim: int = 16
