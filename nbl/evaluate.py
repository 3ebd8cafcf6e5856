"""From predictions and gold trees to `metrics.json`: every number a table needs, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from nbl import metrics
from nbl.corpus.sentence import Sentence
from nbl.metrics import Convention
from nbl.predictions import Prediction

LENGTHS = (2, 11, 21, 31, 41)  # where buckets of sentence lengths begin


def scores(
    sentences: Sequence[Sentence], predictions: Sequence[Prediction], is_bound: bool
) -> dict[str, Any]:
    """All metrics of one decoder; F1, recall and attachment in per cent.

    `is_bound`: the log p are bounds of compound models, and so is the perplexity.
    """
    lengths = [len(sentence) for sentence in sentences]
    result: dict[str, Any] = {
        "sentences": len(sentences),
        "words": sum(lengths),
        "perplexity": metrics.perplexity([prediction.log_prob for prediction in predictions], lengths),
        "perplexity_is_bound": is_bound,
    }
    if any(length > 2 for length in lengths):
        left, right, _ = metrics.branching([prediction.spans for prediction in predictions], lengths)
        result["branching"] = {"left": _percent(left), "right": _percent(right)}
    bracketed = [(s, p) for s, p in zip(sentences, predictions, strict=True) if s.spans is not None]
    if bracketed:
        result["trees"] = _tree_scores(bracketed)
    schemes = sorted({scheme for sentence in sentences for scheme in sentence.heads})
    if predictions[0].heads is not None:
        result["heads"] = {scheme: _head_scores(sentences, predictions, scheme) for scheme in schemes}
    return result


def _tree_scores(pairs: Sequence[tuple[Sentence, Prediction]]) -> dict[str, Any]:
    golds = [sentence.spans or [] for sentence, _ in pairs]
    predicted = [prediction.spans for _, prediction in pairs]
    result: dict[str, Any] = {}
    for convention in get_args(Convention):
        sentence_f1 = metrics.mean_sentence_f1(golds, predicted, convention)
        counts = metrics.corpus_counts(golds, predicted, convention)
        recalls = metrics.label_recall(golds, predicted, convention)
        buckets = metrics.f1_by_length(golds, predicted, LENGTHS, convention)
        result[convention] = {
            "sentence_f1": _percent(sentence_f1.value),
            "n": sentence_f1.n,
            "corpus_f1": _percent(counts.f1),
            "corpus_precision": _percent(counts.precision),
            "corpus_recall": _percent(counts.recall),
            "label_recall": {
                label: {"recall": _percent(r.value), "n": r.total} for label, r in recalls.items()
            },
            "sentence_f1_by_length": {
                str(start): {"sentence_f1": _percent(mean.value), "n": mean.n}
                for start, mean in buckets.items()
            },
        }
    return result


def _head_scores(
    sentences: Sequence[Sentence], predictions: Sequence[Prediction], scheme: str
) -> dict[str, float | int]:
    pairs = [
        (s.heads[scheme], p.heads or [])
        for s, p in zip(sentences, predictions, strict=True)
        if scheme in s.heads
    ]
    golds, predicted = [gold for gold, _ in pairs], [heads for _, heads in pairs]
    strict = metrics.attachment(golds, predicted)
    without_root = metrics.attachment(golds, predicted, with_root=False)
    return {
        "udas": _percent(strict.udas),
        "uuas": _percent(strict.uuas),
        "uuas_legacy": _percent(metrics.attachment(golds, predicted, legacy=True).uuas),
        "udas_without_root": _percent(without_root.udas),
        "uuas_without_root": _percent(without_root.uuas),
        "words": strict.words,
    }


def _percent(share: float) -> float:
    return round(100 * share, 6)
