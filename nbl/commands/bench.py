"""`nbl bench`: how fast inside algorithms, training steps and decoders are on this machine."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from nbl.bench import decode, inside, step, summary
from nbl.bench.inside import Case
from nbl.files import write_text


class Part(StrEnum):
    """What there is to measure."""

    inside = "inside"
    step = "step"
    decode = "decode"


def bench(
    out: Annotated[Path | None, typer.Option(help="A folder for the csv files.", show_default=False)] = None,
    part: Annotated[list[Part] | None, typer.Option(help="Only this part; may be given several times.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and few rounds, for a first look.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Times each candidate is measured, in turns.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of a second measurement of the steps.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")] = False,
) -> None:
    """Measure speed and memory, all candidates in turns, and compare.

    An inside algorithm that differs from the naive recursion is not timed. Seconds of inside algorithms and decoders
    are processor time on one thread. Read ratios: machines differ and are seldom idle.
    """
    parts = set(part or Part)
    torch.set_num_threads(1)
    results: dict[str, list[dict[str, Any]]] = {}
    if Part.inside in parts:
        names = [i.name for i in inside.IMPLEMENTATIONS if i.name != "naive" or not quick]
        results["inside"] = inside.compare(_cases(quick), names, rounds)
    if Part.step in parts:
        every = 8 if quick else 1
        results["step"] = [
            row for t in sorted({1, threads}) for row in step.compare(list(step.MODELS), t, rounds, every)
        ]
    if Part.decode in parts:
        lengths = (10, 20) if quick else (10, 20, 30, 40)
        results["decode"] = decode.compare(list(decode.GRAMMARS), lengths, min(rounds, 3))
    facts = summary.summarise(results)
    if out is not None:
        for name, rows in results.items():
            write_text(out / f"{name}.csv", _csv(rows))
        write_text(out / "summary.json", json.dumps(facts, indent=1) + "\n")
    if as_json:
        print(json.dumps(results | {"summary": facts}))
    else:
        _print(results, facts)


def _cases(quick: bool) -> list[Case]:
    """The paper's two figures (batch 1: lengths at m = 10, symbols at l = 30), and batches of 8 at its best setting."""
    if quick:
        return [Case(1, 10, 10), Case(1, 20, 10), Case(1, 20, 5), Case(8, 10, 15)]
    by_length = [Case(1, l, 10) for l in (10, 20, 30, 40)]
    by_symbols = [Case(1, 30, m) for m in (5, 15, 20, 25, 30)]
    return by_length + by_symbols + [Case(8, l, 15) for l in (10, 20, 30, 40)]


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _print(results: dict[str, list[dict[str, Any]]], facts: dict[str, Any]) -> None:
    console = Console(highlight=False)
    for name, rows in results.items():
        columns = list(dict.fromkeys(key for row in rows for key in row))
        table = Table(title=name, title_justify="left", box=box.SIMPLE_HEAD, padding=0, collapse_padding=True)
        for column in columns:
            table.add_column(column, justify="right")
        for row in rows:
            table.add_row(*(_cell(row.get(column)) for column in columns))
        console.print(table)
    for name, value in facts.items():
        console.print(f"{name}: {_cell(value)}", soft_wrap=True)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
