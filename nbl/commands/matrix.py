"""`nbl runs`, `collect` and `export`: the experiment matrix and the results of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import nbl.collect
import nbl.export
from nbl.commands.common import note, print_json, print_table
from nbl.errors import UserError
from nbl.matrix import Experiment, experiments, read_params
from nbl.run_folder import DONE, RunFolder


def runs(config: list[str], params: Path, results: Path, as_json: bool) -> None:
    corpus, matrix, seeds = _narrowed(params, config)
    rows = [
        (experiment, {seed: RunFolder.of(results, corpus, experiment, seed).status(experiment, seed) for seed in seeds})
        for experiment in matrix
    ]
    if as_json:
        return print_json([_record(experiment, states) for experiment, states in rows])
    cells = [
        (
            experiment.name,
            f"{sum(state == DONE for state in states.values())}/{len(states)}",
            *(" ".join(words) for words in (experiment.tables, experiment.decoders, experiment.assignments)),
        )
        for experiment, states in rows
    ]
    title = f"{corpus}: {len(rows)} experiments x {len(seeds)} seeds"
    print_table(("run", "done", "tables", "decoders", "settings"), cells, title)
    for experiment, states in rows:
        for seed, state in states.items():
            if state not in {DONE, "missing"}:
                print(f"{RunFolder.of(results, corpus, experiment, seed).path}: {state}")
    done = sum(state == DONE for _, states in rows for state in states.values())
    print(f"{done} of {len(rows) * len(seeds)} runs are done")


def _record(experiment: Experiment, states: dict[int, str]) -> dict[str, Any]:
    return {
        "run": experiment.name,
        "model": experiment.model,
        "settings": experiment.settings,
        "tables": experiment.tables,
        "decoders": experiment.decoders,
        "seeds": states,
    }


def collect(config: list[str], params: Path, results: Path) -> None:
    corpus, matrix, seeds = _narrowed(params, config)
    left_out = nbl.collect.collect(results, corpus, matrix, seeds)
    _report(left_out, len(matrix) * len(seeds), f"collected in {results / corpus}")


def export(config: list[str], params: Path, results: Path, out: Path, trees: bool) -> None:
    corpus, matrix, seeds = _narrowed(params, config)
    left_out = nbl.export.export(results, corpus, matrix, seeds, out, trees)
    _report(left_out, len(matrix) * len(seeds), f"copied to {out / corpus}")


def _report(left_out: list[str], total: int, what: str) -> None:
    for line in left_out:
        note(f"left out: {line}")
    print(f"{total - len(left_out)} of {total} runs {what}")


def _narrowed(path: Path, assignments: list[str]) -> tuple[str, list[Experiment], list[int]]:
    """Corpus, experiments and seeds, with top-level keys replaced as by Snakemake's `--config KEY=VALUE`."""
    changes: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"--config {assignment!r} is not KEY=VALUE")
        changes[key] = yaml.safe_load(text)
    chosen = read_params(path, changes)
    return chosen["corpus"], experiments(chosen), chosen["seeds"]
