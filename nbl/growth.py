"""How time grows with the size of a problem, told from measurements on a machine whose speed drifts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

SHORTEST = 20  # words, from which on growth with the length is fitted; below, time is mostly overhead


def exponent(sizes: Sequence[float], work: Sequence[float]) -> tuple[float, float]:
    """Least-squares slope of log work over log size, and its standard error (nan for fewer than four points).

    Work is time times the rate of a matrix product measured beside it: the rate of a machine drifts from one size to
    the next.

    >>> exponent([10, 20, 40], [1.0, 8.0, 64.0])[0]
    3.0
    """
    x, y = np.log(np.array(sizes, dtype=float)), np.log(np.array(work, dtype=float))
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    freedom = len(x) - 2
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / freedom / float(x @ x)) if freedom > 1 else math.nan
    return round(slope, 12), error
