"""What the measurements say: ratios, growth, and times as they would be on a machine of a given matrix rate."""

from __future__ import annotations

from typing import Any

from nbl.bench.measure import exponent

REFERENCE_GFLOPS = 90.0  # times are also told as on a machine with this sgemm rate
FLAT_LENGTHS = (20, 30, 40)  # the lengths over which growth in l is fitted

Rows = list[dict[str, Any]]


def summarise(results: dict[str, Rows]) -> dict[str, float]:
    """One number a line of what can be told from the parts that were measured."""
    facts: dict[str, float] = {}
    if "inside" in results:
        facts |= _growth(results["inside"]) | _normalised(results["inside"])
    if "step" in results:
        facts |= _steps(results["step"])
    return facts


def _growth(rows: Rows) -> dict[str, float]:
    """Exponents of time in the length (m = 10 and 15) and in the number of nonterminals (l = 30)."""
    facts = {}
    timed = [row for row in rows if "median" in row]
    for name in dict.fromkeys(row["implementation"] for row in timed):
        own = [row for row in timed if row["implementation"] == name]
        for b, m in ((1, 10), (8, 15)):
            points = [row for row in own if (row["b"], row["m"]) == (b, m) and row["l"] in FLAT_LENGTHS]
            if len(points) > 1:
                slope = exponent([row["l"] for row in points], [row["median"] for row in points])
                facts[f"{name}: exponent in l, batch {b}, m = {m}"] = slope
        points = [row for row in own if (row["b"], row["l"]) == (1, 30)]
        if len(points) > 2:
            slope = exponent([row["m"] for row in points], [row["median"] for row in points])
            facts[f"{name}: exponent in m, batch 1, l = 30"] = slope
    return facts


def _normalised(rows: Rows) -> dict[str, float]:
    """Milliseconds of NBL's inside on a machine of the reference rate, and its peak memory."""
    facts = {}
    for row in rows:
        if row["implementation"].startswith("NBL") and "median" in row and row["b"] == 8:
            where = f"{row['implementation']}, batch 8, l = {row['l']}, m = {row['m']}"
            facts[f"{where}: ms at {REFERENCE_GFLOPS:g} GFLOP/s"] = (
                1000 * row["median"] * row["sgemm_gflops"] / REFERENCE_GFLOPS
            )
            if row["peak_mb"] is not None:
                facts[f"{where}: peak MB"] = row["peak_mb"]
    return facts


def _steps(rows: Rows) -> dict[str, float]:
    """Steps as multiples of the NBL-PCFG's, and the latter as a multiple of its floor."""
    facts = {}
    for threads in sorted({row["threads"] for row in rows}):
        own = {row["model"]: row for row in rows if row["threads"] == threads}
        nbl = next(row for name, row in own.items() if name.startswith("NBL"))
        facts[f"NBL step over its floor, {threads} threads"] = nbl["ms"] / nbl["floor_ms"]
        for name, row in own.items():
            if row is not nbl:
                facts[f"{name} step over NBL's, {threads} threads"] = row["ms"] / nbl["ms"]
    return facts
