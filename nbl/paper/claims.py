"""The verdict on every claim and every number of the paper: our numbers, a test, a verdict.

The claims are in `claims.yaml`; here is one function per kind. A claim is *reproduced* if our means show it and the
one-sided test gives p <= 1/16 (`statistics.ALPHA`), *not reproduced* if they show the opposite as clearly, *not
run* if it is about runs that are missing, and otherwise the verdict is *cannot tell*. All parts of a claim must hold;
one that is refuted, by p times the number of parts, refutes the claim. Different grammars share nothing but the data,
so their seeds are compared by a permutation test; two decoders of one trained grammar are compared seed by seed. A
claim that is made easier by a rival trained smaller than released, or by unequal sizes, is never called reproduced; a
rival's approximate perplexity never refutes one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import yaml

from nbl.files import read_text
from nbl.matrix import Experiment
from nbl.paper.published import Cell, Published, comparability
from nbl.paper.results import Results, growth, lower_is_better, times
from nbl.paper.roles import MODELS, RELEASED_NT
from nbl.paper.statistics import ALPHA, Summary, permutation_test, sign_flip_test, welch_half_width


class Verdict(StrEnum):
    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"
    CANNOT_TELL = "cannot tell"
    NOT_RUN = "not run"


RULE = (
    "Reproduced: our means show it, in each part with a one-sided p of at most 1/16, the smallest that four pairs of "
    "seeds can give. Not reproduced: the means of one part show the opposite as clearly, p times the number of parts. "
    "Not run: runs are missing. Else one cannot tell; so also if a rival has fewer nonterminals than in its release, "
    "which makes a claim easier, or if too few seeds could ever decide: the smallest p of a permutation test is 1/70 "
    "for four seeds against four, 1/15 for four against two. Of so many tests, a few pass by chance."
)
PERMUTATION = "exact permutation test over seeds"
SIGN_FLIP = "exact sign-flip test over seeds"
QUARTILES = "quartiles of the rounds do not overlap"
OURS = ("NL, splits first", "NL, native", "NBL, native")  # faster ways that the paper does not have
ROUNDING = 0.05  # the paper prints one decimal
WIDEST = 0.1  # of the paper's number: a wider band decides nothing
NOT_COMPARABLE = "not comparable"
QUOTED_ONLY = ("s-diora", "structformer")  # systems the paper only quotes


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, at a line of its LaTeX source, and what we found.

    `shown` is whether our means show it, however clearly.
    """

    key: str
    line: int
    statement: str
    evidence: str
    test: str
    verdict: Verdict
    shown: bool | None = None


@dataclass(frozen=True)
class Number:
    """A number of the paper beside ours. `band` is the largest difference that chance explains. Within it, a number is
    reproduced, unless the band is so wide that nearly anything would be.
    """

    cell: Cell
    ours: Summary
    band: float | None
    verdict: str

    @property
    def difference(self) -> float | None:
        return self.ours.mean - self.cell.value if self.ours.n else None


@dataclass(frozen=True)
class Check:
    """All verdicts on one corpus."""

    corpus: str
    cells: list[Number]
    claims: list[Claim]


def check(results: Results, paper: Published) -> Check:
    """Judge every number and every claim. Systems the paper only quotes have no verdict."""
    numbers = [_number(results, cell, paper.seeds) for cell in paper.cells if cell.run not in QUOTED_ONLY]
    return Check(results.corpus, numbers, check_claims(results))


def check_claims(results: Results) -> list[Claim]:
    """Judge every claim of `claims.yaml`, in its order."""
    sections = yaml.load(read_text(Path(__file__).with_name("claims.yaml")), yaml.CSafeLoader)
    claims = []
    for entry in (entry for entries in sections.values() for entry in entries):
        key, line, statement, kind = (entry.pop(name) for name in ("key", "line", "statement", "kind"))
        claims.append(Claim(key, line, statement, *KINDS[kind](results, **entry)))
    return claims


def counts(verdicts: Iterable[str]) -> str:
    """How many there are of each verdict.

    >>> counts([Verdict.CANNOT_TELL, Verdict.REPRODUCED, Verdict.CANNOT_TELL])
    '1 reproduced, 0 not reproduced, 2 cannot tell, 0 not run'
    """
    found = Counter(verdicts)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in Verdict)


# ---- numbers


def _number(results: Results, cell: Cell, seeds: int) -> Number:
    if cell.run == "oracle":
        ours = results.trivial_f1("oracle")
    else:
        ours = results.summary(results.plan.find(cell.run), cell.decoder or "mbr", cell.metric)
    width = band(ours, cell, seeds)
    return Number(cell, ours, width, _number_verdict(results.corpus, cell, ours, width))


def band(ours: Summary, theirs: Cell, seeds: int) -> float | None:
    """The half width of the 95 % interval of the difference of two means, and the paper's rounding.

    Where the paper prints no standard deviation, ours stands in for it. None where ours is unknown too.

    >>> cell = Cell("t", 1, "nblpcfg", "f1", 60.4, std=1.6)
    >>> round(band(Summary((58.0, 60.0, 62.0, 60.0), 4), cell, 4), 3)
    2.847
    """
    if theirs.run == "oracle":
        return ROUNDING
    if ours.n < 2:
        return None
    std = ours.std if theirs.std is None else theirs.std
    return welch_half_width(ours.std, ours.n, std, seeds) + ROUNDING


def _number_verdict(corpus: str, cell: Cell, ours: Summary, width: float | None) -> str:
    if ours.n == 0 or width is None:
        return Verdict.CANNOT_TELL if ours.n else Verdict.NOT_RUN
    within = abs(ours.mean - cell.value) <= width
    kind = comparability(corpus, cell.metric)
    if kind == "comparable":
        decided = Verdict.REPRODUCED if width <= WIDEST * cell.value else Verdict.CANNOT_TELL
        return decided if within else Verdict.NOT_REPRODUCED
    return (
        f"{NOT_COMPARABLE} ({'within' if within else 'outside'} the band)" if kind == "indicative" else NOT_COMPARABLE
    )


Finding = tuple[str, str, Verdict, bool | None]  # evidence, test, verdict, shown

# ---- what the kinds of claims share


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
        n = len(self.values)
        return f"{self.name} {Summary(self.values, n) if n else '--'} (n={n})"


@dataclass(frozen=True)
class Comparison:
    """A difference, positive where it supports the claim, its p and that of the opposite; None where a side has no
    values."""

    difference: float | None
    p: float = 1.0
    p_opposite: float = 1.0


def compare(metric: str, winner: Side, loser: Side) -> Comparison:
    """Is the winner's mean better than the loser's?"""
    if not winner.values or not loser.values:
        return Comparison(None)
    sign = -1 if lower_is_better(metric) else 1
    better, worse = ([sign * value for value in side.values] for side in (winner, loser))
    return Comparison(fmean(better) - fmean(worse), permutation_test(better, worse), permutation_test(worse, better))


def compare_pairs(differences: Sequence[float]) -> Comparison:
    """Are the differences of some pairs above 0?"""
    if not differences:
        return Comparison(None)
    opposite = [-difference for difference in differences]
    return Comparison(fmean(differences), sign_flip_test(differences), sign_flip_test(opposite))


def judge(comparisons: Sequence[Comparison]) -> Verdict:
    """The verdict on parts that all must hold."""
    known = _known(comparisons)
    if known and len(known) * _opposite(known) <= ALPHA:
        return Verdict.NOT_REPRODUCED
    if not known or len(known) < len(comparisons):
        return Verdict.NOT_RUN
    return Verdict.REPRODUCED if all(part.p <= ALPHA for part in known) else Verdict.CANNOT_TELL


def _known(comparisons: Iterable[Comparison]) -> list[Comparison]:
    return [part for part in comparisons if part.difference is not None]


def _opposite(known: Iterable[Comparison]) -> float:
    return min((part.p_opposite for part in known), default=1.0)


def _p_value(comparisons: Iterable[Comparison]) -> str:
    """The p that decides, to be added to the evidence: the largest of the parts, or the smallest for the opposite."""
    known = _known(comparisons)
    if not known:
        return ""
    if len(known) * _opposite(known) <= ALPHA:
        times = f"{len(known)} times " if len(known) > 1 else ""
        return f"; p={times}{_opposite(known):.3f} for the opposite"
    return f"; p={max(part.p for part in known):.3f}"


def _shown(sides: Iterable[Side]) -> str:
    return ", ".join(map(str, sides)) or "no results"


def _finding(
    sides: Sequence[Side], comparisons: Sequence[Comparison], test: str = PERMUTATION, easier: str = ""
) -> Finding:
    """A claim holds if all comparisons do; `easier` says what of our runs made that easier."""
    evidence, verdict = _shown(sides) + _p_value(comparisons), judge(comparisons)
    if easier:
        evidence += f"; {easier}"
        verdict = Verdict.CANNOT_TELL if verdict == Verdict.REPRODUCED else verdict
    differences = [part.difference for part in comparisons]
    shown = all(d > 0 for d in differences if d is not None) if differences and None not in differences else None
    return evidence, test, verdict, shown


def _side(results: Results, experiment: Experiment | None, decoder: str, metric: str | list[str], name: str) -> Side:
    """An experiment's values of a metric, or its mean of several, over the seeds that have all of them.

    An approximate perplexity is marked.
    """
    columns = [results.values(experiment, decoder, one) for one in ([metric] if isinstance(metric, str) else metric)]
    seeds = sorted(set.intersection(*map(set, columns)))
    mark = " (approximate)" if _approximate(experiment, metric) else ""
    return Side(name + mark, tuple(fmean(column[seed] for column in columns) for seed in seeds))


def _approximate(experiment: Experiment | None, metric: str | list[str]) -> bool:
    return metric == "perplexity" and experiment is not None and not experiment.exact


def _title(role: str) -> str:
    """A grammar's title; a binding's name for a role such as nblpcfg-D-C."""
    return MODELS.get(role) or role.partition("-")[2]


# ---- kinds of claims: arguments are those of claims.yaml


def best(
    results: Results,
    among: list[str],
    metric: str | list[str],
    winner: str | None = None,
    loser: str | None = None,
    decoders: Sequence[str] = ("mbr",),
    planned_only: bool = False,
) -> Finding:
    """The winner is better than each other, or each other better than the loser, with each decoder.

    With `planned_only`, rivals are left out that the plan does not have.
    """
    found = {role: results.plan.find(role) for role in among}
    if planned_only:
        found = {role: experiment for role, experiment in found.items() if experiment or role == winner}
    first = metric if isinstance(metric, str) else metric[0]
    shown: list[Side] = []
    comparisons = []
    for decoder in decoders:
        suffix = f" {decoder.upper()}" if len(decoders) > 1 else ""
        sides = {role: _side(results, e, decoder, metric, _title(role) + suffix) for role, e in found.items()}
        shown += sides.values()
        for role, experiment in found.items():
            if role not in (winner, loser):
                part = compare(first, sides[winner or role], sides[loser or role])
                comparisons.append(replace(part, p_opposite=1.0) if _approximate(experiment, metric) else part)
    return _finding(shown, comparisons, easier=_smaller_rivals(found, winner))


def _smaller_rivals(found: dict[str, Experiment | None], winner: str | None) -> str:
    """Which rivals have fewer nonterminals, relative to their release, than the winner has."""
    sizes = {role: experiment.NT for role, experiment in found.items() if experiment and role in RELEASED_NT}
    share = {role: size / RELEASED_NT[role] for role, size in sizes.items()}
    return ", ".join(
        f"{MODELS[role]} has {sizes[role]} nonterminals here, {RELEASED_NT[role]} in its release"
        for role in share
        if share[role] < share.get(winner or "", 0)
    )


def best_of_size(results: Results, winner: str, loser: str, metric: str, decoder: str) -> Finding:
    """The winner is better than the loser of the same number of nonterminals, if that was decoded."""
    better, worse = results.plan.find(winner), results.plan.find(loser)
    same_size = [e for e in results.plan.by_NT(loser) if better and e.NT == better.NT]
    if same_size and results.values(same_size[0], decoder, metric):
        worse = same_size[0]
    easier = "" if not better or not worse or better.NT == worse.NT else "they differ in their nonterminals, too"
    sides = [
        _side(results, e, decoder, metric, f"{MODELS[role]}, NT={e.NT}" if e else MODELS[role])
        for role, e in ((winner, better), (loser, worse))
    ]
    return _finding(sides, [compare(metric, *sides)], easier=easier)


def best_decoder(results: Results, winner: str, loser: str, of: list[str], metric: str) -> Finding:
    """One decoder is better than another for each of some grammars of the plan, seed by seed."""
    sides = []
    for role in of:
        if experiment := results.plan.find(role):
            better, worse = (results.values(experiment, decoder, metric) for decoder in (winner, loser))
            gains = tuple(better[seed] - worse[seed] for seed in better if seed in worse)
            sides.append(Side(f"{MODELS[role]}'s gain", gains))
    return _finding(sides, [compare_pairs(side.values) for side in sides], SIGN_FLIP)


def sweep(results: Results, of: str, over: str, winner: str, losers: str, metric: list[str]) -> Finding:
    """One size of a grammar is better than another, or than all others."""
    series, places = _series(results, of, over)
    if winner not in places:
        return _finding([], [])
    others = [k for k in range(len(series)) if k != places[winner]] if losers == "others" else [places[losers]]
    sides: list[Side] = []
    comparisons = []
    for one in metric:
        points = {
            k: _side(results, series[k], "mbr", one, _size(series[k], over)) for k in sorted([places[winner], *others])
        }
        sides += points.values()
        comparisons += [compare(one, points[places[winner]], points[k]) for k in others]
    return _finding(sides, comparisons)


def _series(results: Results, of: str, over: str) -> tuple[list[Experiment], dict[str, int]]:
    """A grammar in growing size, and the places of the smallest, the largest and, if between them, the default."""
    series = results.plan.by_d_H() if over == "d_H" else results.plan.by_NT(of)
    default = results.plan.find(of)
    if len(series) < 2 or default is None:
        return series, {}
    size = default.hyperparameters[over]
    places = {"smallest": 0, "largest": len(series) - 1}
    nearest = min(range(len(series)), key=lambda k: abs(series[k].hyperparameters[over] - size))
    return series, places | ({"default": nearest} if 0 < nearest < len(series) - 1 else {})


def _size(experiment: Experiment, over: str) -> str:
    return (
        f"d_H={experiment.hyperparameters['d_H']}"
        if over == "d_H"
        else f"{MODELS[experiment.model]} NT={experiment.NT}"
    )


def flat(results: Results, of: str, over: str, metric: str, share: float) -> Finding:
    """Up to the default size a grammar gains; beyond, it gains or loses at most a share of that."""
    series, places = _series(results, of, over)
    sides: list[Side] = []
    early = late = Comparison(None)
    if "default" in places:
        points = [series[places[name]] for name in ("smallest", "default", "largest")]
        sides = [_side(results, e, "mbr", metric, _size(e, over)) for e in points]
        early, late = (compare(metric, after, before) for before, after in pairwise(sides))
    verdict, evidence = Verdict.NOT_RUN, _shown(sides)
    if early.difference is not None and late.difference is not None:
        if early.difference > 0:
            evidence += f"; later gain {late.difference / early.difference:.2f} of the earlier"
        verdict = Verdict.NOT_REPRODUCED if early.p_opposite <= ALPHA else _small(late, early, share)
    return evidence, f"earlier gain: {PERMUTATION}; flat: later gain or loss at most {share:g} of it", verdict, None


def hardly(results: Results, of: str, other: str, metric: str, share: float) -> Finding:
    """From the fewest to the most nonterminals, a grammar changes at most by a share of what another gains."""
    series = {role: results.plan.by_NT(role) for role in (of, other)}
    shared = set.intersection(*({e.NT for e in experiments} for experiments in series.values()))
    sides, changes = [], []
    for experiments in series.values():
        within = [e for e in experiments if e.NT in shared]
        ends = [within[0], within[-1]] if len(within) > 1 else []
        own = [_side(results, e, "mbr", metric, _size(e, "NT")) for e in ends]
        sides += own
        changes.append(compare(metric, own[1], own[0]) if own else Comparison(None))
    change, gain = changes
    verdict, evidence = Verdict.NOT_RUN, _shown(sides)
    if gain.difference is not None and change.difference is not None:
        evidence += f"; gains {change.difference:+.1f} and {gain.difference:+.1f}"
        verdict = _small(change, gain, share)
    return evidence, f"{MODELS[other]}'s gain: {PERMUTATION}; hardly: at most {share:g} of it", verdict, None


def _small(change: Comparison, gain: Comparison, share: float) -> Verdict:
    """Whether a change is at most a share of a gain; undecided if there is no clear gain, or no clear change."""
    if gain.p > ALPHA or change.difference is None or gain.difference is None:
        return Verdict.CANNOT_TELL
    if abs(change.difference) <= share * gain.difference:
        return Verdict.REPRODUCED
    return Verdict.NOT_REPRODUCED if min(change.p, change.p_opposite) <= ALPHA else Verdict.CANNOT_TELL


def prefers(
    results: Results,
    of: str,
    decoder: str,
    metric: str,
    name: str,
    less: str | None = None,
    above: float = 0,
    beside: Sequence[str] = (),
) -> Finding:
    """A share of a grammar's, or the difference of two, is above a value, seed by seed; others are shown beside it."""

    def values(role: str) -> tuple[float, ...]:
        columns = [results.values(results.plan.find(role), decoder, one) for one in (metric, less) if one]
        return tuple(column - sum(c[seed] for c in columns[1:]) for seed, column in columns[0].items())

    own = values(of)
    others = [Side(f"the same of {MODELS[role]}", found) for role in beside if (found := values(role))]
    return _finding([Side(name, own), *others], [compare_pairs([value - above for value in own])], SIGN_FLIP)


def fastest(results: Results, among: list[str], over: str, from_size: int) -> Finding:
    """The first implementation is faster than the others at the largest size measured of all."""
    rows = times(results, over)
    sizes = [[row[over] for row in rows if row["implementation"] == name] for name in among]
    if not all(sizes):
        return "no measurements", QUARTILES, Verdict.NOT_RUN, None
    size = min(map(max, sizes))
    found = {row["implementation"]: row for row in rows if row[over] == size}
    first, *others = (found[name] for name in among)
    shown = "; ".join(f"{name} {1000 * found[name]['median']:.0f} ms" for name in (*among, *OURS) if name in found)
    evidence = f"l={first['l']}, m={first['m']}: {shown}"
    if size < from_size:
        return f"measured only at {evidence}", QUARTILES, Verdict.CANNOT_TELL, None
    verdict = Verdict.CANNOT_TELL
    if first["high"] < min(other["low"] for other in others):
        verdict = Verdict.REPRODUCED
    elif first["low"] > min(other["high"] for other in others):
        verdict = Verdict.NOT_REPRODUCED
    return evidence, QUARTILES, verdict, None


def slowest_growth(results: Results, among: list[str], over: str) -> Finding:
    """The exponent of each implementation's time is below that of the next."""
    test = "fitted exponents, two standard errors apart"
    fits = [fit for name in among if (fit := growth(results, name, over)) is not None]
    if len(fits) < len(among):
        return "no measurements", test, Verdict.NOT_RUN, None
    evidence = "; ".join(f"{name} {slope:.2f} ± {error:.2f}" for name, (slope, error) in zip(among, fits, strict=True))
    gaps = [(b[0] - a[0], 2 * math.hypot(a[1], b[1])) for a, b in pairwise(fits)]
    verdict = Verdict.CANNOT_TELL
    if any(gap < -width for gap, width in gaps):
        verdict = Verdict.NOT_REPRODUCED
    elif all(gap > width for gap, width in gaps):
        verdict = Verdict.REPRODUCED
    return evidence, test, verdict, None


KINDS: dict[str, Callable[..., Finding]] = {
    kind.__name__: kind
    for kind in (best, best_of_size, best_decoder, sweep, flat, hardly, prefers, fastest, slowest_growth)
}
