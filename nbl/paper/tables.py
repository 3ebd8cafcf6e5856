"""The paper's three tables of results: ours, the paper's number, and the difference beside each other."""

from __future__ import annotations

from nbl.matrix import Experiment
from nbl.paper.frame import LABELS, Results
from nbl.paper.latex import RULE, best, is_best, long_table, mean_std, number, published, signed, spanning, table
from nbl.paper.plan import LEXICALISED, MODELS
from nbl.paper.published import Published, comparability
from nbl.paper.statistics import Summary

SIGNS = {"cyk": r"$^\star$", "mbr": r"$^\dagger$"}
TITLES = {"f1": "F1", "udas": "UDAS", "uuas": "UUAS", "perplexity": "Perplexity"}
BINDING_TITLES = {"D-C": "$D$-$C$", "D-alone": "$D$-alone", "D-wq": "$D$-$w_q$", "D-B": "$D$-$B$"}
APPROXIMATE = r"$^{\approx}$"
APPROXIMATE_NOTE = rf"{APPROXIMATE}: a compound model's perplexity is approximate, with $\mathbf{{z}}$ at its mean."


def main_result(results: Results, paper: Published) -> str:
    """F1, UDAS and UUAS of all grammars under both decoders, and of what needs no training."""
    metrics = ("f1", "udas", "uuas")
    runs = [(role, experiment, decoder) for role, experiment in results.plan.rows() for decoder in SIGNS]
    bold = {
        metric: best(results.summary(experiment, decoder, metric) for _, experiment, decoder in runs)
        for metric in metrics
    }
    head = [
        ["", "", *(spanning(3, TITLES[metric]) for metric in metrics)],
        r"\cmidrule(lr){3-5}\cmidrule(lr){6-8}\cmidrule(lr){9-11}",
        ["Model", "NT/PT", *["ours", "paper", r"$\Delta$"] * 3],
    ]
    rows: list = []
    for role, experiment, decoder in runs:
        row = [MODELS[role] + SIGNS[decoder], sizes(experiment)]
        for metric in metrics:
            if metric != "f1" and role not in LEXICALISED:
                row += ["", "", ""]
                continue
            row += _ours_and_theirs(results, paper, "main_result", role, experiment, decoder, metric, bold[metric])
        rows.append(row)
    rows += [RULE, [spanning(11, "For reference")], RULE, *_reference_rows(results, paper)]
    caption = (
        "Sentence-level F1, unlabelled directed and undirected attachment score on the test part of "
        rf"\texttt{{{results.corpus}}}. $^\star$: CYK, $^\dagger$: MBR decoding. " + _form(results) + " "
        "Left-, right-branching, random and the best binary trees are computed from the data. "
        + _paper_columns(results)
    )
    return table("main_result", caption, "llrrrrrrrrr", head, rows)


def _reference_rows(results: Results, paper: Published) -> list[list[str]]:
    f1 = results.stats.get("splits", {}).get("test", {}).get("trees", {}).get("sentence_f1", {})
    names = {"left": "Left branching", "right": "Right branching", "random": "Random trees", "oracle": "Oracle trees"}
    rows = []
    for key, name in names.items():
        summary = Summary((f1[key],) if key in f1 else (), 1)
        cell = paper.find("main_result", key, None, "f1")
        difference = _difference(summary, cell.value if cell else None, results.corpus)
        rows.append([name, "", mean_std(summary), published(cell), difference, *[""] * 6])
    for run, name in (("s-diora", "S-DIORA"), ("structformer", "StructFormer")):
        row = [name, ""]
        for metric in ("f1", "udas", "uuas"):
            row += ["", published(paper.find("main_result", run, None, metric)), ""]
        rows.append(row)
    return rows


def bindings(results: Results, paper: Published) -> str:
    """What the head direction D is generated with."""
    experiments = results.plan.bindings()
    bold = {
        metric: best(
            (results.summary(experiment, "mbr", metric) for experiment in experiments.values()),
            lowest=metric == "perplexity",
        )
        for metric in TITLES
    }
    head = [
        ["", *(spanning(3, title) for title in TITLES.values())],
        r"\cmidrule(lr){2-4}\cmidrule(lr){5-7}\cmidrule(lr){8-10}\cmidrule(lr){11-13}",
        ["Binding", *["ours", "paper", r"$\Delta$"] * 4],
    ]
    rows = []
    for binding, experiment in experiments.items():
        role = "nblpcfg" if binding == "D-C" else f"nblpcfg-{binding}"
        row = [BINDING_TITLES[binding]]
        for metric in TITLES:
            row += _ours_and_theirs(results, paper, "bindings", role, experiment, "mbr", metric, bold[metric])
        rows.append(row)
    caption = (
        rf"NBL-PCFG on \texttt{{{results.corpus}}} with the head direction $D$ bound to different variables, MBR "
        "decoding. " + _form(results) + " " + _paper_columns(results)
    )
    return table("bindings", caption, "l" + "r" * 12, head, rows)


def label_recall(results: Results, paper: Published) -> str:
    """Recall of six frequent labels and perplexity; three lines a model: ours, the paper's, the difference."""
    columns = {f"recall_{label}": label for label in LABELS} | {"perplexity": "Perplexity"}
    bold = {}
    for metric in columns:
        found = [experiment for _, experiment in results.plan.rows()]
        exact = [e for e in found if e is not None and not (metric == "perplexity" and e.compound)]
        bold[metric] = best((results.summary(e, "mbr", metric) for e in exact), lowest=metric == "perplexity")
    rows: list = []
    for role, experiment in results.plan.rows():
        usual = experiment is results.plan.find(role)
        name = MODELS[role] if usual else f"{MODELS[role]} {sizes(experiment)}"
        lines: list[list[str]] = [[name, "ours"], ["", "paper"], ["", r"$\Delta$"]]
        for metric in columns:
            cells = _ours_and_theirs(results, paper, "label_recall", role, experiment, "mbr", metric, bold[metric])
            for line, cell in zip(lines, cells, strict=True):
                line.append(cell)
        if not any(lines[1][2:]):
            lines = lines[:1]
        rows += [*lines, r"\addlinespace"]
    caption = (
        rf"Recall (per cent) on six frequent labels, and perplexity, on the test part of \texttt{{{results.corpus}}}, "
        "MBR decoding. " + _form(results) + f" {APPROXIMATE_NOTE} It is never bold. " + _paper_columns(results)
    )
    return table("label_recall", caption, "llrrrrrrr", [["", "", *columns.values()]], rows[:-1])


def seeds(results: Results, agreements: dict[str, dict[int, float]]) -> str:
    """Every seed's numbers, the interval of their mean, and how far the seeds agree with each other."""
    columns = (("f1", "cyk"), ("f1", "mbr"), ("udas", "mbr"), ("uuas", "mbr"), ("perplexity", "mbr"))
    head = [["Run", "seed", *(TITLES[metric] + SIGNS[decoder] for metric, decoder in columns), r"self-F1$^\dagger$"]]
    rows: list = []
    for experiment in results.plan.experiments.values():
        name = r"\texttt{" + experiment.name.replace("_", r"\_") + "}"
        values = [results.values(experiment, decoder, metric) for metric, decoder in columns]
        values.append(agreements.get(experiment.name, {}))
        headless = experiment.model not in LEXICALISED
        for position, seed in enumerate(experiment.seeds):
            row = [name if position == 0 else "", str(seed)]
            for (metric, decoder), of_seed in zip((*columns, ("self_f1", "mbr")), values, strict=True):
                unplanned = decoder not in experiment.decoders or (headless and metric in {"udas", "uuas"})
                absent = "" if unplanned else "--"
                approximate = APPROXIMATE if metric == "perplexity" and experiment.compound else ""
                row.append(number(of_seed[seed], 2) + approximate if seed in of_seed else absent)
            rows.append(row)
        # the agreements of two seeds are of the same pair: no interval
        means = [_interval(list(of_seed.values())) for of_seed in values[:-1]]
        rows += [["", "mean", *means, _interval(list(values[-1].values())).partition(r"$\pm$")[0]], r"\addlinespace"]
    caption = (
        rf"Every seed on the test part of \texttt{{{results.corpus}}}; below them the mean and half the width of its "
        r"95\,\% $t$-interval. Self-F1: mean sentence F1 of a seed's trees against those of each other seed. "
        + APPROXIMATE_NOTE
    )
    return long_table("seeds", caption, "ll" + "r" * 6, head, rows[:-1])


def _interval(values: list[float]) -> str:
    if not values:
        return ""
    summary = Summary(tuple(values), len(values))
    return rf"\textit{{{number(summary.mean, 2)}}}" + (rf"$\pm${summary.half_width:.2f}" if len(values) > 1 else "")


def sizes(experiment: Experiment | None) -> str:
    """Nonterminals and preterminals, e.g. 15/30."""
    return "{NT}/{PT}".format(**experiment.hyperparameters) if experiment else ""


def _ours_and_theirs(
    results: Results,
    paper: Published,
    name: str,
    role: str,
    experiment: Experiment | None,
    decoder: str,
    metric: str,
    bold: str | None,
) -> list[str]:
    """Three cells: our mean and spread; the paper's number and the difference, unless the experiment is of another
    size."""
    summary = results.summary(experiment, decoder, metric)
    cell = paper.find(name, role, decoder, metric) if experiment is results.plan.find(role) else None
    approximate = metric == "perplexity" and experiment is not None and experiment.compound
    ours = mean_std(
        summary, bold=is_best(summary, bold) and not approximate, mark=APPROXIMATE if approximate and summary.n else ""
    )
    return [ours, published(cell), _difference(summary, cell.value if cell else None, results.corpus)]


def _difference(summary: Summary, theirs: float | None, corpus: str) -> str:
    """Ours less theirs, in parentheses where the two are not for the same data."""
    if theirs is None or summary.n == 0:
        return ""
    text = signed(summary.mean - theirs)
    return text if comparability(corpus) == "comparable" else f"({text})"


def _form(results: Results) -> str:
    return (
        rf"Mean$_{{\pm\mathrm{{std}}}}$ over $n = {results.plan.seeds}$ seeds; a cell with fewer says so; "
        "the best in bold."
    )


def _paper_columns(results: Results) -> str:
    """What the caption says about the paper's numbers."""
    quoted = rf"$^{{\mathrm{{q}}}}$: quoted there from other work. {results.plan.other_sizes()}".rstrip()
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
