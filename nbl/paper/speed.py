"""The times of the inside algorithms: the paper's two curves, how they grow, and its claims about them."""

from __future__ import annotations

import math
from itertools import pairwise

import pandas as pd

from nbl.bench.summary import SHORTEST, exponent
from nbl.paper.frame import Results
from nbl.paper.judgement import CANNOT_TELL, NOT_REPRODUCED, NOT_RUN, REPRODUCED, Claim

NBL, RE_IMPL_1, RE_IMPL_2 = "NBL, torch", "NL, C1-1 cached", "NL, C1-2 cached"  # the paper's three
OURS = ("NL, splits first", "NL, native", "NBL, native")  # faster ways that the paper does not have
QUARTILES = "quartiles of the rounds do not overlap"
LARGE = {"m": 20, "l": 30}  # from where on the paper's claims about many nonterminals and long sentences hold


def curve(results: Results, variable: str) -> pd.DataFrame:
    """Times of one sentence over l or over m, the other held at the value with the most points."""
    other = "m" if variable == "l" else "l"
    rows = results.bench
    if rows.empty:
        return rows
    rows = rows[(rows["b"] == 1) & rows["median"].notna()]
    points = rows.groupby(other)[variable].nunique()
    if points.empty:
        return rows
    fixed = points.index[points == points.max()].max()
    return rows[rows[other] == fixed].sort_values(["implementation", variable])


def growth(results: Results, name: str, variable: str) -> tuple[float, float] | None:
    """The exponent of an implementation's time in l or m and its standard error; None below three points."""
    rows = curve(results, variable)
    if rows.empty:
        return None
    rows = rows[rows["implementation"] == name]
    if variable == "l":
        rows = rows[rows["l"] >= SHORTEST]
    return exponent(list(rows[variable]), list(rows["median"] * rows["sgemm_gflops"])) if len(rows) > 2 else None


def speed(results: Results) -> list[Claim]:
    """Section "Speed comparison"."""
    three = [NBL, RE_IMPL_2, RE_IMPL_1]
    fastest = "NBL-PCFG is the fastest of the lexicalised grammars"
    return [
        _faster(results, "nbl-fastest-m", f"{fastest} at many nonterminals", "m", three),
        _faster(results, "nbl-fastest-l", f"{fastest} for long sentences", "l", three),
        _faster(results, "c-two-faster-m", "Caching C1-2 is faster than C1-1 at many nonterminals", "m", three[1:]),
        _growth_order(results),
    ]


def _faster(results: Results, key: str, statement: str, variable: str, names: list[str]) -> Claim:
    """The first implementation is faster than the others at the largest size measured of all."""
    rows = curve(results, variable)
    found = rows[rows["implementation"].isin([*names, *OURS])] if not rows.empty else rows
    if found.empty or not set(names) <= set(found["implementation"]):
        return Claim(key, 495, statement, "no measurements", QUARTILES, NOT_RUN)
    sizes = found[found["implementation"].isin(names)].groupby("implementation")[variable].max()
    found = found[found[variable] == sizes.min()].set_index("implementation")
    where = f"l={found['l'].iloc[0]}, m={found['m'].iloc[0]}"
    shown = [name for name in (*names, *OURS) if name in found.index]
    evidence = f"{where}: " + "; ".join(f"{name} {1000 * found['median'][name]:.0f} ms" for name in shown)
    first, others = found.loc[names[0]], found.loc[names[1:]]
    if sizes.min() < LARGE[variable]:
        return Claim(key, 495, statement, f"measured only at {evidence}", QUARTILES, CANNOT_TELL)
    if first["high"] < others["low"].min():
        verdict = REPRODUCED
    else:
        verdict = NOT_REPRODUCED if first["low"] > others["high"].min() else CANNOT_TELL
    return Claim(key, 495, statement, evidence, QUARTILES, verdict)


def _growth_order(results: Results) -> Claim:
    """Exponents in m: NBL-PCFG below caching C1-2, that below caching C1-1."""
    names = (NBL, RE_IMPL_2, RE_IMPL_1)
    fits = [growth(results, name, "m") for name in names]
    verdict, evidence = NOT_RUN, "no measurements"
    if all(fit is not None for fit in fits):
        verdict = CANNOT_TELL
        known = [fit for fit in fits if fit is not None]
        shown = zip(names, known, strict=True)
        evidence = "; ".join(f"{name} {slope:.2f} ± {error:.2f}" for name, (slope, error) in shown)
        gaps = [(b[0] - a[0], 2 * math.hypot(a[1], b[1])) for a, b in pairwise(known)]
        if any(gap < -band for gap, band in gaps):
            verdict = NOT_REPRODUCED
        elif all(gap > band for gap, band in gaps):
            verdict = REPRODUCED
    statement = "In m, NBL-PCFG grows slower (linear) than caching C1-2 (quadratic), that slower than C1-1 (cubic)"
    return Claim("growth-in-m", 495, statement, evidence, "fitted exponents, two standard errors apart", verdict)
