"""How fast this machine trains."""

from __future__ import annotations

import time

from .population import Population

TIMED = 3  # epochs of a measurement


def epoch_seconds(population: Population) -> float:
    """Seconds of one epoch of all members, measured over a few epochs after a first one."""
    population.step()
    started = time.perf_counter()
    for _ in range(TIMED):
        population.step()
    float(population.loss.sum())  # until the device has done it
    return (time.perf_counter() - started) / TIMED
