"""NL-PCFG's recursions in torch, on any device.

The chart of a width is s[width]: [2b, i, o, A], where o = p - i is the offset of the head. It holds
probabilities divided by exp(log_s[width]), a scale for each [2b, i, o]; closed[width] has one for each
[2b, i]. The scales are constants for the gradient. The outside pass recomputes what is large.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nbl.inside import Solution
from nbl.inside.lexical import Tables
from nbl.inside.lexical.rules import tables
from nbl.inside.spans import finite, joined, mirrored, normalised

__all__ = ["solve", "tables"]

PORTION = 64  # widths of head children whose splits are summed at a time: bounds the memory of long sentences


def solve(
    tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False, legacy: bool = False
) -> Solution:
    """log Z and, on request, its gradients and the posteriors.

    `legacy` repeats two errors of the released code in the arcs from a head child of two or more words: those to a
    child of one word are missing, and those to a longer child are given to the neighbour of the head word on
    the child's side.
    """
    return solve_by(Chart, Outside, tables, lengths, gradients, posteriors, legacy)


def solve_by(
    chart_type: type[Chart],
    outside_type: type[Outside],
    tables: Tables,
    lengths: Tensor,
    gradients: bool = False,
    posteriors: bool = False,
    legacy: bool = False,
) -> Solution:
    """`solve` with these passes."""
    chart = chart_type(tables, lengths)
    spans = arcs = None
    if posteriors:
        outside = outside_type(chart, torch.ones_like(chart.log_Z), arcs="legacy" if legacy else "all")
        spans, arcs = outside.span_mass, outside.arcs()
    if not gradients:
        return Solution(chart.log_Z, spans, arcs)
    return Solution(chart.log_Z, spans, arcs, lambda weight: outside_type(chart, weight).gradients())


class Chart:
    """Inside values of all spans, in dictionaries by width."""

    def __init__(self, tables: Tables, lengths: Tensor):
        self.lengths, self.tables = lengths, tables
        self.l, self.N, self.NT, _ = tables.R.shape
        self.b = self.N // 2
        self.log_word = tables.logp_w_C.amax(2)
        self.word = (tables.logp_w_C - finite(self.log_word)[..., None]).exp()
        self.s: dict[int, Tensor] = {}  # [2b, i, o, A]
        self.log_s = {1: self.word.new_zeros(self.N, self.l, 1)}  # [2b, i, o]
        self.norm: dict[int, Tensor] = {}  # [2b, i, o]   what s was divided by
        self.closed = {1: tables.leaf}  # [2b, i, C]
        self.log_closed = {1: tables.log_leaf}  # [2b, i]
        self.word_weight: dict[int, Tensor] = {}  # [2b, i, o]   of a head's s in closed
        self.term_C12 = {1: tables.E}  # [p, 2b, i, A, B]   of a child [i, i + width) and a head p left of it
        self.log_Z = tables.logp_A_S.new_full((self.b,), -torch.inf)
        for width in range(2, self.l + 1):
            self._fill(width)
            self._close(width)
            log_Z = (self.log_root(width) + self.closed[width][: self.b, 0].log()).logsumexp(1)
            self.log_Z = torch.where(lengths == width, log_Z, self.log_Z)

    def _fill(self, width: int) -> None:
        n = self.l - width + 1
        weight, log_scale = self.weights(width)
        total = weight.new_zeros(self.N, n, width, self.NT)
        child = self.closed[width - 1][:, 1:] * weight[:, :, 1, 0, None]
        total[:, :, 0] = (_T_of_child(self.tables.T, width - 1, self.NT) @ child[..., None]).squeeze(3)
        for v in self.attached(width):
            head = self.s[v][:, :n] * weight[:, :, v, :v, None]
            total[:, :, :v] += (_of_spans(self.term_C12[width - v], n, v) @ head[..., None]).squeeze(4)
        for widths in self.split_sums(width):
            _, _, Q = self.split_sum(width, widths, weight)
            x, offsets = Q.shape[1], widths[-1]
            product = Q.new_empty(self.N, x, n * offsets, self.NT)
            for p, rows in _rows_of_heads(n, offsets):
                of_head = Q[:, :, rows].flatten(1, 2) @ self.tables.R[p].mT
                product[:, :, rows] = of_head.unflatten(1, (x, -1))
            total[:, :, :offsets] += product.sum(1).view(self.N, n, offsets, self.NT)
        total = mirrored(joined(total), 2)
        self.s[width], self.log_s[width], self.norm[width] = normalised(total, log_scale)

    def _close(self, width: int) -> None:
        log_part = self.log_s[width] + self.log_word.unfold(1, width, 1)
        log_scale = finite(log_part.amax(2))
        self.word_weight[width] = (log_part - log_scale[..., None]).exp_()
        self.closed[width], self.log_closed[width], norm = normalised(self.parts(width).sum(2), log_scale)
        self.word_weight[width] /= norm[..., None]

    def weights(self, width: int) -> tuple[Tensor, Tensor]:
        """What brings the splits of a span to one scale, [2b, i, v, o] with v the width of the head child, and that
        scale, [2b, i, o]."""
        n = self.l - width + 1
        log_weight = self.word.new_full((self.N, n, width, width), -torch.inf)
        for v in range(1, width):
            log_weight[:, :, v, :v] = self.log_s[v][:, :n] + self.log_closed[width - v][:, v : v + n, None]
        left, right = log_weight.amax(2).chunk(2)
        log_scale = finite(mirrored(torch.maximum(left, right.flip(1, 2)), 2))
        return log_weight.sub_(log_scale[:, :, None]).exp_(), log_scale

    def attached(self, width: int) -> range:
        """Widths of the nonterminal head children that meet term C1-2 of their child: of one word, where it is E."""
        return range(max(2, width - 1), width)

    def split_sums(self, width: int) -> list[range]:
        """Widths of the other nonterminal head children, in portions."""
        return [range(v, min(v + PORTION, width - 1)) for v in range(2, width - 1, PORTION)]

    def groups(self, splits: int) -> tuple[int, int]:
        """(x, y): splits are x groups of y, and each group is summed before it meets the rules."""
        return 1, splits

    def split_sum(self, width: int, widths: range, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Head children of these widths v = (x, y), [2b, x, i, y, (o, B)], their children, [2b, x, i, y, C], and
        Q = sum_y head child * child, [2b, x, (i, o), (B, C)]."""
        n, offsets, (x, y) = self.l - width + 1, widths[-1], self.groups(len(widths))
        head = weight.new_zeros(self.N, x, n, y, offsets, self.NT)
        child = weight.new_empty(self.N, x, n, y, self.NT)
        for v, head_v, child_v in zip(widths, _splits(head), _splits(child), strict=True):
            torch.mul(self.s[v][:, :n], weight[:, :, v, :v, None], out=head_v[:, :, :v])
            child_v.copy_(self.closed[width - v][:, v : v + n])
        head = head.flatten(4)
        return head, child, (head.mT @ child).view(self.N, x, n * offsets, self.NT * self.NT)

    def closing(self, width: int) -> Tensor:
        """p(w_q | C) with the scales of s and closed, [2b, i, o, C]."""
        return self.word.unfold(1, width, 1).mT * self.word_weight[width][..., None]

    def parts(self, width: int) -> Tensor:
        """s[i, j, q, C] p(w_q | C), which closed sums over q, [2b, i, o, C]."""
        return self.s[width] * self.closing(width)

    def log_root(self, width: int) -> Tensor:
        """log p(A | S) with the scale of closed[0, width], [b, A]."""
        return self.tables.logp_A_S + self.log_closed[width][: self.b, :1]


class Outside:
    """The chart from wide to narrow: gradients of sum_b weight[b] log_Z[b] or, with `arcs` ("all" or "legacy") and
    weights of 1, posteriors of spans and arcs."""

    def __init__(self, chart: Chart, weight: Tensor, arcs: str | None = None):
        l, zeros = chart.l, chart.word.new_zeros
        self.chart, self.weight, self.arc_kind = chart, weight, arcs
        self.d_s = {width: torch.zeros_like(s) for width, s in chart.s.items()}
        self.d_closed = {width: torch.zeros_like(closed) for width, closed in chart.closed.items()}
        self.root_mass = zeros(chart.b, chart.NT)
        self.word_mass = zeros(chart.N, l, l, chart.NT)  # [2b, i, q - i, C]
        self.span_mass = zeros(chart.b, l + 1, l + 1)
        if arcs:
            self.parts = {1: chart.closed[1][:, :, None]} | {width: chart.parts(width) for width in range(2, l + 1)}
            self.root_arc_mass = zeros(chart.b, 1, l)
            self.arc_mass = zeros(chart.N, l, l, l)  # [2b, i, p - i, q - i]
        else:
            self.d_R, self.d_T = torch.zeros_like(chart.tables.R), torch.zeros_like(chart.tables.T)
            self.d_term_C12 = {width: torch.zeros_like(term) for width, term in chart.term_C12.items()}
        for width in range(l, 1, -1):
            self._close(width)
            self._fill(width)

    def gradients(self) -> Tables:
        """Of the tables; log_leaf is a constant."""
        l, d_word = self.chart.l, torch.zeros_like(self.chart.word)
        for i in range(l):
            d_word[:, i:] += self.word_mass[:, i, : l - i]
        none: Tensor = None  # type: ignore[assignment]
        return Tables(self.root_mass, d_word, self.d_closed[1], none, self.d_R, self.d_term_C12[1], self.d_T)

    def arcs(self) -> Tensor:
        """Posteriors of arcs, [b, 1 + p, q]."""
        l, arcs = self.chart.l, torch.zeros_like(self.arc_mass[:, 0])
        for i in range(l):
            arcs[:, i:, i:] += self.arc_mass[:, i, : l - i, : l - i]
        return torch.cat([self.root_arc_mass, joined(arcs)], 1)

    def _close(self, width: int) -> None:
        """From the gradients of closed to those of s."""
        chart, d_closed = self.chart, self.d_closed.pop(width)
        d_root = self.weight[:, None] * (chart.log_root(width) - finite(chart.log_Z)[:, None]).exp()
        is_root = (chart.lengths == width) & chart.log_Z.isfinite()  # an impossible sentence has no gradient
        d_root = torch.where(is_root[:, None], _bounded(d_root), 0)
        d_closed[: chart.b, 0] += d_root
        parts = chart.parts(width)
        self.root_mass += d_root * chart.closed[width][: chart.b, 0]
        self.word_mass[:, : parts.shape[1], :width] += parts * d_closed[:, :, None]
        self.d_s[width].addcmul_(d_closed[:, :, None], chart.closing(width))
        if self.arc_kind:
            self.root_arc_mass[:, 0, :width] += (parts[: chart.b, 0] @ d_root[..., None]).squeeze(2)

    def _fill(self, width: int) -> None:
        """From the gradients of s to those of its parts."""
        chart, n = self.chart, self.chart.l - width + 1
        d_s = _bounded(joined(self.d_s.pop(width)))
        self.span_mass.diagonal(width, 1, 2).copy_((d_s * chart.s[width][: chart.b]).sum((2, 3)))
        d_total = _bounded(mirrored(d_s, 2) / chart.norm[width][..., None])
        weight, _ = chart.weights(width)
        self._preterminal_head(width, d_total[:, :, 0] * weight[:, :, 1, 0, None])
        for v in chart.attached(width):
            head = chart.s[v][:, :n] * weight[:, :, v, :v, None]
            d_head = (_of_spans(chart.term_C12[width - v], n, v).mT @ d_total[:, :, :v, :, None]).squeeze(4)
            if not self.arc_kind:
                d_term = _of_spans(self.d_term_C12[width - v], n, v)
                d_term.addcmul_(d_total[:, :, :v, :, None], head[..., None, :])
            elif self.arc_kind == "all":
                self.arc_mass[:, :n, :v, v] += (d_head * head).sum(3)
            self.d_s[v][:, :n].addcmul_(d_head, weight[:, :, v, :v, None])
        for widths in chart.split_sums(width):
            self._split_sum(width, widths, weight, d_total[:, :, : widths[-1]])

    def _preterminal_head(self, width: int, d_total: Tensor) -> None:
        chart = self.chart
        d_child = (_T_of_child(chart.tables.T, width - 1, chart.NT).mT @ d_total[..., None]).squeeze(3)
        self.d_closed[width - 1][:, 1:] += d_child
        if self.arc_kind:
            self._add_arcs(width, 1, d_child[:, :, None])
        else:
            d_T = _T_of_child(self.d_T, width - 1, chart.NT)
            d_T.addcmul_(d_total[..., None], chart.closed[width - 1][:, 1:, None])

    def _split_sum(self, width: int, widths: range, weight: Tensor, d_total: Tensor) -> None:
        chart, N, NT, n, offsets = self.chart, self.chart.N, self.chart.NT, self.chart.l - width + 1, widths[-1]
        head, child, Q = chart.split_sum(width, widths, weight)
        x = Q.shape[1]
        d_total = d_total.reshape(N, 1, n * offsets, NT).expand(-1, x, -1, -1)
        d_Q = torch.empty_like(Q)
        for p, rows in _rows_of_heads(n, offsets):
            d_product = d_total[:, :, rows].flatten(1, 2)
            d_Q[:, :, rows] = (d_product @ chart.tables.R[p]).unflatten(1, (x, -1))
            if not self.arc_kind:
                self.d_R[p].baddbmm_(d_product.mT, Q[:, :, rows].flatten(1, 2))
        d_Q = d_Q.view(N, x, n, offsets * NT, NT)
        d_head = (child @ d_Q.mT).unflatten(4, (offsets, NT))
        d_child = head @ d_Q
        for v, d_head_v, d_child_v in zip(widths, _splits(d_head), _splits(d_child), strict=True):
            self.d_s[v][:, :n].addcmul_(d_head_v[:, :, :v], weight[:, :, v, :v, None])
            self.d_closed[width - v][:, v : v + n] += d_child_v
        if self.arc_kind:
            head = head.view(N, n, -1, offsets, NT).transpose(2, 3)
            d_child = head @ d_Q.view(N, n, offsets, NT, NT)  # now of each head, [2b, i, o, v, C]
            for v, d_child_v in zip(widths, d_child.unbind(3), strict=True):
                self._add_arcs(width, v, d_child_v[:, :, :v], shift=1 if self.arc_kind == "legacy" else 0)

    def _add_arcs(self, width: int, v: int, d_child: Tensor, shift: int = 0) -> None:
        """Arcs from the heads of the first v words of a span to those of the others; d_child is the gradient of
        closed from each head, [2b, i, o, C]. They are given to the word `shift` after the head."""
        n = d_child.shape[1]
        self.arc_mass[:, :n, shift : v + shift, v:width] += d_child @ self.parts[width - v][:, v : v + n].mT


def _bounded(gradient: Tensor) -> Tensor:
    """Large but finite: such gradients belong to values that are 0 or nearly so, and 0 * inf would not be 0.

    Sums of 2^16 of them are finite, too, in single precision.
    """
    bound = torch.finfo(gradient.dtype).max ** (112 / 128)
    return gradient.clamp(-bound, bound)


def _T_of_child(T: Tensor, width: int, NT: int) -> Tensor:
    """Of T [p, 2b, A, C] what a child of this width right of p can meet, as a view [2b, p, A, C]."""
    C = slice(NT, None) if width == 1 else slice(NT)
    return T[: len(T) - width, :, :, C].transpose(0, 1)


def _splits(x: Tensor) -> list[Tensor]:
    """[2b, x, i, y, ...] by (x, y)."""
    return [of_y for of_x in x.unbind(1) for of_y in of_x.unbind(2)]


def _of_spans(term: Tensor, n: int, v: int) -> Tensor:
    """Of [p, 2b, k, ...] the entries p = i + o, k = i + v as a view [2b, i, o, ...], i < n, o < v.

          k  2 3 4
    p = 0    0                v = 2, n = 3; the entries are numbered by i: from one i to the next
    p = 1    0 1              a row and a column on, from one o to the next a row on
    p = 2      1 2
    p = 3        2
    """
    of_p, of_b, of_k, *others = term.stride()
    shape = (term.shape[1], n, v, *term.shape[3:])
    return term.as_strided(shape, (of_b, of_p + of_k, of_p, *others), term.storage_offset() + v * of_k)


def _rows_of_heads(n: int, offsets: int) -> Iterator[tuple[int, slice]]:
    """For each head p, of all rows (i, o) with i < n and o < offsets those with i + o = p: offsets - 1 apart."""
    for p in range(n + offsets - 1):
        first, last = max(0, p - offsets + 1), min(p, n - 1)
        yield p, slice(p + first * (offsets - 1), p + last * (offsets - 1) + 1, offsets - 1)
