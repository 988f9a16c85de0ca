"""Where a series of sparse products is cut off."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammainc
from scipy.stats import poisson

SLOPE = 10.0  # the slope of the truncation error over λ may be so many times the error


@lru_cache(maxsize=256)  # steps of one size ask for the same few numbers again and again
def fewest_terms(rate: float, tolerance: float) -> int:
    """Smallest K for which a Poisson variable of mean λ exceeds K with probability below tolerance.

    Its slope over λ must not exceed ``SLOPE`` tolerances either.
    """
    # Chernoff's bound gives a range, the exact tail P(X ≥ k) = gammainc(k, λ) the place in it
    log = -math.log(tolerance)
    bound = math.ceil(rate + log / 3 + math.sqrt(log**2 / 9 + 2 * log * rate)) + 1
    k = np.arange(1, bound + 1)
    tail, slope = gammainc(k, rate) > tolerance, poisson.pmf(k - 1, rate) > SLOPE * tolerance
    return int((tail | slope).sum())
