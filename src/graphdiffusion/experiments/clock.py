"""The clock of the experiments that compare seconds."""

from __future__ import annotations

import time

import torch


def seconds(device: torch.device) -> float:
    """The time now, of which differences are taken.

    On a GPU by the clock, when the device has done its work. On a CPU the processor time of this process,
    all its threads together, which other work on the machine does not lengthen.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time()
