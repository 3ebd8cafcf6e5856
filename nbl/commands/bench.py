"""`nbl bench`: how fast inside algorithms, training steps and decoders are on this machine."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from nbl.bench import against as checkouts
from nbl.bench import decode, inside, launches, step, summary
from nbl.bench import selftest as checked
from nbl.bench.inside import Case
from nbl.bench.measure import PRODUCTS
from nbl.commands import PARTS
from nbl.commands.common import note, print_json, print_table
from nbl.errors import UserError
from nbl.files import write_text
from nbl.process import use_device

Row = dict[str, Any]
Measurements = Iterator[tuple[str, list[Row]]]  # what was measured, and its rows
# Columns that do not fit on a screen. The summary has the machine's rates.
ONLY_IN_FILES = {
    "step": {"low", "high", "rounds", "gflop", "memory_gbs", *(f"{name}_gflops" for name in PRODUCTS)},
    "against": {"commit_there"},
}


def bench(
    out: Path | None,
    parts: Collection[str],
    quick: bool,
    rounds: int,
    threads: int,
    against: Path | None,
    as_json: bool,
) -> None:
    torch.set_num_threads(1)
    results: dict[str, list[Row]] = {}
    if against is None:
        measurements = {
            name: MEASUREMENTS[name](quick, rounds, threads) for name in PARTS if name in parts or not parts
        }
    else:
        measurements = {"against": _against(against, parts or ("step", "decode"), quick, rounds, threads)}
    for name, measured in measurements.items():
        for what, rows in measured:
            note(f"measured: {what}")
            results.setdefault(name, []).extend(rows)
            if out is not None:
                write_text(out / f"{name}.csv", _csv(results[name]))
    facts = summary.summarise(results)
    if out is not None and against is None:
        write_text(out / "summary.json", json.dumps(facts, indent=1) + "\n")
    if as_json:
        return print_json(results | {"summary": facts})
    for name, rows in results.items():
        columns = [key for key in _columns(rows) if key not in ONLY_IN_FILES.get(name, ())]
        cells = [[_cell(row.get(column)) for column in columns] for row in rows]
        print_table([">" + column.replace("_", "\n") for column in columns], cells, title=name, narrow=True)
    for name, value in facts.items():
        print(f"{name}: {_cell(value)}")


def selftest(device: str, as_json: bool) -> None:
    with use_device(device, note) as chosen:
        checks = [check._asdict() for check in checked.selftest(chosen)]
        failed = [check for check in checks if not check["passed"]]
    if as_json:
        print_json({"device": str(chosen), "checks": checks})
    else:
        rows = [[c["check"], c["of"], "yes" if c["passed"] else "NO", c["result"]] for c in checks]
        print_table(["check", "of", "passed", ">result"], rows)
    note(f"{len(checks) - len(failed)} of {len(checks)} checks passed on {chosen}")
    if failed:
        sys.exit(1)


def _inside(quick: bool, rounds: int, threads: int) -> Measurements:
    implementations = inside.chosen(i.name for i in inside.IMPLEMENTATIONS if i.name != "naive" or not quick)
    for case in _cases(quick):
        what = f"inside algorithms, {case.b} sentences of {case.l} words, {case.m} nonterminals"
        yield what, inside.measure_case(implementations, case, rounds)


def _step(quick: bool, rounds: int, threads: int) -> Measurements:
    for name in step.MODELS:
        step.check(name)
    for count in sorted({1, threads}):
        yield f"training steps, threads: {count}", step.measure_steps(list(step.MODELS), count, rounds, _every(quick))


def _decode(quick: bool, rounds: int, threads: int) -> Measurements:
    for name in decode.GRAMMARS:
        decode.check(name)
    for l in (10, 20) if quick else (10, 20, 30, 40):
        yield f"decoders, {l} words", decode.measure_decoders(list(decode.GRAMMARS), l, min(rounds, 3))


def _launches(quick: bool, rounds: int, threads: int) -> Measurements:
    lengths = launches.LENGTHS[:1] if quick else launches.LENGTHS
    yield "launches of the inside algorithms", launches.compare(list(launches.GRAMMARS), lengths)


MEASUREMENTS = dict(zip(PARTS, (_inside, _step, _decode, _launches), strict=True))


def _against(other: Path, parts: Collection[str], quick: bool, rounds: int, threads: int) -> Measurements:
    if wrong := sorted(set(parts) - {"step", "decode"}):
        raise UserError(f"--against times steps and decoders: leave out --part {wrong[0]}")
    with checkouts.both(other) as pair:  # only the code here is checked
        note("comparing {here} here with {there} there".format_map(pair.commits))
        if "step" in parts:
            for name in step.MODELS:
                step.check(name)
            for count in sorted({1, threads}):
                rows = pair.measure(checkouts.steps(count, _every(quick)), rounds)
                yield f"training steps of both checkouts, threads: {count}", rows
        if "decode" in parts:
            for name in decode.GRAMMARS:
                decode.check(name)
            yield f"decoders of both checkouts, {checkouts.WORDS} words", pair.measure(checkouts.decoders(), rounds)


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


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
