"""How good answers are: for each member, and at each time of a sweep."""

from __future__ import annotations

import torch
from torch import Tensor


def accuracy(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Share of right answers among the masked nodes, ``(...)``; NaN is no right answer.

    NaN where no node is masked.
    """
    answers = torch.where(logits.isnan().any(-1), -2, logits.argmax(-1))
    right = (answers == y) & mask
    return right.sum(-1).double() / mask.sum(-1)


def surprise(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Loss over the masked nodes squeezed into [0, 1), ``(...)``; infinite where a logit is not finite."""
    classes = y.clamp_min(0).expand(logits.shape[:-1]).unsqueeze(-1)
    loss = -logits.log_softmax(-1).gather(-1, classes).squeeze(-1).double()
    mean = (loss * mask).sum(-1) / mask.sum(-1).clamp_min(1)
    squeezed = (mean / (1 + mean)).nan_to_num(1.0)
    return squeezed.masked_fill(~logits.isfinite().flatten(-2).all(-1), torch.inf)
