"""The paper's statements about trained grammars, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from nbl.matrix import Experiment
from nbl.paper.frame import LABELS, Results
from nbl.paper.judgement import (
    CANNOT_TELL,
    METRICS,
    NOT_REPRODUCED,
    NOT_RUN,
    PERMUTATION,
    REPRODUCED,
    SIGN_FLIP,
    Claim,
    Comparison,
    Side,
    best,
    claim,
    compare,
    compare_pairs,
    side,
    smaller_rivals,
)
from nbl.paper.plan import MODELS, RELEASED_NT
from nbl.paper.statistics import ALPHA

FLAT = 0.25  # a curve is flat where it gains at most this share of what it gained before
HARDLY = 0.5  # a grammar hardly changes if by at most this share of the other's change


def main(results: Results) -> list[Claim]:
    """Section "Main result"."""
    others = [role for role in RELEASED_NT if role != "nblpcfg"]
    lexicalised = ["nlpcfg", "nlpcfg-compound"]
    both = ("cyk", "mbr")
    claims = [
        best(results, "nbl-best-f1", 311, "NBL-PCFG has the best F1 under CYK and MBR", "nblpcfg", others, "f1", both),
        best(
            results,
            "nbl-best-uuas",
            311,
            "NBL-PCFG has the best UUAS under CYK and MBR",
            "nblpcfg",
            lexicalised,
            "uuas",
            both,
        ),
        best(
            results,
            "nbl-best-perplexity",
            462,
            "NBL-PCFG has the lowest perplexity",
            "nblpcfg",
            [role for role in others if role != "nlpcfg-compound"],
            "perplexity",
        ),
    ]
    for metric, name in METRICS.items():
        statement = f"NBL-PCFG beats NL-PCFG (not compound) in {name}"
        decoders = ("mbr",) if metric == "perplexity" else both
        claims.append(best(results, f"nbl-beats-nl-{metric}", 317, statement, "nblpcfg", ["nlpcfg"], metric, decoders))
    claims += [_compound(results, metric) for metric in ("f1", "udas", "uuas")]
    statement = "With compound parameterisation, NL-PCFG's UDAS surpasses NBL-PCFG's"
    claims.append(
        best(results, "compound-beats-nbl-udas", 317, statement, "nlpcfg-compound", ["nblpcfg"], "udas", ("cyk",))
    )
    return claims + [_mbr_beats_cyk(results, metric) for metric in ("f1", "udas", "uuas")]


def _compound(results: Results, metric: str) -> Claim:
    """Against the plain NL-PCFG of the same size, if that was decoded by CYK."""
    with_z, plain = results.plan.find("nlpcfg-compound"), results.plan.find("nlpcfg")
    same_size = [e for e in results.plan.by_NT("nlpcfg") if with_z and e.NT == with_z.NT]
    if same_size and results.values(same_size[0], "cyk", metric):
        plain = same_size[0]
    easier = "" if not with_z or not plain or with_z.NT == plain.NT else "they differ in their nonterminals, too"
    winner, loser = (
        side(results, e, "cyk", metric, f"{MODELS[role]}, NT={e.NT}" if e else MODELS[role])
        for role, e in (("nlpcfg-compound", with_z), ("nlpcfg", plain))
    )
    statement = f"Without compound parameterisation, NL-PCFG's {METRICS[metric]} drops"
    comparisons = [compare(winner, loser)]
    return claim(f"compound-{metric}", 313, statement, [winner, loser], comparisons, easier=easier)


def _mbr_beats_cyk(results: Results, metric: str) -> Claim:
    """For each grammar of the plan that the paper decodes both ways, seed by seed."""
    sides, comparisons = [], []
    for role in ("nlpcfg", "nblpcfg"):
        experiment = results.plan.find(role)
        if experiment is not None:
            cyk, mbr = (results.values(experiment, decoder, metric) for decoder in ("cyk", "mbr"))
            gains = [mbr[seed] - cyk[seed] for seed in mbr if seed in cyk]
            sides.append(Side(f"{MODELS[role]}'s gain", tuple(gains)))
            comparisons.append(compare_pairs(gains))
    statement = f"MBR decoding beats CYK decoding in {METRICS[metric]}"
    return claim(f"mbr-beats-cyk-{metric}", 314, statement, sides, comparisons, SIGN_FLIP)


def d_H(results: Results) -> list[Claim]:
    """Section "Influence of the domain size of H". The knee of the curves is the default, the paper's 300."""
    series = results.plan.by_d_H()
    default = results.plan.find("nblpcfg")
    wanted = default.hyperparameters["d_H"] if default else 0
    knee = min(range(len(series)), key=lambda k: abs(series[k].hyperparameters["d_H"] - wanted), default=0)
    inside = 0 < knee < len(series) - 1
    curves = {
        metric: [side(results, e, "mbr", metric, f"d_H={e.hyperparameters['d_H']}") for e in series]
        for metric in METRICS
    }
    early, falls, top = [], [], []
    if inside:
        early = [
            compare(curves["perplexity"][knee], curves["perplexity"][0], lower_is_better=True),
            compare(curves["f1"][knee], curves["f1"][0]),
        ]
        falls = [compare(curves["f1"][knee], curves["f1"][-1])]
        top = [
            compare(curves[metric][knee], other)
            for metric in ("udas", "uuas")
            for other in curves[metric]
            if other is not curves[metric][knee]
        ]
    points = (0, knee, -1) if inside else ()
    perplexity, f1 = ([curves[metric][k] for k in points] for metric in ("perplexity", "f1"))
    return [
        claim(
            "dh-small-is-worse",
            369,
            "A small d_H has a higher perplexity and a lower F1 than the default (300 in the paper)",
            [*perplexity[:2], *f1[:2]],
            early,
        ),
        _plateau(perplexity, early[0] if early else Comparison(None)),
        claim("dh-f1-falls", 369, "Beyond the default d_H, F1 falls", f1[1:], falls),
        claim(
            "dh-best-das",
            552,
            "The default d_H has the best UDAS and UUAS",
            [*curves["udas"], *curves["uuas"]] if inside else [],
            top,
        ),
    ]


def _plateau(perplexity: list[Side], early: Comparison) -> Claim:
    late = compare(perplexity[2], perplexity[1], lower_is_better=True) if perplexity else Comparison(None)
    verdict, evidence = NOT_RUN, ", ".join(map(str, perplexity)) or "no results"
    if early.difference is not None and late.difference is not None:
        verdict = CANNOT_TELL
        if early.difference > 0:
            evidence += f"; later gain {late.difference / early.difference:.2f} of the earlier"
        if early.p_opposite <= ALPHA:
            verdict = NOT_REPRODUCED
        elif early.p <= ALPHA:
            flat = abs(late.difference) <= FLAT * early.difference
            clear = min(late.p, late.p_opposite) <= ALPHA
            verdict = REPRODUCED if flat else NOT_REPRODUCED if clear else CANNOT_TELL
    test = f"earlier gain: {PERMUTATION}; flat: later gain or loss at most {FLAT:g} of it"
    return Claim("dh-plateau", 369, "Beyond the default d_H, the perplexity is flat", evidence, test, verdict)


def nonterminals(results: Results) -> list[Claim]:
    """Section "Influence of nonterminal number": from the fewest to the most."""
    claims = []
    series = {model: results.plan.by_NT(model) for model in ("nlpcfg", "nblpcfg")}
    shared = set.intersection(*({e.NT for e in of_model} for of_model in series.values()))
    for metric in ("f1", "perplexity", "udas"):
        ends = _ends(results, series["nlpcfg"], metric)
        statement = f"NL-PCFG's {METRICS[metric]} gains from more nonterminals"
        line = 552 if metric == "udas" else 373
        claims.append(claim(f"nl-gains-{metric}", line, statement, ends, [_gain(ends, metric)]))
        if metric != "udas":
            nl, nbl = (
                _ends(results, [e for e in series[model] if e.NT in shared], metric) for model in ("nlpcfg", "nblpcfg")
            )
            claims.append(_hardly(metric, [*nbl, *nl], _gain(nl, metric), _gain(nbl, metric)))
    return claims


def _ends(results: Results, series: Sequence[Experiment], metric: str) -> list[Side]:
    if len(series) < 2:
        return []
    return [side(results, e, "mbr", metric, f"{MODELS[e.model]} NT={e.NT}") for e in (series[0], series[-1])]


def _gain(ends: Sequence[Side], metric: str) -> Comparison:
    return compare(ends[1], ends[0], metric == "perplexity") if ends else Comparison(None)


def _hardly(metric: str, sides: list[Side], gain: Comparison, change: Comparison) -> Claim:
    verdict, evidence = NOT_RUN, ", ".join(map(str, sides)) or "no results"
    if gain.difference is not None and change.difference is not None:
        verdict = CANNOT_TELL
        evidence += f"; gains {change.difference:+.1f} and {gain.difference:+.1f}"
        if gain.p <= ALPHA:
            little = abs(change.difference) <= HARDLY * gain.difference
            clear = min(change.p, change.p_opposite) <= ALPHA
            verdict = REPRODUCED if little else NOT_REPRODUCED if clear else CANNOT_TELL
    return Claim(
        f"nbl-hardly-{metric}",
        373,
        f"More nonterminals hardly change NBL-PCFG's {METRICS[metric]}",
        evidence,
        f"NL-PCFG's gain: {PERMUTATION}; hardly: at most {HARDLY:g} of it",
        verdict,
    )


def bindings(results: Results) -> list[Claim]:
    """Section "Influence of different variable bindings"."""
    claims = []
    for key, line, winner, metric, what in (
        ("dc-best-f1", 408, "D-C", "f1", "best F1"),
        ("dc-best-perplexity", 408, "D-C", "perplexity", "lowest perplexity"),
        ("dwq-best-udas", 408, "D-wq", "udas", "best UDAS"),
        ("dwq-best-uuas", 421, "D-wq", "uuas", "best UUAS"),
    ):
        sides = _by_binding(results, metric)
        others = [other for binding, other in sides.items() if binding != winner]
        comparisons = [compare(sides[winner], other, metric == "perplexity") for other in others]
        statement = f"Of the four bindings, {winner} has the {what}"
        claims.append(claim(key, line, statement, list(sides.values()), comparisons))
    udas = _by_binding(results, "udas")
    comparisons = [compare(udas[binding], udas["D-B"]) for binding in ("D-C", "D-wq")]
    statement = "D-B has a lower UDAS than D-C and D-wq"
    shown = [udas[binding] for binding in ("D-C", "D-wq", "D-B")]
    return [*claims, claim("db-lower-udas", 410, statement, shown, comparisons)]


def _by_binding(results: Results, metric: str) -> dict[str, Side]:
    experiments = results.plan.bindings()
    return {binding: side(results, e, "mbr", metric, binding) for binding, e in experiments.items()}


def recalls(results: Results) -> list[Claim]:
    """Section "Qualitative analysis", its table."""
    roles = [role for role in RELEASED_NT if role != "nlpcfg-compound"]
    claims = []
    for key, winner, labels, statement in (
        ("tn-best-np", "tnpcfg", LABELS[:1], "TN-PCFG has the best recall of NPs"),
        ("nbl-best-vp", "nblpcfg", LABELS[1:2], "NBL-PCFG has the best recall of VPs"),
        ("nbl-best-others", "nblpcfg", LABELS[1:], "NBL-PCFG has the best recall of labels other than NP on average"),
    ):
        sides = {role: _recall(results, role, labels) for role in roles}
        rivals = [role for role in roles if role != winner]
        comparisons = [compare(sides[winner], sides[role]) for role in rivals]
        easier = smaller_rivals(results, winner, rivals)
        claims.append(claim(key, 432, statement, list(sides.values()), comparisons, easier=easier))
    return claims


def _recall(results: Results, role: str, labels: Sequence[str]) -> Side:
    """The mean recall of some labels, of the seeds that have all of them."""
    columns = [results.values(results.plan.find(role), "mbr", f"recall_{label}") for label in labels]
    seeds = sorted(set.intersection(*(set(column) for column in columns)))
    return Side(MODELS[role], tuple(fmean(column[seed] for column in columns) for seed in seeds))
