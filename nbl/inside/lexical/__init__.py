"""NL-PCFG (Eq. inside_zhu).

A RIGHT-headed rule of a sentence is a LEFT-headed rule of its mirror image. The chart holds each sentence
and its mirror image (2b sentences), so that only LEFT-headed rules are written down; the results of both
halves are added with the second one turned back. With span [i, j) and head p,

    s[i, j, p, A] = sum_k sum_B,C  s[i, k, p, B]  p(B, C, LEFT | A, w_p)  closed[k, j, C]
    closed[k, j, C] = sum_q s[k, j, q, C] p(w_q | C)                                  (term C1-1)

Preterminals have one word, and T[w] -> w has probability one: of the rules with a preterminal head
child only the sum over B is needed, and of those with a preterminal child only the sum over C with
its word. For the large rest, B and C nonterminals, the splits are summed first: Q[B, C] = sum_k s closed,
then Q times the rules of each head position, O(l^4 m^2 + l^3 m^3), all in matrix products. The paper's
own ways, which cost more, are in `nbl.inside.lexical.caches`.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Tables(NamedTuple):
    """The rules as the torch chart applies them, D = LEFT and the mirrored D = RIGHT on the axis 2b.

    The native kernel takes `LexicalRules` instead.
    """

    logp_A_S: Tensor  # [b, A]
    logp_w_C: Tensor  # [2b, q, C]   nonterminals C
    leaf: Tensor  # [2b, q, C]       p(w_q | C) / exp(log_leaf), preterminals C
    log_leaf: Tensor  # [2b, q]      a constant
    R: Tensor  # [p, 2b, A, B C]     p(B, C, D | A, w_p), nonterminals B and C
    E: Tensor  # [p, 2b, q, A, B]    sum_C p(B, C, D | A, w_p) leaf[q, C], nonterminals B, preterminals C
    T: Tensor  # [p, 2b, A, C]       sum_B p(B, C, D | A, w_p), preterminals B, all C
