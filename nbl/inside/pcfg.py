"""The inside algorithm of N-PCFG and C-PCFG, with a hand-written outside pass as its gradient.

    s[i, j, A] = sum_k sum_BC p(A -> B C) s[i, k, B] s[k, j, C]

The splits are summed first: Q[B, C] = sum_k s[i, k, B] s[k, j, C] is a small matrix product per span.
One product with the rules [A, BC] x [BC, spans] then serves all spans of a width, and the whole costs
O(l^3 NT^2 + l^2 NT^3).

A preterminal covers one word and no more. All that concerns preterminals is therefore contracted
beforehand, once per word (`PCFGChart.tables`), and the recursion runs over nonterminals alone.

Cells hold probabilities, not logarithms, each divided by a power of two of its own. That is exact, and
the power of two is a constant for the gradient. The axes of charts begin with [i, b], so that the spans
of a width are one block for the whole batch. The first half of this file serves `nbl.inside.rank` too.

On the CPU a native kernel does the same (`nbl.inside.pcfg_native`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from nbl.inside import Marginals, pcfg_native
from nbl.inside.spans import SpanTable
from nbl.rules import PCFGRules, RankRules

SCALE = 40.0  # the largest value of a cell is about 2^SCALE: two cells' product cannot overflow in
# float32, and values far smaller than a cell's largest do not vanish
IMPOSSIBLE = -(2.0**20)  # the exponent of a cell that is all 0: below any other


def split_weights(exponents: SpanTable, width: int) -> tuple[Tensor, Tensor]:
    """The exponent [n, b] of the sum over splits, and each split's factor [n, b, k] in it."""
    exponent = exponents.left(width) + exponents.right(width)
    largest = exponent.amax(-1)
    return largest, (exponent - largest[..., None]).exp2()


def rescale(cells: Tensor, exponent: Tensor) -> tuple[Tensor, Tensor]:
    """The power of two [n, b] that brings a cell's largest value to 2^SCALE, and the cell's exponent then."""
    peak = cells.amax(-1)
    # a factor above 2^120 could overflow: a cell that needs it stays below 2^SCALE
    shift = (SCALE - torch.frexp(peak).exponent).clamp(max=120.0)
    return shift.exp2(), torch.where(peak > 0, exponent - shift, IMPOSSIBLE)


class Chart(ABC):
    """The cells of the nonterminals of a batch; the constructor is the inside pass.

    cells[width]: [n, b, A], s[i, j, A] / 2^exponent for the n spans of the width.
    """

    cells: SpanTable | dict[int, Tensor]
    exponents: SpanTable

    @abstractmethod
    def __init__(self, leaf_exponent: Tensor, *tables: Tensor) -> None: ...

    @staticmethod
    @abstractmethod
    def tables(rules: Any, leaf: Tensor) -> tuple[Tensor, ...]:
        """What the constructor needs, from the rules and leaf [i, b, T] = p(w_i|T) / 2^leaf_exponent."""

    @abstractmethod
    def outside(self, goal: Tensor, lengths: Tensor) -> tuple[dict[int, Tensor], tuple[Tensor, ...]]:
        """The gradients of the cells, by width, and of the tables, from those of the goal [b, A]."""

    def goal(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The cells [b, A] of whole sentences, and their exponents [b]."""
        sentence, widths = torch.arange(len(lengths), device=lengths.device), range(2, self.exponents.l + 1)
        cells = torch.stack([self.cells[width][0] for width in widths])
        return cells[lengths - 2, sentence], self.exponents.starting[0, sentence, lengths]


class _Goal(Function):
    """`Chart.goal`, with the outside pass as its gradient."""

    @staticmethod
    def forward(
        ctx: Any, chart: type[Chart], lengths: Tensor, leaf_exponent: Tensor, *tables: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.lengths, ctx.chart = lengths, chart(leaf_exponent, *tables)
        goal, exponent = ctx.chart.goal(lengths)
        ctx.mark_non_differentiable(exponent)
        return goal, exponent

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, goal: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *ctx.chart.outside(goal, ctx.lengths)[1]


def _scaled_leaves(logp_w_T: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Emissions as scaled probabilities [i, b, T], and their exponents [i, b]. Padding becomes 1."""
    padding = torch.arange(logp_w_T.shape[1], device=lengths.device) >= lengths[:, None]
    logp = logp_w_T.masked_fill(padding[..., None], 0.0).transpose(0, 1).contiguous()
    exponent = (logp.detach().amax(-1) / math.log(2)).ceil().clamp(min=IMPOSSIBLE) - SCALE
    return (logp - math.log(2) * exponent[..., None]).exp(), exponent


def _log(total: Tensor, exponent: Tensor) -> Tensor:
    """log(total * 2^exponent); where the total is 0, -inf without a gradient."""
    possible = total > 0
    log = torch.where(possible, total, 1.0).log() + math.log(2) * exponent
    return torch.where(possible, log, -torch.inf)


def log_prob(chart: type[Chart], rules: PCFGRules | RankRules, lengths: Tensor, allow_native: bool) -> Tensor:
    """log p(w) of each sentence, [b], differentiable."""
    if allow_native and pcfg_native.available(rules):
        return pcfg_native.log_prob(rules, lengths)
    leaf, leaf_exponent = _scaled_leaves(rules.logp_w_T, lengths)
    goal, exponent = _Goal.apply(chart, lengths, leaf_exponent, *chart.tables(rules, leaf))
    return _log((rules.logp_A_S.exp() * goal).sum(-1), exponent)


@torch.no_grad()
def span_marginals(chart: type[Chart], rules: PCFGRules | RankRules, lengths: Tensor, allow_native: bool) -> Marginals:
    """The posterior of a span is the sum over A of its cell times the gradient of log p(w) for the cell."""
    if allow_native and pcfg_native.available(rules):
        return pcfg_native.span_marginals(rules, lengths)
    leaf, leaf_exponent = _scaled_leaves(rules.logp_w_T, lengths)
    filled = chart(leaf_exponent, *chart.tables(rules, leaf))
    goal, exponent = filled.goal(lengths)
    root = rules.logp_A_S.exp()
    total = (root * goal).sum(-1)
    gradients, _ = filled.outside(torch.where(total > 0, root.t() / total, 0.0).t(), lengths)
    l, b = leaf_exponent.shape
    spans = goal.new_zeros(b, l + 1, l + 1)
    for width, gradient in gradients.items():
        spans.diagonal(width, 1, 2).copy_((filled.cells[width] * gradient).sum(-1).t())
    return Marginals(_log(total, exponent), spans, None)


class PCFGChart(Chart):
    """The inside and the outside pass of this file."""

    cells: SpanTable

    @staticmethod
    def tables(rules: PCFGRules, leaf: Tensor) -> tuple[Tensor, ...]:
        """Probabilities with the preterminal T of word i summed out.

        pairs [l-1, b, A]: the cells of width 2, not yet rescaled.
        first [l, b, A, C]: sum_T p(w_i|T) p(A -> T C), for a word to the left of a cell.
        last [l, b, A, B]: sum_T p(A -> B T) p(w_i|T), for a word to the right of a cell.
        rule [1|b, A, B*C]: p(A -> B C).
        """
        n_rules, NT, S, _ = rules.logp_BC_A.shape
        rule = rules.logp_BC_A.exp()
        by_first = rule[:, :, NT:].transpose(1, 2).flatten(2)  # [1|b, T, A*(B or T)]
        by_last = rule[:, :, :NT, NT:].permute(0, 3, 1, 2).flatten(2)  # [1|b, T, A*B]
        words = _rows(leaf, n_rules)
        first = _spread(words @ by_first, leaf.shape[1]).unflatten(-1, (NT, S))
        last = _spread(words @ by_last, leaf.shape[1]).unflatten(-1, (NT, NT))
        pairs = _apply(first[:-1, ..., NT:], leaf[1:])
        return pairs, first[..., :NT], last, rule[:, :, :NT, :NT].flatten(2)

    def __init__(self, leaf_exponent: Tensor, pairs: Tensor, first: Tensor, last: Tensor, rule: Tensor) -> None:
        (l, b), (n_rules, NT, _) = leaf_exponent.shape, rule.shape
        self.first, self.last, self.rule = first, last, rule
        self.cells, self.exponents = SpanTable(rule, l, b, NT), SpanTable(rule, l, b)
        self.factors: dict[int, Tensor] = {}
        self.exponents[1] = leaf_exponent
        for width in range(2, l + 1):
            exponent, weight = split_weights(self.exponents, width)
            if width == 2:
                total = pairs
            else:
                shorter = self.cells[width - 1]
                total = weight[..., :1] * _apply(first[: l - width + 1], shorter[1:])
                total += weight[..., -1:] * _apply(last[width - 1 :], shorter[:-1])
            if width > 3:
                Q, _, _ = self._split_sum(width, weight)
                total += _spread((rule @ _rows(Q, n_rules).mT).mT, b)
            factor, self.exponents[width] = rescale(total, exponent)
            self.cells[width] = total * factor[..., None]
            self.factors[width] = factor

    def _split_sum(self, width: int, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q [n, b, B*C] over parts of two or more words; left parts [n*b, k, B], weighted; right parts."""
        left = (self.cells.left(width, 2) * weight[..., 1:-1, None]).flatten(0, 1)
        right = self.cells.right(width, 2).flatten(0, 1)
        return (left.mT @ right).flatten(1).unflatten(0, weight.shape[:2]), left, right

    def outside(self, goal: Tensor, lengths: Tensor) -> tuple[dict[int, Tensor], tuple[Tensor, ...]]:
        l, (b, NT), n_rules = self.exponents.l, goal.shape, len(self.rule)
        g_parts = SpanTable(goal, l, b, NT)  # of a span as left part in `starting`, as right part in `ending`
        g_first, g_last = torch.zeros_like(g_parts.starting), torch.zeros_like(g_parts.ending)
        g_rule, g_cells = torch.zeros_like(self.rule), {}
        for width in range(l, 1, -1):
            n = l - width + 1
            g_cell = g_parts.starting[:n, :, width] + g_parts.ending[width:, :, l - width]
            g_cell[0] += torch.where(lengths[:, None] == width, goal, 0.0)
            g_cells[width] = g_cell
            g_total = g_cell * self.factors[width][..., None]
            if width == 2:
                break
            _, weight = split_weights(self.exponents, width)
            # the word's matrices get their gradient from all widths at once, below
            g_right = g_first[:n, :, width - 1] = g_total * weight[..., :1]
            g_left = g_last[width - 1 : l, :, l - width + 1] = g_total * weight[..., -1:]
            g_parts.ending[width:, :, l - width + 1] += _apply(self.first[:n].mT, g_right)
            g_parts.starting[:n, :, width - 1] += _apply(self.last[width - 1 :].mT, g_left)
            if width > 3:
                Q, left, right = self._split_sum(width, weight)
                rows = _rows(g_total, n_rules)
                g_rule.baddbmm_(rows.mT, _rows(Q, n_rules))
                g_Q = _spread(rows @ self.rule, b).reshape(n * b, NT, NT)
                g_parts.left(width, 2).add_((right @ g_Q.mT).unflatten(0, (n, b)) * weight[..., 1:-1, None])
                g_parts.right(width, 2).add_((left @ g_Q).unflatten(0, (n, b)))
        g_first = g_first[:-1].mT @ self.cells.starting[1:]
        g_last = g_last[:-1].mT @ self.cells.ending[:-1]
        return g_cells, (g_total, g_first, g_last, g_rule)


def _rows(x: Tensor, n_rules: int) -> Tensor:
    """[i, b, X] as the rows that share rules: one block [1, i*b, X], or one for each sentence [b, i, X]."""
    return x.flatten(0, 1)[None] if n_rules == 1 else x.transpose(0, 1)


def _spread(rows: Tensor, b: int) -> Tensor:
    """The inverse of `_rows`."""
    return rows[0].unflatten(0, (-1, b)) if len(rows) == 1 else rows.transpose(0, 1)


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    """The product of a matrix [A, X] and a vector [X] for each i, b; as a row vector, which is faster."""
    return (vector[..., None, :] @ matrix.mT)[..., 0, :]


def inside(rules: PCFGRules, lengths: Tensor, allow_native: bool = True) -> Tensor:
    """log p(w) of each sentence, [b]; differentiable with respect to every tensor of `rules`."""
    return log_prob(PCFGChart, rules, lengths, allow_native)


def marginals(rules: PCFGRules, lengths: Tensor, allow_native: bool = True) -> Marginals:
    """The posteriors of spans; there are no arcs."""
    return span_marginals(PCFGChart, rules, lengths, allow_native)
