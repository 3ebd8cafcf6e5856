"""`nbl train`: the options, and what one sees while a run goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import rich.progress
import typer
from rich.console import Console

from nbl.config import make_config
from nbl.corpus.folder import read_corpus
from nbl.device import device_type
from nbl.files import alone_in
from nbl.run import Row, Run, remove_other_run
from nbl.signals import Interrupted
from nbl.train import Progress
from nbl.train import train as run_training

LINE_SECONDS = 10.0  # between two lines where there is no terminal


def train(
    corpus_dir: Annotated[
        Path, typer.Option(help="A corpus made by `nbl prepare`.", show_default=False, file_okay=False)
    ],
    model: Annotated[str, typer.Option(help="npcfg, cpcfg, tnpcfg, nlpcfg or nblpcfg.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The run's folder.", show_default=False, file_okay=False)],
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE...", help="Settings that differ from the model's defaults."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="For initial parameters, order and samples.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads; results depend on it slightly.")] = 1,
    replace: Annotated[
        bool, typer.Option("--replace", help="Begin anew where the folder holds a run of other settings.")
    ] = False,
    keep_state: Annotated[
        bool, typer.Option("--keep-state", help="Keep finished.pt, from which a lost result can be written again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines, and nothing on the way.")] = False,
) -> None:
    """Train a grammar.

    Writes config.yaml, vocab.txt, history.csv (a row an epoch) and checkpoint.pt (the model of the lowest dev
    perplexity). A run that was interrupted goes on where it was when called again.

    Settings: NT, PT, d_H, rank, dim, binding, compound, parameterisation, z_dim, h_dim, w_dim, as far
    as the model has them; lr, epochs, batch_size, max_length, patience, clip, curriculum.
    """
    corpus = read_corpus(corpus_dir)
    config = make_config(model, assignments or [], corpus, seed=seed, threads=threads, device=device_type(device))
    try:
        with alone_in(out, _tell):
            if replace and remove_other_run(config, out):
                _tell(f"{out} held a run of other settings, or a damaged one; this one begins anew")
            with _progress(quiet=as_json) as progress:
                history = run_training(config, corpus, out, device=device, progress=progress, keep_state=keep_state)
    except Interrupted as stop:
        _tell(f"{stop}; the same command goes on with {out}")
        raise typer.Exit(stop.exit_code) from stop
    scored = [row for row in history if row["dev_perplexity"] is not None]
    best = min(scored, key=lambda row: row["dev_perplexity"] or 0) if scored else history[-1]
    if as_json:
        print(json.dumps({"run": str(out), "epochs": len(history), "best": best}))
    else:
        print(f"{out}: {len(history)} epochs, kept {_line(best)}")


def _tell(sentence: str) -> None:
    print(f"nbl: {sentence}", file=sys.stderr, flush=True)


class Lines(Progress):
    """Plain lines for a log file: one an epoch, and at most one in `LINE_SECONDS`."""

    def __init__(self, console: Console):
        self.console = console
        self.steps = 0
        self.printed = time.monotonic()

    def notice(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin_epoch(self, run: Run, steps: int) -> None:
        self.steps = steps

    def advance(self, run: Run, loss: float, sentences_per_second: float) -> None:
        if time.monotonic() - self.printed >= LINE_SECONDS:
            self.printed = time.monotonic()
            self.notice(
                f"epoch {run.epoch}, step {run.step} of {self.steps}: "
                f"loss {loss:.2f}, {sentences_per_second:.1f} sentences/s"
            )

    def end_epoch(self, row: Row) -> None:
        self.notice(_line(row))


class Bar(Lines):
    """A bar over all epochs; the lines of finished epochs stay above it."""

    def __init__(self, console: Console):
        super().__init__(console)
        self.bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[facts]}"),
            rich.progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
        )
        self.task = self.bar.add_task("", total=None, facts="")

    def begin_epoch(self, run: Run, steps: int) -> None:
        super().begin_epoch(run, steps)
        epochs = run.config.training.epochs
        self.bar.update(self.task, description=f"epoch {run.epoch} of {epochs}", total=epochs * steps)
        self._move(run, "")

    def advance(self, run: Run, loss: float, sentences_per_second: float) -> None:
        self._move(run, f"loss {loss:.2f}, {sentences_per_second:.1f} sentences/s")

    def begin_dev(self, run: Run) -> None:
        self.bar.update(self.task, facts="dev")

    def _move(self, run: Run, facts: str) -> None:
        self.bar.update(self.task, completed=(run.epoch - 1) * self.steps + run.step, facts=facts)


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    console = Console(stderr=True)
    if quiet:
        yield Progress()
    elif console.is_terminal:
        bar = Bar(console)
        with bar.bar:
            yield bar
    else:
        yield Lines(console)


def _line(row: Row) -> str:
    """An epoch in one line."""
    facts = {"train perplexity": row["train_perplexity"], "dev perplexity": row["dev_perplexity"]}
    facts |= {"dev F1": row["dev_f1"], "test F1": row.get("test_f1"), "seconds": row["seconds"]}
    told = [f"{name} {value:.2f}" for name, value in facts.items() if value is not None]
    return f"epoch {row['epoch']}: {', '.join(told)}"
