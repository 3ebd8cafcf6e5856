"""NBL-PCFG's inside and outside recursions in torch, on any device.

The chart is packed by width: s[width], X[width] and I[width] are tensors [b, i, o, ...] over the spans
[i, i + width) and their heads p = i + o, with o the offset of the head; K[width] is [b, i, D, H]. A
factor that does not depend on D has a D axis of size 1.

Entries are scaled probabilities: the true value is the stored one times 2^scale, with one scale for
the I and one for the K of a span. Scales are whole numbers, so that scaling never rounds, and constants
for the gradient. The outside pass finds d_x = d log Z / d x for the stored entries. It needs no scales
of its own, because an entry times its derivative is a posterior probability.
"""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from nbl.inside import Solution
from nbl.inside.bilexical import Tables, probabilities, solution, tables
from nbl.rules import LEFT, RIGHT

__all__ = ["solve", "tables"]

PEAK = 30  # the largest entry of a span is about 2^PEAK: room below for products of small entries
NEVER = -1e9  # the scale of an impossible span: finite, so that differences of scales are


def solve(tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """log Z and, on request, its gradients and the posteriors."""
    given = Tables(*(table.contiguous() for table in probabilities(tables)))
    chart = _Chart(given)
    log_Z = chart.inside(lengths)
    if not (gradients or posteriors):
        return solution(given, log_Z, None)
    derivatives, spans = chart.outside(lengths)
    if not posteriors:
        return solution(given, log_Z, derivatives)
    arcs = torch.cat([derivatives.root.sum(2)[:, None], chart.arcs()], 1)
    return solution(given, log_Z, derivatives if gradients else None, spans, arcs)


class _Chart:
    """Charts of a batch as lists indexed by width; there is nothing of width 0, and no s and X of width 1."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.b, self.l, self.A, self.H = tables.H_Aw.shape
        none = tables.root.new_empty(0)
        self.goal: list[Tensor] = [none, none]  # log Z of the sentences of this length at the scale of s, [b]
        self.s: list[Tensor] = [none, none]
        self.X: list[Tensor] = [none, none]  # the outside pass puts d_X in its place
        self.I: list[Tensor] = [none, tables.leaf_B.expand(self.b, self.l, 1, -1, -1)]
        self.T: list[Tensor] = [none, none]  # sum_q s[i, j, q, C] p(w_q, D | H), [b, i, C, D, H]
        self.K: list[Tensor] = [none, tables.w_H * tables.leaf_C]
        self.I_scale: list[Tensor] = [none, none.new_zeros(self.b, self.l)]
        self.K_scale: list[Tensor] = [none, torch.where(self.K[1].amax((2, 3)) > 0, 0.0, NEVER).to(none)]
        # what s and K were multiplied by to give the stored ones, [b, i]
        self.s_factor: list[Tensor] = [none, none]
        self.K_factor: list[Tensor] = [none, none]
        # split[width][u - 1, D], [b, i, 1]: what brings I K of the split width = u + v to the scale of X[width]
        self.split: list[Tensor] = [none, none]

    def inside(self, lengths: Tensor) -> Tensor:
        """Fill the chart; return log Z."""
        t = self.tables
        log_Z = []
        for width in range(2, self.l + 1):
            X, scale = self._split_sum(width)
            heads = _Heads(self.l, width, X.device)
            s = heads.ungroup((t.H_Aw @ heads.group(X).transpose(2, 3)).transpose(2, 3))
            s_factor, scale = _rescale_(s, scale)
            goal = (s[:, 0].log() + t.root[:, :width]).flatten(1).logsumexp(1)
            log_Z.append(goal + scale[:, 0] * log(2))
            T = (self._band(s) @ t.w_H.flatten(2)).view(self.b, -1, self.A, t.w_H.shape[2], self.H)
            K = torch.zeros_like(self.K[1][:, width - 1 :])
            for C in range(self.A):
                K.addcmul_(T[:, :, C], t.C_H[C])
            K_factor, K_scale = _rescale_(K, scale)
            self.goal.append(goal)
            self.s.append(s)
            self.X.append(X)
            self.I.append((s @ t.B_H.flatten(1)).unflatten(3, (-1, self.H)))
            self.T.append(T)
            self.K.append(K)
            self.I_scale.append(scale)
            self.K_scale.append(K_scale)
            self.s_factor.append(s_factor)
            self.K_factor.append(K_factor)
        return torch.stack(log_Z, 1).gather(1, lengths[:, None] - 2).squeeze(1)

    def _split_sum(self, width: int) -> tuple[Tensor, Tensor]:
        """X of a width, [b, i, o, H], and its scale, [b, i]."""
        n = self.l - width + 1
        scales = []
        for u in range(1, width):
            left = self.I_scale[u][:, :n] + self.K_scale[width - u][:, u : u + n]
            right = self.K_scale[u][:, :n] + self.I_scale[width - u][:, u : u + n]
            scales.append(torch.stack([left, right]))
        of_splits = torch.stack(scales)
        scale = of_splits.amax((0, 1))
        split = (of_splits - scale).exp2_()[..., None]
        self.split.append(split)
        X = scale.new_zeros(self.b, n, width, self.H)
        for u in range(1, width):
            v = width - u
            K_left = _of(LEFT, self.K[v][:, u : u + n]) * split[u - 1, LEFT]
            K_right = _of(RIGHT, self.K[u][:, :n]) * split[u - 1, RIGHT]
            X[:, :, :u].addcmul_(_of(LEFT, self.I[u][:, :n]), K_left[:, :, None])
            X[:, :, u:].addcmul_(_of(RIGHT, self.I[v][:, u : u + n]), K_right[:, :, None])
        return X, scale

    def _band(self, s: Tensor) -> Tensor:
        """s of one width with every head at its position in the sentence, [b, i A, q]. This adds zeros, but makes
        one large matrix product of what would be one for each span.
        """
        band = s.new_zeros(self.b, s.shape[1], self.A, self.l)
        _diagonals(band, s.shape[2]).copy_(s)
        return band.flatten(1, 2)

    def outside(self, lengths: Tensor) -> tuple[Tables, Tensor]:
        """Put d_X in the place of X; return the gradients of the tables and the span posteriors."""
        t, b, l = self.tables, self.b, self.l
        d_root, d_H_Aw, d_w = torch.zeros_like(t.root), torch.zeros_like(t.H_Aw), torch.zeros_like(t.w_H)
        d_B, d_C = t.root.new_zeros(b, *t.B_H.shape), t.root.new_zeros(b, *t.C_H.shape)
        d_K = [torch.zeros_like(K) for K in self.K]
        spans = t.root.new_zeros(b, l + 1, l + 1)
        for width in range(l, 1, -1):
            s = self.s[width]
            # d_s, the sum over the three ways in which the span is used: by the root, by K and by I
            d_I = self._d_I(width)
            d_s = (d_I.flatten(3) @ t.B_H.flatten(1).t()).contiguous()
            # an s so small that its inverse overflows has no share in log Z; an impossible sentence has no gradient
            is_root = ((lengths == width) & self.goal[width].isfinite())[:, None, None]
            is_root = is_root & (s[:, 0] >= torch.finfo(s.dtype).tiny)
            d_goal = torch.where(is_root, t.root[:, :width] - self.goal[width][:, None, None], -torch.inf).exp()
            d_s[:, 0] += d_goal
            d_root[:, :width] += d_goal * s[:, 0]
            d_total = d_K[width] * self.K_factor[width][..., None, None]
            T = self.T[width]
            d_T = torch.empty_like(T)
            for C in range(self.A):
                d_T[:, :, C] = (d_total * t.C_H[C]).sum_to_size(T[:, :, C].shape)
                d_C[:, C] += (d_total * T[:, :, C]).sum(1).sum_to_size(d_C[:, C].shape)
            d_T = d_T.flatten(3).flatten(1, 2)
            d_s += _diagonals((d_T @ t.w_H.flatten(2).transpose(1, 2)).view(b, -1, self.A, l), width)
            # gradients of the tables
            d_B += (s.flatten(1, 2).transpose(1, 2) @ d_I.flatten(3).flatten(1, 2)).view_as(d_B)
            d_w += (self._band(s).transpose(1, 2) @ d_T).view_as(d_w)
            spans.diagonal(width, 1, 2).copy_((s * d_s).sum((2, 3)))
            d_s *= self.s_factor[width][..., None, None]
            heads = _Heads(l, width, s.device)
            d_s_by_head = heads.group(d_s) * heads.valid
            d_H_Aw.flatten(0, 1).baddbmm_(
                d_s_by_head.transpose(2, 3).flatten(0, 1), heads.group(self.X[width]).flatten(0, 1)
            )
            self.X[width] = heads.ungroup(d_s_by_head @ t.H_Aw)
            self._add_d_K(width, d_K)
        d_leaf_B = self._d_I(1).sum((1, 2))
        d_leaf_C = (d_K[1] * t.w_H).sum(1).sum_to_size(b, *t.leaf_C.shape)
        d_w += (d_K[1] * t.leaf_C).sum_to_size(d_w.shape)
        return Tables(d_root, d_H_Aw, d_B, d_leaf_B, d_C, d_leaf_C, d_w, t.scale), spans

    def _d_I(self, width: int) -> Tensor:
        """d_I of a width, [b, i, o, D, H], from the d_X of the wider spans."""
        I = self.I[width]
        d_I = torch.zeros(I.shape, dtype=I.dtype, device=I.device)
        for wider in range(width + 1, self.l + 1):
            n, v = self.l - wider + 1, wider - width
            K_left = _of(LEFT, self.K[v][:, width : width + n]) * self.split[wider][width - 1, LEFT]
            K_right = _of(RIGHT, self.K[v][:, :n]) * self.split[wider][v - 1, RIGHT]
            _of(LEFT, d_I[:, :n]).addcmul_(self.X[wider][:, :, :width], K_left[:, :, None])
            _of(RIGHT, d_I[:, v : v + n]).addcmul_(self.X[wider][:, :, v:], K_right[:, :, None])
        return d_I

    def _add_d_K(self, width: int, d_K: list[Tensor]) -> None:
        """Add to d_K of the narrower spans what comes from d_X of a width."""
        n = self.l - width + 1
        d_X = self.X[width]
        for u in range(1, width):
            v = width - u
            left = (d_X[:, :, :u] * _of(LEFT, self.I[u][:, :n])).sum(2)
            right = (d_X[:, :, u:] * _of(RIGHT, self.I[v][:, u : u + n])).sum(2)
            _of(LEFT, d_K[v][:, u : u + n]).addcmul_(left, self.split[width][u - 1, LEFT])
            _of(RIGHT, d_K[u][:, :n]).addcmul_(right, self.split[width][u - 1, RIGHT])

    def arcs(self) -> Tensor:
        """Posteriors of arcs, [b, p, q], after the outside pass: for every span as non-head child, the
        derivative of its K for each head p outside it, times the part of K with head q.
        """
        t, l = self.tables, self.l
        arcs = t.root.new_zeros(self.b, l, l)
        for width in range(1, l):
            n = l - width + 1
            q = (torch.arange(n, device=arcs.device)[:, None] + torch.arange(width, device=arcs.device)).flatten()
            w_H = t.w_H.index_select(1, q)
            for D in LEFT, RIGHT:
                # K_q[b, i, o, H]: the part of K with head q = i + o
                if width == 1:
                    K_q = _of(D, t.leaf_C)
                else:
                    K_q = (self.s[width] @ _of(D, t.C_H)) * self.K_factor[width][..., None, None]
                K_q = K_q * _of(D, w_H).unflatten(1, (n, width))
                counts = self._d_K_by_head(width, D) @ K_q.transpose(2, 3)  # [b, i, p, o]
                arcs.index_add_(2, q, counts.transpose(1, 2).flatten(2))
        return arcs

    def _d_K_by_head(self, width: int, D: int) -> Tensor:
        """d_K of a width as far as it comes through the head p, [b, k, p, H], of children [k, k + width).

        The terms of one parent width lie on diagonals of [k, p]. For D = LEFT the child of the parent [i, j) begins
        at k = i + u, u the width of the head child, whose heads are p = i, ..., i + u - 1:

                  p  0 1 2 3 4
            k = 2    x x            i = 0     u = 2: from one row to the next l + 1 entries on,
            k = 3      x x          i = 1     the first of them at k = u, p = 0
            k = 4        x x        i = 2

        For D = RIGHT it begins at k = i, and the heads at p = i + width: the first entry is at k = 0, p = width.
        """
        l, H = self.l, self.H
        d_K = self.tables.root.new_zeros(self.b, l - width + 1, l, H)
        for wider in range(width + 1, l + 1):
            n, u = l - wider + 1, wider - width
            d_X, split = self.X[wider], self.split[wider]
            if D == LEFT:
                first = u * l
                d_X, I, split = d_X[:, :, :u], self.I[u][:, :n], split[u - 1, D]
            else:
                first = width
                d_X, I, split = d_X[:, :, width:], self.I[u][:, width : width + n], split[width - 1, D]
            rows = d_K.as_strided((self.b, n, u, H), (d_K.stride(0), (l + 1) * H, H, 1), first * H)
            rows.addcmul_(d_X, _of(D, I) * split[:, :, None])
        return d_K


def _of(D: int, x: Tensor) -> Tensor:
    """x[..., D, H] for a direction, [..., H]; the D axis may have size 1."""
    return x[..., D % x.shape[-2], :]


class _Heads:
    """Rows (i, o) of a width grouped by head: each head p is in at most min(width, l - width + 1) of the spans."""

    def __init__(self, l: int, width: int, device: torch.device) -> None:
        n = l - width + 1
        self.rows, self.groups = (n, width), (l, min(n, width))
        p, i = torch.arange(l, device=device)[:, None], torch.arange(n, device=device)[:, None]
        first = (p - width + 1).clamp(min=0)  # the first span that has the head p
        spans = first + torch.arange(min(n, width), device=device)
        valid = (spans <= p) & (spans < n)
        heads = i + torch.arange(width, device=device)
        self.valid = valid[..., None]
        self.row_of_place = torch.where(valid, spans * width + p - spans, 0).flatten()
        self.place_of_row = (heads * min(n, width) + i - first[heads, 0]).flatten()

    def group(self, x: Tensor) -> Tensor:
        """[b, i, o, x] to [b, p, t, x]; arbitrary rows where `valid`, [p, t, 1], does not hold."""
        return x.flatten(1, 2).index_select(1, self.row_of_place).unflatten(1, self.groups)

    def ungroup(self, x: Tensor) -> Tensor:
        """[b, p, t, x] to [b, i, o, x]."""
        return x.flatten(1, 2).index_select(1, self.place_of_row).unflatten(1, self.rows)


def _diagonals(band: Tensor, width: int) -> Tensor:
    """The entries (i, A, q) of a band [b, i, A, q] with q inside the span of the width, as a view [b, i, o, A].

          q  0 1 2 3 4
    i = 0    x x x          width = 3, one A: q = i + o, so that from one i to the next
    i = 1      x x x        the entries are A l + 1 apart
    i = 2        x x x
    """
    b, n, A, l = band.shape
    return band.as_strided((b, n, width, A), (n * A * l, A * l + 1, 1, l))


def _rescale_(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply the entries of each span, x[b, i], by a power of two that makes the largest about 2^PEAK. Return the
    factors and the new scales, [b, i].
    """
    peak = x.flatten(2).amax(2)
    exponent = (peak.log2().floor() - PEAK).clamp(min=-120)  # a factor of 2^120 at most, also where the peak is 0
    factor = (-exponent).exp2()
    x *= factor[..., None, None]
    return factor, torch.where(peak > 0, scale + exponent, NEVER)
