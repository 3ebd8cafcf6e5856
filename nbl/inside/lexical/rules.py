"""From the rules of an NL-PCFG to the tables of its torch chart."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nbl.inside.lexical import Tables
from nbl.inside.spans import finite, mirrored
from nbl.rules import LEFT, RIGHT, LexicalRules


def tables(rules: LexicalRules, lengths: Tensor) -> Tables:
    """Differentiable by autograd; gradients of the padding are 0."""
    b, l, S = rules.logp_w_X.shape
    NT = rules.logp_A_S.shape[1]
    # Words and heads in the padding get probability 0, whatever the rules say there.
    padding = torch.arange(l, device=lengths.device) >= lengths[:, None]
    logp_w_X = rules.logp_w_X.masked_fill(padding[:, :, None], -torch.inf)
    logp_w_C, logp_w_T = mirrored(logp_w_X).split([NT, S - NT], 2)
    log_leaf = (logp_w_T.detach().amax(2) / log(2)).ceil() * log(2)  # a power of two
    leaf = (logp_w_T - finite(log_leaf)[..., None]).exp()
    head = rules.logp_BD_Aw.masked_fill(padding[:, :, None, None, None], -torch.inf)
    head = torch.cat([head[:, :, :, LEFT], head[:, :, :, RIGHT].flip(1)])
    word = torch.cat([rules.word_C[:, :, LEFT], rules.word_C[:, :, RIGHT].flip(1)])
    of_heads = _RulesOfHeads.apply(head, word, rules.parent_C, leaf)
    return Tables(rules.logp_A_S.expand(b, NT), logp_w_C, leaf, log_leaf, *of_heads)


class _RulesOfHeads(torch.autograd.Function):
    """R, E and T of p(B, C, D | A, w_p) = exp(head[2b, p, A, B]) p(C | A, B, D, w_p), where the logits of C are
    word[2b, p, B, C] + parent[1|b, A, D, B, C].

    The rules of all heads of a batch together are large. A portion that fits into a processor's cache is cheaper
    to recompute than to keep.
    """

    @staticmethod
    def forward(ctx: Any, head: Tensor, word: Tensor, parent: Tensor, leaf: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(head, word, parent, leaf)
        N, l, NT, S = head.shape
        R = head.new_empty(l, N, NT, NT, NT)
        E = head.new_empty(l, N, l, NT * NT)
        T = head.new_empty(l, N, NT, S)
        for n, p in _portions(head):
            rule = _children(n, p, word, parent, N).mul_(head[n, p, :, :, None].exp())
            R[p, n] = rule[:, :, :NT, :NT]
            E[p, n] = leaf[n] @ rule[:, :, :NT, NT:].flatten(1, 2).mT
            T[p, n] = rule[:, :, NT:].sum(2)
        return R.flatten(3), E.view(l, N, l, NT, NT), T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_R: Tensor, d_E: Tensor, d_T: Tensor) -> tuple[Tensor, ...]:
        head, word, parent, leaf = ctx.saved_tensors
        N, l, NT, _ = head.shape
        d_R, d_E = d_R.view(l, N, NT, NT, NT), d_E.flatten(3)
        d_head, d_word, d_parent, d_leaf = map(torch.zeros_like, ctx.saved_tensors)
        for n, p in _portions(head):
            p_C = _children(n, p, word, parent, N)
            rule = p_C * head[n, p, :, :, None].exp()
            d_logp = torch.empty_like(rule)
            d_logp[:, :, :NT, :NT] = d_R[p, n]
            d_logp[:, :, :NT, NT:] = (d_E[p, n].mT @ leaf[n]).unflatten(1, (NT, NT))
            d_logp[:, :, NT:] = d_T[p, n, :, None]
            d_leaf[n] += (d_E[p, n] @ rule[:, :, :NT, NT:].flatten(1, 2)).sum(0)
            d_logp *= rule
            d_head[n, p] = d_logp.sum(3)
            d_logp.addcmul_(p_C, d_head[n, p, :, :, None], value=-1)
            d_word[n, p] = d_logp.sum(1)
            for d_logp_p in d_logp:
                _parent_of(n, d_parent, N).add_(d_logp_p)
        return d_head, d_word, d_parent, d_leaf


def _portions(head: Tensor, size: int = 2**18) -> Iterator[tuple[int, slice]]:
    """Sentence and positions of the heads in portions of about that many rules; head: [2b, p, A, B]."""
    N, l, NT, S = head.shape
    step = max(1, size // (NT * S * S))
    for n in range(N):
        for p in range(0, l, step):
            yield n, slice(p, p + step)


def _parent_of(n: int, parent: Tensor, N: int) -> Tensor:
    """parent [1|b, A, D, B, C] of sentence n of the 2b, [A, B, C]."""
    return parent[n % len(parent), :, LEFT if n < N // 2 else RIGHT]


def _children(n: int, p: slice, word: Tensor, parent: Tensor, N: int) -> Tensor:
    """p(C | A, B, D, w_p) of the heads p of sentence n of the 2b, [p, A, B, C]."""
    return (word[n, p, None] + _parent_of(n, parent, N)).softmax(-1)
