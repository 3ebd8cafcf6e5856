"""The inside algorithm of TN-PCFG, with a hand-written outside pass as its gradient.

p(A -> B C) = sum_R p(R|A) p(B|R) p(C|R), so that the recursion folds into the rank space of R:

    x[i, j, R] = sum_k left[i, k, R] right[k, j, R]        s[i, j, A] = sum_R p(R|A) x[i, j, R]
    left[i, j, R] = sum_B p(B|R) s[i, j, B]                right[i, j, R] = sum_C p(C|R) s[i, j, C]

The splits cost O(l^3 R), element by element; the rest is three matrix products for all spans of a
width, O(l^2 R NT). Preterminals appear in the left and right of words alone, which come first.
Scaling, and what surrounds the recursion, is that of `nbl.inside.pcfg`, as is the native kernel.

Charts are dictionaries from widths to tensors [n, b, ...]: for one width and one split point the left
parts of all spans are one block of memory, and so are the right parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nbl.inside import Marginals
from nbl.inside.pcfg import Chart, log_prob, rescale, span_marginals, split_weights
from nbl.inside.spans import SpanTable
from nbl.rules import RankRules


class RankChart(Chart):
    """The inside and the outside pass of this file."""

    cells: dict[int, Tensor]

    @staticmethod
    def tables(rules: RankRules, leaf: Tensor) -> tuple[Tensor, ...]:
        """left and right of the words [l, b, R]; p(R|A) [A, R]; p(B|R) and p(C|R) of nonterminals [R, B]."""
        NT = len(rules.logp_R_A)
        B_R, C_R = rules.logp_B_R.exp(), rules.logp_C_R.exp()
        left, right = leaf @ B_R[:, NT:].t(), leaf @ C_R[:, NT:].t()
        return left, right, rules.logp_R_A.exp(), B_R[:, :NT], C_R[:, :NT]

    def __init__(
        self, leaf_exponent: Tensor, left: Tensor, right: Tensor, R_A: Tensor, B_R: Tensor, C_R: Tensor
    ) -> None:
        l, b = leaf_exponent.shape
        self.R_A, self.B_R, self.C_R = R_A, B_R, C_R
        self.left, self.right = {1: left}, {1: right}
        self.x: dict[int, Tensor] = {}
        self.factors: dict[int, Tensor] = {}
        self.cells = {}
        self.exponents = SpanTable(leaf_exponent, l, b)
        self.exponents[1] = leaf_exponent
        for width in range(2, l + 1):
            exponent, weight = split_weights(self.exponents, width)
            x = torch.zeros_like(left[: l - width + 1])
            for k in range(1, width):
                x.addcmul_(self.left[k][: len(x)] * weight[..., k - 1, None], self.right[width - k][k:])
            total = x @ R_A.t()
            factor, self.exponents[width] = rescale(total, exponent)
            cell = total * factor[..., None]
            self.x[width], self.cells[width], self.factors[width] = x, cell, factor
            self.left[width], self.right[width] = cell @ B_R.t(), cell @ C_R.t()

    def outside(self, goal: Tensor, lengths: Tensor) -> tuple[dict[int, Tensor], tuple[Tensor, ...]]:
        g_left = {width: torch.zeros_like(left) for width, left in self.left.items()}
        g_right = {width: torch.zeros_like(right) for width, right in self.right.items()}
        g_R_A, g_B_R, g_C_R = (torch.zeros_like(table) for table in (self.R_A, self.B_R, self.C_R))
        g_cells = {}
        for width in range(self.exponents.l, 1, -1):
            cell = self.cells[width].flatten(0, 1)
            g_B_R.addmm_(g_left[width].flatten(0, 1).t(), cell)
            g_C_R.addmm_(g_right[width].flatten(0, 1).t(), cell)
            g_cell = g_left[width] @ self.B_R + g_right[width] @ self.C_R
            g_cell[0] += torch.where(lengths[:, None] == width, goal, 0.0)
            g_cells[width] = g_cell
            g_total = g_cell * self.factors[width][..., None]
            g_R_A.addmm_(g_total.flatten(0, 1).t(), self.x[width].flatten(0, 1))
            g_x = g_total @ self.R_A
            _, weight = split_weights(self.exponents, width)
            for k in range(1, width):
                g_split = g_x * weight[..., k - 1, None]
                g_left[k][: len(g_x)].addcmul_(g_split, self.right[width - k][k:])
                g_right[width - k][k:].addcmul_(g_split, self.left[k][: len(g_x)])
        return g_cells, (g_left[1], g_right[1], g_R_A, g_B_R, g_C_R)


def inside(rules: RankRules, lengths: Tensor, allow_native: bool = True) -> Tensor:
    """log p(w) of each sentence, [b]; differentiable with respect to every tensor of `rules`."""
    return log_prob(RankChart, rules, lengths, allow_native)


def marginals(rules: RankRules, lengths: Tensor, allow_native: bool = True) -> Marginals:
    """The posteriors of spans; there are no arcs."""
    return span_marginals(RankChart, rules, lengths, allow_native)
