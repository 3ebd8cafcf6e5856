"""CYK: the most probable lexicalised tree, root rule included, for NL-PCFG and NBL-PCFG.

A preterminal covers one word, with probability 1, so which one it is matters only to the rule above it:
there the best is taken, and in the chart all preterminals are one symbol, number NT.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from nbl.decode import Parse
from nbl.decode.cyk_bilexical import BilexicalSentence, contracted_blocks
from nbl.decode.cyk_lexical import LexicalSentence
from nbl.rules import BilexicalRules, LexicalRules


class Sentence(Protocol):
    """The rules for one sentence of l words, in log-probabilities."""

    root: Tensor  # [p, A]   p(A | S) p(w_p | A)

    def rule(self, A: int, p: int, k: int, j: int) -> Tensor:
        """log p(B, C, D, w_q | A, w_p) of all children with q in [k, j), p outside it: [q, C, B]."""

    def chart(self) -> list[Tensor]:
        """s[j][i, p, X]: log p of the best subtree of symbol X over words[i:j] headed by p, -inf for none."""


@torch.no_grad()
def cyk(rules: LexicalRules | BilexicalRules, lengths: Tensor, legacy: bool = False) -> list[Parse]:
    """The best tree of each sentence, its labelled spans from the top down, left to right.

    `legacy` (NL-PCFG) forgets p(w_p | A) of the root rule in choosing the tree, as the released code does.
    """
    parses = []
    for b, sentence in enumerate(_sentences(rules, lengths)):
        root = rules.logp_A_S[b % len(rules.logp_A_S)] if legacy else sentence.root
        parses.append(_best_tree(sentence, root))
    return parses


def _sentences(rules: LexicalRules | BilexicalRules, lengths: Tensor) -> Iterator[Sentence]:
    """One at a time: the tables of a sentence are large."""
    if isinstance(rules, LexicalRules):
        yield from (LexicalSentence(rules, b, l) for b, l in enumerate(lengths.tolist()))
    else:
        blocks = contracted_blocks(rules)
        yield from (BilexicalSentence(rules, blocks, b, l) for b, l in enumerate(lengths.tolist()))


def _best_tree(sentence: Sentence, root: Tensor) -> Parse:
    """The best tree if its root is scored by `root`, [p, A] or [A]; its log-probability is the true one."""
    l, NT = sentence.root.shape
    s = sentence.chart()
    best = int((s[l][0, :, :NT] + root).argmax())
    log_prob = (s[l][0, :, :NT] + sentence.root).flatten()[best]
    p, A = divmod(best, NT)
    spans: list[tuple[int, int, int | None]] = []
    heads = [0] * l
    agenda = [(0, l, p, A)]
    while agenda:
        i, j, p, A = agenda.pop()
        if j - i == 1:
            continue
        spans.append((i, j, A))
        # how the span came about is found again: cheaper than to have kept it for all spans
        splits = [((i, k), (k, j)) for k in range(p + 1, j)] + [((k, j), (i, k)) for k in range(i + 1, p + 1)]
        scores = [
            s[head[1]][head[0], p] + s[child[1]][child[0], child[0] :, :, None] + sentence.rule(A, p, *child)
            for head, child in splits
        ]
        split = int(torch.stack([score.max() for score in scores]).argmax())
        head, child = splits[split]
        q, C, B = map(int, np.unravel_index(int(scores[split].argmax()), scores[split].shape))
        q += child[0]
        heads[q] = p + 1
        agenda += sorted([(*head, p, B), (*child, q, C)], reverse=True)
    return Parse(spans, heads, float(log_prob))
