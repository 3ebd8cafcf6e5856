"""Every table of the paper, ours beside the paper's numbers, and the tables it does not have."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

from nbl import settings
from nbl.bench.summary import SHORTEST
from nbl.paper.claims import RULE as CLAIM_RULE
from nbl.paper.claims import Check, counts
from nbl.paper.published import Cell, Published, caveat, comparability
from nbl.paper.render import LATEX, MISSING, RULE, SPACE, Cells, Group, Markdown, Row, Section, Table
from nbl.paper.results import LABELS, METRICS, Results, growth, lower_is_better
from nbl.paper.roles import LEXICALISED, MODELS, Part
from nbl.paper.statistics import Summary
from nbl.preferences import SHAPES

MAIN = ("f1", "udas", "uuas")
APPROXIMATE = (
    rf"{LATEX.approximate('')}: a compound model's perplexity is approximate, with $\mathbf{{z}}$ at its mean."
)
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


def main_result(results: Results, paper: Published, write: Markdown, metrics: tuple[str, ...] = MAIN) -> str:
    """Scores of all grammars with both decoders, and of trees that need no training."""
    runs = [(part, decoder) for part in results.plan.parts() for decoder in write.decoders]
    sources = {"perplexity": "label_recall"}  # the paper's table that has a metric
    compare = _Comparison(results, paper, write)
    best = {
        metric: compare.best([results.summary(part.experiment, decoder, metric) for part, decoder in runs], metric)
        for metric in metrics
    }
    rows: list[Row] = []
    for part, decoder in runs:
        cells = [
            ("", "", "")
            if METRICS[metric].of_heads and part.role not in LEXICALISED
            else compare.cells(sources.get(metric, "main_result"), part, decoder, metric, best[metric])
            for metric in metrics
        ]
        rows.append([MODELS[part.role] + write.decoders[decoder], part.sizes, *cells])
    rows.append(Section("For reference"))
    trivial = {"left": "Left branching", "right": "Right branching", "random": "Random trees", "oracle": "Oracle trees"}
    for kind, name in trivial.items():
        cell = paper.find("main_result", kind, None, "f1")
        ours = results.trivial_f1(kind)
        f1 = (write.mean(ours), write.published(cell), compare.difference(ours, cell))
        rows.append([name, "", f1, *[("", "", "")] * (len(metrics) - 1)])
    for run, model, name in (("s-diora", "sdiora", "S-DIORA"), ("structformer", "structformer", "StructFormer")):
        experiment = results.plan.experiments.get(model)
        system: list[tuple[str, str, str]] = []
        for metric in metrics:
            cell, ours = paper.find("main_result", run, None, metric), results.summary(experiment, "mbr", metric)
            mean = write.mean(ours) if ours.n else ""
            system.append((mean, write.published(cell), compare.difference(ours, cell) if ours.n else ""))
        rows.append([settings.MODELS[model].title if experiment else name, "", *system])
    caption = (
        "Sentence-level F1, unlabelled directed and undirected attachment score on the test part of "
        rf"\texttt{{{results.corpus}}}. $^\star$: CYK, $^\dagger$: MBR decoding. " + _form(results) + " "
        "Left-, right-branching, random and the best binary trees are computed from the data. "
        + _paper_columns(results)
    )
    columns: list[str | Group] = ["Model", "NT/PT", *(compare.group(metric) for metric in metrics)]
    return write.table(Table("main_result", caption, "ll" + "rrr" * len(metrics), columns, rows))


def bindings(results: Results, paper: Published, write: Markdown) -> str:
    """What the head direction D is generated with."""
    parts = results.plan.bindings()
    compare = _Comparison(results, paper, write)
    best = {
        metric: compare.best([results.summary(part.experiment, "mbr", metric) for part in parts.values()], metric)
        for metric in METRICS
    }
    rows: list[Row] = [
        [write.binding(binding), *(compare.cells("bindings", part, "mbr", metric, best[metric]) for metric in METRICS)]
        for binding, part in parts.items()
    ]
    caption = (
        rf"NBL-PCFG on \texttt{{{results.corpus}}} with the head direction $D$ bound to different variables, MBR "
        "decoding. " + _form(results) + " " + _paper_columns(results)
    )
    columns: list[str | Group] = ["Binding", *map(compare.group, METRICS)]
    return write.table(Table("bindings", caption, "l" + "rrr" * len(METRICS), columns, rows))


def label_recall(results: Results, paper: Published, write: Markdown) -> str:
    """Recall of six frequent labels and perplexity; three lines per model: ours, the paper's, the difference."""
    columns = {f"recall_{label}": label for label in LABELS} | {"perplexity": METRICS["perplexity"].heading}
    compare = _Comparison(results, paper, write)
    parts = list(results.plan.parts())
    best = {}
    for metric in columns:
        exact = [part.experiment for part in parts if not _approximate(part, metric)]
        best[metric] = compare.best([results.summary(e, "mbr", metric) for e in exact if e is not None], metric)
    rows: list[Row] = []
    for part in parts:
        cells = [compare.cells("label_recall", part, "mbr", metric, best[metric]) for metric in columns]
        ours, theirs, differences = zip(*cells, strict=True)
        rows.append([part.name, "ours", *ours])
        if any(theirs):
            rows += [["", "paper", *theirs], ["", write.delta, *differences]]
        rows.append(SPACE)
    caption = (
        rf"Recall (per cent) on six frequent labels, and perplexity, on the test part of \texttt{{{results.corpus}}}, "
        "MBR decoding. " + _form(results) + f" {APPROXIMATE} It is never bold. " + _paper_columns(results)
    )
    return write.table(
        Table("label_recall", caption, "ll" + "r" * len(columns), ["", "", *columns.values()], rows[:-1])
    )


class _Comparison:
    """Cells with our number, the paper's, and the difference."""

    def __init__(self, results: Results, paper: Published, write: Markdown):
        self.results, self.paper, self.write = results, paper, write

    def group(self, metric: str) -> Group:
        return Group(METRICS[metric].heading, ("ours", "paper", self.write.delta))

    def best(self, summaries: list[Summary], metric: str) -> str | None:
        """The best mean as it is printed: every cell that prints it is bold. None if there is nothing to compare."""
        means = [round(summary.mean, 1) for summary in summaries if summary.n]
        choose = min if lower_is_better(metric) else max
        return self.write.number(choose(means)) if len(means) > 1 else None

    def cells(self, table: str, part: Part, decoder: str, metric: str, best: str | None) -> tuple[str, str, str]:
        """Our mean and spread; the paper's number and the difference, unless the experiment is of another size."""
        ours = self.results.summary(part.experiment, decoder, metric)
        cell = self.paper.find(table, part.role, decoder, metric) if part.of_paper else None
        approximate = _approximate(part, metric)
        bold = not approximate and ours.n > 0 and self.write.number(round(ours.mean, 1)) == best
        return self.write.mean(ours, bold, approximate), self.write.published(cell), self.difference(ours, cell)

    def difference(self, ours: Summary, cell: Cell | None) -> str:
        """Ours less the paper's, in parentheses where the two are not for the same data."""
        if cell is None or ours.n == 0:
            return ""
        text = self.write.signed(ours.mean - cell.value)
        return text if comparability(self.results.corpus) == "comparable" else f"({text})"


def _approximate(part: Part, metric: str) -> bool:
    return metric == "perplexity" and part.experiment is not None and part.experiment.compound


def _form(results: Results) -> str:
    return (
        rf"Mean$_{{\pm\mathrm{{std}}}}$ over $n = {results.plan.seeds}$ seeds; a cell with fewer says so; "
        "the best in bold."
    )


def _paper_columns(results: Results) -> str:
    """What the caption says about the paper's numbers."""
    quoted = rf"{LATEX.quoted}: quoted there from other work. {results.plan.other_sizes()}".rstrip()
    kind = comparability(results.corpus)
    if kind == "comparable":
        return rf"The paper's numbers are for the same data; $\Delta$ is ours less the paper's. {quoted}"
    if kind == "indicative":
        return (
            "The paper's numbers are \\emph{indicative} only: they are for section 23 of the WSJ, these for other "
            rf"sections, hence the parentheses around the differences $\Delta$. {quoted}"
        )
    return (
        "The paper's numbers are for the WSJ and \\emph{not comparable}, hence the parentheses around the "
        rf"differences $\Delta$. {quoted}"
    )


def seeds(results: Results, agreements: dict[str, dict[int, float]]) -> str:
    """Every seed's numbers, the interval of their mean, and how far the seeds agree with each other."""
    columns = (("f1", "cyk"), ("f1", "mbr"), ("udas", "mbr"), ("uuas", "mbr"), ("perplexity", "mbr"))
    rows: list[Row] = []
    for experiment in results.plan.experiments.values():
        name = LATEX.code(experiment.name)
        values = [results.values(experiment, decoder, metric) for metric, decoder in columns]
        values.append(agreements.get(experiment.name, {}))
        headless = experiment.model not in LEXICALISED
        for position, seed in enumerate(experiment.seeds):
            row = [name if position == 0 else "", str(seed)]
            for (metric, decoder), of_seed in zip((*columns, ("self_f1", "mbr")), values, strict=True):
                of_heads = metric in METRICS and METRICS[metric].of_heads
                absent = "" if decoder not in experiment.decoders or (headless and of_heads) else MISSING
                value = LATEX.number(of_seed[seed], 2) if seed in of_seed else absent
                approximate = metric == "perplexity" and experiment.compound and seed in of_seed
                row.append(LATEX.approximate(value) if approximate else value)
            rows.append(row)
        # the agreements of two seeds are of the same pair: no interval
        means = [_interval(list(of_seed.values())) for of_seed in values[:-1]]
        rows += [["", "mean", *means, _interval(list(values[-1].values())).partition(r"$\pm$")[0]], SPACE]
    caption = (
        rf"Every seed on the test part of \texttt{{{results.corpus}}}; below them the mean and half the width of its "
        r"95\,\% $t$-interval. Self-F1: mean sentence F1 of a seed's trees against those of each other seed. "
        + APPROXIMATE
    )
    titles = [METRICS[metric].heading + LATEX.decoders[decoder] for metric, decoder in columns]
    head = ["Run", "seed", *titles, r"self-F1$^\dagger$"]
    return LATEX.table(Table("seeds", caption, "ll" + "r" * 6, head, rows[:-1], long=True))


def _interval(values: list[float]) -> str:
    if not values:
        return ""
    summary = Summary(tuple(values), len(values))
    width = rf"$\pm${summary.half_width:.2f}" if summary.n > 1 else ""
    return rf"\textit{{{LATEX.number(summary.mean, 2)}}}{width}"


def corpus(results: Results) -> str:
    """Counts of the three parts, scores of the trivial baselines, and what is known of the true grammar."""
    splits: dict[str, dict[str, Any]] = results.stats.get("splits", {})
    lines = {
        "Sentences": lambda s: f"{s['sentences']:,}",
        "Words": lambda s: f"{s['tokens']:,}",
        "Word types": lambda s: f"{s['types']:,}",
        r"Unknown words (\%)": lambda s: LATEX.number(100 * s["unknown_rate"], 2),
        "Mean length": lambda s: LATEX.number(s["length"]["mean"]),
        "Longest sentence": lambda s: str(s["length"]["max"]),
        "Constituents": lambda s: f"{s['trees']['constituents']:,}",
        "F1 of left-branching trees": lambda s: LATEX.number(s["trees"]["sentence_f1"]["left"]),
        "F1 of right-branching trees": lambda s: LATEX.number(s["trees"]["sentence_f1"]["right"]),
        "F1 of random trees": lambda s: LATEX.number(s["trees"]["sentence_f1"]["random"]),
        "F1 of the best binary trees": lambda s: LATEX.number(s["trees"]["sentence_f1"]["oracle"]),
    }
    rows = [
        [name, *(_or_nothing(show, splits.get(split)) for split in ("train", "dev", "test"))]
        for name, show in lines.items()
    ]
    if true := results.stats.get("toy", {}).get("true_perplexity"):
        numbers = [LATEX.number(true[split], 2) for split in ("dev", "test")]
        rows.append(["Perplexity of the true grammar", "", *numbers])
    caption = (
        rf"The corpus \texttt{{{results.corpus}}}: sentences of two or more words after cleaning; constituents of "
        f"two or more words below the sentence; a vocabulary of {results.stats.get('vocabulary', 0):,} words."
    )
    return LATEX.table(Table("corpus", caption, "lrrr", ["", "train", "dev", "test"], rows, wide=False))


def _or_nothing(show: Any, split: dict[str, Any] | None) -> str:
    try:
        return show(split) if split else ""
    except KeyError:  # a part without trees
        return ""


def complexity(results: Results, paper: Published) -> str:
    """How the time of each inside algorithm grows, compared with what the paper and its equations say."""
    stated = {entry["algorithm"]: entry for entry in paper.complexities}
    rows = []
    for name in dict.fromkeys(row["implementation"] for row in results.bench):
        entry = stated.get(ALGORITHMS.get(name, name), {})
        counted = entry.get("derived") or entry.get("paper") or OWN_COMPLEXITIES.get(name)
        orders = [rf"$O({order})$" if order else "" for order in (entry.get("paper"), counted)]
        rows.append([LATEX.text(name), *orders, *(_fitted(results, name, variable) for variable in ("l", "m"))])
    reasons = "; ".join(f"{e['algorithm']}: {e['why']}" for e in paper.complexities if e.get("why"))
    caption = (
        "Time of one forward and backward pass: the order the paper states, the order its equations have when the "
        f"operations are counted ({reasons}), and the fitted exponents ($\\pm$ standard error where there are four "
        f"sizes or more) in the sentence length $l$ (from {SHORTEST} words) and in the number of nonterminals $m$, see "
        "Figure~\\ref{fig:time}. At these sizes lower-order terms and vectorised arithmetic pull the exponents below "
        "the orders. Each time is taken as a multiple of that of a matrix product measured beside it, as the rate of a "
        "machine drifts."
    )
    head = ["Inside algorithm", "paper", "counted", "exponent in $l$", "in $m$"]
    return LATEX.table(Table("complexity", caption, "lllrr", head, rows or [["not measured", "", "", "", ""]]))


def _fitted(results: Results, name: str, variable: str) -> str:
    fit = growth(results, name, variable)
    if fit is None:
        return MISSING
    slope, error = fit
    return LATEX.number(slope, 2) + ("" if math.isnan(error) else LATEX.spread(f"{error:.2f}"))


def decoders(results: Results, write: Markdown) -> str:
    """What the errors of the released NL-PCFG decoders and of the released metrics change."""

    def pair(part: Part, decoder: str, metric: str, released: tuple[str, str]) -> tuple[str, ...]:
        """Mean of the one, of the other, and of their difference over the seeds that have both."""
        runs = [(decoder, metric), released]
        ours, theirs = (results.values(part.experiment, *run) for run in runs)
        differences = [theirs[seed] - ours[seed] for seed in ours if seed in theirs]
        change = write.signed(sum(differences) / len(differences), 2) if differences else ""
        return (*(write.mean(results.summary(part.experiment, *run)) for run in runs), change)

    rows: list[Row] = [Section("Decoders")]
    for part, decoder in product(results.plan.parts("nlpcfg"), write.decoders):
        cells = [pair(part, decoder, metric, (f"{decoder}-legacy", metric)) for metric in MAIN]
        rows.append([_marked(part, decoder, write), *cells])
    rows.append(Section("Metrics"))
    for role, decoder in product(MODELS, write.decoders):
        part = Part(role, results.plan.find(role))
        row: list[Cells] = [_marked(part, decoder, write)]
        row += [pair(part, decoder, "f1", (decoder, "f1_release")), ("", "", "")]
        if role in LEXICALISED:
            row.append(pair(part, decoder, "uuas", (decoder, "uuas_legacy")))
        rows.append(row)
    caption = (
        rf"What the released code's errors are worth on \texttt{{{results.corpus}}}; $\Delta$ is released less right, "
        "paired over seeds. Upper part: the released CYK decoder of NL-PCFG leaves out the root word's emission, the "
        "released MBR decoder loses arcs to single-word dependents. Lower part: the released F1 leaves every span of "
        "the whole sentence out of the gold trees, Kim's only the root; the released UUAS credits some wrong roots."
    )
    groups = [Group(METRICS[metric].heading, ("right", "released", write.delta)) for metric in MAIN]
    return write.table(Table("decoders", caption, "l" + "r" * 9, ["", *groups], rows))


def _marked(part: Part, decoder: str, write: Markdown) -> str:
    """A grammar's title with the sign of a decoder, and its sizes where they are not the role's own."""
    return MODELS[part.role] + write.decoders[decoder] + ("" if part.of_paper else f" {part.sizes}")


def qualitative(results: Results) -> str:
    """Three tables: which constituents are left-headed, adjective-noun phrases, schemes of gold heads."""
    own = [Part(role, results.plan.find(role)) for role in LEXICALISED]
    return "\n".join([_headedness(results), _adjective_noun(results), schemes(results, LATEX, own)])


def _headedness(results: Results) -> str:
    def cell(role: str, metric: str) -> str:
        return LATEX.mean(results.summary(results.plan.find(role), "cyk", metric))

    rows: list[Row] = []
    for label in LABELS:
        of_roles = [results.values(results.plan.find(r), "cyk", f"gold_left_headed:{label}") for r in LEXICALISED]
        gold = next((value for values in of_roles for value in values.values()), None)
        cells = [(cell(role, f"left_headed:{label}"), cell(role, f"right_head:{label}")) for role in LEXICALISED]
        rows.append([label, MISSING if gold is None else LATEX.number(gold), *cells])
    rows += [RULE, ["all predicted", "", *((cell(role, "left_headed"), "") for role in LEXICALISED)]]
    groups = [Group("gold", ("left",)), *(Group(MODELS[role], ("left", "gold head")) for role in LEXICALISED)]
    caption = (
        rf"Headedness on the test part of \texttt{{{results.corpus}}}, in per cent. Left: share of the constituents "
        "that are headed by their first word, of the gold ones with one head, and of those of them that a grammar "
        "found (CYK trees). Gold head: share of those found whose head is the gold head. The paper: NBL-PCFG prefers "
        "left-headed constituents, is right about the heads of VPs, and takes prepositions and complementisers for "
        "heads of PPs and SBARs."
    )
    return LATEX.table(Table("headedness", caption, "lr" + "rr" * len(LEXICALISED), ["Label", *groups], rows))


def _adjective_noun(results: Results) -> str:
    experiments = {role: results.plan.find(role) for role in MODELS}
    rows = [
        [MODELS[role], *(LATEX.mean(results.summary(e, "mbr", f"adjective_noun:{shape}")) for shape in SHAPES)]
        for role, e in experiments.items()
    ]
    found = [results.values(e, "mbr", "adjective_noun:phrases") for e in experiments.values()]
    places = next((int(value) for values in found for value in values.values()), 0)
    caption = (
        r"Adjective--noun phrases: how MBR trees bracket the "
        rf"{places:,} gold constituents of determiner, adjective and noun (\emph{{a rough market}}) in the test part "
        rf"of \texttt{{{results.corpus}}}, in per cent. The paper: NBL-PCFG often predicts ((a rough) market)."
    )
    head = ["Model", "(a (rough market))", "((a rough) market)", "no constituent"]
    return LATEX.table(Table("adjective_noun", caption, "lrrr", head, rows, wide=False))


def schemes(results: Results, write: Markdown, parts: Iterable[Part]) -> str:
    """Attachment scores of some grammars by each scheme of gold heads there is."""
    names = dict.fromkeys(name for columns in results.scores.values() for name in columns if name.startswith("udas:"))
    found = [name.removeprefix("udas:") for name in names]
    rows: list[Row] = []
    for part, decoder in product(parts, write.decoders):
        row: list[Cells] = [_marked(part, decoder, write)]
        for scheme in found:
            both = (results.summary(part.experiment, decoder, f"{metric}:{scheme}") for metric in ("udas", "uuas"))
            row.append(tuple(map(write.mean, both)))
        rows.append(row)
    caption = (
        "Attachment scores by different rules for gold heads: \\texttt{stanford} prefers content words, "
        "\\texttt{function} function words. The paper discusses that NBL-PCFG prefers function words."
    )
    columns: list[str | Group] = ["Model", *(Group(write.code(scheme), ("UDAS", "UUAS")) for scheme in found)]
    alignment = "l" + "rr" * len(found)
    return write.table(Table("schemes", caption, alignment, columns, rows, wide=False, ruled=False))


def claims(check: Check, write: Markdown) -> str:
    """The verdict on each claim."""
    rows: list[Row] = []
    for claim in check.claims:
        texts = [write.text(text) for text in (claim.statement, claim.evidence, claim.test)]
        rows += [[*texts, _emphasised(claim.verdict, write)], SPACE]
    caption = (
        rf"The paper's claims on \texttt{{{check.corpus}}}: {counts(claim.verdict for claim in check.claims)}. "
        f"{CLAIM_RULE} {caveat(check.corpus)}"
    ).rstrip()
    widths = (0.24, 0.39, 0.17, 0.13)  # of the line
    alignment = "".join(rf">{{\raggedright\arraybackslash}}p{{{width}\linewidth}}" for width in widths)
    head = ["Claim", "Our numbers", "Test", "Verdict"]
    return write.table(Table("claims", caption, alignment, head, rows[:-1], long=True))


def cells(check: Check) -> str:
    """Every number of the paper's tables beside ours."""
    rows = []
    for entry in check.cells:
        cell, ours = entry.cell, entry.ours
        names = [cell.table, cell.run, cell.decoder or "", cell.metric.replace("recall_", "recall ")]
        rows.append(
            [
                *map(LATEX.text, names),
                f"{LATEX.number(ours.mean)} ({ours.n})" if ours.n else f"{MISSING} (0/{ours.expected})",
                LATEX.number(cell.value) + (LATEX.quoted if cell.quoted else ""),
                "" if entry.difference is None else LATEX.signed(entry.difference),
                "" if entry.band is None else LATEX.number(entry.band),
                _emphasised(entry.verdict, LATEX),
            ]
        )
    caption = (
        rf"Every number of the paper's tables beside ours on \texttt{{{check.corpus}}}, with the number of seeds. "
        r"Band: half of Welch's 95\,\% interval of the difference, plus the paper's rounding, 0.05; where the paper "
        r"prints no standard deviation, ours stands in for it. One cannot tell within a band wider than a tenth of the "
        rf"paper's number. {LATEX.quoted}: quoted by the paper from other work."
    )
    head = ["Table", "Run", "Decoder", "Metric", "ours ($n$)", "paper", LATEX.delta, "band", "Verdict"]
    return LATEX.table(Table("check_cells", caption, "llllrrrrl", head, rows, long=True))


def _emphasised(verdict: str, write: Markdown) -> str:
    return write.bold(verdict) if verdict in {"reproduced", "not reproduced"} else verdict
