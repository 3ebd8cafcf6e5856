"""How a statement of the paper is judged: our numbers, a test, a verdict.

A claim is *reproduced* if our means show it and the one-sided test gives p <= 1/16 (`statistics.ALPHA`), *not
reproduced* if they show the opposite as clearly, *not run* if runs are missing that it is about, and otherwise one
*cannot tell* on this corpus. Where a claim has several parts, all must hold, and one that is refuted is enough against
it, by a p times the number of parts. Different grammars share nothing but the data, so their seeds are compared by a
permutation test; two decoders of one trained grammar are compared seed by seed. A claim that is made easier by a rival
that falls shorter of its release's size than the winner does, or by unequal sizes, is never called reproduced; a
rival's approximate perplexity never refutes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from nbl.matrix import Experiment
from nbl.paper.frame import Results
from nbl.paper.plan import MODELS, RELEASED_NT
from nbl.paper.statistics import ALPHA, Summary, permutation_test, sign_flip_test

VERDICTS = REPRODUCED, NOT_REPRODUCED, CANNOT_TELL, NOT_RUN = (
    "reproduced",
    "not reproduced",
    "cannot tell",
    "not run",
)
RULE = (
    "Reproduced: our means show it, in each part with a one-sided p of at most 1/16, the smallest that four pairs of "
    "seeds can give. Not reproduced: the means of one part show the opposite as clearly, p times the number of parts. "
    "Not run: runs are missing. Else one cannot tell; so also if a rival has fewer nonterminals than in its release, "
    "which makes a claim easier, or if too few seeds could ever decide: the smallest p of a permutation test is 1/70 "
    "for four seeds against four, 1/15 for four against two. Of so many tests, a few pass by chance."
)
PERMUTATION = "exact permutation test over seeds"
SIGN_FLIP = "exact sign-flip test over seeds"
METRICS = {"f1": "F1", "udas": "UDAS", "uuas": "UUAS", "perplexity": "perplexity"}


@dataclass(frozen=True)
class Claim:
    """One statement; `line` is that of the paper's LaTeX source, `shown` whether our means show it, however clearly."""

    key: str
    line: int
    statement: str
    evidence: str
    test: str
    verdict: str
    shown: bool | None = None


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
    known = _known(parts)
    if known and len(known) * _opposite(known) <= ALPHA:
        return NOT_REPRODUCED
    if not known or len(known) < len(parts):
        return NOT_RUN
    return REPRODUCED if all(part.p <= ALPHA for part in parts) else CANNOT_TELL


def _known(comparisons: Iterable[Comparison]) -> list[Comparison]:
    return [part for part in comparisons if part.difference is not None]


def _opposite(known: Iterable[Comparison]) -> float:
    return min((part.p_opposite for part in known), default=1.0)


def p_value(comparisons: Iterable[Comparison]) -> str:
    """The p that decides, to be added to the evidence: the largest of the parts, or the smallest for the opposite."""
    known = _known(comparisons)
    if not known:
        return ""
    if len(known) * _opposite(known) <= ALPHA:
        times = f"{len(known)} times " if len(known) > 1 else ""
        return f"; p={times}{_opposite(known):.3f} for the opposite"
    return f"; p={max(part.p for part in known):.3f}"


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
    differences = [part.difference for part in comparisons]
    shown = all(d > 0 for d in differences if d is not None) if differences and None not in differences else None
    return Claim(key, line, statement, evidence, test, verdict, shown)


def counts(verdicts: Iterable[str]) -> str:
    """How many there are of each verdict.

    >>> counts([CANNOT_TELL, REPRODUCED, CANNOT_TELL])
    '1 reproduced, 0 not reproduced, 2 cannot tell, 0 not run'
    """
    found = Counter(verdicts)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS)


def side(results: Results, experiment: Experiment | None, decoder: str, metric: str, name: str) -> Side:
    """An experiment's values of a metric; that a perplexity is not exact is told."""
    if _inexact(experiment, metric):
        name += " (approximate)"
    return Side(name, tuple(results.values(experiment, decoder, metric).values()))


def _inexact(experiment: Experiment | None, metric: str) -> bool:
    return metric == "perplexity" and experiment is not None and experiment.compound


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
            (side(results, experiment, decoder, metric, names[role]), _inexact(experiment, metric))
            for role, experiment in found.items()
            if experiment is not None or role == winner
        )
        sides += [one for one, _ in (first, *others)]
        for other, inexact in others:
            part = compare(first[0], other, metric == "perplexity")
            comparisons.append(replace(part, p_opposite=1.0) if inexact else part)
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
