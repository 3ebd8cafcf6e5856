"""All runs of a corpus in small files that belong in git: scores, their means, training curves, the two sweeps."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from nbl.errors import UserError
from nbl.files import read_text, write_text
from nbl.matrix import Experiment
from nbl.run_status import DONE, run_folder, status
from nbl.sentence import best_scheme

SCORES = ("f1", "udas", "uuas", "perplexity")
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
            folder = run_folder(results, corpus, experiment, seed)
            found = status(folder, experiment, seed)
            if found != DONE:
                left_out.append(f"{folder}: {found}")
                continue
            run = {"run": experiment.name, "seed": seed}
            scores += [run | row for row in _scores(folder / "metrics.json")]
            curves += [run | row for row in _curves(folder / "history.csv")]
    means = _means(scores)
    write_text(results / corpus / "metrics.json", json.dumps(means, indent=1) + "\n")
    write_text(results / corpus / "seeds.csv", _csv(["run", "seed", "decoder", *SCORES], scores))
    write_text(results / corpus / "history.csv", _csv(["run", "seed", *CURVES], curves))
    for table, variable in SWEEPS.items():
        chosen = [e for e in experiments if table in e.tables and variable in e.settings]
        write_text(results / corpus / f"{table}.csv", _sweep(variable, chosen, means))
    return left_out


def _scores(path: Path) -> list[Row]:
    """A row for each decoder; F1, UDAS and UUAS in per cent, as far as there are gold trees and heads."""
    try:
        rows = []
        for decoder, scores in json.loads(read_text(path))["decoders"].items():
            row = {"decoder": decoder, "perplexity": scores["perplexity"]}
            if "trees" in scores:
                row["f1"] = scores["trees"]["kim"]["sentence_f1"]
            heads = scores.get("heads", {})
            if scheme := best_scheme(heads):
                row |= {name: heads[scheme][name] for name in ("udas", "uuas")}
            rows.append(row)
        return rows
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error!r}): run `nbl evaluate` again") from error


def _curves(path: Path) -> list[Row]:
    rows = csv.DictReader(io.StringIO(read_text(path)))
    return [{column: row.get(column) for column in CURVES} for row in rows]


def _means(scores: Sequence[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """For each run and decoder: the number of seeds and the means over them."""
    grouped: dict[str, dict[str, list[Row]]] = {}
    for row in scores:
        grouped.setdefault(row["run"], {}).setdefault(row["decoder"], []).append(row)
    return {run: {decoder: _mean(rows) for decoder, rows in decoders.items()} for run, decoders in grouped.items()}


def _mean(rows: Sequence[Row]) -> dict[str, float]:
    names = [name for name in SCORES if all(name in row for row in rows)]
    return {"n": len(rows)} | {name: round(fmean(row[name] for row in rows), 4) for name in names}


def _sweep(variable: str, experiments: Sequence[Experiment], means: dict[str, Any]) -> str:
    """A row for each value of the variable, with the means of MBR trees, a column for each score of each model."""
    rows: dict[int, Row] = {}
    columns = [f"{name}_{model}" for model in dict.fromkeys(e.model for e in experiments) for name in SCORES]
    for experiment in sorted(experiments, key=lambda e: e.settings[variable]):
        row = rows.setdefault(experiment.settings[variable], {variable: experiment.settings[variable]})
        scores = means.get(experiment.name, {}).get("mbr", {})
        row |= {f"{name}_{experiment.model}": scores[name] for name in SCORES if name in scores}
    return _csv([variable, *columns], list(rows.values()))


def _csv(columns: list[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
