"""How far the trees of a grammar's seeds agree with each other."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean

from nbl import metrics
from nbl.paper.frame import Results


def self_f1(results: Results) -> dict[str, dict[int, float]]:
    """Of each run, how far each seed's MBR trees agree with the other seeds', in per cent."""
    agreements = {}
    for run, experiment in results.plan.experiments.items():
        pairs: dict[int, list[float]] = defaultdict(list)
        with without_collection():
            lengths, spans = results.spans(experiment, "mbr")
            for seeds, score in metrics.self_f1(spans, lengths).items():
                for seed in seeds:
                    pairs[seed].append(100 * score.value)
        agreements[run] = {seed: fmean(scores) for seed, scores in pairs.items()}
    return agreements


@contextmanager
def without_collection() -> Iterator[None]:
    """No search for cycles among the millions of small lists of predictions: it would take most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
