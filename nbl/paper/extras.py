"""Tables the paper does not have: the corpus, complexities, decoders, qualitative analysis."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from nbl.bench.summary import SHORTEST
from nbl.matrix import Experiment
from nbl.paper.frame import LABELS, Results
from nbl.paper.latex import RULE, escape, mean_std, number, signed, spanning, table
from nbl.paper.plan import LEXICALISED, MODELS
from nbl.paper.published import Published
from nbl.paper.speed import growth
from nbl.paper.tables import SIGNS, sizes
from nbl.preferences import SHAPES

# Implementations that are timed -> the algorithm of the paper, or its own complexity where the paper has none.
ALGORITHMS = {"NBL, torch": "NBL", "NBL, native": "NBL"}
OWN_COMPLEXITIES = {
    "NL, splits first": "l^4 m^2 + l^3 m^3",
    "NL, native": "l^4 m^2 + l^3 m^3",
    "N": "l^3 m^2 + l^2 m^3",
    "N, native": "l^3 m^2 + l^2 m^3",
    "TN": "l^3 R + l^2 m R",
    "TN, native": "l^3 R + l^2 m R",
}


def corpus(results: Results) -> str:
    """Counts of the three parts, what trees anyone can guess score, and what is known of the truth."""
    splits: dict[str, dict[str, Any]] = results.stats.get("splits", {})
    columns = {
        "Sentences": lambda s: f"{s['sentences']:,}",
        "Words": lambda s: f"{s['tokens']:,}",
        "Word types": lambda s: f"{s['types']:,}",
        r"Unknown words (\%)": lambda s: number(100 * s["unknown_rate"], 2),
        "Mean length": lambda s: number(s["length"]["mean"]),
        "Longest sentence": lambda s: str(s["length"]["max"]),
        "Constituents": lambda s: f"{s['trees']['constituents']:,}",
        "F1 of left-branching trees": lambda s: number(s["trees"]["sentence_f1"]["left"]),
        "F1 of right-branching trees": lambda s: number(s["trees"]["sentence_f1"]["right"]),
        "F1 of random trees": lambda s: number(s["trees"]["sentence_f1"]["random"]),
        "F1 of the best binary trees": lambda s: number(s["trees"]["sentence_f1"]["oracle"]),
    }
    rows = []
    for name, show in columns.items():
        rows.append([name, *(_or_nothing(show, splits.get(split)) for split in ("train", "dev", "test"))])
    true = results.stats.get("toy", {}).get("true_perplexity")
    if true:
        rows.append(["Perplexity of the true grammar", "", number(true["dev"], 2), number(true["test"], 2)])
    caption = (
        rf"The corpus \texttt{{{results.corpus}}}: sentences of two or more words after cleaning; constituents of "
        f"two or more words below the sentence; a vocabulary of {results.stats.get('vocabulary', 0):,} words."
    )
    return table("corpus", caption, "lrrr", [["", "train", "dev", "test"]], rows, wide=False)


def _or_nothing(show: Any, split: dict[str, Any] | None) -> str:
    try:
        return show(split) if split else ""
    except KeyError:  # a part without trees
        return ""


def complexity(results: Results, paper: Published) -> str:
    """How the time of each inside algorithm grows, held against what the paper and its equations say."""
    stated = {entry["algorithm"]: entry for entry in paper.complexities}
    rows = []
    for name in dict.fromkeys(results.bench.get("implementation", [])):
        entry = stated.get(ALGORITHMS.get(name, name), {})
        derived = entry.get("derived") or entry.get("paper") or OWN_COMPLEXITIES.get(name)
        rows.append(
            [
                escape(name),
                _order(entry.get("paper")),
                _order(derived),
                _fitted(results, name, "l"),
                _fitted(results, name, "m"),
            ]
        )
    reasons = "; ".join(f"{e['algorithm']}: {e['why']}" for e in paper.complexities if e.get("why"))
    caption = (
        "Time of one forward and backward pass: the order the paper states, the order its equations have when the "
        f"operations are counted ({reasons}), and the fitted exponents ($\\pm$ standard error where there are four "
        f"sizes or more) in the sentence length $l$ (from {SHORTEST} words) and in the number of nonterminals $m$, see "
        "Figure~\\ref{fig:time}. At these sizes lower-order terms and vectorised arithmetic pull the exponents below "
        "the orders. Each time is taken as a multiple of that of a matrix product measured beside it, as the rate of a "
        "machine drifts."
    )
    head = [["Inside algorithm", "paper", "counted", "exponent in $l$", "in $m$"]]
    return table("complexity", caption, "lllrr", head, rows or [["not measured", "", "", "", ""]])


def _fitted(results: Results, name: str, variable: str) -> str:
    fit = growth(results, name, variable)
    if fit is None:
        return "--"
    slope, error = fit
    return number(slope, 2) + ("" if math.isnan(error) else rf"$_{{\pm {error:.2f}}}$")


def _order(text: str | None) -> str:
    return rf"$O({text})$" if text else ""


def decoders(results: Results) -> str:
    """What the errors of the released NL-PCFG decoders and of the released metrics are worth."""
    metrics = ("f1", "udas", "uuas")
    head = [
        ["", *(spanning(3, title) for title in ("F1", "UDAS", "UUAS"))],
        r"\cmidrule(lr){2-4}\cmidrule(lr){5-7}\cmidrule(lr){8-10}",
        ["", *["right", "released", r"$\Delta$"] * 3],
    ]
    rows: list = [[spanning(10, "Decoders")], RULE]
    experiments: list[Experiment | None] = [*results.plan.in_sizes("nlpcfg")] or [None]
    for experiment, decoder in product(experiments, SIGNS):
        row = [MODELS["nlpcfg"] + SIGNS[decoder] + ("" if experiment is experiments[0] else f" {sizes(experiment)}")]
        for metric in metrics:
            row += _pair(results, experiment, (decoder, metric), (f"{decoder}-legacy", metric))
        rows.append(row)
    rows += [RULE, [spanning(10, "Metrics")], RULE]
    for role, decoder in product(MODELS, SIGNS):
        found = results.plan.find(role)
        row = [MODELS[role] + SIGNS[decoder], *_pair(results, found, (decoder, "f1"), (decoder, "f1_release"))]
        row += ["", "", ""]
        if role in LEXICALISED:
            row += _pair(results, found, (decoder, "uuas"), (decoder, "uuas_legacy"))
        rows.append(row)
    caption = (
        rf"What the released code's errors are worth on \texttt{{{results.corpus}}}; $\Delta$ is released less right, "
        "paired over seeds. Upper part: the released CYK decoder of NL-PCFG leaves out the root word's emission, the "
        "released MBR decoder loses arcs to single-word dependents. Lower part: the released F1 leaves every span of "
        "the whole sentence out of the gold trees, Kim's only the root; the released UUAS credits some wrong roots."
    )
    return table("decoders", caption, "l" + "r" * 9, head, rows)


def _pair(
    results: Results, experiment: Experiment | None, right: tuple[str, str], released: tuple[str, str]
) -> list[str]:
    """Mean of the one, of the other, and of their difference over the seeds that have both."""
    cells = [mean_std(results.summary(experiment, decoder, metric)) for decoder, metric in (right, released)]
    ours, theirs = results.values(experiment, *right), results.values(experiment, *released)
    differences = [theirs[seed] - ours[seed] for seed in ours if seed in theirs]
    return [*cells, signed(sum(differences) / len(differences), 2) if differences else ""]


def qualitative(results: Results) -> str:
    """Three tables: which constituents are left-headed, adjective-noun phrases, schemes of gold heads."""
    return "\n".join([_headedness(results), _adjective_noun(results), _schemes(results)])


def _headedness(results: Results) -> str:
    rows: list = []
    for label in LABELS:
        of_roles = [results.values(results.plan.find(r), "cyk", f"gold_left_headed:{label}") for r in LEXICALISED]
        gold = next((value for values in of_roles for value in values.values()), None)
        row = [label, "--" if gold is None else number(gold)]
        for role in LEXICALISED:
            row += [_cell(results, role, "cyk", f"{name}:{label}") for name in ("left_headed", "right_head")]
        rows.append(row)
    row = ["all predicted", ""]
    for role in LEXICALISED:
        row += [_cell(results, role, "cyk", "left_headed"), ""]
    rows += [RULE, row]
    head = [
        ["", "gold", *(spanning(2, MODELS[role]) for role in LEXICALISED)],
        r"\cmidrule(lr){2-2}\cmidrule(lr){3-4}\cmidrule(lr){5-6}\cmidrule(lr){7-8}",
        ["Label", "left", *["left", "gold head"] * len(LEXICALISED)],
    ]
    caption = (
        rf"Headedness on the test part of \texttt{{{results.corpus}}}, in per cent. Left: share of the constituents "
        "that are headed by their first word, of the gold ones with one head, and of those of them that a grammar "
        "found (CYK trees). Gold head: share of those found whose head is the gold head. The paper: NBL-PCFG prefers "
        "left-headed constituents, is right about the heads of VPs, and takes prepositions and complementisers for "
        "heads of PPs and SBARs."
    )
    return table("headedness", caption, "lr" + "rr" * len(LEXICALISED), head, rows)


def _adjective_noun(results: Results) -> str:
    rows = [[MODELS[r], *(_cell(results, r, "mbr", f"adjective_noun:{shape}") for shape in SHAPES)] for r in MODELS]
    found = [results.values(results.plan.find(role), "mbr", "adjective_noun:phrases") for role in MODELS]
    places = next((int(value) for values in found for value in values.values()), 0)
    caption = (
        r"Adjective--noun phrases: how MBR trees bracket the "
        rf"{places:,} gold constituents of determiner, adjective and noun (\emph{{a rough market}}) in the test part "
        rf"of \texttt{{{results.corpus}}}, in per cent. The paper: NBL-PCFG often predicts ((a rough) market)."
    )
    head = [["Model", "(a (rough market))", "((a rough) market)", "no constituent"]]
    return table("adjective_noun", caption, "lrrr", head, rows, wide=False)


def _schemes(results: Results) -> str:
    """Attachment scores by each scheme of gold heads there is."""
    schemes = [name.removeprefix("udas:") for name in map(str, results.scores) if name.startswith("udas:")]
    head = [
        ["", *(spanning(2, rf"\texttt{{{escape(scheme)}}}") for scheme in schemes)],
        ["Model", *["UDAS", "UUAS"] * len(schemes)],
    ]
    rows = []
    for role in LEXICALISED:
        for decoder in SIGNS:
            columns = [f"{metric}:{scheme}" for scheme in schemes for metric in ("udas", "uuas")]
            cells = [mean_std(results.summary(results.plan.find(role), decoder, column)) for column in columns]
            rows.append([MODELS[role] + SIGNS[decoder], *cells])
    caption = (
        "Attachment scores by different rules for gold heads: \\texttt{stanford} prefers content words, "
        "\\texttt{function} function words. The paper discusses that NBL-PCFG prefers function words."
    )
    return table("schemes", caption, "l" + "rr" * len(schemes), head, rows, wide=False)


def _cell(results: Results, role: str, decoder: str, metric: str) -> str:
    return mean_std(results.summary(results.plan.find(role), decoder, metric))
