"""`nbl collect`: one file of scores and one of training curves from all runs."""

from __future__ import annotations

from pathlib import Path

from nbl.collect import collect as collect_runs
from nbl.commands.common import note
from nbl.commands.runs import Overrides, ParamsPath, ResultsDir, narrowed
from nbl.matrix import experiments


def collect(
    config: Overrides = None, params: ParamsPath = Path("params.yaml"), results: ResultsDir = Path("results")
) -> None:
    """Collect the scores and training curves of the runs that the tables need.

    Writes metrics.json (means over the seeds), seeds.csv (every seed), history.csv (every epoch), d_H.csv and
    nonterminals.csv (the sweeps) into the corpus' folder. A run that is missing, damaged or made by other settings is
    named and left out.
    """
    chosen = narrowed(params, config or [])
    matrix = experiments(chosen)
    left_out = collect_runs(results, chosen["corpus"], matrix, chosen["seeds"])
    for line in left_out:
        note(f"left out: {line}")
    total = len(matrix) * len(chosen["seeds"])
    print(f"{total - len(left_out)} of {total} runs collected in {results / chosen['corpus']}")
