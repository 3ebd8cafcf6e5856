"""What the measurements say: ratios, growth, and times as on a machine of a given matrix rate.

Nothing here needs torch: the paper's tables use it too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

SHORTEST = 20  # words, from which on growth with the length is fitted; below, time is mostly overhead
REFERENCE_GFLOPS = 90.0  # times are also reported as on a machine with this sgemm rate
# What is compared: b sentences over the sizes of one variable, the other one fixed.
COMPARISONS = ((1, "l", "m", 10), (8, "l", "m", 15), (1, "m", "l", 30), (1, "m", "l", 20), (8, "m", "l", 20))
BASES = ("NBL, native", "NBL, torch")  # times are multiples of the first of them that was measured

Rows = list[dict[str, Any]]


def summarise(results: dict[str, Rows]) -> dict[str, float]:
    """Named numbers that follow from the parts that were measured."""
    facts: dict[str, float] = {}
    if "inside" in results:
        timed = [row for row in results["inside"] if "median" in row]
        facts |= _growth(timed) | _ratios(timed) | _normalised(timed)
    if "step" in results:
        facts |= _steps(results["step"])
    if "decode" in results:
        facts |= _decoders(results["decode"])
    return facts


def exponent(sizes: Sequence[float], work: Sequence[float]) -> tuple[float, float]:
    """Least-squares slope of log work over log size, and its standard error (nan for fewer than four points).

    Work is time times the rate of a matrix product measured with it, because the rate of a machine
    drifts from one size to the next.

    >>> exponent([10, 20, 40], [1.0, 8.0, 64.0])[0]
    3.0
    """
    x, y = np.log(np.array(sizes, dtype=float)), np.log(np.array(work, dtype=float))
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    freedom = len(x) - 2
    error = math.sqrt(float(((y - slope * x) ** 2).sum()) / freedom / float(x @ x)) if freedom > 1 else math.nan
    return round(slope, 12), error


def _growth(rows: Rows) -> dict[str, float]:
    """Exponents of time in the length and in the number of nonterminals, where there are three sizes or more."""
    facts = {}
    for name, own in _by(rows, "implementation").items():
        for b, variable, other, value in COMPARISONS:
            points = [row for row in own if (row["b"], row[other]) == (b, value)]
            if variable == "l":
                points = [row for row in points if row["l"] >= SHORTEST]
            if len(points) > 2:
                slope, _ = exponent([row[variable] for row in points], [_work(row) for row in points])
                facts[f"{name}: exponent in {variable}, batch {b}, {other} = {value}"] = slope
    return facts


def _ratios(rows: Rows) -> dict[str, float]:
    """Times as multiples of NBL's, in each comparison at the largest size that both were measured at."""
    names = _by(rows, "implementation")
    base = next((name for name in BASES if name in names), None)
    facts = {}
    for b, variable, other, value in COMPARISONS:
        points = [row for row in rows if (row["b"], row[other]) == (b, value)]
        seconds = {(row["implementation"], row[variable]): row["median"] for row in points}
        for name in names:
            common = [size for own, size in seconds if own == name != base and (base, size) in seconds]
            if common:
                size = max(common)
                where = ", ".join(f"{key} = {at}" for key, at in sorted({variable: size, other: value}.items()))
                facts[f"{name} over {base}, batch {b}, {where}"] = seconds[name, size] / seconds[base, size]
    return facts


def _by(rows: Rows, column: str) -> dict[Any, Rows]:
    """The rows of each value of a column."""
    groups: dict[Any, Rows] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def _work(row: dict[str, Any]) -> float:
    """The time in GFLOP of the matrix product that was measured with it."""
    return row["median"] * row["sgemm_gflops"]


def _normalised(rows: Rows) -> dict[str, float]:
    """Milliseconds of NBL's inside on a machine of the reference rate, and its peak memory."""
    facts = {}
    for row in rows:
        if row["implementation"].startswith("NBL") and row["b"] == 8:
            where = f"{row['implementation']}, batch 8, l = {row['l']}, m = {row['m']}"
            facts[f"{where}: ms at {REFERENCE_GFLOPS:g} GFLOP/s"] = 1000 * _work(row) / REFERENCE_GFLOPS
            if row["peak_mb"] is not None:
                facts[f"{where}: peak MB"] = row["peak_mb"]
    return facts


def _steps(rows: Rows) -> dict[str, float]:
    """The machine's rates, and steps as multiples of their floors and of the NBL-PCFG's."""
    facts: dict[str, float] = {}
    for threads, measured in _by(rows, "threads").items():
        own = {row["model"]: row for row in measured}
        nbl = next(row for name, row in own.items() if name.startswith("NBL"))
        products = [column.removesuffix("_gflops") for column in nbl if column.endswith("_gflops")]
        rates = {f"GFLOP/s by {name}": nbl[f"{name}_gflops"] for name in products} | {"GB/s": nbl["memory_gbs"]}
        facts |= {f"{what}, {threads} threads": rate for what, rate in rates.items() if rate is not None}
        for name, row in own.items():
            facts[f"{'NBL' if row is nbl else name} step over its floor, {threads} threads"] = row["floor_ratio"]
        for name, row in own.items():
            if row is not nbl:
                facts[f"{name} step over NBL's, {threads} threads"] = row["ms"] / nbl["ms"]
    return facts


def _decoders(rows: Rows) -> dict[str, float]:
    """CYK's time as a multiple of MBR's, for each grammar and length."""
    seconds = {(row["model"], row["l"], row["decoder"]): row["median"] for row in rows}
    return {
        f"{model}: CYK over MBR, l = {l}": seconds[model, l, "cyk"] / seconds[model, l, "mbr"]
        for model, l in dict.fromkeys((model, l) for model, l, _ in seconds)
    }
