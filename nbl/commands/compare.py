"""`nbl compare`: runs against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from nbl.commands.common import (
    AsJson,
    CorpusDir,
    Decoder,
    Split,
    SplitName,
    plain_table,
    print_json,
    split_of,
)
from nbl.compare import compare as compare_predictions
from nbl.errors import UserError
from nbl.predictions import predictions_path, read_predictions
from nbl.run_folder import read_run


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Folders of runs.", show_default=False)],
    corpus_dir: CorpusDir,
    decoder: Annotated[Decoder, typer.Option(help="Whose predictions to compare.")] = Decoder.mbr,
    split: SplitName = Split.test,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 0,
    top: Annotated[int, typer.Option(min=0, help="How many sentences of each pair to list.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Compare what runs predicted for the same sentences, in pairs.

    Self-F1 is the F1 of one run's trees against the other's. The difference of their F1 comes with a 95%
    interval by bootstrap over sentences, and with the sentences where they differ most. Needs
    the predictions of `nbl evaluate`, no model.
    """
    if len(set(runs)) < 2:
        raise UserError(f"two or more different runs are needed, not {', '.join(map(str, runs))}")
    folders = {str(run): read_run(run) for run in runs}
    sentences = split_of(corpus_dir, split, *folders.values())
    predictions = {
        name: read_predictions(predictions_path(folder.path, decoder, split), sentences)
        for name, folder in folders.items()
    }
    found = compare_predictions(sentences, predictions, seed=seed, top=top)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    console = Console(highlight=False, markup=False)
    names = dict.fromkeys(run for pair in found["pairs"] for run in pair["runs"])
    numbers = {run: str(k) for k, run in enumerate(names, start=1)}
    table = plain_table("", title=f"{found['sentences']:,} sentences")
    table.add_column("run", overflow="fold")
    table.add_column("F1", justify="right")
    for run, number in numbers.items():
        table.add_row(number, run, f"{found['f1'][run]:.2f}" if run in found["f1"] else "")
    console.print(table)
    table = plain_table("pair", "self-F1", "difference of F1", "95% interval", "sentences that differ")
    for pair in found["pairs"]:
        a, b = (numbers[run] for run in pair["runs"])
        row = [f"{b} - {a}", f"{pair['self_f1']:.2f}"]
        if "interval" in pair:
            low, high = pair["interval"]
            row += [
                f"{pair['f1_difference']:+.2f}",
                f"[{low:+.2f}, {high:+.2f}]",
                f"{pair['sentences_that_differ']:,}",
            ]
        table.add_row(*row)
    console.print(table)
    for pair in found["pairs"]:
        a, b = (numbers[run] for run in pair["runs"])
        if pair.get("sentences"):
            table = plain_table("sentence", f"F1 of {a}", f"F1 of {b}")
            for sentence in pair["sentences"]:
                table.add_row(sentence["id"], *(f"{f1:.1f}" for f1 in sentence["f1"]))
            console.print(table)
