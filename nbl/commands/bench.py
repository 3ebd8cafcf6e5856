"""`nbl bench`: how fast inside algorithms, training steps and decoders are on this machine."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from nbl.bench import against, decode, inside, step, summary
from nbl.bench.inside import Case
from nbl.bench.measure import PRODUCTS
from nbl.commands.common import note
from nbl.errors import UserError
from nbl.files import write_text

Measurements = Iterator[tuple[str, list[dict[str, Any]]]]  # what was measured, and its rows
# Columns that do not fit on a screen. The summary has the machine's rates.
ONLY_IN_FILES = {
    "step": {"low", "high", "rounds", "gflop", "memory_gbs", *(f"{name}_gflops" for name in PRODUCTS)},
    "against": {"commit_there"},
}


class Part(StrEnum):
    """What there is to measure."""

    inside = "inside"
    step = "step"
    decode = "decode"


def bench(
    out: Annotated[
        Path | None, typer.Option(help="A folder for the csv files.", show_default=False, file_okay=False)
    ] = None,
    part: Annotated[list[Part] | None, typer.Option(help="Only this part; may be given several times.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and few rounds, for a first look.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Times each candidate is measured, in turns.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="Threads of a second measurement of the steps.")] = 2,
    other: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="CHECKOUT",
            help="Time only steps and decoders, in turns with those of another checkout of this project.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")] = False,
) -> None:
    """Measure speed and memory, all candidates in turns, and compare.

    What differs from the naive inside algorithm, or from the best of all trees, is not timed. Seconds of inside
    algorithms and decoders are processor time on one thread. Read ratios: machines differ and are seldom idle.
    """
    torch.set_num_threads(1)
    results: dict[str, list[dict[str, Any]]] = {}
    if other is None:
        wanted = sorted(set(part or Part), key=list(Part).index)
        measurements = {str(name): MEASUREMENTS[name](quick, rounds, threads) for name in wanted}
    else:
        measurements = {"against": _against(other, set(part or (Part.step, Part.decode)), quick, rounds, threads)}
    for name, measured in measurements.items():
        for what, rows in measured:
            note(f"measured: {what}")
            results.setdefault(name, []).extend(rows)
            if out is not None:
                write_text(out / f"{name}.csv", _csv(results[name]))
    facts = summary.summarise(results)
    if out is not None and other is None:
        write_text(out / "summary.json", json.dumps(facts, indent=1) + "\n")
    if as_json:
        print(json.dumps(results | {"summary": facts}))
    else:
        _print(results, facts)


def _inside(quick: bool, rounds: int, threads: int) -> Measurements:
    implementations = inside.chosen(i.name for i in inside.IMPLEMENTATIONS if i.name != "naive" or not quick)
    for case in _cases(quick):
        what = f"inside algorithms, {case.b} sentences of {case.l} words, {case.m} nonterminals"
        yield what, inside.compare(implementations, case, rounds)


def _step(quick: bool, rounds: int, threads: int) -> Measurements:
    for name in step.MODELS:
        step.check(name)
    for count in sorted({1, threads}):
        yield f"training steps, threads: {count}", step.compare(list(step.MODELS), count, rounds, _every(quick))


def _decode(quick: bool, rounds: int, threads: int) -> Measurements:
    for name in decode.GRAMMARS:
        decode.check(name)
    for l in (10, 20) if quick else (10, 20, 30, 40):
        yield f"decoders, {l} words", decode.compare(list(decode.GRAMMARS), l, min(rounds, 3))


MEASUREMENTS: dict[Part, Callable[[bool, int, int], Measurements]] = {
    Part.inside: _inside,
    Part.step: _step,
    Part.decode: _decode,
}


def _against(other: Path, parts: set[Part], quick: bool, rounds: int, threads: int) -> Measurements:
    if Part.inside in parts:
        raise UserError("--against times steps and decoders: leave out --part inside")
    with against.both(other) as pair:  # only the code here is checked
        note("comparing {here} here with {there} there".format_map(pair.commits))
        if Part.step in parts:
            for name in step.MODELS:
                step.check(name)
            for count in sorted({1, threads}):
                rows = pair.compare(against.steps(count, _every(quick)), rounds)
                yield f"training steps of both checkouts, threads: {count}", rows
        if Part.decode in parts and pair.have_decoders:
            for name in decode.GRAMMARS:
                decode.check(name)
            yield f"decoders of both checkouts, {against.WORDS} words", pair.compare(against.decoders(), rounds)
        elif Part.decode in parts:
            note(f"the decoders of {other} are not timed: it has no nbl.bench.decode.task")


def _every(quick: bool) -> int:
    """Which of the sixteen lengths of sentences are taken."""
    return 8 if quick else 1


def _cases(quick: bool) -> list[Case]:
    """The paper's two figures (batch 1: lengths at m = 10, symbols at l = 30), and for batches of 8 lengths at its best
    setting and symbols at l = 20."""
    if quick:
        return [*(Case(1, l, 10) for l in (10, 15, 20)), *(Case(1, 20, m) for m in (5, 15, 20)), Case(8, 10, 15)]
    by_length = [Case(b, l, m) for b, m in ((1, 10), (8, 15)) for l in (10, 20, 30, 40)]
    by_symbols = [Case(1, 30, m) for m in (5, 15, 20, 25, 30)] + [Case(8, 20, m) for m in (5, 10, 20, 30)]
    return by_length + by_symbols


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
        hidden = ONLY_IN_FILES.get(name, set())
        columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in hidden]
        table = Table(title=name, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
        for column in columns:
            table.add_column(column.replace("_", "\n"), justify="right")
        for row in rows:
            table.add_row(*(_cell(row.get(column)) for column in columns))
        console.print(table)
    for name, value in facts.items():
        console.print(f"{name}: {_cell(value)}", soft_wrap=True)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
