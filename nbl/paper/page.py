"""docs/results.md and the README's section of results: tables and figures of the runs that are in git."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from nbl.drawing import Picture, draw
from nbl.errors import UserError
from nbl.files import read_text
from nbl.formats import Tree, named
from nbl.paper import tables
from nbl.paper.claims import RULE, Check, Verdict, check, counts
from nbl.paper.published import Published, comparability
from nbl.paper.render import MARKDOWN, Row, Table
from nbl.paper.results import METRICS, Curve, Results, read_curves, self_f1, watched, watched_f1
from nbl.paper.roles import LEXICALISED

BEGIN, END = "<!-- results: written by `nbl page` -->", "<!-- end of results -->"
LEGEND = (
    "Cells: ours / the paper's / the difference (Δ), in parentheses where the data differ. Ours is the mean ± standard "
    "deviation over the seeds; (n/m) marks a cell with n of m seeds. ⋆ CYK, † MBR decoding. ≈: approximate perplexity "
    "of a compound model. q: quoted by the paper. Bold: the best."
)
PAPER = {
    "comparable": "The paper's numbers are for this test set.",
    "indicative": "The paper's numbers are for other sections of the same newspaper; its perplexities are not "
    "comparable, since the training text here has other numerals and unknown words.",
    "not comparable": "The paper's numbers are for a training set more than ten times as large: not comparable.",
}
TRAINING = (
    "F1 after an epoch: of a few hundred trees no longer than the training sentences; the last column is of all test "
    "trees. Branching: share of left- and right-branching constituents among those of three or more words, after the "
    "best epoch; highest left: the highest share of left-branching ones after any epoch. Hours: by the clock, waiting "
    "included. Code: versions of the code, or machines, that an interrupted run went through."
)
SELECTION = (
    "Can the good seeds be found without gold trees? Test F1 of the seeds, ordered by dev perplexity and by self-F1 "
    "(agreement of a seed's trees with those of the other seeds); τ is Kendall's rank correlation with F1."
)


def page(corpora: Sequence[Results], paper: Published) -> str:
    """The whole of docs/results.md."""
    parts = ["# Results", f"Written by `nbl page` from the runs in `results/reference/`. {LEGEND}"]
    for results in corpora:
        parts += [f"## `{results.corpus}`", *_corpus(results, paper)]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def section(corpora: Sequence[Results], paper: Published) -> str:
    """The README's section: the main table of each corpus."""
    parts = [BEGIN]
    for results in corpora:
        parts += [f"`{results.corpus}`. {PAPER[comparability(results.corpus)]}", _main_result(results, paper)]
    parts += [f"{LEGEND} All tables: [docs/results.md](docs/results.md).", END]
    return "\n\n".join(part.rstrip() for part in parts)


def replace_section(readme: str, text: str) -> str:
    """The README with the section in its place."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(f"the README has no place for results: add lines with {BEGIN!r} and {END!r}")
    return before + text + after


def _corpus(results: Results, paper: Published) -> Iterator[str]:
    curves = read_curves(results)
    if not curves:
        yield "No run has been evaluated."
        return
    yield PAPER[comparability(results.corpus)]
    yield "### Main result"
    yield _main_result(results, paper)
    yield results.plan.other_sizes()
    yield "### What the head direction is bound to"
    yield tables.bindings(results, paper, MARKDOWN)
    yield "### Errors of the released decoders and metrics"
    yield tables.decoders(results, MARKDOWN)
    yield "### Rules for gold heads"
    yield tables.schemes(results, MARKDOWN, results.plan.parts(*LEXICALISED))
    yield "### Training"
    yield _training(results, curves)
    yield TRAINING
    yield f"![training curves](results-{results.corpus}.png)"
    if selection := _selection(results, curves, self_f1(results)):
        yield "### Which seed is good"
        yield selection
        yield SELECTION
    if pictures := draw_trees(results):
        yield "### Some test sentences, as their tags: gold, and NBL-PCFG's most probable trees"
        yield from (f"![{name}](results-{results.corpus}-{name}.svg)" for name in pictures)
    yield "### Verdicts on the paper's claims"
    verdicts = check(results, paper)
    yield f"{counts(claim.verdict for claim in verdicts.claims).capitalize()}. {RULE}"
    run = [claim for claim in verdicts.claims if claim.verdict != Verdict.NOT_RUN]
    yield tables.claims(Check(results.corpus, [], run), MARKDOWN)


def _main_result(results: Results, paper: Published) -> str:
    return tables.main_result(results, paper, MARKDOWN, tuple(METRICS))


def _training(results: Results, curves: Sequence[Curve]) -> str:
    """How each run went: selection, trees, branching, time, and its test scores."""
    part = watched(results)
    head = ["run", "seed", "epochs", "best epoch", "its dev perplexity", f"{part} F1 after epoch 1", "after the best"]
    head += ["after the last", "left / right branching %", "highest left", "hours", "threads", "code", "sentences/s"]
    head += ["peak MB", "test perplexity", "test F1†"]
    rows: list[Row] = []
    for curve in curves:
        best, last = curve.best, curve.rows[-1]
        uncommitted = any("-dirty" in environment.get("commit", "") for environment in curve.run.environments)
        rows.append(
            [
                *(MARKDOWN.code(curve.experiment.name), str(curve.seed), str(len(curve.rows)), f"{best['epoch']:.0f}"),
                _decimal(best.get("dev_perplexity")),
                *(_decimal(watched_f1(row)) for row in (curve.rows[0], best, last)),
                f"{_decimal(best.get('left_branching'))} / {_decimal(best.get('right_branching'))}",
                _decimal(max((row["left_branching"] for row in curve.rows if "left_branching" in row), default=None)),
                *(f"{curve.hours:.2f}", str(curve.run.config.threads)),
                f"{len(curve.run.environments)}{' (uncommitted)' if uncommitted else ''}",
                f"{max(row['sentences_per_second'] for row in curve.rows):.0f}",
                f"{last['peak_memory_mb']:.0f}",
                *(_decimal(results.values(curve.experiment, "mbr", m).get(curve.seed)) for m in ("perplexity", "f1")),
            ]
        )
    return MARKDOWN.table(Table("", "", "", head, rows))


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _selection(results: Results, curves: Sequence[Curve], agreements: Mapping[str, Mapping[int, float]]) -> str:
    """Whether dev perplexity or agreement with the other seeds orders the seeds of a run as test F1 does.

    Empty where no run has two seeds.
    """
    from scipy.stats import kendalltau  # takes a second to import

    rows: list[Row] = []
    for name, experiment in results.plan.experiments.items():
        f1 = results.values(experiment, "mbr", "f1")
        own = [curve for curve in curves if curve.experiment is experiment]
        perplexity = {curve.seed: -curve.best["dev_perplexity"] for curve in own if "dev_perplexity" in curve.best}
        cells = []
        for score in (perplexity, agreements.get(name, {})):
            order = sorted(f1.keys() & score.keys(), key=score.__getitem__, reverse=True)
            both = [score[seed] for seed in order], [f1[seed] for seed in order]
            tau = kendalltau(*both).statistic if len(order) > 1 else math.nan
            cells += ["", ""] if math.isnan(tau) else [", ".join(f"{value:.1f}" for value in both[1]), f"{tau:+.2f}"]
        if any(cells):
            rows.append([MARKDOWN.code(name), *cells])
    head = ["run", "test F1, lowest dev perplexity first", "τ", "test F1, highest self-F1 first", "τ"]
    return MARKDOWN.table(Table("", "", "", head, rows)) if rows else ""


def draw_trees(results: Results) -> dict[str, Picture]:
    """The gold trees that were exported, and those of the NBL-PCFG of the lowest dev perplexity."""
    runs = [curve for curve in read_curves(results) if curve.experiment.name == "nblpcfg"]
    path = results.folder / "corpus" / "trees.json"
    if not runs or not path.exists():
        return {}
    best = min(runs, key=lambda curve: curve.best.get("dev_perplexity", 0.0))
    if not results.values(best.experiment, "cyk", "perplexity"):
        return {}
    found = {prediction.id: prediction for prediction in best.run.predictions("cyk")}
    pictures = {}
    golds = [gold for gold in json.loads(read_text(path)) if gold["id"] in found]
    for number, gold in enumerate(golds, start=1):
        ours = found[gold["id"]]
        pictures[f"{number}-gold"] = draw([Tree(gold["tags"], named(gold["spans"]), gold["heads"])])
        pictures[f"{number}-nblpcfg"] = draw([Tree(gold["tags"], named(ours.spans), ours.heads)])
    return pictures
