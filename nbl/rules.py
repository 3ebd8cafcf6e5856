"""What a grammar hands to an inside algorithm: log-probabilities of its rules for a batch of sentences.

Letters are the paper's. A is a head-parent, B its head child, C its non-head child, D the head
direction, H the latent variable, p and q the positions of the head word and the child word, T a
preterminal. A ranges over the NT nonterminals; B and C over all NT + PT symbols, nonterminals
first. b is the batch axis; `1|b` is an axis of size 1 where all sentences share the values, and
`1|2` an axis of size 1 where a factor does not depend on D.

The last factor of every tuple begins with the axes b and word, padding included. Every tuple has `dense()`: the same
grammar with nothing factorised, the form in which probabilities of trees are defined (`nbl.inside.naive`). It
is exact and exponentially larger: for tests, and for computing the probability of a tree by hand.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LEFT, RIGHT = 0, 1  # D: the head child is the left child, the head child is the right child


class DenseRules(NamedTuple):
    """Any of the grammars, without factorisation, for a batch.

    A PCFG is the special case whose heads are all leftmost and whose rules ignore p and q.
    """

    logp_root: Tensor  # [b, p, A]           p(S -> A[w_p])
    logp_rule: Tensor  # [b, p, q, A, D, B, C]   p(B, C, D, w_q | A, w_p)
    logp_leaf: Tensor  # [b, p, T]           p(T[w_p] -> w_p): 0 in a lexicalised grammar


class PCFGRules(NamedTuple):
    """N-PCFG and C-PCFG: p(A|S), p(A -> B C), p(T -> w_i)."""

    logp_A_S: Tensor  # [1|b, A]
    logp_BC_A: Tensor  # [1|b, A, B, C]
    logp_w_T: Tensor  # [b, i, T]

    def dense(self) -> DenseRules:
        b, l, _ = self.logp_w_T.shape
        rule = self.logp_BC_A[:, None, None, :, None]
        rule = torch.cat([rule, torch.full_like(rule, -torch.inf)], dim=4)
        root = self.logp_A_S[:, None].expand(b, l, -1)
        return DenseRules(root, rule.expand(b, l, l, -1, -1, -1, -1), self.logp_w_T)


class RankRules(NamedTuple):
    """TN-PCFG: p(A -> B C) = sum_R p(R|A) p(B|R) p(C|R)."""

    logp_A_S: Tensor  # [1|b, A]
    logp_R_A: Tensor  # [A, R]
    logp_B_R: Tensor  # [R, B]
    logp_C_R: Tensor  # [R, C]
    logp_w_T: Tensor  # [b, i, T]

    def dense(self) -> DenseRules:
        R, B, C = self.logp_R_A[:, :, None, None], self.logp_B_R[None, :, :, None], self.logp_C_R[None, :, None]
        return PCFGRules(self.logp_A_S, (R + B + C).logsumexp(1)[None], self.logp_w_T).dense()


class LexicalRules(NamedTuple):
    """NL-PCFG (Eq. factor_zhu): p(B, C, D, w_q | A, w_p) = p(B, D | A, w_p) p(C | A, B, D, w_p) p(w_q | C).

    The logits of C are a sum of one term of the head word and one of the parent, which is kept
    apart: p(C | A, B, D, w_p) = exp(word_C[p] + parent_C[A] - logsum_C[p, A]).
    """

    logp_A_S: Tensor  # [1|b, A]
    logp_w_X: Tensor  # [b, i, X]   p(w_i | X) for all NT + PT symbols: root word and child word
    logp_BD_Aw: Tensor  # [b, p, A, D, B]
    parent_C: Tensor  # [1|b, A, D, B, C]
    word_C: Tensor  # [b, p, D, B, C]

    @property
    def logsum_C(self) -> Tensor:
        """log sum_C exp(word_C + parent_C), [b, p, A, D, B]; computed at each call."""
        return logsum_of_pairs(self.word_C, self.parent_C)

    def logp_BCD_Aw(self) -> Tensor:
        """p(B, C, D | A, w_p), [b, p, A, D, B, C]."""
        logp_C = (self.word_C[:, :, None] + self.parent_C[:, None]).log_softmax(-1)
        return self.logp_BD_Aw[..., None] + logp_C

    def dense(self) -> DenseRules:
        NT = self.logp_A_S.shape[-1]
        rule = self.logp_BCD_Aw()[:, :, None] + self.logp_w_X[:, None, :, None, None, None, :]
        root = self.logp_A_S[:, None] + self.logp_w_X[..., :NT]
        return DenseRules(root, rule, torch.zeros_like(self.logp_w_X[..., NT:]))


def logsum_of_pairs(word_C: Tensor, parent_C: Tensor) -> Tensor:
    """log sum_C exp(word_C [b, p, D, B, C] + parent_C [1|b, A, D, B, C]), [b, p, A, D, B].

    A matrix product of exponentials, each scaled by its maximum, in float64. It vanishes only where every C is 700 or
    more below those maxima; there the terms themselves are summed.
    """
    word, parent = word_C.double(), parent_C.double()
    top_w, top_A = (logits.detach().amax(-1, keepdim=True) for logits in (word, parent))
    # b p D B C, b A D B C -> b p A D B
    total = torch.einsum("bpdxc,badxc->bpadx", (word - top_w).exp(), (parent - top_A).exp())
    logsum = total.log() + top_w.squeeze(-1)[:, :, None] + top_A.squeeze(-1)[:, None]
    b, p, A, D, B = (total < 1e-290).nonzero(as_tuple=True)
    terms = word[b, p, D, B] + parent[b % len(parent), A, D, B]
    return logsum.index_put((b, p, A, D, B), terms.logsumexp(-1)).to(word_C.dtype)


class BilexicalRules(NamedTuple):
    """NBL-PCFG: p(B, C, D, w_q | A, w_p) = sum_H p(H | A, w_p) p(B | H) p(C | H) p(w_q | H), with D bound
    to one of the factors given H, which then has a D axis of size 2 (p(B, D | H), p(C, D | H) or
    p(w_q, D | H)). D generated alone is the case p(C, D | H) = p(C | H) p(D | H).
    """

    logp_A_S: Tensor  # [A]
    logp_w_A: Tensor  # [b, p, A]     the root's word
    logp_H_Aw: Tensor  # [b, p, A, H]
    logp_B_H: Tensor  # [1|2, H, B]
    logp_C_H: Tensor  # [1|2, H, C]
    logp_w_H: Tensor  # [b, q, 1|2, H]

    def dense(self) -> DenseRules:
        # axes: b p q A D H B C
        head = self.logp_H_Aw[:, :, None, :, None, :, None, None]
        head_child = self.logp_B_H[None, None, None, None, :, :, :, None]
        child = self.logp_C_H[None, None, None, None, :, :, None, :]
        word = self.logp_w_H[:, None, :, None, :, :, None, None]
        rule = (head + head_child + child + word).logsumexp(5)
        b, l, A = self.logp_w_A.shape
        PT = self.logp_B_H.shape[-1] - A
        return DenseRules(self.logp_A_S + self.logp_w_A, rule, self.logp_w_A.new_zeros(b, l, PT))


Rules = PCFGRules | RankRules | LexicalRules | BilexicalRules


def check_lengths(rules: Rules, lengths: Tensor) -> None:
    """Refuse sentences that have more words than the rules, or fewer than two, for which there is no tree.

    On a GPU the device itself is left to find it out, so that the host need not wait.
    """
    b, l = rules[-1].shape[:2]
    if lengths.shape != (b,) or lengths.is_floating_point():
        raise ValueError(
            f"lengths are {lengths.dtype} of shape {list(lengths.shape)}; they must be {b} whole "
            "numbers, one a sentence"
        )
    if lengths.is_cuda:
        right = (lengths >= 2) & (lengths <= l)
        torch._assert_async(right.all(), f"a length is not one of 2 to {l}")
    elif not lengths.is_meta:
        for length in lengths.tolist():
            if not 2 <= length <= l:
                raise ValueError(f"a sentence has {length} words; it must have 2 to {l}, all that are given")
