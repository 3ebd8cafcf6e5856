"""The page of results, docs/results.md, and the README's section: written from runs that are in git, never by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from statistics import fmean

from nbl.drawing import Picture, draw
from nbl.errors import UserError
from nbl.files import read_text
from nbl.formats import Tree, named
from nbl.matrix import Experiment
from nbl.paper.agreement import self_f1
from nbl.paper.check import check
from nbl.paper.curves import collapse, read_curves, selection, training_table
from nbl.paper.frame import Results
from nbl.paper.judgement import NOT_REPRODUCED, NOT_RUN, REPRODUCED, RULE, Claim, counts
from nbl.paper.markdown import mean, table
from nbl.paper.plan import LEXICALISED, MODELS
from nbl.paper.published import Published, comparability
from nbl.paper.speed import speed
from nbl.paper.statistics import Summary
from nbl.paper.tables import sizes
from nbl.run_folder import RunFolder
from nbl.settings import DECODERS, LEGACY

SPEED = (
    "A forward and backward pass of each inside algorithm on random rules, on one processor thread; the paper measured "
    "a GPU. `results/reference/*/bench/` has all times."
)
BEGIN, END = "<!-- results: written by `nbl page` -->", "<!-- end of results -->"
PAPER = {
    "comparable": "The paper's numbers are for this test set.",
    "indicative": "The paper's numbers are for other sections of the same newspaper: they show the size to expect. Not "
    "so its perplexity, as the training text here writes numbers in another way and has its own unknown words.",
    "not comparable": "The paper's numbers are for a training set more than ten times as large: not comparable.",
}


def page(corpora: Sequence[Results], paper: Published) -> str:
    """The whole page."""
    parts = [
        "# Results",
        "Written by `nbl page` from the runs in `results/reference/`: settings, training curves, scores and "
        "predictions of each. Numbers are the mean ± standard deviation over the seeds, and in parentheses how many. "
        "`docs/log.md` tells what was tried on the way.",
    ]
    for results in corpora:
        others = [other for other in corpora if other is not results]
        parts += [f"## `{results.corpus}`", *_corpus(results, others, paper)]
    return "\n\n".join(parts) + "\n"


def _corpus(results: Results, others: Sequence[Results], paper: Published) -> list[str]:
    curves = read_curves(results)
    split = results.stats["splits"]
    if not curves:
        return ["No run has been evaluated."]
    longest = " or ".join(map(str, sorted({curve.training["max_length"] for curve in curves})))
    about = (
        f"{split['train']['sentences']:,} training sentences, of which those of more than {longest} words are left "
        f"out, {split['test']['sentences']:,} test sentences of any length, a vocabulary of "
        f"{results.stats['vocabulary']:,} words. {PAPER[comparability(results.corpus)]}"
    )
    claims, of_speed = _claims(results, paper)
    parts = [about, outcome(results, others, paper), "### Main result", main_table(results, paper)]
    if any(results.summary(e, "mbr", "f1").n for b, e in results.plan.bindings().items() if b != "D-C"):
        parts += ["### What the head direction is bound to", _bindings(results, paper)]
    parts += ["### Decoders and gold heads", _decoders(results)]
    parts += ["### Training", training_table(results, curves), f"![training curves](results-{results.corpus}.png)"]
    parts += ["### Falling into left branching", collapse(curves)]
    if told := selection(results, curves, self_f1(results)):
        parts += ["### Telling the good seeds from the bad", told]
    if pictures := draw_trees(results):
        parts += ["### Some test sentences, as their tags: gold, and NBL-PCFG's most probable trees"]
        parts += [f"![{name}](results-{results.corpus}-{name}.svg)" for name in pictures]
    parts += ["### Verdicts on the paper's claims", f"{_counts(claims)}. {RULE}\n\n{_verdicts(claims)}"]
    if not results.bench.empty:
        parts += ["### Speed", f"{SPEED} {_counts(of_speed)}.\n\n{_verdicts(of_speed)}"]
    return parts


def _claims(results: Results, paper: Published) -> tuple[list[Claim], list[Claim]]:
    """The paper's claims about grammars, and those about speed, which do not depend on the corpus."""
    of_speed = speed(results)
    return [claim for claim in check(results, paper).claims if claim not in of_speed], of_speed


def outcome(results: Results, others: Sequence[Results], paper: Published) -> str:
    """What came out, in some sentences, and what of it the other corpora contradict."""
    sentences = []
    claims, _ = _claims(results, paper)
    right = results.stats["splits"]["test"].get("trees", {}).get("sentence_f1", {}).get("right")
    nbl = {decoder: results.summary(results.plan.find("nblpcfg"), decoder, "f1") for decoder in ("mbr", "cyk")}
    gains = {decoder: summary.mean - right for decoder, summary in nbl.items() if summary.n and right is not None}
    if gains:
        told = " and ".join(
            f"{abs(gain):.1f} {'above' if gain > 0 else 'below'} it by {decoder.upper()}"
            for decoder, gain in gains.items()
        )
        sentences.append(f"Right-branching trees have an F1 of {right:.1f}; NBL-PCFG's is {told}.")
    sentences += _attachment(results)
    sentences.append(f"Of the paper's {len(claims)} claims about its grammars: {_counts(claims)}.")
    for verdict in (REPRODUCED, NOT_REPRODUCED):
        if told := "; ".join(claim.statement for claim in claims if claim.verdict == verdict):
            sentences.append(f"{verdict.capitalize()}: {told}.")
    for other in others:
        if told := "; ".join(_contradicted(claims, _claims(other, paper)[0])):
            sentences.append(f"Here the means go the other way than what `{other.corpus}` decides: {told}.")
    seeds = [results.summary(experiment, "mbr", "perplexity").n for experiment in results.plan.experiments.values()]
    if max(seeds, default=0) == 1:
        sentences.append("A single seed decides no claim about a grammar.")
    return " ".join(sentences)


def _attachment(results: Results) -> Iterator[str]:
    """What the errors of the released decoders are worth to NL-PCFG, and how the grammars fare by function heads."""
    nbl = results.plan.find("nblpcfg")
    for experiment in results.plan.in_sizes("nlpcfg"):
        leads, changes = [], []
        for decoder in ("mbr", "cyk"):
            right, released = (results.values(experiment, name, "udas") for name in (decoder, decoder + LEGACY))
            change = tuple(released[seed] - right[seed] for seed in right if seed in released)
            rival = results.summary(nbl, decoder, "udas")
            if change and rival.n:
                leads.append(f"{rival.mean - fmean(right.values()):.1f} by {decoder.upper()}")
                changes.append(f"{mean(Summary(change, len(change)))} by {decoder.upper()}")
        if leads:
            yield (
                f"In UDAS, NBL-PCFG leads NL-PCFG {sizes(experiment)} by {' and '.join(leads)}; the errors of the "
                f"released decoders change NL-PCFG's UDAS by {' and '.join(changes)}."
            )
    told = []
    for role, experiment in _main_experiments(results):
        usual, function = (results.summary(experiment, "mbr", metric) for metric in ("udas", "udas:function"))
        if usual.n and function.n and not experiment.compound:
            told.append(f"{function.mean:.1f} instead of {usual.mean:.1f} for {MODELS[role]} {sizes(experiment)}")
    if told:
        yield f"Against function words as heads, UDAS is {', '.join(told)}."


def _contradicted(claims: Sequence[Claim], decided: Sequence[Claim]) -> Iterator[str]:
    """The claims of which our means say the opposite of what was decided elsewhere."""
    shown = {claim.key: claim.shown for claim in claims}
    for claim in decided:
        if claim.verdict in (REPRODUCED, NOT_REPRODUCED) and shown[claim.key] == (claim.verdict != REPRODUCED):
            yield claim.statement


def _counts(claims: Sequence[Claim]) -> str:
    return counts(claim.verdict for claim in claims)


def main_table(results: Results, paper: Published) -> str:
    """F1, attachment and perplexity of all grammars that have results, and of trees anyone can guess."""
    metrics = {"mbr": ("f1", "udas", "uuas", "perplexity"), "cyk": ("f1",)}
    head = ["model", "NT/PT", "F1, MBR", "UDAS", "UUAS", "perplexity", "F1, CYK"]
    rows: list[list[str]] = []
    for role, experiment in _main_experiments(results):
        row = [MODELS[role], sizes(experiment)]
        for decoder, wanted in metrics.items():
            for metric in wanted:
                shown = role in LEXICALISED or metric not in ("udas", "uuas")
                source = "label_recall" if metric == "perplexity" else "main_result"
                cell = paper.find(source, role, decoder, metric)
                text = mean(results.summary(experiment, decoder, metric)) if shown else ""
                if text and metric == "perplexity" and experiment.compound:
                    text = f"≈ {text}"
                is_paper_s = experiment is results.plan.find(role)
                row.append(f"{text}<br>*{cell.value:g}*" if cell and shown and is_paper_s else text)
        rows.append(row)
    f1 = results.stats.get("splits", {}).get("test", {}).get("trees", {}).get("sentence_f1", {})
    names = {
        "left": "left branching",
        "right": "right branching",
        "random": "random trees",
        "oracle": "best binary trees",
    }
    rows += [[name, "", f"{f1[key]:.1f}", "", "", "", ""] for key, name in names.items() if key in f1]
    note = (
        "UDAS, UUAS and perplexity: by MBR. In italics: the paper's number. ≈: of a compound model, with z at its "
        f"mean; not exact. {results.plan.other_sizes()}"
    )
    return f"{table(head, rows)}\n\n{note.rstrip()}"


def _main_experiments(results: Results) -> Iterator[tuple[str, Experiment]]:
    """What has results by MBR, with the part it plays in the paper."""
    for role in MODELS:
        for experiment in results.plan.in_sizes(role):
            if results.summary(experiment, "mbr", "perplexity").n:
                yield role, experiment


def _bindings(results: Results, paper: Published) -> str:
    metrics = ("f1", "udas", "uuas", "perplexity")
    rows = []
    for binding, experiment in results.plan.bindings().items():
        role = "nblpcfg" if binding == "D-C" else f"nblpcfg-{binding}"
        row = [binding]
        for metric in metrics:
            cell = paper.find("bindings", role, "mbr", metric)
            text = mean(results.summary(experiment, "mbr", metric)) or "--"
            row.append(f"{text}<br>*{cell.value:g}*" if cell else text)
        rows.append(row)
    return table(["binding", "F1", "UDAS", "UUAS", "perplexity"], rows)


def _decoders(results: Results) -> str:
    """Every decoder of the lexicalised grammars, by both gold standards, and what the release's slips are worth."""
    columns = ("f1", "udas", "uuas", "udas:function", "uuas:function", "uuas_legacy")
    head = [
        "model",
        "NT/PT",
        "decoder",
        "F1",
        "UDAS",
        "UUAS",
        "UDAS, function heads",
        "UUAS, function heads",
        "UUAS as released",
    ]
    rows = []
    for role, experiment in _main_experiments(results):
        for decoder in DECODERS if role in LEXICALISED else ():
            summaries = [results.summary(experiment, decoder, column) for column in columns]
            if any(summary.n for summary in summaries):
                rows.append([MODELS[role], sizes(experiment), decoder, *map(mean, summaries)])
    note = (
        "UDAS and UUAS against Stanford's heads, or a user's own, and against heads that are function words. `-legacy` "
        'repeats the errors of the released NL-PCFG decoders; "UUAS as released" repeats that code\'s slip in scoring.'
    )
    return f"{table(head, rows)}\n\n{note}"


def _verdicts(claims: Sequence[Claim]) -> str:
    rows = [[c.statement, c.evidence.replace("|", "\\|"), c.test, c.verdict] for c in claims if c.verdict != NOT_RUN]
    parts = [table(["claim", "our numbers", "test", "verdict"], rows)] if rows else []
    if told := "; ".join(claim.statement for claim in claims if claim.verdict == NOT_RUN):
        parts.append(f"Not run: {told}.")
    return "\n\n".join(parts)


def draw_trees(results: Results) -> dict[str, Picture]:
    """The gold trees that were exported, and those of the NBL-PCFG of the lowest dev perplexity."""
    runs = [curve for curve in read_curves(results) if curve.experiment.name == "nblpcfg"]
    path = results.folder / "corpus" / "trees.json"
    if not runs or not path.exists():
        return {}
    best = min(runs, key=lambda curve: curve.best.get("dev_perplexity", 0.0))
    run = RunFolder(results.folder / "runs" / "nblpcfg" / f"seed{best.seed}")
    if not results.values(best.experiment, "cyk", "perplexity"):
        return {}
    found = {prediction.id: prediction for prediction in run.predictions("cyk")}
    pictures = {}
    golds = [gold for gold in json.loads(read_text(path)) if gold["id"] in found]
    for number, gold in enumerate(golds, start=1):
        pictures[f"{number}-gold"] = draw([Tree(gold["tags"], named(gold["spans"]), gold["heads"])])
        ours = found[gold["id"]]
        pictures[f"{number}-nblpcfg"] = draw([Tree(gold["tags"], named(ours.spans), ours.heads)])
    return pictures


def section(corpora: Sequence[Results], paper: Published) -> str:
    """The README's part: the main table of each corpus."""
    parts = [BEGIN]
    for results in corpora:
        others = [other for other in corpora if other is not results]
        parts += [f"`{results.corpus}`: {outcome(results, others, paper)} {PAPER[comparability(results.corpus)]}"]
        parts += [main_table(results, paper)]
    parts += ["Mean ± standard deviation (number of seeds). All of it: [docs/results.md](docs/results.md).", END]
    return "\n\n".join(parts)


def replace_section(readme: str, text: str) -> str:
    """The README with the section in its place."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(f"the README has no place for results: lines with {BEGIN!r} and {END!r}")
    return before + text + after
