"""Inside algorithm of any lexicalised grammar (Eq. inside_eisner): terms B1 and B2 cached, nothing factorised.

O(l^4 m^3) time and O(l^2 m^3) memory for the rules alone: for comparison, with short sentences and few symbols.

As in `nbl.inside.lexical`, the chart holds each sentence and its mirror image (2b sentences), in which
RIGHT-headed rules are LEFT-headed, so that term B2 is term B1 of the mirror image. With span [i, j) and head p,

    s[i, j, p, A] = sum_k,B s[i, k, p, B] term_B1[k, j, p, A, B]
    term_B1[k, j, p, A, B] = sum_q,C s[k, j, q, C] p(A[w_p] -> B[w_p] C[w_q])

All preterminals are summed out beforehand: symbol NT of B and C means "a preterminal, with its word".
Probabilities are divided by scales, constants for the gradient, whose logarithms are kept beside them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from nbl.inside.spans import finite, mirrored, normalised
from nbl.rules import LEFT, RIGHT, DenseRules


def inside(dense: DenseRules, lengths: Tensor) -> Tensor:
    """log p(w) of each sentence, [b]; differentiable by autograd."""
    b, l, NT = dense.logp_root.shape
    padding = torch.arange(l, device=lengths.device) >= lengths[:, None]
    rule, log_rule, log_leaf = _without_preterminals(dense, padding)
    word = rule.new_zeros(2 * b, l, 1, NT + 1)  # the chart of one word: a preterminal
    word[..., NT] = 1
    s, log_s = {1: word}, {1: log_leaf[:, :, None]}  # [2b, i, h, B] and [2b, i, h], head p = i + h
    term_B1, log_B1 = {}, {}  # [2b, p, k, A, B] and [2b, p, k]
    goals, log_goals = [], []
    for w in range(2, l + 1):
        term_B1[w - 1], log_B1[w - 1] = _term_B1(s[w - 1], log_s[w - 1], rule, log_rule)
        n = l - w + 1
        products, log_scales = [], []
        for v in range(1, w):  # the head child's width
            i, h = torch.arange(n, device=word.device)[:, None], torch.arange(v, device=word.device)
            product = (term_B1[w - v][:, i + h, i + v] @ s[v][:, :n, :, :, None]).squeeze(4)
            log_scale = log_s[v][:, :n] + log_B1[w - v][:, i + h, i + v]
            products.append(pad(product, (0, 0, 0, w - v)))
            log_scales.append(pad(log_scale, (0, w - v), value=-torch.inf))
        product, log_scale = torch.stack(products), torch.stack(log_scales)  # [v, 2b, i, h, A]
        # both halves are sums over v: LEFT-headed, and of the mirror image, turned back
        product = torch.cat([product[:, :b], product[:, b:].flip(2, 3)])
        log_scale = torch.cat([log_scale[:, :b], log_scale[:, b:].flip(2, 3)])
        total, log_total = _sum(product, log_scale, 0)
        total = pad(total, (0, 1))
        s[w], log_s[w] = mirrored(total, 2), mirrored(log_total, 2)
        root = dense.logp_root[:, :w].masked_fill(padding[:, :w, None], -torch.inf)
        log_root = root.detach().amax(2)
        goal = (s[w][:b, 0, :, :NT] * (root - finite(log_root)[..., None]).exp()).sum(2, keepdim=True)
        goal, log_goal = _sum(goal, log_s[w][:b, 0] + log_root, 1)
        goals.append(goal)
        log_goals.append(log_goal[:, None])
    index = (lengths - 2)[:, None]
    log_prob = torch.cat(goals, 1).gather(1, index).log() + torch.cat(log_goals, 1).gather(1, index)
    return log_prob.squeeze(1)


def _without_preterminals(dense: DenseRules, padding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """p(A[w_p] -> B[w_p] C[w_q]) of NT + 1 symbols B and C, [2b, p, (q, C), (A, B)], and log-scales [2b, q] of its
    child words and of leaves."""
    NT = dense.logp_root.shape[2]
    logp_leaf = mirrored(dense.logp_leaf)
    log_leaf = logp_leaf.detach().amax(2)
    leaf = (logp_leaf - finite(log_leaf)[..., None]).exp()
    padded = (padding[:, :, None] | padding[:, None])[..., None, None, None, None]
    logp_rule = dense.logp_rule.masked_fill(padded, -torch.inf)
    logp_rule = torch.cat([logp_rule[:, :, :, :, LEFT], logp_rule[:, :, :, :, RIGHT].flip(1, 2)])
    log_rule = logp_rule.detach().amax((1, 3, 4, 5))
    rule = (logp_rule - finite(log_rule)[:, None, :, None, None, None]).exp()
    head = torch.einsum("npqABC,npB->npqAC", rule[..., NT:, :], leaf)
    rule = torch.cat([rule[..., :NT, :], head[..., None, :]], 4)
    child = torch.einsum("npqABC,nqC->npqAB", rule[..., NT:], leaf)
    rule = torch.cat([rule[..., :NT], child[..., None]], 5)
    return rule.permute(0, 1, 2, 5, 3, 4).flatten(4).flatten(2, 3), log_rule, log_leaf


def _term_B1(s: Tensor, log_s: Tensor, rule: Tensor, log_rule: Tensor) -> tuple[Tensor, Tensor]:
    """Of spans [k, k + w), for every head p, [2b, p, k, A, B], and its log-scale, [2b, p, k]."""
    N, n, w, M = s.shape
    l = rule.shape[1]
    log_part = log_s + log_rule.unfold(1, w, 1)
    log_scale = log_part.amax(2)
    part = s * (log_part - finite(log_scale)[..., None]).exp()[..., None]
    k, h = torch.arange(n, device=s.device)[:, None], torch.arange(w, device=s.device)
    parts = s.new_zeros(N, n, l, M)
    parts[:, k, k + h] = part
    term = parts.view(N, 1, n, l * M) @ rule
    term, log_term, _ = normalised(term, log_scale[:, None])
    return term.view(N, l, n, M - 1, M), log_term


def _sum(x: Tensor, log_scale: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Sum over an axis of x exp(log_scale), where log_scale lacks the last axis of x; the largest becomes 1."""
    log_total = log_scale.amax(axis)
    total = (x * (log_scale - finite(log_total).unsqueeze(axis)).exp().unsqueeze(-1)).sum(axis)
    return normalised(total, log_total)[:2]
