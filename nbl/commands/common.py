"""What the verbs share: notes, JSON, tables, progress, and the sentences of a corpus."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box, progress
from rich.console import Console
from rich.table import Table

from nbl.corpus.folder import read_corpus
from nbl.errors import UserError
from nbl.run_folder import RunFolder
from nbl.sentence import Sentence

LINE_SECONDS = 10.0  # between two lines of progress where there is no terminal


def note(text: str) -> None:
    """Inform the user without touching the output."""
    print(f"nbl: {text}", file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    print(json.dumps(document, ensure_ascii=False))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, narrow: bool = False
) -> None:
    """Print a table; a column whose name begins with > is aligned to the right, a narrow table has no padding."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=narrow)
    table.padding = 0 if narrow else (0, 1)
    for column in columns:
        justify = "right" if column.startswith(">") else "left"
        table.add_column(column.removeprefix(">"), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def number(value: float | None) -> str:
    """A cell with two decimals, or an empty one."""
    return "" if value is None else f"{value:.2f}"


def split_of(corpus_dir: Path, split: str, *runs: RunFolder) -> list[Sentence]:
    """The sentences of a part of the corpus that the runs were trained on; another corpus is refused."""
    corpus = read_corpus(corpus_dir)
    for run in runs:
        run.refuse_other(corpus, corpus_dir)
    sentences: list[Sentence] = getattr(corpus, split)
    if not sentences:
        raise UserError(f"the corpus {corpus_dir} has no {split} sentences")
    return sentences


class Progress:
    """A bar on a terminal, a line now and then elsewhere, nothing if quiet."""

    def __init__(self, quiet: bool = False, console: Console | None = None):
        self.console = console or Console(stderr=True, quiet=quiet)
        self.printed = time.monotonic()
        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[facts]}"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
        )
        disable = quiet or not self.console.is_terminal
        self.bar = progress.Progress(*columns, console=self.console, transient=True, disable=disable)
        self.task = self.bar.add_task("", total=None, facts="")

    def line(self, text: str) -> None:
        """A line that stays, above the bar if there is one."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, what: str, completed: int, total: int, facts: str, last: bool = False) -> None:
        """Show how far it is: moves the bar, or prints a line if it is the last or the time has come."""
        self.bar.update(self.task, description=what, completed=completed, total=total, facts=facts)
        if self.bar.disable and (last or time.monotonic() - self.printed >= LINE_SECONDS):
            self.printed = time.monotonic()
            self.line(f"{what}: {facts}")


@contextmanager
def counting(what: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Progress over sentences; the value is called with the number done since the last call."""
    shown = Progress(quiet)
    completed = 0

    def advance(done: int) -> None:
        nonlocal completed
        completed += done
        shown.update(what, completed, total, f"{completed} of {total} sentences", last=completed == total)

    with shown.bar:
        yield advance
