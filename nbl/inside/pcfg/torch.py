"""The recursions of N-PCFG and C-PCFG in torch, on any device; the first half serves TN-PCFG too.

Cells hold probabilities, not logarithms, each divided by a power of two of its own: the true value is
the stored one times 2^scale. That is exact, and the power of two is a constant for the gradient. The
axes of charts begin with [i, b], so that the spans of a width are one block for the whole batch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from nbl.inside import Solution
from nbl.inside.pcfg import Tables
from nbl.inside.spans import SpanTable
from nbl.rules import PCFGRules

PEAK = 40.0  # the largest value of a cell is about 2^PEAK: two cells' product cannot overflow in
# float32, and values far smaller than a cell's largest do not vanish
NEVER = -(2.0**20)  # the scale of a cell that is all 0: below any other


class Chart(ABC):
    """The cells of the nonterminals of a batch; the constructor is the inside pass.

    cells[width]: [n, b, A], s[i, j, A] / 2^scale for the n spans of the width.
    """

    cells: SpanTable | dict[int, Tensor]
    scales: SpanTable

    @abstractmethod
    def __init__(self, tables: Any) -> None: ...

    @abstractmethod
    def outside(self, d_goal: Tensor, lengths: Tensor) -> tuple[dict[int, Tensor], tuple[Tensor, ...]]:
        """The gradients of the cells, by width, and of the tables from the third on, from those of the goal [b, A]."""

    def goal(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The cells [b, A] of whole sentences, and their scales [b]."""
        sentence, widths = torch.arange(len(lengths), device=lengths.device), range(2, self.scales.l + 1)
        cells = torch.stack([self.cells[width][0] for width in widths])
        return cells[lengths - 2, sentence], self.scales.starting[0, sentence, lengths]


def solve_by(filled: Chart, root: Tensor, lengths: Tensor, gradients: bool, posteriors: bool) -> Solution:
    """What a chart says: log Z = log sum_A p(A | S) goal[A] and, on request, its gradients and the posteriors."""
    goal, scale = filled.goal(lengths)
    total = (root * goal).sum(-1)
    possible = total > 0
    divisor = torch.where(possible, total, 1.0)
    log_Z = torch.where(possible, divisor.log() + math.log(2) * scale, -torch.inf)

    def gradients_for(weight: Tensor) -> tuple[Tensor | None, ...]:
        d_total = (torch.where(possible, weight, 0.0) / divisor)[:, None]
        _, d_tables = filled.outside(d_total * root, lengths)
        return (d_total * goal).sum_to_size(root.shape), None, *d_tables

    spans = None
    if posteriors:  # of a span: the sum over A of its cell times the gradient of log Z for the cell
        d_cells, _ = filled.outside(torch.where(possible, root.t() / total, 0.0).t(), lengths)
        spans = goal.new_zeros(len(lengths), filled.scales.l + 1, filled.scales.l + 1)
        for width, d_cell in d_cells.items():
            spans.diagonal(width, 1, 2).copy_((filled.cells[width] * d_cell).sum(-1).t())
    return Solution(log_Z, spans, gradients=gradients_for if gradients else None)


def scaled_leaves(logp_w_T: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Emissions as scaled probabilities [i, b, T], and their scales [i, b]. Padding becomes 1."""
    padding = torch.arange(logp_w_T.shape[1], device=lengths.device) >= lengths[:, None]
    logp = logp_w_T.masked_fill(padding[..., None], 0.0).transpose(0, 1).contiguous()
    scale = (logp.detach().amax(-1) / math.log(2)).ceil().clamp(min=NEVER) - PEAK
    return (logp - math.log(2) * scale[..., None]).exp(), scale


def split_weights(scales: SpanTable, width: int) -> tuple[Tensor, Tensor]:
    """The scale [n, b] of the sum over splits, and each split's factor [n, b, k] in it."""
    scale = scales.left(width) + scales.right(width)
    largest = scale.amax(-1)
    return largest, (scale - largest[..., None]).exp2()


def rescale(cells: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The power of two [n, b] that brings a cell's largest value to 2^PEAK, and the cell's scale then."""
    peak = cells.amax(-1)
    # a factor above 2^120 could overflow: a cell that needs it stays below 2^PEAK
    shift = (PEAK - torch.frexp(peak).exponent).clamp(max=120.0)
    return shift.exp2(), torch.where(peak > 0, scale - shift, NEVER)


# ---------------------------------------------------------------- N-PCFG and C-PCFG


def tables(rules: PCFGRules, lengths: Tensor) -> Tables:
    """The probabilities that the chart needs."""
    leaf, leaf_scale = scaled_leaves(rules.logp_w_T, lengths)
    n_rules, NT, S, _ = rules.logp_BC_A.shape
    rule = rules.logp_BC_A.exp()
    by_first = rule[:, :, NT:].transpose(1, 2).flatten(2)  # [1|b, T, A*(B or T)]
    by_last = rule[:, :, :NT, NT:].permute(0, 3, 1, 2).flatten(2)  # [1|b, T, A*B]
    words = _rows(leaf, n_rules)
    first = _spread(words @ by_first, leaf.shape[1]).unflatten(-1, (NT, S))
    last = _spread(words @ by_last, leaf.shape[1]).unflatten(-1, (NT, NT))
    pairs = _apply(first[:-1, ..., NT:], leaf[1:])
    root, binary = rules.logp_A_S.exp(), rule[:, :, :NT, :NT].flatten(2)
    return Tables(root, leaf_scale, pairs, first[..., :NT], last, binary)


def solve(tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """log Z and, on request, its gradients and the posteriors."""
    return solve_by(PCFGChart(tables), tables.root, lengths, gradients, posteriors)


class PCFGChart(Chart):
    """The inside and the outside pass of `nbl.inside.pcfg`."""

    cells: SpanTable

    def __init__(self, tables: Tables) -> None:
        _, leaf_scale, pairs, self.first, self.last, self.rule = tables
        (l, b), (n_rules, NT, _) = leaf_scale.shape, self.rule.shape
        self.cells, self.scales = SpanTable(self.rule, l, b, NT), SpanTable(self.rule, l, b)
        self.factors: dict[int, Tensor] = {}
        self.scales[1] = leaf_scale
        for width in range(2, l + 1):
            scale, weight = split_weights(self.scales, width)
            total = pairs
            if width > 2:
                shorter = self.cells[width - 1]
                total = weight[..., :1] * _apply(self.first[: l - width + 1], shorter[1:])
                total += weight[..., -1:] * _apply(self.last[width - 1 :], shorter[:-1])
            if width > 3:
                Q, _, _ = self._split_sum(width, weight)
                total += _spread((self.rule @ _rows(Q, n_rules).mT).mT, b)
            factor, self.scales[width] = rescale(total, scale)
            self.cells[width] = total * factor[..., None]
            self.factors[width] = factor

    def _split_sum(self, width: int, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q [n, b, B*C] over parts of two or more words; left parts [n*b, k, B], weighted; right parts."""
        left = (self.cells.left(width, 2) * weight[..., 1:-1, None]).flatten(0, 1)
        right = self.cells.right(width, 2).flatten(0, 1)
        return (left.mT @ right).flatten(1).unflatten(0, weight.shape[:2]), left, right

    def outside(self, d_goal: Tensor, lengths: Tensor) -> tuple[dict[int, Tensor], tuple[Tensor, ...]]:
        l, (b, NT), n_rules = self.scales.l, d_goal.shape, len(self.rule)
        d_parts = SpanTable(d_goal, l, b, NT)  # of a span as left part in `starting`, as right part in `ending`
        d_first, d_last = torch.zeros_like(d_parts.starting), torch.zeros_like(d_parts.ending)
        d_rule, d_cells = torch.zeros_like(self.rule), {}
        for width in range(l, 1, -1):
            n = l - width + 1
            d_cell = d_parts.starting[:n, :, width] + d_parts.ending[width:, :, l - width]
            d_cell[0] += torch.where(lengths[:, None] == width, d_goal, 0.0)
            d_cells[width] = d_cell
            d_total = d_cell * self.factors[width][..., None]
            if width == 2:
                break
            _, weight = split_weights(self.scales, width)
            # the word's matrices get their gradient from all widths at once, below
            d_right = d_first[:n, :, width - 1] = d_total * weight[..., :1]
            d_left = d_last[width - 1 : l, :, l - width + 1] = d_total * weight[..., -1:]
            d_parts.ending[width:, :, l - width + 1] += _apply(self.first[:n].mT, d_right)
            d_parts.starting[:n, :, width - 1] += _apply(self.last[width - 1 :].mT, d_left)
            if width > 3:
                Q, left, right = self._split_sum(width, weight)
                rows = _rows(d_total, n_rules)
                d_rule.baddbmm_(rows.mT, _rows(Q, n_rules))
                d_Q = _spread(rows @ self.rule, b).reshape(n * b, NT, NT)
                d_parts.left(width, 2).add_((right @ d_Q.mT).unflatten(0, (n, b)) * weight[..., 1:-1, None])
                d_parts.right(width, 2).add_((left @ d_Q).unflatten(0, (n, b)))
        d_first = d_first[:-1].mT @ self.cells.starting[1:]
        d_last = d_last[:-1].mT @ self.cells.ending[:-1]
        return d_cells, (d_total, d_first, d_last, d_rule)


def _rows(x: Tensor, n_rules: int) -> Tensor:
    """[i, b, X] as the rows that share rules: one block [1, i*b, X], or one for each sentence [b, i, X]."""
    return x.flatten(0, 1)[None] if n_rules == 1 else x.transpose(0, 1)


def _spread(rows: Tensor, b: int) -> Tensor:
    """The inverse of `_rows`."""
    return rows[0].unflatten(0, (-1, b)) if len(rows) == 1 else rows.transpose(0, 1)


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    """The product of a matrix [A, X] and a vector [X] for each i, b; as a row vector, which is faster."""
    return (vector[..., None, :] @ matrix.mT)[..., 0, :]
