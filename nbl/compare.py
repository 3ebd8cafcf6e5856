"""How runs differ on the same sentences: agreement of their trees, and intervals for differences of F1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nbl import metrics
from nbl.metrics import Convention
from nbl.predictions import Prediction
from nbl.sentence import Sentence

RESAMPLES = 10_000
LEVEL = 0.95


def compare_predictions(
    sentences: Sequence[Sentence],
    predictions: Mapping[str, Sequence[Prediction]],
    *,
    seed: int = 0,
    top: int = 10,
    convention: Convention = "kim",
) -> dict[str, Any]:
    """Compare the predictions of several runs, under their names, in pairs; F1 in percent.

    F1 is the mean sentence F1 over the sentences with gold trees; without any, only self-F1 is reported.
    The interval of a difference is a percentile bootstrap over sentences, the same for both runs.
    `sentences` of a pair are those on which the two F1 differ most.
    """
    f1 = {run: _sentence_f1(sentences, predicted, convention) for run, predicted in predictions.items()}
    ids = [sentence.id for sentence in sentences if sentence.spans is not None]
    spans = {run: [prediction.spans for prediction in predicted] for run, predicted in predictions.items()}
    agreement = metrics.self_f1(spans, [len(sentence) for sentence in sentences])
    pairs = []
    for (a, b), self_f1 in agreement.items():
        pair: dict[str, Any] = {"runs": [a, b], "self_f1": _percent(self_f1.value)}
        if ids:
            difference = f1[b] - f1[a]
            low, high = bootstrap_interval(difference, seed)
            most = np.argsort(-np.abs(difference), kind="stable")[:top]
            pair |= {
                "f1_difference": _percent(difference.mean()),
                "interval": [_percent(low), _percent(high)],
                "sentences_that_differ": int(np.count_nonzero(difference)),
                "sentences": [
                    {"id": ids[k], "f1": [_percent(f1[a][k]), _percent(f1[b][k])]} for k in most if difference[k] != 0
                ],
            }
        pairs.append(pair)
    return {
        "sentences": len(sentences),
        "convention": convention,
        "bootstrap": {"resamples": RESAMPLES, "level": LEVEL, "seed": seed},
        "f1": {run: _percent(values.mean()) for run, values in f1.items()} if ids else {},
        "pairs": pairs,
    }


def bootstrap_interval(values: np.ndarray, seed: int) -> tuple[float, float]:
    """The percentile bootstrap interval of the mean of values."""
    generator = np.random.default_rng(seed)
    n = len(values)
    means = [values[generator.integers(n, size=n)].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _sentence_f1(
    sentences: Sequence[Sentence], predictions: Sequence[Prediction], convention: Convention
) -> np.ndarray:
    """Of each sentence with a gold tree."""
    return np.array(
        [
            metrics.sentence_f1(sentence.spans, prediction.spans, convention)
            for sentence, prediction in zip(sentences, predictions, strict=True)
            if sentence.spans is not None
        ]
    )


def _percent(share: float) -> float:
    return round(100 * float(share), 6)
