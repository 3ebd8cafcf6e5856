"""The results of one corpus: every seed's scores and training, the corpus's own numbers, the benchmark."""

from __future__ import annotations

import csv
import gc
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from nbl import metrics
from nbl.bench.summary import SHORTEST, exponent
from nbl.errors import UserError
from nbl.files import read_text
from nbl.matrix import Experiment, Params
from nbl.paper.roles import Plan
from nbl.paper.statistics import Summary
from nbl.predictions import Prediction
from nbl.run_folder import EVALUATE, RunFolder, damaged
from nbl.sentence import best_scheme


class Metric(NamedTuple):
    """A score of the paper's tables. `of_heads`: only lexicalised grammars have it."""

    key: str
    title: str
    unit: str = "%"
    lower_is_better: bool = False
    of_heads: bool = False

    @property
    def heading(self) -> str:
        """The title of a column."""
        return self.title[0].upper() + self.title[1:]

    @property
    def axis(self) -> str:
        """The title of an axis."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


METRICS = {
    metric.key: metric
    for metric in (
        Metric("f1", "F1"),
        Metric("udas", "UDAS", of_heads=True),
        Metric("uuas", "UUAS", of_heads=True),
        Metric("perplexity", "perplexity", unit="", lower_is_better=True),
    )
}
LABELS = ("NP", "VP", "PP", "SBAR", "ADJP", "ADVP")  # the labels of the paper's table of recalls

Scores = dict[tuple[str, str], dict[str, dict[int, float]]]  # (run, decoder) -> metric -> seed -> value
Labelled = tuple[int, int, int | None]  # a span and its label
Times = list[dict[str, Any]]  # of the inside algorithms: a row per measurement


def lower_is_better(metric: str) -> bool:
    """Recalls and shares are not among `METRICS`: more of them is better."""
    return metric in METRICS and METRICS[metric].lower_is_better


@dataclass(frozen=True)
class Results:
    """What is known about one corpus.

    `scores` has the metrics of `_row`. `stats` are the corpus's own numbers, `bench` the times of the inside
    algorithms; each is empty where it was not made.
    """

    corpus: str
    folder: Path
    plan: Plan
    scores: Scores
    stats: dict[str, Any]
    bench: Times

    def values(self, experiment: Experiment | None, decoder: str, metric: str) -> dict[int, float]:
        """A metric of an experiment's seeds; a seed without it is left out."""
        return self.scores.get((experiment.name, decoder), {}).get(metric, {}) if experiment else {}

    def summary(self, experiment: Experiment | None, decoder: str, metric: str) -> Summary:
        """Mean and spread of a metric; no seed is expected to have what the plan does not ask for."""
        values = tuple(self.values(experiment, decoder, metric).values())
        if experiment is None:
            return Summary(values, self.plan.seeds)
        return Summary(values, len(experiment.seeds) if values or decoder in experiment.decoders else 0)

    def trivial_f1(self, kind: str) -> Summary:
        """F1 of left-branching, right-branching, random or oracle trees of the test part: "left", "right", ..."""
        f1 = self.stats.get("splits", {}).get("test", {}).get("trees", {}).get("sentence_f1", {})
        return Summary((f1[kind],) if kind in f1 else (), 1)

    def run(self, experiment: Experiment, seed: int) -> RunFolder:
        return RunFolder(self.folder / "runs" / experiment.name / f"seed{seed}")

    def spans(self, experiment: Experiment, decoder: str) -> tuple[list[int], dict[int, list[list[Labelled]]]]:
        """The lengths of the test sentences, and each seed's predicted spans.

        The sentences are those of the first seed; the others must have the same.
        """
        first: list[Prediction] = []
        found = {}
        for seed in experiment.seeds:
            run = self.run(experiment, seed)
            if run.has_predictions(decoder):
                predictions = run.predictions(decoder, first or None)
                first = first or predictions
                found[seed] = [prediction.spans for prediction in predictions]
        return [prediction.length for prediction in first], found


def read_results(folder: Path, corpus: str, params: Params | None = None) -> Results:
    """Read the results of a corpus; missing ones are not an error.

    Args:
        folder: the folder with all results.
        corpus: its name, a folder there.
        params: the experiments and seeds that count; without it, all that there are.
    """
    root = folder / corpus
    if not root.is_dir():
        raise UserError(f"there are no results for {corpus!r}: {root} does not exist; run the pipeline first")
    # Scores without a config.yaml beside them belong to a training that was restarted and failed.
    paths = sorted(root.glob("runs/*/seed*/metrics.json"))
    found = [RunFolder(path.parent) for path in paths if (path.parent / "config.yaml").exists()]
    stats_path, bench_path = root / "corpus" / "stats.json", root / "bench" / "inside.csv"
    stats = _parse(stats_path, json.loads) if stats_path.exists() else {}
    for run in found:
        _refuse_other_corpus(run, stats)
    if params is not None and corpus in params["corpora"]:
        plan = Plan.of_params(params, corpus, found)
    else:
        plan = Plan.of_results(found)
    bench = _parse(bench_path, _times) if bench_path.exists() else []
    return Results(corpus, root, plan, _scores(found, plan), stats, bench)


def _refuse_other_corpus(run: RunFolder, stats: dict[str, Any]) -> None:
    recorded, here = run.config.corpus.get("vocabulary_sha256"), stats.get("vocabulary_sha256")
    if recorded and here and recorded != here:
        raise UserError(
            f"{run.path} was trained on another corpus than there is now (another vocabulary): run the pipeline again"
        )


def _scores(found: Sequence[RunFolder], plan: Plan) -> Scores:
    """The scores of the planned seeds."""
    scores: Scores = {}
    for run in sorted(found, key=lambda run: run.config.seed):
        experiment, seed = plan.experiments.get(run.experiment), run.config.seed
        if experiment is not None and seed in experiment.seeds:
            for decoder, row in scores_of(run).items():
                columns = scores.setdefault((run.experiment, decoder), {})
                for metric, value in row.items():
                    columns.setdefault(metric, {})[seed] = value
    return scores


def scores_of(run: RunFolder) -> dict[str, dict[str, float]]:
    """For each decoder of a run, the numbers that reports use."""
    try:
        return {decoder: _row(scores) for decoder, scores in run.metrics["decoders"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(run.path / "metrics.json", error, EVALUATE) from error


def _row(scores: dict[str, Any]) -> dict[str, float]:
    """The numbers of one decoder that reports use; scores in per cent, by Kim's convention."""
    row = {"perplexity": scores["perplexity"]}
    if "trees" in scores:
        kim = scores["trees"]["kim"]
        row |= {"f1": kim["sentence_f1"], "f1_release": scores["trees"]["release"]["sentence_f1"]}
        recalls = kim["label_recall"]
        row |= {f"recall_{label}": recalls[label]["recall"] for label in LABELS if label in recalls}
    if heads := scores.get("heads"):
        if scheme := best_scheme(heads):
            row |= {metric: heads[scheme][metric] for metric in ("udas", "uuas", "uuas_legacy")}
        row |= {f"{metric}:{name}": heads[name][metric] for name in heads for metric in ("udas", "uuas")}
    preferences = scores.get("preferences", {})
    row |= {"left_headed": preferences["left_headed"]} if "left_headed" in preferences else {}
    for label in LABELS:
        row |= {f"{name}:{label}": share for name, share in preferences.get("labels", {}).get(label, {}).items()}
    return row | {f"adjective_noun:{name}": value for name, value in preferences.get("adjective_noun", {}).items()}


def _parse(path: Path, read: Callable[[str], Any]) -> Any:
    try:
        return read(read_text(path))
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(path, error, "remove it and run the pipeline again") from error


def _times(text: str) -> Times:
    """Rows of `inside.csv`: sizes as integers, times as floats, None where there is none."""
    rows = csv.DictReader(io.StringIO(text))
    names = {"implementation": str, "b": int, "l": int, "m": int}
    return [{key: names.get(key, float)(value) if value else None for key, value in row.items()} for row in rows]


def times(results: Results, variable: str) -> Times:
    """Times of one sentence over l or over m, the other fixed at the value with the most points."""
    other = "m" if variable == "l" else "l"
    rows = [row for row in results.bench if row["b"] == 1 and row["median"] is not None]
    points: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        points[row[other]].add(row[variable])
    fixed = max(points, key=lambda value: (len(points[value]), value), default=None)
    return sorted((r for r in rows if r[other] == fixed), key=lambda r: (r["implementation"], r[variable]))


def growth(results: Results, name: str, variable: str) -> tuple[float, float] | None:
    """The exponent of an implementation's time in l or m and its standard error; None below three points."""
    rows = [row for row in times(results, variable) if row["implementation"] == name]
    rows = [row for row in rows if variable != "l" or row["l"] >= SHORTEST]
    work = [row["median"] * row["sgemm_gflops"] for row in rows]
    return exponent([row[variable] for row in rows], work) if len(rows) > 2 else None


@dataclass(frozen=True)
class Curve:
    """One run's training: one row of its history.csv per epoch, without empty cells."""

    experiment: Experiment
    seed: int
    run: RunFolder

    @cached_property
    def rows(self) -> list[dict[str, float]]:
        return [{key: value for key, value in row.items() if value is not None} for row in self.run.history]

    @property
    def best(self) -> dict[str, float]:
        """The epoch whose model was kept: that of the lowest dev perplexity, without dev the last one."""
        return min(self.rows, key=lambda row: row.get("dev_perplexity", -row["epoch"]))

    @property
    def hours(self) -> float:
        return sum(row["seconds"] for row in self.rows) / 3600


def watched_f1(row: dict[str, float]) -> float | None:
    """F1 of the trees that were parsed after the epoch: those of dev, or where it has none, of test."""
    return row.get("dev_f1", row.get("test_f1"))


def watched(results: Results) -> str:
    """The part those trees are from."""
    return "dev" if results.stats["splits"]["dev"].get("trees") else "test"


def read_curves(results: Results) -> list[Curve]:
    """The training of every run that has results, in the plan's order."""
    return [
        Curve(experiment, seed, results.run(experiment, seed))
        for experiment in results.plan.experiments.values()
        for seed in sorted(results.values(experiment, "mbr", "perplexity"))
    ]


def self_f1(results: Results) -> dict[str, dict[int, float]]:
    """For each run, how far each seed's MBR trees agree with those of the other seeds, in per cent."""
    agreements = {}
    for run, experiment in results.plan.experiments.items():
        pairs: dict[int, list[float]] = defaultdict(list)
        with _without_collection():
            lengths, spans = results.spans(experiment, "mbr")
            for seeds, score in metrics.self_f1(spans, lengths).items():
                for seed in seeds:
                    pairs[seed].append(100 * score.value)
        agreements[run] = {seed: fmean(scores) for seed, scores in pairs.items()}
    return agreements


@contextmanager
def _without_collection() -> Iterator[None]:
    """Without the garbage collector, which would search millions of small lists for cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
