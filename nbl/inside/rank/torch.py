"""The recursions of TN-PCFG in torch, on any device; scaling and goal are those of `nbl.inside.pcfg.torch`.

Charts are dictionaries from widths to tensors [n, b, ...]: for one width and one split point the left
parts of all spans are one block of memory, and so are the right parts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nbl.inside import Solution
from nbl.inside.pcfg.torch import Chart, rescale, scaled_leaves, solve_by, split_weights
from nbl.inside.rank import Tables
from nbl.inside.spans import SpanTable
from nbl.rules import RankRules


def tables(rules: RankRules, lengths: Tensor) -> Tables:
    """The probabilities that the chart needs."""
    leaf, leaf_scale = scaled_leaves(rules.logp_w_T, lengths)
    NT = len(rules.logp_R_A)
    B_R, C_R = rules.logp_B_R.exp(), rules.logp_C_R.exp()
    left, right = leaf @ B_R[:, NT:].t(), leaf @ C_R[:, NT:].t()
    return Tables(rules.logp_A_S.exp(), leaf_scale, left, right, rules.logp_R_A.exp(), B_R[:, :NT], C_R[:, :NT])


def solve(tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """log Z and, on request, its gradients and the posteriors."""
    return solve_by(RankChart(tables), tables.root, lengths, gradients, posteriors)


class RankChart(Chart):
    """The inside and the outside pass of `nbl.inside.rank`."""

    cells: dict[int, Tensor]

    def __init__(self, tables: Tables) -> None:
        _, leaf_scale, left, right, self.R_A, self.B_R, self.C_R = tables
        l, b = leaf_scale.shape
        self.left, self.right = {1: left}, {1: right}
        self.x: dict[int, Tensor] = {}
        self.factors: dict[int, Tensor] = {}
        self.cells = {}
        self.scales = SpanTable(leaf_scale, l, b)
        self.scales[1] = leaf_scale
        for width in range(2, l + 1):
            scale, weight = split_weights(self.scales, width)
            x = torch.zeros_like(left[: l - width + 1])
            for k in range(1, width):
                x.addcmul_(self.left[k][: len(x)] * weight[..., k - 1, None], self.right[width - k][k:])
            total = x @ self.R_A.t()
            factor, self.scales[width] = rescale(total, scale)
            cell = total * factor[..., None]
            self.x[width], self.cells[width], self.factors[width] = x, cell, factor
            self.left[width], self.right[width] = cell @ self.B_R.t(), cell @ self.C_R.t()

    def outside(self, d_goal: Tensor, lengths: Tensor) -> tuple[dict[int, Tensor], tuple[Tensor, ...]]:
        d_left = {width: torch.zeros_like(left) for width, left in self.left.items()}
        d_right = {width: torch.zeros_like(right) for width, right in self.right.items()}
        d_R_A, d_B_R, d_C_R = (torch.zeros_like(table) for table in (self.R_A, self.B_R, self.C_R))
        d_cells = {}
        for width in range(self.scales.l, 1, -1):
            cell = self.cells[width].flatten(0, 1)
            d_B_R.addmm_(d_left[width].flatten(0, 1).t(), cell)
            d_C_R.addmm_(d_right[width].flatten(0, 1).t(), cell)
            d_cell = d_left[width] @ self.B_R + d_right[width] @ self.C_R
            d_cell[0] += torch.where(lengths[:, None] == width, d_goal, 0.0)
            d_cells[width] = d_cell
            d_total = d_cell * self.factors[width][..., None]
            d_R_A.addmm_(d_total.flatten(0, 1).t(), self.x[width].flatten(0, 1))
            d_x = d_total @ self.R_A
            _, weight = split_weights(self.scales, width)
            for k in range(1, width):
                d_split = d_x * weight[..., k - 1, None]
                d_left[k][: len(d_x)].addcmul_(d_split, self.right[width - k][k:])
                d_right[width - k][k:].addcmul_(d_split, self.left[k][: len(d_x)])
        return d_cells, (d_left[1], d_right[1], d_R_A, d_B_R, d_C_R)
