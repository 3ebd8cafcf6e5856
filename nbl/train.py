"""Training: one loop for all models, which can be stopped at any moment and goes on where it was."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from nbl import metrics
from nbl.corpus.batches import shuffled_batches, sorted_batches, to_tensors
from nbl.corpus.folder import Corpus
from nbl.errors import UserError
from nbl.optimiser import clipped_step
from nbl.process import Interrupted, Listener, listening, use_device
from nbl.run import Run, is_finished, reopen
from nbl.run_folder import Config, Row, RunFolder
from nbl.seed import generator
from nbl.sentence import Sentence

LOOK_STEPS = 50  # steps between two looks at the losses, for which the host waits for the device
SAVE_SECONDS = 300.0
WATCHED_TREES = 500  # the first dev trees, for the F1 in history.csv
DIVERGED = "try a lower learning rate (--set lr=...) and another --out"


class Progress:
    """What a run tells while it goes; this one keeps it to itself."""

    def notice(self, text: str) -> None:
        """Something to know."""

    def begin_epoch(self, run: Run, steps: int) -> None:
        """An epoch of so many steps begins, or goes on after `run.step` of them."""

    def advance(self, run: Run, loss: float, sentences_per_second: float) -> None:
        """`run.step` steps are done; mean loss and speed of the latest ones."""

    def begin_dev(self, run: Run) -> None:
        """The epoch's steps are done, the evaluation on dev begins."""

    def end_epoch(self, row: Row) -> None:
        """The epoch is done."""


def train(
    config: Config,
    corpus: Corpus,
    out: Path,
    *,
    device: str = "auto",
    progress: Progress | None = None,
    save_seconds: float = SAVE_SECONDS,
    keep_state: bool = False,
) -> list[Row]:
    """Train a model, or go on with an interrupted run, until the run in folder `out` is finished.

    `device` is auto, cpu, cuda or cuda:N. The state is saved after each epoch and every `save_seconds`.
    With `keep_state` it is kept at the end as well, as `finished.pt`. Returns the rows of `history.csv`, at once if
    the run was finished before.
    """
    progress = progress or Progress()
    if is_finished(config, out):
        progress.notice(f"{out} holds this run, finished: nothing to do")
        corpus.vocabulary.write(out / "vocab.txt")  # a workflow may have removed it
        return RunFolder(out).history
    if not _lengths(config, corpus, epoch=1):
        longest = config.training.longest(1)
        raise UserError(f"there is nothing to train on: no training sentence has 2 to {longest} words")
    if not corpus.dev:
        progress.notice("the corpus has no dev sentences: the model of the last epoch will be kept")
    torch.set_num_threads(config.threads)
    reopen(out)
    with use_device(device, progress.notice) as chosen, listening() as signals:
        run = Run(config, out, chosen)
        run.begin([sentence.ids for sentence in corpus.train])
        corpus.vocabulary.write(out / "vocab.txt")  # so that the run can parse text by itself
        try:
            while not run.over:
                train_epoch(run, corpus, progress, signals, save_seconds)
                progress.begin_dev(run)
                row = train_scores(run, corpus) | dev_scores(run, corpus, signals)
                run.end_epoch(row | {"peak_memory_mb": _peak_memory_mb(chosen)})
                progress.end_epoch(run.history[-1])
        except Interrupted:
            run.save()
            raise
        run.finish(keep_state)
    return run.history


def train_epoch(run: Run, corpus: Corpus, progress: Progress, signals: Listener, save_seconds: float) -> None:
    """Train on the epoch under way: all of it, or the rest if the run was stopped within it."""
    training = run.config.training
    run.begin_epoch()
    batches = shuffled_batches(
        [len(sentence) for sentence in corpus.train],
        training.batch_size,
        training.longest(run.epoch),
        generator(run.config.seed, f"order of epoch {run.epoch}"),
    )
    progress.begin_epoch(run, len(batches))
    run.model.train()
    looked = saved = time.monotonic()
    unseen: list[Tensor] = []  # for each step since the last look: sum of log p, norm of the gradient
    for batch in batches[run.step :]:
        words, lengths = to_tensors([corpus.train[k] for k in batch], run.device)
        log_p = run.model.objective(words, lengths)
        run.optimiser.zero_grad()
        (-log_p.mean()).backward()
        norm = clipped_step(run.optimiser, training.clip)
        unseen.append(torch.stack([log_p.detach().sum(), norm]))
        run.step += 1

        due = time.monotonic() - saved >= save_seconds
        if due or signals.pending or len(unseen) == LOOK_STEPS or run.step == len(batches):
            seen = batches[run.step - len(unseen) : run.step]
            total = look(run, unseen, [[corpus.train[k].id for k in batch] for batch in seen])
            seconds, looked = time.monotonic() - looked, time.monotonic()
            run.seconds += seconds
            unseen = []
            sentences = sum(len(batch) for batch in seen)
            progress.advance(run, -total / sentences, sentences / seconds)
            signals.check()
            if due:
                run.save()
                looked = saved = time.monotonic()


def look(run: Run, unseen: list[Tensor], ids: list[list[str]]) -> float:
    """Add up log p of the latest steps, on sentences `ids`; the first that is not finite ends the run."""
    total = 0.0
    first = run.step - len(unseen) + 1
    for number, (log_p, norm) in enumerate(torch.stack(unseen).tolist()):
        if not (math.isfinite(log_p) and math.isfinite(norm)):
            what = f"gradient's norm is {norm}" if math.isfinite(log_p) else f"loss is {-log_p}"
            raise UserError(
                f"epoch {run.epoch}, batch {first + number}: the {what} "
                f"(sentences {', '.join(ids[number])}); {run.out} keeps the last good state, but {DIVERGED}"
            )
        run.log_p += log_p  # one by one: the sum must not depend on when one looks
        total += log_p
    return total


def train_scores(run: Run, corpus: Corpus) -> Row:
    """The first columns of the epoch's row: what training itself tells."""
    lengths = _lengths(run.config, corpus, run.epoch)
    per_word = torch.tensor(-run.log_p / (sum(lengths) + len(lengths)), dtype=torch.float64)
    return {
        "epoch": run.epoch,
        "train_loss": round(-run.log_p / len(lengths), 6),
        "train_perplexity": round(per_word.exp().item(), 6),
        "seconds": round(run.seconds, 3),
        "sentences_per_second": round(len(lengths) / run.seconds, 3),
    }


def dev_scores(run: Run, corpus: Corpus, signals: Listener) -> Row:
    """Perplexity of all dev sentences, F1 and branching (in per cent) of the first trees among them.

    Where dev has no trees, as in plain text, those of the test part are watched: nothing is chosen by them.
    """
    row: Row = dict.fromkeys(("dev_perplexity", "dev_f1", "test_f1", "left_branching", "right_branching"))
    dev = corpus.dev
    run.model.eval()
    log_p: list[float] = []
    lengths: list[int] = []
    for batch in _equally_long(dev, signals):
        with torch.no_grad():
            log_p += run.model.objective(*to_tensors(batch, run.device)).tolist()
        lengths += [len(sentence) for sentence in batch]
        if not all(map(math.isfinite, log_p[-len(batch) :])):
            ids = ", ".join(sentence.id for sentence in batch)
            raise UserError(f"epoch {run.epoch}: a log p is not finite in dev sentences {ids}; {DIVERGED}")
    if dev:
        row["dev_perplexity"] = metrics.perplexity(log_p, lengths)

    part, trees = "dev", [sentence for sentence in dev if sentence.spans]
    if not trees:
        longest = run.config.training.max_length
        part, trees = "test", [sentence for sentence in corpus.test if sentence.spans and len(sentence) <= longest]
    trees = trees[:WATCHED_TREES]
    golds, predictions, lengths = [], [], []
    for batch in _equally_long(trees, signals):
        parses = run.model.parse(*to_tensors(batch, run.device), decoder="mbr")
        predictions += [parse.spans for parse in parses]
        golds += [sentence.spans or [] for sentence in batch]
        lengths += [len(sentence) for sentence in batch]
    if trees:
        row[f"{part}_f1"] = round(100 * metrics.mean_sentence_f1(golds, predictions).value, 4)
    if any(length > 2 for length in lengths):  # else nothing branches
        left, right, _ = metrics.branching(predictions, lengths)
        row |= {"left_branching": round(100 * left, 4), "right_branching": round(100 * right, 4)}
    return row


def _equally_long(sentences: list[Sentence], signals: Listener) -> Iterator[list[Sentence]]:
    """Batches of sentences, the shortest first; a signal is heard between two."""
    for batch in sorted_batches([len(sentence) for sentence in sentences]):
        signals.check()
        yield [sentences[k] for k in batch]


def _lengths(config: Config, corpus: Corpus, epoch: int) -> list[int]:
    """The lengths of the sentences an epoch trains on."""
    longest = config.training.longest(epoch)
    return [len(sentence) for sentence in corpus.train if 2 <= len(sentence) <= longest]


def _peak_memory_mb(device: torch.device) -> float:
    """Of the GPU's memory if there is one, else of the process."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes or kilobytes
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
