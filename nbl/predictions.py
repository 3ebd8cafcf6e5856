"""Predictions: the interface between training and every table.

One JSON object a line and sentence: its id, labelled spans, heads, log p. They hold no words, so that
they can be shared under a treebank's licence, and with the gold trees they are all a metric needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from nbl.corpus.batches import sorted_batches, to_tensors
from nbl.corpus.sentence import Sentence
from nbl.errors import UserError
from nbl.files import write_text
from nbl.models.base import Grammar


@dataclass(frozen=True)
class Prediction:
    """A decoder's tree for one sentence, and the log p of the sentence (all trees) and of that tree."""

    id: str
    length: int
    spans: list[tuple[int, int, int | None]]  # half-open, width >= 2; the label is a symbol's number
    heads: list[int] | None  # 1-based, 0 = root; None for a grammar without heads
    log_prob: float
    tree_log_prob: float | None  # None for MBR, whose tree has no derivation


def predict(
    model: Grammar, sentences: Sequence[Sentence], decoder: str, device: torch.device, legacy: bool = False
) -> Iterator[Prediction]:
    """Parse sentences with a trained model, in batches, the shortest sentences first."""
    model.eval()
    for batch in sorted_batches([len(sentence) for sentence in sentences]):
        chosen = [sentences[k] for k in batch]
        words, lengths = to_tensors(chosen, device)
        with torch.no_grad():
            log_probs = model.log_likelihood(words, lengths).tolist()
        parses = model.parse(words, lengths, decoder=decoder, legacy=legacy)
        for sentence, parse, log_prob in zip(chosen, parses, log_probs, strict=True):
            tree_log_prob = parse.log_prob if decoder == "cyk" else None
            yield Prediction(sentence.id, len(sentence), parse.spans, parse.heads, log_prob, tree_log_prob)


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write one JSON object a line, all or nothing."""
    lines = (json.dumps(asdict(prediction), separators=(",", ":")) for prediction in predictions)
    write_text(path, "".join(line + "\n" for line in lines))


def read_predictions(path: str | Path, sentences: Sequence[Sentence]) -> list[Prediction]:
    """The predictions for exactly these sentences, in their order; anything else is refused by line."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the predictions {path} ({error}); run `nbl evaluate` again") from error
    found: dict[str, Prediction] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            prediction = Prediction(**json.loads(line))
            spans = [(int(i), int(j), label) for i, j, label in prediction.spans]
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path}, line {number} is damaged ({error}); run `nbl evaluate` again"
            ) from error
        found[prediction.id] = Prediction(**(asdict(prediction) | {"spans": spans}))
    for sentence in sentences:
        if sentence.id not in found or found[sentence.id].length != len(sentence):
            raise UserError(
                f"{path} has no prediction for sentence {sentence.id} of {len(sentence)} words: it is "
                "incomplete or made for another corpus; run `nbl evaluate` again"
            )
    if len(found) != len(sentences):
        raise UserError(
            f"{path} has {len(found)} predictions for {len(sentences)} sentences; run `nbl evaluate` again"
        )
    return [found[sentence.id] for sentence in sentences]
