"""Predictions: the interface between training and every table.

One JSON object per line and sentence: its id, labelled spans, heads, log p. They hold no words, so that
they can be shared under a treebank's licence, and with the gold trees they are all a metric needs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nbl.errors import UserError, shorten
from nbl.files import read_text, write_text
from nbl.sentence import Sentence

AGAIN = "run `nbl evaluate` again"


class Prediction(NamedTuple):
    """A decoder's tree for one sentence, and the log p of the sentence (all trees) and of that tree."""

    id: str
    length: int
    spans: list[tuple[int, int, int | None]]  # half-open, width >= 2; the label is a nonterminal's number
    heads: list[int] | None  # 1-based, 0 = root; None for a grammar without heads
    log_prob: float
    tree_log_prob: float | None  # None for MBR, whose tree has no derivation


def predictions_path(run: Path, decoder: str, split: str = "test") -> Path:
    """Where a run keeps a decoder's predictions: those for other splits than test are named for them."""
    return run / f"predictions.{decoder}{suffix(split)}.jsonl"


def suffix(split: str) -> str:
    """What names a split in a file's name.

    >>> suffix("test"), suffix("dev")
    ('', '.dev')
    """
    return "" if split == "test" else f".{split}"


def stored(path: Path) -> Path:
    """The file with the predictions, or its compressed copy (see `nbl.export`)."""
    for file in (path, path.with_name(f"{path.name}.gz")):
        if file.exists():
            return file
    raise UserError(f"there is no {path}; run `nbl evaluate` first")


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write one JSON object per line, all or nothing."""
    lines = (json.dumps(prediction._asdict(), separators=(",", ":")) for prediction in predictions)
    write_text(path, "".join(line + "\n" for line in lines))


def read_predictions(path: Path, sentences: Sequence[Sentence | Prediction] | None = None) -> list[Prediction]:
    """Read predictions; a damaged file is named and refused.

    Args:
        path: the file, or the one whose compressed copy is there.
        sentences: the predictions must be those of exactly these sentences, or of the sentences of these other
            predictions, and come in their order. Without any, they come as in the file.
    """
    lines = read_text(stored(path)).split("\n")
    if lines.pop() != "":
        raise UserError(f"{path} ends in the middle of line {len(lines) + 1}; {AGAIN}")
    found: dict[str, Prediction] = {}
    for number, line in enumerate(lines, start=1):
        try:
            prediction = _from_json(json.loads(line))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise UserError(f"{path}, line {number} is damaged ({shorten(str(error), 100)}); {AGAIN}") from error
        if prediction.id in found:
            raise UserError(f"{path}, line {number}: a second prediction for {shorten(prediction.id)}; {AGAIN}")
        found[prediction.id] = prediction
    if sentences is None:
        return list(found.values())
    named = [(s.id, s.length if isinstance(s, Prediction) else len(s)) for s in sentences]
    for id, length in named:
        if id not in found or found[id].length != length:
            raise UserError(
                f"{path} has no prediction for sentence {id} of {length} words: it is "
                f"incomplete or made for another corpus; {AGAIN}"
            )
    if len(found) != len(sentences):
        raise UserError(f"{path} has {len(found)} predictions for {len(sentences)} sentences; {AGAIN}")
    return [found[id] for id, _ in named]


def _from_json(record: dict[str, Any]) -> Prediction:
    """ValueError, TypeError or KeyError where a record is not what `_asdict` made of a prediction."""
    spans, l = [], record["length"]
    if not isinstance(record["id"], str):
        raise ValueError("its id is not a text")
    for i, j, label in record["spans"]:
        if not 0 <= i <= j - 2 <= l - 2:
            raise ValueError(f"a span is not within {l} words")
        spans.append((i, j, label))
    prediction = Prediction(**record | {"spans": spans})
    heads = prediction.heads
    if heads is not None and not (len(heads) == l and min(heads) >= 0 and max(heads) <= l):
        raise ValueError(f"the heads are not those of {l} words")
    if not math.isfinite(prediction.log_prob):
        raise ValueError(f"log p is {prediction.log_prob}")
    return prediction
