"""Means with their spread over seeds, and tests that are exact for as few values as there are seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean, stdev

import numpy as np

# One-sided level of all tests: the smallest p four pairs can give. So four seeds decide if all four agree.
ALPHA = 1 / 16
MAX_ARRANGEMENTS = 100_000  # beyond, a test draws that many at random


@dataclass(frozen=True)
class Summary:
    """Values of several seeds: mean and standard deviation (n - 1), and how many seeds there should be."""

    values: tuple[float, ...]
    expected: int

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def std(self) -> float:
        """0 for a single value, whose spread is unknown."""
        return stdev(self.values) if self.n > 1 else 0.0

    def __str__(self) -> str:
        """Mean and, if known, spread.

        >>> print(Summary((58.0, 60.0), 4), Summary((58.0,), 4), sep=", ")
        59.0 ± 1.4, 58.0
        """
        return f"{self.mean:z.1f} ± {self.std:.1f}" if self.n > 1 else f"{self.mean:z.1f}"

    @property
    def half_width(self) -> float:
        """Of the 95 % t-interval of the mean; infinite for a single value.

        >>> round(Summary((1.0, 2.0, 3.0), 3).half_width, 3)
        2.484
        """
        if self.n < 2:
            return math.inf
        return t_quantile(self.n - 1) * self.std / math.sqrt(self.n)


def t_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t, for degrees of freedom that need not be whole.

    >>> round(t_quantile(3), 3), round(t_quantile(3.5), 3)
    (3.182, 2.94)
    """
    from scipy.special import stdtrit  # a verb that prints no interval need not wait for it

    return float(stdtrit(freedom, 0.975))


def welch_half_width(std: float, n: int, other_std: float, other_n: int) -> float:
    """Of the 95 % interval of the difference of two means, by Welch.

    >>> round(welch_half_width(1.6, 4, 1.6, 4), 3), welch_half_width(0.0, 4, 0.0, 4)
    (2.768, 0.0)
    """
    squared, other_squared = std**2 / n, other_std**2 / other_n
    total = squared + other_squared
    if total == 0:
        return 0.0
    freedom = total**2 / (squared**2 / (n - 1) + other_squared**2 / (other_n - 1))
    return t_quantile(freedom) * math.sqrt(total)


def permutation_test(larger: Sequence[float], smaller: Sequence[float]) -> float:
    """One-sided p that the mean of `larger` exceeds that of `smaller` only by chance.

    The share of all ways to deal the values to two groups of these sizes whose difference of sums is at
    least as large: exact.

    >>> permutation_test([3, 4], [1, 2]), permutation_test([1, 2], [3, 4])  # 1 of 6, 6 of 6
    (0.16666666666666666, 1.0)
    """
    values, n = np.array([*larger, *smaller], dtype=float), len(larger)
    if math.comb(len(values), n) <= MAX_ARRANGEMENTS:
        groups = np.array(list(combinations(range(len(values)), n)))
    else:
        generator = np.random.default_rng(0)
        groups = generator.permuted(np.tile(np.arange(len(values)), (MAX_ARRANGEMENTS, 1)), axis=1)[:, :n]
        groups = np.vstack([np.arange(n), groups])
    return _share(values[groups].sum(axis=1), sum(larger))


def sign_flip_test(differences: Sequence[float]) -> float:
    """One-sided p that paired differences are above 0 only by chance.

    The share of all choices of signs whose sum is at least as large: exact.

    >>> sign_flip_test([1.0, 2.0]), sign_flip_test([-1.0, 2.0])
    (0.25, 0.5)
    """
    values = np.array(differences, dtype=float)
    if 2 ** len(values) <= MAX_ARRANGEMENTS:
        signs = np.array(list(product((1, -1), repeat=len(values))))
    else:
        signs = np.random.default_rng(0).choice((1, -1), size=(MAX_ARRANGEMENTS, len(values)))
        signs = np.vstack([np.ones_like(signs[:1]), signs])
    return _share(signs @ values, values.sum())


def _share(statistics: np.ndarray, observed: float) -> float:
    """How many are at least as large as the observed one; sums in another order may differ by rounding."""
    tolerance = 1e-9 * (1 + abs(observed))
    return float(np.mean(statistics >= observed - tolerance))
