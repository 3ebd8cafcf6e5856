"""The results of one corpus as data frames: every seed's scores, the corpus' own numbers, the benchmark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from nbl.errors import UserError
from nbl.files import read_text
from nbl.matrix import Experiment, Params
from nbl.paper.plan import Plan
from nbl.paper.statistics import Summary
from nbl.predictions import Prediction
from nbl.run_folder import EVALUATE, RunFolder, damaged
from nbl.sentence import best_scheme

Labelled = tuple[int, int, int | None]  # a span and its label
LABELS = ("NP", "VP", "PP", "SBAR", "ADJP", "ADVP")  # the labels of the paper's table of recalls


@dataclass(frozen=True)
class Results:
    """What is known about one corpus.

    `scores` has one row per run, seed and decoder; its columns are those of `_row`. `stats` are the corpus'
    own numbers, `bench` the times of the inside algorithms; each is empty where it was not made.
    """

    corpus: str
    folder: Path
    plan: Plan
    scores: pd.DataFrame
    stats: dict[str, Any]
    bench: pd.DataFrame

    def values(self, experiment: Experiment | None, decoder: str, metric: str) -> dict[int, float]:
        """A metric of an experiment's seeds; a seed without it is left out."""
        columns = self._columns.get((experiment.name, decoder), {}) if experiment else {}
        return columns.get(metric, {})

    @cached_property
    def _columns(self) -> dict[Any, dict[str, dict[Any, float]]]:
        """(run, decoder) -> metric -> seed -> value."""
        if self.scores.empty:
            return {}
        return {
            key: {str(metric): values.dropna().to_dict() for metric, values in rows.items()}
            for key, rows in self.scores.sort_values("seed").set_index("seed").groupby(["run", "decoder"])
        }

    def summary(self, experiment: Experiment | None, decoder: str, metric: str) -> Summary:
        """The same as mean and spread; no seed is expected to have what the plan does not ask for."""
        values = tuple(self.values(experiment, decoder, metric).values())
        if experiment is None:
            return Summary(values, self.plan.seeds)
        return Summary(values, len(experiment.seeds) if values or decoder in experiment.decoders else 0)

    def spans(self, experiment: Experiment, decoder: str) -> tuple[list[int], dict[int, list[list[Labelled]]]]:
        """The lengths of the test sentences and each seed's predicted spans [i, j, label] of them, no more: for
        reports on hundreds of runs. The sentences are those of the first seed; another's must be the same."""
        first: list[Prediction] = []
        found = {}
        for seed in experiment.seeds:
            run = RunFolder(self.folder / "runs" / experiment.name / f"seed{seed}")
            if run.has_predictions(decoder):
                predictions = run.predictions(decoder, first or None)
                first = first or predictions
                found[seed] = [prediction.spans for prediction in predictions]
        return [prediction.length for prediction in first], found


def read_results(folder: Path, corpus: str, params: Params | None = None) -> Results:
    """Read all there is of a corpus under the results folder; what is missing is not an error.

    With `params`, the experiments and seeds are those planned there, and others are left out.
    """
    root = folder / corpus
    if not root.is_dir():
        raise UserError(f"there are no results for {corpus!r}: {root} does not exist; run the pipeline first")
    # Scores beside which there is no config.yaml are of a training that was begun anew and failed.
    paths = sorted(root.glob("runs/*/seed*/metrics.json"))
    found = [RunFolder(path.parent) for path in paths if (path.parent / "config.yaml").exists()]
    stats_path, bench_path = root / "corpus" / "stats.json", root / "bench" / "inside.csv"
    stats = _read_json(stats_path) if stats_path.exists() else {}
    for run in found:
        _refuse_other_corpus(run, stats)
    if params is not None and corpus in params["corpora"]:
        plan = Plan.of_params(params, corpus, found)
    else:
        plan = Plan.of_results(found)
    rows = [row for run in found for row in _rows(run, plan)]
    return Results(
        corpus=corpus,
        folder=root,
        plan=plan,
        scores=pd.DataFrame(rows),
        stats=stats,
        bench=pd.read_csv(bench_path) if bench_path.exists() else pd.DataFrame(),
    )


def _refuse_other_corpus(run: RunFolder, stats: dict[str, Any]) -> None:
    recorded, here = run.config.corpus.get("vocabulary_sha256"), stats.get("vocabulary_sha256")
    if recorded and here and recorded != here:
        raise UserError(
            f"{run.path} was trained on another corpus than there is now (another vocabulary): run the pipeline again"
        )


def _rows(run: RunFolder, plan: Plan) -> list[dict[str, Any]]:
    """The scores of one run's decoders, if the plan has that run."""
    experiment, seed = plan.experiments.get(run.experiment), run.config.seed
    if experiment is None or seed not in experiment.seeds:
        return []
    return [{"run": run.experiment, "seed": seed, "decoder": decoder} | row for decoder, row in scores_of(run).items()]


def scores_of(run: RunFolder) -> dict[str, dict[str, Any]]:
    """For each decoder of a run, the numbers that reports use."""
    try:
        return {decoder: _row(scores) for decoder, scores in run.metrics["decoders"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(run.path / "metrics.json", error, EVALUATE) from error


def _row(scores: dict[str, Any]) -> dict[str, float]:
    """The numbers of one decoder that reports use; scores in per cent, by Kim's convention."""
    row = {"perplexity": scores["perplexity"], "exact": scores["perplexity_is_exact"]}
    if "trees" in scores:
        kim = scores["trees"]["kim"]
        row |= {"f1": kim["sentence_f1"], "corpus_f1": kim["corpus_f1"]}
        row["f1_release"] = scores["trees"]["release"]["sentence_f1"]
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


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise damaged(path, error, "remove it and run the pipeline again") from error
