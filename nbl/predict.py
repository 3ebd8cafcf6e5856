"""A trained system at work: the model of a run with its vocabulary, on a device, and its predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from nbl.corpus.batches import in_batches
from nbl.corpus.folder import Vocabulary
from nbl.errors import UserError
from nbl.models import load
from nbl.models.base import System
from nbl.predictions import Prediction
from nbl.process import use_device
from nbl.run_folder import RunFolder
from nbl.sentence import Sentence

Advance = Callable[[int], None]  # called with the number of sentences done since the last call


@dataclass(frozen=True, repr=False, eq=False)
class Trained:
    """The model is in evaluation mode, on the device."""

    run: RunFolder
    model: System
    vocabulary: Vocabulary
    device: torch.device


@contextmanager
def open_run(folder: Path, device: str = "auto", corpus_dir: Path | None = None) -> Iterator[Trained]:
    """The trained system of a run; on a GPU, its lock is held until the end.

    The vocabulary is the run's own `vocab.txt`, or that of the corpus it was trained on. It works with as
    many threads as the run was trained with, since results depend on them in the last digits.
    """
    run = RunFolder(folder)
    vocabulary = run.vocabulary(corpus_dir)
    torch.set_num_threads(run.config.threads)
    with use_device(device) as chosen:
        yield Trained(run, load(folder).to(chosen), vocabulary, chosen)


def log_probs(trained: Trained, sentences: Sequence[Sentence]) -> list[float]:
    """log p of each sentence of two or more words, in their order; see `System.objective`."""
    result = [0.0] * len(sentences)
    for batch, words, lengths in in_batches(sentences, trained.device):
        with torch.no_grad():
            values = trained.model.objective(words, lengths).tolist()
        for k, value in zip(batch, values, strict=True):
            result[k] = _checked(value, sentences[k])
    return result


def predict(
    trained: Trained, sentences: Sequence[Sentence], decoder: str, advance: Advance = lambda done: None
) -> list[Prediction]:
    """Parse sentences of two or more words.

    Args:
        trained: the system.
        sentences: with word numbers in the system's vocabulary.
        decoder: one of `nbl.settings.DECODERS`.
        advance: is called after each batch.

    Returns:
        A prediction for each sentence, in their order.
    """
    result: dict[int, Prediction] = {}
    for batch, words, lengths in in_batches(sentences, trained.device):
        with torch.no_grad():
            values = trained.model.objective(words, lengths).tolist()
        parses = trained.model.parse(words, lengths, decoder)
        for k, parse, value in zip(batch, parses, values, strict=True):
            sentence, log_prob = sentences[k], _checked(value, sentences[k])
            of_tree = _checked(parse.log_prob, sentence) if decoder.startswith("cyk") else None
            result[k] = Prediction(sentence.id, len(sentence), parse.spans, parse.heads, log_prob, of_tree)
        advance(len(batch))
    return [result[k] for k in range(len(sentences))]


def _checked(log_prob: float, sentence: Sentence) -> float:
    """Six decimals, all that single precision is good for."""
    if not math.isfinite(log_prob):
        raise UserError(f"log p of sentence {sentence.id} is {log_prob}: train again with a lower lr")
    return round(log_prob, 6)
