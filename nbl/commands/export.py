"""`nbl export`: the part of a corpus' results that may go to git."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nbl.commands.common import note
from nbl.commands.runs import Overrides, ParamsPath, ResultsDir, narrowed
from nbl.export import export as export_runs
from nbl.matrix import experiments


def export(
    config: Overrides = None,
    params: ParamsPath = Path("params.yaml"),
    results: ResultsDir = Path("results"),
    out: Annotated[Path, typer.Option(help="The folder to write.", file_okay=False)] = Path("results/reference"),
    trees: Annotated[
        bool, typer.Option("--trees", help="Three gold trees too, over tags instead of words, to be drawn.")
    ] = False,
) -> None:
    """Copy what is small and holds no words of the runs that are done: settings, curves, scores, predictions.

    Every tool reads the copy with --results.
    """
    chosen = narrowed(params, config or [])
    matrix = experiments(chosen)
    left_out = export_runs(results, chosen["corpus"], matrix, chosen["seeds"], out, trees)
    for line in left_out:
        note(f"left out: {line}")
    total = len(matrix) * len(chosen["seeds"])
    print(f"{total - len(left_out)} of {total} runs copied to {out / chosen['corpus']}")
