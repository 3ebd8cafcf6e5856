"""How a statement of the paper is judged: our numbers, a test, a verdict.

A claim is *reproduced* if our means show it and the one-sided test gives p <= 1/16 (`statistics.ALPHA`), *not
reproduced* if our means show the opposite, and otherwise one *cannot tell* on this corpus. Where a claim has
several parts, all must hold. Different grammars share nothing but the data, so their seeds are compared by a
permutation test; two decoders of one trained grammar are compared seed by seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from nbl.report.frame import Results
from nbl.report.plan import MODELS, Experiment
from nbl.report.statistics import ALPHA, Summary, permutation_test

REPRODUCED, NOT_REPRODUCED, CANNOT_TELL = "reproduced", "not reproduced", "cannot tell"
PERMUTATION = "exact permutation test over seeds"
SIGN_FLIP = "exact sign-flip test over seeds"
METRICS = {"f1": "F1", "udas": "UDAS", "uuas": "UUAS", "perplexity": "perplexity"}


@dataclass(frozen=True)
class Claim:
    """One statement; `line` is that of the paper's LaTeX source."""

    key: str
    line: int
    statement: str
    evidence: str
    test: str
    verdict: str


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a name and the values of its seeds."""

    name: str
    values: tuple[float, ...]

    def __str__(self) -> str:
        """Mean, standard deviation and number of seeds.

        >>> str(Side("NBL-PCFG", (59.0, 61.0))), str(Side("NL-PCFG", ()))
        ('NBL-PCFG 60.0 ± 1.4 (n=2)', 'NL-PCFG -- (n=0)')
        """
        if not self.values:
            return f"{self.name} -- (n=0)"
        summary = Summary(self.values, len(self.values))
        return f"{self.name} {summary.mean:.1f} ± {summary.std:.1f} (n={summary.n})"


@dataclass(frozen=True)
class Comparison:
    """A difference, positive where it goes the claim's way, and its p; None where a side has no values."""

    difference: float | None
    p: float = 1.0


def compare(winner: Side, loser: Side, lower_is_better: bool = False) -> Comparison:
    """Is the winner's mean better than the loser's?"""
    if not winner.values or not loser.values:
        return Comparison(None)
    sign = -1 if lower_is_better else 1
    better, worse = ([sign * value for value in side.values] for side in (winner, loser))
    return Comparison(fmean(better) - fmean(worse), permutation_test(better, worse))


def judge(comparisons: Iterable[Comparison]) -> str:
    """The verdict on parts that all must hold."""
    parts = list(comparisons)
    if any(part.difference is not None and part.difference <= 0 for part in parts):
        return NOT_REPRODUCED
    if not parts or any(part.difference is None for part in parts):
        return CANNOT_TELL
    return REPRODUCED if max(part.p for part in parts) <= ALPHA else CANNOT_TELL


def p_value(comparisons: Iterable[Comparison]) -> str:
    """The p that decides, the largest of the parts, to be added to the evidence."""
    ps = [part.p for part in comparisons if part.difference is not None]
    return f"; p={max(ps):.3f}" if ps else ""


def claim(
    key: str,
    line: int,
    statement: str,
    sides: Sequence[Side],
    comparisons: Sequence[Comparison],
    test: str = PERMUTATION,
) -> Claim:
    """A claim that holds if all of some comparisons do."""
    evidence = (", ".join(map(str, sides)) or "no results") + p_value(comparisons)
    return Claim(key, line, statement, evidence, test, judge(comparisons))


def side(results: Results, experiment: Experiment | None, decoder: str, metric: str, name: str) -> Side:
    """An experiment's values of a metric; that a perplexity is a bound is told."""
    if metric == "perplexity" and experiment is not None and experiment.compound:
        name += " (bound)"
    return Side(name, tuple(results.values(experiment, decoder, metric).values()))


def best(
    results: Results,
    key: str,
    line: int,
    statement: str,
    winner: str,
    rivals: Sequence[str],
    metric: str,
    decoders: Sequence[str] = ("mbr",),
) -> Claim:
    """The claim that one grammar is better than each other one of the plan, under each decoder."""
    sides, comparisons = [], []
    for decoder in decoders:
        suffix = f" {decoder.upper()}" if len(decoders) > 1 else ""
        names = {role: MODELS[role] + suffix for role in (winner, *rivals)}
        found = {role: results.plan.find(role) for role in names}
        first, *others = (
            side(results, experiment, decoder, metric, names[role])
            for role, experiment in found.items()
            if experiment is not None or role == winner
        )
        sides += [first, *others]
        comparisons += [compare(first, other, metric == "perplexity") for other in others]
    return claim(key, line, statement, sides, comparisons)
