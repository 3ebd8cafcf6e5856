"""The NBL-PCFG's recursions for a GPU: a few launches for all spans of a width.

The recursions, the scales and the letters are those of `nbl.inside.bilexical.torch`. What differs is the memory, laid
out so that one kernel reaches all splits of all spans of a width, and one library product serves them all:

    IU[b, cell, D, H]    I and, behind it, U[i, j, q, D, H] = sum_C s[i, j, q, C] p(C, D | H), of which
                         K[i, j, D, H] = sum_q p(w_q, D | H) U[i, j, q, D, H]; both come from one product s M
    s[b, cell, A]        a cell is a span with a head (w, i, r): all those of width 1, of width 2, ...
    X[b, p, place, H]    the spans with head p, by width: so p(H | A, w_p) is applied in one batched product
    K[b, i, w, D, H]     and the scales of spans likewise, [b, i, w]

What is not a product is done by kernels: either torch's operators (`TorchKernels`), about ten for each, or one
launch each with Triton (`nbl.inside.bilexical.triton`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from math import log
from typing import Any

import torch
from torch import Tensor

from nbl.inside import Solution
from nbl.inside.bilexical import Tables, probabilities, solution, tables
from nbl.inside.bilexical.torch import NEVER, PEAK

__all__ = ["solve", "tables"]

PORTION = 2**27  # numbers of a temporary tensor


def solve(
    tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False, kernels: Any = None
) -> Solution:
    """As `nbl.inside.bilexical.torch.solve`; `kernels` are Triton's on a GPU where it is installed, else torch's."""
    given = Tables(*(table.detach().contiguous() for table in probabilities(tables)))
    chart = Chart(given, lengths, kernels or kernels_for(given.root.device))
    log_Z = chart.inside()
    if not (gradients or posteriors):
        return solution(given, log_Z, None)
    derivatives = chart.outside()
    if not posteriors:
        return solution(given, log_Z, derivatives)
    arcs = torch.cat([derivatives.root.sum(2)[:, None], chart.arcs()], 1)
    return solution(given, log_Z, derivatives if gradients else None, chart.spans, arcs)


def kernels_for(device: torch.device) -> Any:
    """The kernels a device computes with."""
    if device.type == "cuda" and find_spec("triton") is not None:
        return import_module("nbl.inside.bilexical.triton").TritonKernels
    return TorchKernels


class Chart:
    """The chart of a batch; `kernels` fill it width by width."""

    def __init__(self, tables: Tables, lengths: Tensor, kernels: Any) -> None:
        self.tables, self.lengths, self.kernels = tables, lengths, kernels
        self.b, self.l, self.A, self.H = tables.H_Aw.shape
        self.D_B, self.D_C, self.D_w = tables.B_H.shape[1], tables.C_H.shape[1], tables.w_H.shape[2]
        self.D_K, self.D = max(self.D_C, self.D_w), self.D_B + self.D_C
        self.layout = layout(self.l, tables.root.device, (self.D_B, self.D_K, self.D))
        b, l, H, empty = self.b, self.l, self.H, tables.root.new_empty
        self.s = empty(b, self.layout.cells, self.A)
        self.IU = empty(b, self.layout.cells, self.D, H)
        self.X = empty(b, l, self.layout.places, H)  # the outside pass puts d log Z / dX in its place
        self.K = empty(b, l + 1, l + 1, self.D_K, H)
        # the scales of I, K and X; what s and K were multiplied by to give the stored ones
        self.I_scale, self.K_scale, self.X_scale, self.s_factor, self.K_factor = empty(5, b, l + 1, l + 1)
        self.weights: dict[int, Tensor] = {}  # TorchKernels': what brings the splits of a width to the scale of X
        self.M = torch.cat([tables.B_H, tables.C_H], 1).view(self.A, self.D * H)

    def of_width(self, w: int) -> tuple[Tensor, Tensor, Tensor]:
        """s, IU and X of a width as matrices: [b, i r, A], [b, i r, D H], [b p, place, H]."""
        cells, places = self.layout.cells_of(w), self.layout.places_of(w)
        X = self.X.view(self.b * self.l, -1, self.H)
        return self.s[:, cells], self.IU.flatten(2)[:, cells], X[:, places]

    def shared(self, matrix: Tensor) -> Tensor:
        """A matrix for each sentence, the same."""
        return matrix.expand(self.b, -1, -1)

    def inside(self) -> Tensor:
        """Fill the chart; return log Z."""
        t, l = self.tables, self.l
        self.IU[:, :l] = torch.cat([t.leaf_B, t.leaf_C])
        self.kernels.words(self)
        H_Aw = t.H_Aw.view(self.b * l, self.A, self.H)
        for w in range(2, l + 1):
            s, IU, X = self.of_width(w)
            self.kernels.split_sum(self, w)
            self.kernels.rescale(self, w, X @ H_Aw.mT)
            torch.bmm(s, self.shared(self.M), out=IU)
            self.kernels.close(self, w)
        return self._goal()

    def _goal(self) -> Tensor:
        """log Z, and its derivatives for the s of whole sentences and for the root."""
        t, head = self.tables, self.layout.first
        is_word = (head < self.lengths[:, None])[..., None]
        cell = (self.layout.first_cell[self.lengths][:, None] + head).clamp_(max=self.layout.cells - 1)
        s = self.s.gather(1, cell[..., None].expand(-1, -1, self.A)).masked_fill_(~is_word, 0)
        goal = (s.log() + t.root).flatten(1).logsumexp(1)
        # an s so small that its inverse overflows has no share in log Z; an impossible sentence has no gradient
        counts = (s >= torch.finfo(s.dtype).tiny) & goal.isfinite()[:, None, None]
        self.d_goal = (t.root - goal[:, None, None]).masked_fill_(~counts, -torch.inf).exp_()
        self.d_root = self.d_goal * s
        scale = self.I_scale[:, 0].gather(1, self.lengths[:, None]).squeeze(1)
        return goal + scale * log(2)

    def outside(self) -> Tables:
        """Put d log Z / dX in the place of X; return the gradients of the tables, and set the posteriors of spans."""
        t, b, l, A, H = self.tables, self.b, self.l, self.A, self.H
        zeros = t.root.new_zeros
        self.dK_left, self.dK_right = zeros(2, b, l + 1, l + 1, H)  # of LEFT by [b, j, w], of RIGHT by [b, i, w]
        self.spans, self.d_w = zeros(b, l + 1, l + 1), torch.zeros_like(t.w_H)
        d_H_Aw, d_M = zeros(b * l, A, H), zeros(b, A, self.D * H)
        H_Aw = t.H_Aw.view(b * l, A, H)
        for w in range(l, 1, -1):
            s, _, X = self.of_width(w)
            d_IU = self.kernels.d_parts(self, w)
            ds = self.kernels.spread(self, w, d_IU @ self.shared(self.M.t()))  # [b p, place, A]
            d_M.baddbmm_(s.mT, d_IU)
            d_H_Aw.baddbmm_(ds.mT, X)
            torch.bmm(ds, H_Aw, out=X)
            self.kernels.add_dK(self, w)
        d_leaf = self.kernels.d_parts(self, 1).sum(1).view(b, self.D, H)
        self.kernels.end(self)
        (d_B, d_C), (d_leaf_B, d_leaf_C) = (
            d.split([self.D_B, self.D_C], -2) for d in (d_M.view(b, A, self.D, H), d_leaf)
        )
        return Tables(self.d_root, d_H_Aw.view_as(t.H_Aw), d_B, d_leaf_B, d_C, d_leaf_C, self.d_w, t.scale)

    def arcs(self) -> Tensor:
        """Posteriors of arcs, [b, p, q], after the outside pass: for every span as non-head child, the
        derivative of its K for each head p outside it, times the part of K with head q.
        """
        arcs = self.tables.root.new_zeros(self.b, self.l, self.l)
        for w in range(1, self.l):
            self.kernels.add_arcs(self, w, arcs)
        return arcs


class Layout:
    """Where things are in a chart for l words; indices are made on the device once, and kept."""

    def __init__(self, l: int, device: torch.device, sizes_of_D: tuple[int, int, int]) -> None:
        self.l, self.sizes_of_D = l, sizes_of_D
        widths = range(1, l + 1)
        self.cell_bases, self.place_bases = [0, 0], [0, 0]  # of a width
        for w in widths:
            self.cell_bases.append(self.cell_bases[-1] + (l - w + 1) * w)
            self.place_bases.append(self.place_bases[-1] + (min(l - w + 1, w) if w > 1 else 0))
        self.cells, self.places = self.cell_bases[-1], self.place_bases[-1]
        self.first = torch.arange(l, device=device)
        self.widths = torch.arange(l + 2, device=device)
        self.first_cell = self.cell_base(self.widths)
        self._splits: dict[int, Splits] = {}

    def cells_of(self, w: int) -> slice:
        return slice(self.cell_bases[w], self.cell_bases[w + 1])

    def places_of(self, w: int) -> slice:
        return slice(self.place_bases[w], self.place_bases[w + 1])

    def cell_base(self, w: Tensor) -> Tensor:
        """The cells of smaller widths: sum_v (l - v + 1) v, v < w."""
        return (self.l + 1) * ((w - 1) * w // 2) - (w - 1) * w * (2 * w - 1) // 6

    def place_base(self, w: Tensor) -> Tensor:
        """The places of smaller widths: sum_v min(v, l - v + 1), 1 < v < w."""
        v, half = w - 1, (self.l + 1) // 2
        beyond = (v - half).clamp(min=0)
        return v * (v + 1) // 2 - 1 - beyond * (beyond + self.l % 2)

    def place(self, w: Tensor, i: Tensor, p: Tensor) -> Tensor:
        """The row of X, [p, place], of the span [i, i + w) with head p."""
        return p * self.places + self.place_base(w) + i - (p - w + 1).clamp(min=0)

    def span(self, w: Tensor, i: Tensor) -> Tensor:
        """The row of a table [i, w]."""
        return i * (self.l + 1) + w

    def splits(self, w: int) -> Splits:
        """The splits of the spans of width w."""
        if w not in self._splits:
            self._splits[w] = Splits(self, w)
        return self._splits[w]

    def arcs(self, w: int, size: int) -> Iterator[Arcs]:
        """The arcs to non-head children of width w, in portions that bound the memory; `size` is that of a term."""
        n, terms = self.l - w + 1, size * self.l * max(self.l - w, 1)
        step = max(1, PORTION // terms)
        for first in range(0, n, step):
            yield Arcs(self, w, slice(first, min(first + step, n)))


class Splits:
    """The ways to split spans [i, i + w) with heads i + r after u words, as index tensors [i, r, u] and the like."""

    def __init__(self, layout: Layout, w: int) -> None:
        l, n = layout.l, layout.l - w + 1
        D_B, D_K, D = layout.sizes_of_D
        self.shape = n, w, w - 1
        i, r, u = torch.meshgrid(layout.first[:n], layout.first[:w], layout.first[1:w], indexing="ij")
        left = u > r  # then D is LEFT: the head is on the left of the split
        width, start, head = torch.where(left, u, w - u), torch.where(left, i, i + u), torch.where(left, r, r - u)
        self.is_left, self.is_right = left[0, ..., None], ~left[0, ..., None]
        self.head_span = layout.span(width, start).flatten()
        self.other_span = layout.span(w - width, torch.where(left, i + u, i)).flatten()
        self.head_I = _with_D((layout.first_cell[width] + start * width + head).flatten(), (~left).flatten(), D_B, D)
        self.other_K = _with_D(self.other_span, (~left).flatten(), D_K)
        # rows (i, r) by head: [p, place]
        m = min(n, w)
        p, place = torch.meshgrid(layout.first, layout.first[:m], indexing="ij")
        span = (p - w + 1).clamp(min=0) + place
        valid = (span <= p) & (span < n)
        self.row_of_place = torch.where(valid, span * w + p - span, 0).flatten()
        self.valid = valid[..., None]
        i, r = torch.meshgrid(layout.first[:n], layout.first[:w], indexing="ij")
        p = i + r
        self.head = p.flatten()
        self.place_of_row = (p * m + i - (p - w + 1).clamp(min=0)).flatten()
        self.X_row = layout.place(torch.full_like(i, w), i, p).flatten()
        # the wider spans [i', j') that have the head child [i, i + w): first those that end with it, then those that
        # begin with it
        if w < l:
            i, r, e = torch.meshgrid(layout.first[:n], layout.first[:w], layout.first[: l - w], indexing="ij")
            right = e < i  # D is RIGHT
            start = torch.where(right, e, i)
            width = torch.where(right, i + w - e, w + 1 + e - i)
            self.parent_is_left, self.parent_is_right = (side[:, :1, None] for side in (~right, right))
            self.parent_span = layout.span(width, start).flatten()
            self.parent_row = layout.place(width, start, i + r).flatten()
            self.sister_span = layout.span(width - w, torch.where(right, e, i + w)).flatten()
            self.own_span = layout.span(torch.full_like(i, w), i).flatten()
            self.sister_K = _with_D(self.sister_span, right.flatten(), D_K)


class Arcs:
    """Of the spans [i, i + w), i in a portion, as non-head children: for each head p the parents, [i, p, e]."""

    def __init__(self, layout: Layout, w: int, spans: slice) -> None:
        l, self.spans = layout.l, spans
        D_B, _, D = layout.sizes_of_D
        i, p, e = torch.meshgrid(
            layout.first[: l - w + 1][spans], layout.first, layout.first[: max(l - w, 1)], indexing="ij"
        )
        left = p < i  # D is LEFT: the parents are [e, i + w); else [i, p + 1 + e)
        self.is_left = left[..., 0]
        valid = torch.where(left, e <= p, (p >= i + w) & (p + 1 + e <= l))
        start, end = torch.where(left, e, i), torch.where(left, i + w, p + 1 + e)
        start, end = torch.where(valid, start, 0), torch.where(valid, end, w + 1)
        width, head = end - start - w, torch.where(left, start, start + w)
        self.valid = valid.flatten()
        self.own_span = torch.where(valid, layout.span(torch.full_like(i, w), i), w).flatten()
        self.head_span = layout.span(width, head).flatten()
        cell = torch.where(valid, layout.first_cell[width] + head * width + p - head, 0).flatten()
        self.head_I = _with_D(cell, (valid & ~left).flatten(), D_B, D)
        self.parent_span = layout.span(end - start, start).flatten()
        self.parent_row = torch.where(valid, layout.place(end - start, start, p), 0).flatten()


@lru_cache(maxsize=128)
def layout(l: int, device: torch.device, sizes_of_D: tuple[int, int, int]) -> Layout:
    """The layout for l words; the sizes of the axes D are those of I, K and IU."""
    return Layout(l, device, sizes_of_D)


class TorchKernels:
    """What is not a product of matrices, by torch's operators: each function does all spans of a width."""

    @staticmethod
    def words(c: Chart) -> None:
        """K and the scales of the spans of width 1."""
        t, l = c.tables, c.l
        c.K[:, :l, 1] = t.w_H * t.leaf_C
        c.I_scale[:, :l, 1] = 0
        c.K_factor[:, :l, 1] = 1
        c.K_scale[:, :l, 1] = (c.K[:, :l, 1].amax((2, 3)) <= 0) * NEVER

    @staticmethod
    def split_sum(c: Chart, w: int) -> None:
        """X of width w, and its scale."""
        splits = c.layout.splits(w)
        n, _, _ = splits.shape
        exponent = _rows(c.I_scale, splits.head_span) + _rows(c.K_scale, splits.other_span)
        exponent = exponent.view(c.b, n, -1)
        scale = exponent.amax(2)
        c.X_scale[:, :n, w] = scale
        weight = c.weights[w] = exponent.sub_(scale[..., None]).exp2_().view(c.b * n * w, 1, w - 1)
        product = _rows(c.IU, splits.head_I).mul_(_rows(c.K, splits.other_K))
        X = (weight @ product.view(-1, w - 1, c.H)).view(c.b, n * w, c.H)
        grouped = X.index_select(1, splits.row_of_place).view(c.b, c.l, -1, c.H)
        torch.mul(grouped, splits.valid, out=c.X[:, :, c.layout.places_of(w)])

    @staticmethod
    def rescale(c: Chart, w: int, s: Tensor) -> None:
        """s of width w, from [b p, place, A], with its scale."""
        splits = c.layout.splits(w)
        n = splits.shape[0]
        s = s.view(c.b, -1, c.A).index_select(1, splits.place_of_row).view(c.b, n, -1)
        factor, c.I_scale[:, :n, w] = _scaling(s, c.X_scale[:, :n, w])
        c.s_factor[:, :n, w] = factor
        torch.mul(s, factor[..., None], out=c.s[:, c.layout.cells_of(w)].view(c.b, n, -1))

    @staticmethod
    def close(c: Chart, w: int) -> None:
        """K of width w, with its scale."""
        n = c.l - w + 1
        parts = _U(c, w) * _words(c, w)
        K = parts.sum(2)
        factor, c.K_scale[:, :n, w] = _scaling(K.flatten(2), c.I_scale[:, :n, w])
        c.K_factor[:, :n, w] = factor
        torch.mul(K, factor[..., None, None], out=c.K[:, :n, w])

    @staticmethod
    def d_parts(c: Chart, w: int) -> Tensor:
        """d log Z / dI and d log Z / dU of width w, [b, i r, D H]; adds what U has to the gradient of w_H."""
        n = c.l - w + 1
        splits = c.layout.splits(w)
        result = c.IU.new_empty(c.b, n, w, c.D, c.H)
        d_I, d_U = result.split([c.D_B, c.D_C], 3)
        if w == c.l:
            d_I.zero_()
        else:
            e = c.l - w
            exponent = _rows(c.I_scale, splits.own_span) + _rows(c.K_scale, splits.sister_span)
            weight = exponent.sub_(_rows(c.X_scale, splits.parent_span)).exp2_().view(c.b, n, w, 1, e)
            if c.D_B == 2:
                weight = torch.cat([weight * splits.parent_is_left, weight * splits.parent_is_right], 3)
            product = c.X.view(c.b, -1, c.H).index_select(1, splits.parent_row)
            product.mul_(_rows(c.K, splits.sister_K))
            d_I.copy_(weight @ product.view(c.b, n, w, e, c.H))
        d_K = torch.stack([c.dK_left[:, w:, w], c.dK_right[:, :n, w]], 2) * c.K_factor[:, :n, w, None, None]
        d_K = d_K.sum_to_size(c.b, n, c.D_K, c.H)[:, :, None]
        d_U.copy_((d_K * _words(c, w)).sum_to_size(d_U.shape))
        d_word = (d_K * _U(c, w)).sum_to_size(c.b, n, w, c.D_w, c.H).view(c.b, n * w, -1)
        by_word = d_word.index_select(1, splits.row_of_place).view(c.b, c.l, -1, c.D_w * c.H)
        c.d_w += by_word.mul_(splits.valid).sum(2).view_as(c.d_w)
        return result.view(c.b, n * w, -1)

    @staticmethod
    def spread(c: Chart, w: int, ds: Tensor) -> Tensor:
        """d log Z / ds of width w before scaling, by heads, [b p, place, A], from what comes through I and K."""
        splits = c.layout.splits(w)
        n = splits.shape[0]
        of_sentence = ds[:, :w]
        of_sentence.addcmul_(c.d_goal[:, :w], (c.lengths == w)[:, None, None])
        ds = ds.view(c.b, n, -1)
        c.spans.diagonal(w, 1, 2).copy_((c.s[:, c.layout.cells_of(w)].view(c.b, n, -1) * ds).sum(2))
        ds = (ds * c.s_factor[:, :n, w, None]).view(c.b, n * w, -1)
        ds = ds.index_select(1, splits.row_of_place).view(c.b, c.l, -1, c.A)
        return ds.mul_(splits.valid).flatten(0, 1)

    @staticmethod
    def add_dK(c: Chart, w: int) -> None:
        """Add to d log Z / dK of the narrower spans what comes from dX of width w."""
        splits = c.layout.splits(w)
        n, _, u = splits.shape
        weight = c.weights[w].view(c.b, n, w, u, 1)
        dX = c.X.view(c.b, -1, c.H).index_select(1, splits.X_row).view(c.b, n, w, 1, c.H)
        product = _rows(c.IU, splits.head_I).view(c.b, n, w, u, c.H).mul_(weight).mul_(dX)
        c.dK_left[:, w:, 1:w] += (product * splits.is_left).sum(2).flip(2)
        c.dK_right[:, :n, 1:w] += (product * splits.is_right).sum(2)

    @staticmethod
    def end(c: Chart) -> None:
        """Nothing is left to do."""

    @staticmethod
    def add_arcs(c: Chart, w: int, arcs: Tensor) -> None:
        """Add the arcs to the heads of non-head children of width w."""
        n = c.l - w + 1
        K_q = _U(c, w) * _words(c, w) * c.K_factor[:, :n, w, None, None, None]  # [b, i, r, D, H]
        for portion in c.layout.arcs(w, c.b * c.H):
            e = c.l - w
            exponent = _rows(c.I_scale, portion.head_span) + _rows(c.K_scale, portion.own_span)
            exponent = exponent.sub_(_rows(c.X_scale, portion.parent_span))
            weight = exponent.masked_fill_(~portion.valid, -torch.inf).exp2_()
            product = c.X.view(c.b, -1, c.H).index_select(1, portion.parent_row)
            product.mul_(_rows(c.IU, portion.head_I))
            d_K = (weight.view(-1, 1, e) @ product.view(-1, e, c.H)).view(c.b, -1, c.l, c.H)
            left, right = (d_K @ K_q[:, portion.spans, :, D].mT for D in (0, -1))  # [b, i, p, r]
            counts = torch.where(portion.is_left[..., None], left, right)
            band = counts.new_zeros(*counts.shape[:3], c.l)  # [b, i, p, q], where q = i + r
            of_b, of_i, of_p, of_q = band.stride()
            band.as_strided(counts.shape, (of_b, of_i + 1, of_p, of_q), portion.spans.start).copy_(counts)
            arcs += band.sum(1)


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of [b, x, y], or of [b, x, y, H] and [b, i, w, D, H]."""
    return (table.flatten(1) if table.dim() == 3 else table.flatten(1, -2)).index_select(1, index)


def _with_D(index: Tensor, is_right: Tensor, size: int, stride: int | None = None) -> Tensor:
    """Index a table that has an axis D of this size, too."""
    return index * (stride or size) + is_right * (size - 1)


def _U(c: Chart, w: int) -> Tensor:
    """U of a width, [b, i, r, D, H]."""
    n = c.l - w + 1
    return c.IU[:, c.layout.cells_of(w), c.D_B :].view(c.b, n, w, c.D_C, c.H)


def _words(c: Chart, w: int) -> Tensor:
    """w_H of the words of the spans of a width, [b, i, r, D, H]."""
    return c.tables.w_H.unfold(1, w, 1).movedim(-1, 2)


def _scaling(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Powers of two that make the largest of each x[b, i] about 2^PEAK, and the new scales, [b, i]."""
    peak = x.amax(2)
    shift = (PEAK - peak.log2().floor_()).clamp_(max=120)  # a factor of 2^120 at most, also where the peak is 0
    return shift.exp2(), (scale - shift).masked_fill_(peak <= 0, NEVER)
