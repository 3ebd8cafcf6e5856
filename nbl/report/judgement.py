"""How a statement of the paper is judged: our numbers, a test, a verdict.

A claim is *reproduced* if our means show it and the one-sided test gives p <= 1/16 (`statistics.ALPHA`), *not
reproduced* if they show the opposite as clearly, and otherwise one *cannot tell* on this corpus. Where a claim has
several parts, all must hold, and one that is refuted is enough against it. Different grammars share nothing but
the data, so their seeds are compared by a permutation test; two decoders of one trained grammar are compared seed by
seed. A claim that is made easier by a rival that falls shorter of its release's size than the winner does, or by
unequal sizes, is never called reproduced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from nbl.report.frame import Results
from nbl.report.plan import MODELS, RELEASED_NT, Experiment
from nbl.report.statistics import ALPHA, Summary, permutation_test, sign_flip_test

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

        >>> print(Side("NBL-PCFG", (59.0, 61.0)), Side("TN-PCFG", (55.0,)), Side("NL-PCFG", ()), sep=", ")
        NBL-PCFG 60.0 ± 1.4 (n=2), TN-PCFG 55.0 (n=1), NL-PCFG -- (n=0)
        """
        if not self.values:
            return f"{self.name} -- (n=0)"
        n = len(self.values)
        return f"{self.name} {Summary(self.values, n)} (n={n})"


@dataclass(frozen=True)
class Comparison:
    """A difference, positive where it goes the claim's way, its p and that of the opposite; None where a side has
    no values."""

    difference: float | None
    p: float = 1.0
    p_opposite: float = 1.0


def compare(winner: Side, loser: Side, lower_is_better: bool = False) -> Comparison:
    """Is the winner's mean better than the loser's?"""
    if not winner.values or not loser.values:
        return Comparison(None)
    sign = -1 if lower_is_better else 1
    better, worse = ([sign * value for value in side.values] for side in (winner, loser))
    return Comparison(fmean(better) - fmean(worse), permutation_test(better, worse), permutation_test(worse, better))


def compare_pairs(differences: Sequence[float]) -> Comparison:
    """Are the differences of some pairs above 0?"""
    if not differences:
        return Comparison(None)
    opposite = [-difference for difference in differences]
    return Comparison(fmean(differences), sign_flip_test(differences), sign_flip_test(opposite))


def judge(comparisons: Iterable[Comparison]) -> str:
    """The verdict on parts that all must hold."""
    parts = list(comparisons)
    if any(part.p_opposite <= ALPHA for part in parts):
        return NOT_REPRODUCED
    return REPRODUCED if parts and all(part.p <= ALPHA for part in parts) else CANNOT_TELL


def p_value(comparisons: Iterable[Comparison]) -> str:
    """The p that decides, to be added to the evidence: the largest of the parts, or the smallest for the opposite."""
    known = [part for part in comparisons if part.difference is not None]
    opposite = min((part.p_opposite for part in known), default=1.0)
    if opposite <= ALPHA:
        return f"; p={opposite:.3f} for the opposite"
    return f"; p={max(part.p for part in known):.3f}" if known else ""


def claim(
    key: str,
    line: int,
    statement: str,
    sides: Sequence[Side],
    comparisons: Sequence[Comparison],
    test: str = PERMUTATION,
    easier: str = "",
) -> Claim:
    """A claim that holds if all of some comparisons do; `easier` says what of our runs made that easier."""
    evidence = (", ".join(map(str, sides)) or "no results") + p_value(comparisons)
    verdict = judge(comparisons)
    if easier:
        evidence += f"; {easier}"
        verdict = CANNOT_TELL if verdict == REPRODUCED else verdict
    return Claim(key, line, statement, evidence, test, verdict)


def side(results: Results, experiment: Experiment | None, decoder: str, metric: str, name: str) -> Side:
    """An experiment's values of a metric; that a perplexity is not exact is told."""
    if metric == "perplexity" and experiment is not None and experiment.compound:
        name += " (approximate)"
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
    return claim(key, line, statement, sides, comparisons, easier=smaller_rivals(results, winner, rivals))


def smaller_rivals(results: Results, winner: str, rivals: Sequence[str]) -> str:
    """Which rivals have fewer nonterminals, of those in their release, than the winner has of its own."""
    found = {role: results.plan.find(role) for role in (winner, *rivals)}
    sizes = {role: experiment.NT for role, experiment in found.items() if experiment}
    share = {role: size / RELEASED_NT[role] for role, size in sizes.items()}
    return ", ".join(
        f"{MODELS[role]} has {sizes[role]} nonterminals here, {RELEASED_NT[role]} in its release"
        for role in rivals
        if role in share and share[role] < share.get(winner, 0)
    )
