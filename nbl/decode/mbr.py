"""Minimum-Bayes-risk decoding: the trees whose parts have the largest sum of posterior probabilities.

The bracketing and the dependency tree are chosen independently and need not agree.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nbl.decode.eisner import eisner
from nbl.decode.parse import Parse
from nbl.inside.marginals import Marginals
from nbl.inside.pcfg import SpanTable


def mbr(marginals: Marginals, lengths: Tensor) -> list[Parse]:
    """The best bracketing of each sentence and, where there are arcs, its best dependency tree."""
    brackets = best_bracketings(marginals.spans, lengths)
    heads = [None] * len(brackets) if marginals.arcs is None else eisner(marginals.arcs, lengths)
    log_probs = marginals.log_prob.tolist()
    return [Parse([(i, j, None) for i, j in brackets[b]], heads[b], log_probs[b]) for b in range(len(brackets))]


def best_bracketings(scores: Tensor, lengths: Tensor) -> list[list[tuple[int, int]]]:
    """The binary bracketing of each sentence that maximises the sum of its spans' scores [b, i, j].

    Spans of two or more words, from the top down, left to right. Of equals the first split wins.
    """
    b, l = len(scores), scores.shape[1] - 1
    best = SpanTable(scores, l, b)
    splits = torch.zeros(l + 1, l, b, dtype=torch.long, device=scores.device)
    for width in range(2, l + 1):
        below, splits[width, : l - width + 1] = (best.left(width) + best.right(width)).max(-1)
        best[width] = scores.diagonal(width, 1, 2).t() + below
    sentences = zip(lengths.tolist(), np.moveaxis(splits.cpu().numpy(), -1, 0), strict=True)
    return [_spans(*sentence) for sentence in sentences]


def _spans(l: int, splits: np.ndarray) -> list[tuple[int, int]]:
    """Follow splits[width, i] down."""
    spans, agenda = [], [(0, l)]
    while agenda:
        i, j = agenda.pop()
        if j - i > 1:
            k = i + 1 + int(splits[j - i, i])
            spans.append((i, j))
            agenda += [(k, j), (i, k)]
    return spans
