"""N-PCFG and C-PCFG.

    s[i, j, A] = sum_k sum_BC p(A -> B C) s[i, k, B] s[k, j, C]

The splits are summed first: Q[B, C] = sum_k s[i, k, B] s[k, j, C] is a small matrix product per span.
One product with the rules [A, BC] x [BC, spans] then serves all spans of a width, and the whole costs
O(l^3 NT^2 + l^2 NT^3).

A preterminal covers one word and no more. All that concerns preterminals is therefore contracted
beforehand, once per word (`Tables`), and the recursion runs over nonterminals alone.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Tables(NamedTuple):
    """Probabilities, with the preterminal T of word i summed out; the native kernel makes its own from the rules."""

    root: Tensor  # [1|b, A]   p(A | S)
    leaf_scale: Tensor  # [i, b]   log2 of what p(w_i | T) was divided by; a constant
    pairs: Tensor  # [l-1, b, A]   the cells of width 2, not yet rescaled
    first: Tensor  # [l, b, A, C]   sum_T p(w_i | T) p(A -> T C), for a word to the left of a cell
    last: Tensor  # [l, b, A, B]   sum_T p(A -> B T) p(w_i | T), for a word to the right of a cell
    rule: Tensor  # [1|b, A, B*C]   p(A -> B C)
