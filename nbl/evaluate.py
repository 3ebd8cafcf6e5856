"""From predictions and gold trees to `metrics.json`: every number a table needs, in seconds."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, get_args

from nbl import metrics, preferences
from nbl.errors import UserError
from nbl.files import write_text
from nbl.metrics import Convention
from nbl.predictions import Prediction, predictions_path, suffix
from nbl.run_folder import RunFolder
from nbl.sentence import Sentence, Span, best_scheme
from nbl.settings import DECODERS

Pairs = Sequence[tuple[Sentence, Prediction]]

LENGTHS = (2, 11, 21, 31, 41)  # where buckets of sentence lengths begin
CONVENTIONS = {
    "perplexity": "exp(-sum log p / sum (words + 1)); where not exact, log p is log p(w|z) - KL, z the mean",
    "trees": "in per cent; kim: all gold constituents but the root, as sets; release: but the whole sentence",
    "label_recall": "in per cent; of all gold constituents, each of a unary chain under its own label",
    "heads": "in per cent; over all words, the root's included, unless it says without_root",
    "branching": "in per cent of the predicted constituents of three or more words",
    "preferences": "in per cent; left_headed: headed by their first word, of constituents with one head;"
    " labels: of gold constituents, and of those of them found; right_head: with the gold head;"
    " adjective_noun: (a (rough market)) right, ((a rough) market) left, of gold constituents DT JJ NN",
}


def write_metrics(run: RunFolder, sentences: Sequence[Sentence], split: str = "test") -> dict[str, Any]:
    """Score all predictions the run's folder has for a split; write `metrics.json` there and return it.

    The sentences are the split's. Splits other than test have a file of their own, `metrics.SPLIT.json`.
    """
    found = [decoder for decoder in DECODERS if predictions_path(run.path, decoder, split).exists()]
    if not found:
        raise UserError(
            f"{run.path} has no predictions for {split}; run `nbl evaluate` without --from-predictions first"
        )
    document = {
        "model": run.config.model,
        "corpus": run.config.corpus["name"],
        "split": split,
        "sentences": len(sentences),
        "words": sum(map(len, sentences)),
        "conventions": CONVENTIONS,
        "decoders": {
            decoder: scores(sentences, run.predictions(decoder, sentences, split), is_exact=run.exact)
            for decoder in found
        },
    }
    write_text(run.path / f"metrics{suffix(split)}.json", json.dumps(document, indent=1) + "\n")
    return document


def scores(sentences: Sequence[Sentence], predictions: Sequence[Prediction], is_exact: bool = True) -> dict[str, Any]:
    """All metrics of one decoder, over all sentences and by sentence length; shares in per cent.

    `trees` and `heads` only where the sentences have gold ones, and the predictions heads. `is_exact`:
    the log p are exact, not those of compound models.
    """
    pairs = list(zip(sentences, predictions, strict=True))
    result = {"perplexity_is_exact": is_exact} | _scores(pairs)
    lengths = [len(sentence) for sentence in sentences]
    if any(length > 2 for length in lengths):  # else nothing branches
        left, right, _ = metrics.branching([prediction.spans for prediction in predictions], lengths)
        result["branching"] = {"left": _percent(left), "right": _percent(right)}
    if found := _preferences(pairs):
        result["preferences"] = found
    if "trees" in result:
        for convention, values in result["trees"].items():
            values["label_recall"] = _label_recall(pairs, convention)
    result["by_length"] = {}
    for start, next_start in zip(LENGTHS, [*LENGTHS[1:], math.inf], strict=True):
        bucket = [pair for pair in pairs if start <= len(pair[0]) < next_start]
        if bucket:
            name = f"{start}+" if next_start == math.inf else f"{start}-{next_start - 1}"
            result["by_length"][name] = _scores(bucket)
    return result


def _preferences(pairs: Pairs) -> dict[str, Any]:
    """Of all sentences with heads, with gold heads and with gold trees over tags."""
    result: dict[str, Any] = {}
    left = preferences.left_headed((p.spans, p.heads) for _, p in pairs if p.heads is not None)
    if left is not None:
        result["left_headed"] = _percent(left)
    golds, trees = [], []
    for sentence, prediction in pairs:
        scheme = best_scheme(sentence.heads)
        if scheme and sentence.spans is not None and prediction.heads is not None:
            golds.append((sentence.spans, sentence.heads[scheme]))
            trees.append((prediction.spans, prediction.heads))
    labels = preferences.headedness(golds, trees)
    if labels:
        result["labels"] = {label: _headed(headed) for label, headed in labels.items()}
    shapes = [
        shape
        for sentence, prediction in pairs
        if sentence.tags is not None and sentence.spans is not None
        for shape in preferences.adjective_noun(sentence.tags, sentence.spans, prediction.spans)
    ]
    if shapes:
        shares = {shape: _percent(shapes.count(shape) / len(shapes)) for shape in preferences.SHAPES}
        result["adjective_noun"] = {"phrases": len(shapes)} | shares
    return result


def _headed(headed: preferences.Headed) -> dict[str, float]:
    result = {"constituents": headed.gold, "gold_left_headed": _percent(headed.gold_left / headed.gold)}
    if headed.found:
        shares = {"left_headed": headed.left, "right_head": headed.correct}
        result |= {"found": headed.found} | {name: _percent(n / headed.found) for name, n in shares.items()}
    return result


def _scores(pairs: Pairs) -> dict[str, Any]:
    lengths = [len(sentence) for sentence, _ in pairs]
    log_probs = [prediction.log_prob for _, prediction in pairs]
    result: dict[str, Any] = {
        "sentences": len(pairs),
        "words": sum(lengths),
        "perplexity": round(metrics.perplexity(log_probs, lengths), 6),
    }
    if any(sentence.spans is not None for sentence, _ in pairs):
        result["trees"] = {convention: _tree_scores(pairs, convention) for convention in get_args(Convention)}
    schemes = sorted({scheme for sentence, prediction in pairs if prediction.heads for scheme in sentence.heads})
    if schemes:
        result["heads"] = {scheme: _head_scores(pairs, scheme) for scheme in schemes}
    return result


def _tree_scores(pairs: Pairs, convention: Convention) -> dict[str, Any]:
    golds, predicted = _trees(pairs)
    sentence_f1 = metrics.mean_sentence_f1(golds, predicted, convention)
    counts = metrics.corpus_counts(golds, predicted, convention)
    return {
        "sentences": sentence_f1.n,
        "sentence_f1": _percent(sentence_f1.value),
        "corpus_f1": _percent(counts.f1),
        "corpus_precision": _percent(counts.precision),
        "corpus_recall": _percent(counts.recall),
    }


def _label_recall(pairs: Pairs, convention: Convention) -> dict[str, dict[str, float]]:
    golds, predicted = _trees(pairs)
    recalls = metrics.label_recall(golds, predicted, convention)
    return {label: {"recall": _percent(r.value), "constituents": r.total} for label, r in recalls.items()}


def _trees(pairs: Pairs) -> tuple[list[list[Span]], list[list[tuple[int, int, int | None]]]]:
    """Gold and predicted spans of the sentences that have gold ones."""
    golds = [sentence.spans for sentence, _ in pairs if sentence.spans is not None]
    return golds, [prediction.spans for sentence, prediction in pairs if sentence.spans is not None]


def _head_scores(pairs: Pairs, scheme: str) -> dict[str, float]:
    golds = [sentence.heads[scheme] for sentence, _ in pairs if scheme in sentence.heads]
    predicted = [prediction.heads or [] for sentence, prediction in pairs if scheme in sentence.heads]
    strict = metrics.attachment(golds, predicted)
    without_root = metrics.attachment(golds, predicted, with_root=False)
    return {
        "words": strict.words,
        "udas": _percent(strict.udas),
        "uuas": _percent(strict.uuas),
        "uuas_legacy": _percent(metrics.attachment(golds, predicted, legacy=True).uuas),
        "udas_without_root": _percent(without_root.udas),
        "uuas_without_root": _percent(without_root.uuas),
    }


def _percent(share: float) -> float:
    return round(100 * share, 6)
