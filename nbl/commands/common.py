"""What the verbs that use a trained grammar share: their options, notes, tables and bars."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import rich.progress
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from nbl.corpus.folder import read_corpus
from nbl.errors import UserError
from nbl.run_folder import RunFolder
from nbl.sentence import Sentence

LINE_SECONDS = 10.0  # between two lines where there is no terminal


class Decoder(StrEnum):
    mbr = "mbr"
    cyk = "cyk"


class Split(StrEnum):
    train = "train"
    dev = "dev"
    test = "test"


RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.", show_default=False)]
TextPath = Annotated[Path, typer.Argument(metavar="FILE", help="Text, one sentence a line; - is stdin.")]
CorpusDir = Annotated[
    Path, typer.Option(help="The corpus the run was trained on.", show_default=False, file_okay=False)
]
VocabularyDir = Annotated[
    Path | None,
    typer.Option("--corpus-dir", help="The corpus of the run, if the run has no vocab.txt.", file_okay=False),
]
SplitName = Annotated[Split, typer.Option("--split", help="The part of the corpus.")]
DeviceName = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def note(text: str) -> None:
    """Tell the user something beside the output."""
    print(f"nbl: {text}", file=sys.stderr)


def print_json(document: Any) -> None:
    print(json.dumps(document, ensure_ascii=False))


def plain_table(first: str, *others: str, title: str | None = None) -> Table:
    """A table without lines, its numbers to the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def split_of(corpus_dir: Path, split: Split, *runs: RunFolder) -> list[Sentence]:
    """The sentences of a part of the corpus that the runs were trained on; another corpus is refused."""
    corpus = read_corpus(corpus_dir)
    for run in runs:
        run.refuse_other(corpus, corpus_dir)
    sentences: list[Sentence] = getattr(corpus, split)
    if not sentences:
        raise UserError(f"the corpus {corpus_dir} has no {split} sentences")
    return sentences


@contextmanager
def counting(what: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Count sentences on the way: a bar on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    if quiet:
        yield lambda done: None
    elif console.is_terminal:
        columns = (
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeRemainingColumn(),
        )
        with rich.progress.Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)
    else:
        yield _Lines(what, total)


class _Lines:
    def __init__(self, what: str, total: int):
        self.what, self.total, self.done, self.printed = what, total, 0, time.monotonic()

    def __call__(self, done: int) -> None:
        self.done += done
        if self.done == self.total or time.monotonic() - self.printed >= LINE_SECONDS:
            self.printed = time.monotonic()
            note(f"{self.what}: {self.done} of {self.total} sentences")
