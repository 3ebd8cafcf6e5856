"""`nbl runs`: the experiment matrix, and how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from nbl.commands.common import AsJson, plain_table, print_json
from nbl.errors import UserError
from nbl.matrix import Experiment, experiments, read_params
from nbl.run_status import DONE, run_folder, status

ParamsPath = Annotated[Path, typer.Option(help="The file with all parameters.", dir_okay=False)]
ResultsDir = Annotated[Path, typer.Option(help="The folder with all results.", file_okay=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="KEY=VALUE...", help="Narrow as Snakemake does: corpus, seeds, tables, experiments."
    ),
]


def runs(
    config: Overrides = None,
    params: ParamsPath = Path("params.yaml"),
    results: ResultsDir = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Print the runs that the tables need: their settings, the tables, and what is done."""
    chosen = narrowed(params, config or [])
    corpus, seeds = chosen["corpus"], chosen["seeds"]
    rows = [
        (experiment, {seed: status(run_folder(results, corpus, experiment, seed), experiment, seed) for seed in seeds})
        for experiment in experiments(chosen)
    ]
    if as_json:
        print_json([_record(experiment, states) for experiment, states in rows])
        return
    console = Console(highlight=False, soft_wrap=True)
    table = plain_table("run", title=f"{corpus}: {len(rows)} experiments x {len(seeds)} seeds")
    for column in ("done", "tables", "decoders", "settings"):
        table.add_column(column, overflow="fold")
    for experiment, states in rows:
        done = sum(state == DONE for state in states.values())
        table.add_row(
            experiment.name,
            f"{done}/{len(states)}",
            " ".join(experiment.tables),
            " ".join(experiment.decoders),
            " ".join(experiment.assignments),
        )
    console.print(table)
    faults = [
        f"{run_folder(results, corpus, experiment, seed)}: {state}"
        for experiment, states in rows
        for seed, state in states.items()
        if state not in {DONE, "missing"}
    ]
    for fault in faults:
        console.print(fault, markup=False)
    done = sum(state == DONE for _, states in rows for state in states.values())
    console.print(f"{done} of {len(rows) * len(seeds)} runs are done")


def narrowed(path: Path, assignments: list[str]) -> dict[str, Any]:
    """The parameters, with top-level keys replaced as by Snakemake's `--config KEY=VALUE`."""
    changes: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"--config {assignment!r} is not KEY=VALUE")
        changes[key] = yaml.safe_load(text)
    return read_params(path, changes)


def _record(experiment: Experiment, states: dict[int, str]) -> dict[str, Any]:
    return {
        "run": experiment.name,
        "model": experiment.model,
        "settings": experiment.settings,
        "tables": experiment.tables,
        "decoders": experiment.decoders,
        "seeds": states,
    }
