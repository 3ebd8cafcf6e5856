"""A trained grammar at work: the model of a run with its vocabulary, on a device, and its predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from nbl.corpus.batches import sorted_batches, to_tensors
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
    """The trained grammar of a run, ours until the end if on a GPU.

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
    for batch in sorted_batches([len(sentence) for sentence in sentences]):
        words, lengths = to_tensors([sentences[k] for k in batch], trained.device)
        with torch.no_grad():
            values = trained.model.objective(words, lengths).tolist()
        for k, value in zip(batch, values, strict=True):
            result[k] = _checked(value, sentences[k])
    return result


def predict(
    trained: Trained,
    sentences: Sequence[Sentence],
    decoder: str,
    advance: Advance = lambda done: None,
) -> list[Prediction]:
    """Parse sentences of two or more words; predictions come in their order."""
    result: dict[int, Prediction] = {}
    for batch in sorted_batches([len(sentence) for sentence in sentences]):
        chosen = [sentences[k] for k in batch]
        words, lengths = to_tensors(chosen, trained.device)
        with torch.no_grad():
            values = trained.model.objective(words, lengths).tolist()
        parses = trained.model.parse(words, lengths, decoder)
        for k, sentence, parse, value in zip(batch, chosen, parses, values, strict=True):
            of_tree = _checked(parse.log_prob, sentence) if decoder.startswith("cyk") else None
            log_prob = _checked(value, sentence)
            result[k] = Prediction(sentence.id, len(sentence), parse.spans, parse.heads, log_prob, of_tree)
        advance(len(batch))
    return [result[k] for k in range(len(sentences))]


def _checked(log_prob: float, sentence: Sentence) -> float:
    """Six decimals, all that single precision is good for."""
    if not math.isfinite(log_prob):
        raise UserError(f"log p of sentence {sentence.id} is {log_prob}: train again with a lower lr")
    return round(log_prob, 6)
