"""TN-PCFG.

p(A -> B C) = sum_R p(R | A) p(B | R) p(C | R), so that the recursion folds into the rank space of R:

    x[i, j, R] = sum_k left[i, k, R] right[k, j, R]        s[i, j, A] = sum_R p(R | A) x[i, j, R]
    left[i, j, R] = sum_B p(B | R) s[i, j, B]              right[i, j, R] = sum_C p(C | R) s[i, j, C]

The splits cost O(l^3 R), element by element; the rest is three matrix products for all spans of a
width, O(l^2 R NT). Preterminals appear in the left and right of words alone, which come first.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Tables(NamedTuple):
    """Probabilities; the native kernel makes its own from the rules."""

    root: Tensor  # [1|b, A]   p(A | S)
    leaf_scale: Tensor  # [i, b]   log2 of what p(w_i | T) was divided by; a constant
    left: Tensor  # [l, b, R]   of the words
    right: Tensor  # [l, b, R]   of the words
    R_A: Tensor  # [A, R]   p(R | A)
    B_R: Tensor  # [R, B]   p(B | R), nonterminals
    C_R: Tensor  # [R, C]   p(C | R), nonterminals
