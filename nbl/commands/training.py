"""`nbl train`, and what it shows on the way."""

from __future__ import annotations

import sys
from pathlib import Path

import nbl.train
from nbl.commands.common import Progress, note, print_json
from nbl.corpus.folder import read_corpus
from nbl.files import alone_in
from nbl.process import Interrupted, device_type
from nbl.run import Run, remove_other_run
from nbl.run_folder import Row, make_config


def train(
    corpus_dir: Path,
    model: str,
    out: Path,
    assignments: list[str],
    seed: int,
    device: str,
    threads: int,
    replace: bool,
    keep_state: bool,
    as_json: bool,
) -> None:
    corpus = read_corpus(corpus_dir)
    config = make_config(model, assignments, corpus, seed=seed, threads=threads, device=device_type(device))
    try:
        with alone_in(out, note):
            if replace and remove_other_run(config, out):
                note(f"{out} held a run with other settings, or a damaged one: starting over")
            shown = Epochs(Progress(quiet=as_json))
            with shown.progress.bar:
                history = nbl.train.train(config, corpus, out, device=device, progress=shown, keep_state=keep_state)
    except Interrupted as stop:
        note(f"{stop}; the same command resumes {out}")
        sys.exit(stop.exit_code)
    scored = [row for row in history if row["dev_perplexity"] is not None]
    best = min(scored, key=lambda row: row["dev_perplexity"] or 0) if scored else history[-1]
    if as_json:
        print_json({"run": str(out), "epochs": len(history), "best": best})
    else:
        print(f"{out}: {len(history)} epoch{'s' if len(history) > 1 else ''}, kept {_line(best)}")


class Epochs(nbl.train.Progress):
    """A bar over all epochs, or lines; one line per finished epoch stays."""

    def __init__(self, progress: Progress):
        self.progress = progress
        self.steps = 0

    def notice(self, text: str) -> None:
        self.progress.line(text)

    def begin_epoch(self, run: Run, steps: int) -> None:
        self.steps = steps

    def advance(self, run: Run, loss: float, sentences_per_second: float) -> None:
        epochs = run.config.training.epochs
        completed = (run.epoch - 1) * self.steps + run.step
        facts = f"step {run.step} of {self.steps}, loss {loss:.2f}, {sentences_per_second:.1f} sentences/s"
        self.progress.update(f"epoch {run.epoch} of {epochs}", completed, epochs * self.steps, facts)

    def begin_dev(self, run: Run) -> None:
        self.progress.bar.update(self.progress.task, facts="dev")

    def end_epoch(self, row: Row) -> None:
        self.progress.line(_line(row))


def _line(row: Row) -> str:
    """An epoch in one line."""
    facts = {"train perplexity": row["train_perplexity"], "dev perplexity": row["dev_perplexity"]}
    facts |= {"dev F1": row["dev_f1"], "test F1": row.get("test_f1"), "seconds": row["seconds"]}
    known = [f"{name} {value:.2f}" for name, value in facts.items() if value is not None]
    return f"epoch {row['epoch']}: {', '.join(known)}"
