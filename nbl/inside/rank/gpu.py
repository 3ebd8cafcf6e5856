"""The recursions of TN-PCFG for a GPU: a few launches for all spans of a width."""

from __future__ import annotations

import torch
from torch import Tensor

from nbl.inside import Solution
from nbl.inside.pcfg.torch import rescale, solve_by, split_weights
from nbl.inside.rank import Tables
from nbl.inside.rank.torch import RankChart, tables
from nbl.inside.spans import SpanTable

__all__ = ["solve", "tables"]


def solve(tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """log Z and, on request, its gradients and the posteriors."""
    return solve_by(PaddedRankChart(tables), tables.root, lengths, gradients, posteriors)


class PaddedRankChart(RankChart):
    """`RankChart` with left and right in tables of all spans (`SpanTable`), so that all splits of a width are one
    product and one sum: for a GPU, where launches cost more than the memory of l^2 R products.
    """

    def __init__(self, tables: Tables) -> None:
        _, leaf_scale, left, right, self.R_A, self.B_R, self.C_R = tables
        l, b = leaf_scale.shape
        self.lefts, self.rights = left.new_empty(2, l + 1, b, l + 1, left.shape[2])  # starting and ending
        self.lefts[:l, :, 1], self.rights[1:, :, l - 1] = left, right
        self.x, self.factors, self.cells, self.weights = {}, {}, {}, {}
        self.scales = SpanTable(leaf_scale, l, b)
        self.scales[1] = leaf_scale
        for width in range(2, l + 1):
            scale, weight = split_weights(self.scales, width)
            left, right = self._splits(width)
            x = (left * right).mul_(weight[..., None]).sum(2)
            total = x @ self.R_A.t()
            factor, self.scales[width] = rescale(total, scale)
            cell = total.mul_(factor[..., None])
            self.x[width], self.cells[width], self.factors[width], self.weights[width] = x, cell, factor, weight
            torch.matmul(cell, self.B_R.t(), out=self.lefts[: l - width + 1, :, width])
            torch.matmul(cell, self.C_R.t(), out=self.rights[width:, :, l - width])

    def _splits(self, width: int) -> tuple[Tensor, Tensor]:
        """The left and the right parts of the spans of a width, [n, b, k, R]."""
        l = self.scales.l
        return self.lefts[: l - width + 1, :, 1:width], self.rights[width:, :, l - width + 1 : l]

    def outside(self, d_goal: Tensor, lengths: Tensor) -> tuple[dict[int, Tensor], tuple[Tensor, ...]]:
        l = self.scales.l
        d_lefts, d_rights = torch.zeros_like(self.lefts), torch.zeros_like(self.rights)
        d_R_A, d_B_R, d_C_R = (torch.zeros_like(table) for table in (self.R_A, self.B_R, self.C_R))
        d_cells = {}
        for width in range(l, 1, -1):
            n = l - width + 1
            cell = self.cells[width].flatten(0, 1)
            d_left, d_right = d_lefts[:n, :, width].flatten(0, 1), d_rights[width:, :, l - width].flatten(0, 1)
            d_B_R.addmm_(d_left.t(), cell)
            d_C_R.addmm_(d_right.t(), cell)
            d_cell = torch.addmm(d_left @ self.B_R, d_right, self.C_R).view_as(self.cells[width])
            d_cell[0].addcmul_(d_goal, (lengths == width)[:, None])
            d_cells[width] = d_cell
            d_total = (d_cell * self.factors[width][..., None]).flatten(0, 1)
            d_R_A.addmm_(d_total.t(), self.x[width].flatten(0, 1))
            d_x = (d_total @ self.R_A).view_as(self.x[width])
            d_split = d_x[:, :, None] * self.weights[width][..., None]
            left, right = self._splits(width)
            d_lefts[:n, :, 1:width].addcmul_(d_split, right)
            d_rights[width:, :, l - width + 1 : l].addcmul_(d_split, left)
        return d_cells, (d_lefts[:l, :, 1], d_rights[1:, :, l - 1], d_R_A, d_B_R, d_C_R)
