"""How good answers are: for each member, and at each time of a sweep."""

from __future__ import annotations

import torch
from torch import Tensor

from ..partition.whole import everywhere, total


def accuracy(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Share of right answers among the masked nodes, ``(...)``; NaN is no right answer.

    NaN where no node is masked.
    """
    answers = torch.where(logits.isnan().any(-1), -2, logits.argmax(-1))
    right = (answers == y) & mask
    return total(right.sum(-1)).double() / total(mask.sum(-1))


def surprise(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Loss over the masked nodes squeezed into [0, 1), ``(...)``; infinite where a logit is not finite."""
    classes = y.clamp_min(0).expand(logits.shape[:-1]).unsqueeze(-1)
    loss = -logits.log_softmax(-1).gather(-1, classes).squeeze(-1).double()
    return squeezed(total((loss * mask).sum(-1)), mask, logits)


def squeezed(loss: Tensor, mask: Tensor, output: Tensor) -> Tensor:
    """A sum of losses over the masked nodes as their mean, squeezed into [0, 1].

    Infinite where an output is not finite.
    """
    mean = loss / total(mask.sum(-1)).clamp_min(1)
    found = (mean / (1 + mean)).nan_to_num(1.0)
    return found.masked_fill(~everywhere(output.isfinite().flatten(-2).all(-1)), torch.inf)
