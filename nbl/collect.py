"""All runs of a corpus in small files that belong in git: scores, their means, training curves, the two sweeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from nbl.files import write_text
from nbl.matrix import Experiment
from nbl.paper.results import METRICS, scores_of
from nbl.run_folder import DONE, RunFolder, write_csv

SCORES = tuple(METRICS)
# Of history.csv, all but times and memory, which differ from one day to the next.
CURVES = ("epoch", "train_perplexity", "dev_perplexity", "dev_f1", "test_f1", "left_branching", "right_branching")
SWEEPS = {"d_H": "d_H", "nonterminals": "NT"}  # a table, and what varies in it
Row = dict[str, Any]


def collect(results: Path, corpus: str, experiments: Sequence[Experiment], seeds: Sequence[int]) -> list[str]:
    """Write `metrics.json`, `seeds.csv`, `history.csv` and the csv of each sweep from the runs that are done.

    A run that is missing, damaged or made by other settings is left out. Returns a line for each of those.
    """
    scores: list[Row] = []
    curves: list[Row] = []
    left_out = []
    for experiment in experiments:
        for seed in seeds:
            folder = RunFolder.of(results, corpus, experiment, seed)
            found = folder.status(experiment, seed)
            if found != DONE:
                left_out.append(f"{folder.path}: {found}")
                continue
            run = {"run": experiment.name, "seed": seed}
            for decoder, row in scores_of(folder).items():
                scores.append(run | {"decoder": decoder} | {key: row[key] for key in SCORES if key in row})
            curves += [run | {key: row[key] for key in CURVES} for row in folder.history]
    means = _means(scores)
    write_text(results / corpus / "metrics.json", json.dumps(means, indent=1) + "\n")
    write_csv(results / corpus / "seeds.csv", ["run", "seed", "decoder", *SCORES], scores)
    write_csv(results / corpus / "history.csv", ["run", "seed", *CURVES], curves)
    for table, variable in SWEEPS.items():
        chosen = [e for e in experiments if table in e.tables and variable in e.settings]
        write_csv(results / corpus / f"{table}.csv", *_sweep(variable, chosen, means))
    return left_out


def _means(scores: Sequence[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """For each run and decoder: the number of seeds and the means over them."""
    grouped: dict[str, dict[str, list[Row]]] = {}
    for row in scores:
        grouped.setdefault(row["run"], {}).setdefault(row["decoder"], []).append(row)
    return {run: {decoder: _mean(rows) for decoder, rows in decoders.items()} for run, decoders in grouped.items()}


def _mean(rows: Sequence[Row]) -> dict[str, float]:
    names = [name for name in SCORES if all(name in row for row in rows)]
    return {"n": len(rows)} | {name: round(fmean(row[name] for row in rows), 4) for name in names}


def _sweep(variable: str, experiments: Sequence[Experiment], means: dict[str, Any]) -> tuple[list[str], list[Row]]:
    """Columns and rows: for each value of the variable the means of MBR trees, one column per score and model."""
    rows: dict[int, Row] = {}
    columns = [f"{name}_{model}" for model in dict.fromkeys(e.model for e in experiments) for name in SCORES]
    for experiment in sorted(experiments, key=lambda e: e.settings[variable]):
        row = rows.setdefault(experiment.settings[variable], {variable: experiment.settings[variable]})
        scores = means.get(experiment.name, {}).get("mbr", {})
        row |= {f"{name}_{experiment.model}": scores[name] for name in SCORES if name in scores}
    return [variable, *columns], list(rows.values())
