"""The page of results, docs/results.md, and the README's section: written from runs that are in git, never by hand."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import yaml

from nbl.draw import Picture, draw
from nbl.errors import UserError
from nbl.files import read_text
from nbl.formats import Analysis as Parsed
from nbl.predictions import DECODERS, predictions_path, stored
from nbl.report.analysis import Analysis
from nbl.report.check import check
from nbl.report.frame import Results
from nbl.report.judgement import CANNOT_TELL, NOT_REPRODUCED, REPRODUCED, Claim
from nbl.report.plan import LEXICALISED, MODELS, Experiment
from nbl.report.published import Published, comparability
from nbl.report.statistics import Summary
from nbl.report.tables import sizes

BEGIN, END = "<!-- results: written by `nbl page` -->", "<!-- end of results -->"
PAPER = {
    "comparable": "The paper's numbers are for this test set.",
    "indicative": "The paper's numbers are for other sections of the same newspaper: they show the size to expect. Not "
    "so its perplexity, as the training text here writes numbers in another way and has its own unknown words.",
    "not comparable": "The paper's numbers are for a training set more than ten times as large: not comparable.",
}
LEFT_BRANCHING = 50.0  # per cent of the constituents, from which on a grammar counts as fallen into left branching
Rows = Sequence[Sequence[object]]


@dataclass(frozen=True)
class Curve:
    """One run's training: a row of its history.csv for each epoch, and the machines it ran on."""

    experiment: Experiment
    seed: int
    rows: list[dict[str, float]]
    machines: list[str]

    @property
    def best(self) -> dict[str, float]:
        """The epoch whose model was kept: that of the lowest dev perplexity, without dev the last one."""
        return min(self.rows, key=lambda row: row.get("dev_perplexity", -row["epoch"]))

    @property
    def hours(self) -> float:
        return sum(row["seconds"] for row in self.rows) / 3600


def watched_f1(row: dict[str, float]) -> float | None:
    """F1 of the trees that were looked at after the epoch: those of dev, or where it has none, of test."""
    return row.get("dev_f1", row.get("test_f1"))


def _watched(results: Results) -> str:
    """The part those trees are from."""
    return "dev" if results.stats["splits"]["dev"].get("trees") else "test"


def read_curves(results: Results) -> list[Curve]:
    """The training of every run that has results, in the plan's order."""
    curves = []
    for experiment in results.plan.experiments.values():
        for seed in sorted(results.values(experiment, "mbr", "perplexity")):
            folder = results.folder / "runs" / experiment.run / f"seed{seed}"
            try:
                table = list(csv.DictReader(io.StringIO(read_text(folder / "history.csv"))))
                rows = [{key: float(value) for key, value in row.items() if value} for row in table]
                environments = yaml.safe_load(read_text(folder / "config.yaml"))["environments"]
            except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
                raise UserError(
                    f"{folder}: history.csv or config.yaml is damaged ({error!r}); export it again"
                ) from error
            curves.append(Curve(experiment, seed, rows, [machine["device"] for machine in environments]))
    return curves


def page(corpora: Iterable[Results], paper: Published) -> str:
    """The whole page."""
    parts = [
        "# Results",
        "Written by `nbl page` from the runs in `results/reference/`: settings, training curves, scores and "
        "predictions of each. Numbers are the mean ± standard deviation over the seeds, and in parentheses how many. "
        "`docs/log.md` tells what was tried on the way.",
    ]
    for results in corpora:
        parts += [f"## `{results.corpus}`", *_corpus(results, paper)]
    return "\n\n".join(parts) + "\n"


def _corpus(results: Results, paper: Published) -> list[str]:
    curves = read_curves(results)
    split = results.stats["splits"]
    if not curves:
        return ["No run has been evaluated."]
    about = (
        f"{split['train']['sentences']:,} training sentences, {split['test']['sentences']:,} test sentences, a "
        f"vocabulary of {results.stats['vocabulary']:,} words. {PAPER[comparability(results.corpus)]}"
    )
    claims = check(results, paper, Analysis(results)).claims
    parts = [about, outcome(results, claims), "### Main result", main_table(results, paper)]
    if any(results.summary(e, "mbr", "f1").n for b, e in results.plan.bindings().items() if b != "D-C"):
        parts += ["### What the head direction is bound to", _bindings(results, paper)]
    parts += ["### Decoders and gold heads", _decoders(results)]
    parts += ["### Training", _training(results, curves), f"![training curves](results-{results.corpus}.png)"]
    parts += [_collapse(results, curves)]
    if pictures := draw_trees(results):
        parts += ["### Some test sentences, as their tags: gold, and NBL-PCFG's most probable trees"]
        parts += [f"![{name}](results-{results.corpus}-{name}.svg)" for name in pictures]
    parts += ["### Verdicts on the paper's claims", _verdicts(claims)]
    return parts


def outcome(results: Results, claims: Sequence[Claim]) -> str:
    """What came out, in two or three sentences."""
    sentences = []
    right = results.stats["splits"]["test"].get("trees", {}).get("sentence_f1", {}).get("right")
    nbl = {decoder: results.summary(results.plan.find("nblpcfg"), decoder, "f1") for decoder in ("mbr", "cyk")}
    gains = {decoder: summary.mean - right for decoder, summary in nbl.items() if summary.n and right is not None}
    if gains:
        told = " and ".join(
            f"{abs(gain):.1f} {'above' if gain > 0 else 'below'} it by {decoder.upper()}"
            for decoder, gain in gains.items()
        )
        sentences.append(f"Right-branching trees have an F1 of {right:.1f}; NBL-PCFG's is {told}.")
    sentences.append(f"Of the paper's {len(claims)} claims: {_counts(claims)}.")
    seeds = [results.summary(experiment, "mbr", "perplexity").n for experiment in results.plan.experiments.values()]
    if sum(n > 1 for n in seeds) < 2:
        sentences.append("One seed of a grammar decides none.")
    return " ".join(sentences)


def _counts(claims: Sequence[Claim]) -> str:
    counts = Counter(claim.verdict for claim in claims)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in (REPRODUCED, NOT_REPRODUCED, CANNOT_TELL))


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
                table = "label_recall" if metric == "perplexity" else "main_result"
                cell = paper.find(table, role, decoder, metric)
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
    note = "In italics: the paper's number. ≈: of a compound model, with z at its mean; not exact."
    return f"{_table(head, rows)}\n\n{note}"


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
    return _table(["binding", "F1", "UDAS", "UUAS", "perplexity"], rows)


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
    return f"{_table(head, rows)}\n\n{note}"


def _training(results: Results, curves: Sequence[Curve]) -> str:
    """How each run went: selection, trees, branching, time, and what came of it."""
    part = _watched(results)
    head = ["run", "seed", "epochs", "best epoch", "its dev perplexity", f"{part} F1 after epoch 1", "after the best"]
    head += ["after the last", "left / right branching %", "hours", "sentences/s at best", "peak MB"]
    head += ["test: perplexity", "F1, MBR"]
    rows = []
    for curve in curves:
        best, last = curve.best, curve.rows[-1]
        rows.append(
            [
                *(f"`{curve.experiment.run}`", curve.seed, len(curve.rows), int(best["epoch"])),
                _decimal(best.get("dev_perplexity")),
                *(_decimal(watched_f1(row)) for row in (curve.rows[0], best, last)),
                f"{_decimal(best.get('left_branching'))} / {_decimal(best.get('right_branching'))}",
                f"{curve.hours:.2f}",
                f"{max(row['sentences_per_second'] for row in curve.rows):.0f}",
                f"{last['peak_memory_mb']:.0f}",
                *(
                    _decimal(results.values(curve.experiment, "mbr", metric).get(curve.seed))
                    for metric in ("perplexity", "f1")
                ),
            ]
        )
    total, machines = sum(curve.hours for curve in curves), sorted({m for curve in curves for m in curve.machines})
    note = (
        f"{total:.1f} hours of training in all, on {', '.join(machines)}, by the clock: the time in which a run had to "
        f"wait for others is in it. The {part} F1 after an epoch is that of some hundred {part} trees, no longer than "
        "the training sentences; that of the last column is of all test trees."
    )
    return f"{_table(head, rows)}\n\n{note}"


def _collapse(results: Results, curves: Sequence[Curve]) -> str:
    """Which share of the seeds fell into left branching, and whether the selection would have seen it."""
    rows = []
    right = pairs = 0
    for name, own in _by_run(curves).items():
        shares = [[row["left_branching"] for row in curve.rows if "left_branching" in row] for curve in own]
        if not any(shares):
            continue
        fell = sum(any(share > LEFT_BRANCHING for share in of_run) for of_run in shares)
        best = sum(curve.best.get("left_branching", 0) > LEFT_BRANCHING for curve in own)
        last = sum(curve.rows[-1].get("left_branching", 0) > LEFT_BRANCHING for curve in own)
        order = sorted(own, key=lambda curve: curve.best.get("dev_perplexity", 0.0))
        f1 = [watched_f1(curve.best) for curve in order]
        rows.append([f"`{name}`", len(own), fell, best, last, ", ".join(map(_decimal, f1))])
        for better, worse in combinations(order, 2):
            x, y = watched_f1(better.best), watched_f1(worse.best)
            if "dev_perplexity" in better.best and x is not None and y is not None and x != y:
                right, pairs = right + (x > y), pairs + 1
    head = ["run", "seeds", "ever left-branching", "at its best epoch", "after its last epoch"]
    head += [f"{_watched(results)} F1 after the best epoch, lowest dev perplexity first"]
    note = f"Left-branching: more than {LEFT_BRANCHING:.0f} % of the constituents branch to the left."
    if pairs:
        note += (
            f" Does the dev perplexity, by which a model is chosen, tell the good seeds from the bad? Of {pairs} pairs "
            f"of seeds of one grammar, the one of the lower perplexity has the higher F1 in {right}; chance is half."
        )
    return f"{_table(head, rows)}\n\n{note}"


def _verdicts(claims: Sequence[Claim]) -> str:
    told = [claim for claim in claims if claim.verdict != CANNOT_TELL]
    summary = _counts(claims)
    rows = [[claim.statement, claim.evidence.replace("|", "\\|"), claim.verdict] for claim in told]
    table = _table(["claim", "our numbers", "verdict"], rows)
    return f"{summary}; those that these runs cannot tell are left out.\n\n{table}" if rows else f"{summary}."


def draw_trees(results: Results) -> dict[str, Picture]:
    """The gold trees that were exported, and those of the NBL-PCFG of the lowest dev perplexity."""
    runs = [curve for curve in read_curves(results) if curve.experiment.run == "nblpcfg"]
    path = results.folder / "corpus" / "trees.json"
    if not runs or not path.exists():
        return {}
    best = min(runs, key=lambda curve: curve.best.get("dev_perplexity", 0.0))
    predictions = predictions_path(results.folder / "runs" / "nblpcfg" / f"seed{best.seed}", "cyk")
    if not results.values(best.experiment, "cyk", "perplexity"):
        return {}
    found = {record["id"]: record for record in map(json.loads, read_text(stored(predictions)).splitlines())}
    pictures = {}
    golds = [gold for gold in json.loads(read_text(path)) if gold["id"] in found]
    for number, gold in enumerate(golds, start=1):
        pictures[f"{number}-gold"] = draw([Parsed(gold["tags"], gold["spans"], gold["heads"])])
        ours = found[gold["id"]]
        pictures[f"{number}-nblpcfg"] = draw([Parsed(gold["tags"], ours["spans"], ours["heads"])])
    return pictures


def section(corpora: Iterable[Results], paper: Published) -> str:
    """The README's part: the main table of each corpus."""
    parts = [BEGIN]
    for results in corpora:
        claims = check(results, paper, Analysis(results)).claims
        parts += [f"`{results.corpus}`: {outcome(results, claims)} {PAPER[comparability(results.corpus)]}"]
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


def mean(summary: Summary) -> str:
    """Mean, spread and number of seeds.

    >>> mean(Summary((58.0, 60.0), 4)), mean(Summary((58.0,), 4)), mean(Summary((), 4))
    ('59.0 ± 1.4 (2)', '58.0 (1)', '')
    """
    return f"{summary} ({summary.n})" if summary.n else ""


def _by_run(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(curve.experiment.run, []).append(curve)
    return groups


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _table(head: Sequence[str], rows: Rows) -> str:
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
