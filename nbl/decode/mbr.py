"""Minimum-Bayes-risk decoding: the trees whose parts have the largest sum of posterior probabilities.

The bracketing and the dependency tree are chosen independently and need not agree.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nbl.decode import Parse
from nbl.inside import Marginals
from nbl.inside.spans import SpanTable

FIRST, LAST, ARC = 0, 1, 2


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


def eisner(scores: Tensor, lengths: Tensor) -> list[list[int]]:
    """The projective dependency tree of each sentence, with exactly one child of the root, that maximises the sum
    of the arcs' scores (Eisner's algorithm, O(l^3)). Of equals the first wins.

    scores [b, h, q]: of the arc from word h - 1, or the root if h = 0, to word q. Returns the heads, 1-based, 0 = root.

    A tree is built of half trees over words[i:j]: `first` ones, whose head is the first word and governs the others to
    its right, and `last` ones, whose head is the last word. An arc between the two end words of a span lies over a
    `first` half tree and a `last` one; a half tree is an arc and what lies beyond its child.
    """
    b, l = len(scores), scores.shape[2]
    arcs = scores[:, 1:].permute(1, 2, 0)
    first, last = SpanTable(scores, l, b), SpanTable(scores, l, b)
    # an arc from one end word of a span to the other, its child left out: `first` ones begin with
    # their head, `last` ones end with it
    first_arc, last_arc = SpanTable(scores, l, b), SpanTable(scores, l, b)
    splits = torch.zeros(3, l + 1, l, b, dtype=torch.long, device=scores.device)
    for width in range(2, l + 1):
        n = l - width + 1
        below, splits[ARC, width, :n] = (first.left(width) + last.right(width)).max(-1)
        first_arc.starting[:n, :, width - 1] = below + arcs.diagonal(width - 1).t()
        last_arc.ending[width:, :, l - width + 1] = below + arcs.diagonal(1 - width).t()
        first[width], splits[FIRST, width, :n] = (first_arc.left(width) + first.right(width)).max(-1)
        last[width], splits[LAST, width, :n] = (last.left(width) + last_arc.right(width)).max(-1)
    # root r: the last half tree of words[:r + 1] and the first one of words[r:length]
    widths = lengths[:, None] - torch.arange(l, device=scores.device)
    right = first.ending[lengths, torch.arange(b, device=scores.device)].gather(1, (l - widths).clamp(max=l))
    root = (scores[:, 0] + last.starting[0, :, 1:] + right).masked_fill(widths <= 0, -torch.inf).argmax(-1)
    sentences = zip(root.tolist(), lengths.tolist(), np.moveaxis(splits.cpu().numpy(), -1, 0), strict=True)
    return [_heads(*sentence) for sentence in sentences]


def _heads(root: int, l: int, splits: np.ndarray) -> list[int]:
    """Follow splits[kind, width, i] down."""
    heads = [0] * l
    agenda = [(LAST, 0, root + 1), (FIRST, root, l)]
    while agenda:
        kind, i, j = agenda.pop()
        if j - i == 1:
            continue
        k = i + 1 + int(splits[kind, j - i, i])
        if kind == FIRST:  # i governs k
            heads[k] = i + 1
            rest, (i, j) = (FIRST, k, j), (i, k + 1)
        else:  # j - 1 governs k - 1
            heads[k - 1] = j
            rest, (i, j) = (LAST, i, k), (k - 1, j)
        k = i + 1 + int(splits[ARC, j - i, i])
        agenda += [rest, (FIRST, i, k), (LAST, k, j)]
    return heads
