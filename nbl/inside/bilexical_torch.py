"""The NBL-PCFG's inside and outside recursions (Eq. inside_ours) in torch, on any device.

Of each span [i, j) two parts are kept beside s:

    I[i, j, p, D, H] = sum_B s[i, j, p, B] p(B, D | H)                    as head child (Term D1-1)
    K[i, j, D, H] = sum_q p(w_q, D | H) sum_C s[i, j, q, C] p(C, D | H)   as the other child (Term D1-2)

    X[i, j, p, H] = sum_k I[i, k, p, LEFT, H] K[k, j, LEFT, H] + sum_k I[k, j, p, RIGHT, H] K[i, k, RIGHT, H]
    s[i, j, p, A] = sum_H p(H | A, w_p) X[i, j, p, H]

The chart is packed by width: s[w], X[w] and I[w] are tensors [b, i, r, ...] over the spans [i, i + w) and their
heads p = i + r, K[w] is [b, i, D, H]. A factor that does not depend on D has a D axis of size 1.

Entries are scaled probabilities: the true value is the stored one times 2^scale, with one scale for the I and
one for the K of a span. Scales are whole numbers, so that scaling never rounds, and constants for the gradient.
The outside pass finds d log Z / d entry for the stored entries. It needs no scales of its own, because an entry
times its derivative is a posterior probability.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

LEFT, RIGHT = 0, -1  # on a D axis of size 1 or 2
PEAK = 30  # the largest entry of a span is about 2^PEAK: room below for products of small entries
NEVER = -1e9  # the scale of an impossible span: finite, so that differences of scales are


class Tables(NamedTuple):
    """The rules as probabilities; preterminals are summed, as each generates its word with probability 1."""

    root: Tensor  # [b, p, A]   log p(A | S) p(w_p | A), relative to the scale of w_H[p]
    H_Aw: Tensor  # [b, p, A, H]   0 in the padding
    B_H: Tensor  # [B, 1|2, H]   nonterminals
    leaf_B: Tensor  # [1|2, H]   all preterminals
    C_H: Tensor  # [C, 1|2, H]   nonterminals
    leaf_C: Tensor  # [1|2, H]   all preterminals
    w_H: Tensor  # [b, q, 1|2, H]   divided by a scale for each word; 0 in the padding


SHARED = ("B_H", "leaf_B", "C_H", "leaf_C")  # the tables without an axis b


class Solution(NamedTuple):
    """What an implementation of the recursions returns; all but log_Z where asked for."""

    log_Z: Tensor  # [b]
    gradients: Tables | None = None  # d log_Z[b] / d table; those of the shared tables have a leading axis b, too
    spans: Tensor | None = None  # [b, i, j]   posteriors of spans and arcs, as in Marginals
    arcs: Tensor | None = None  # [b, h, q]


def solve(tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """log Z and, on request, its gradients and the posteriors."""
    chart = _Chart(Tables(*(table.contiguous() for table in tables)))
    log_Z = chart.inside(lengths)
    if not (gradients or posteriors):
        return Solution(log_Z)
    derivatives, spans = chart.outside(lengths)
    if not posteriors:
        return Solution(log_Z, derivatives)
    return Solution(log_Z, derivatives, spans, torch.cat([derivatives.root.sum(2)[:, None], chart.arcs()], 1))


class _Chart:
    """Charts of a batch as lists indexed by width; there is nothing of width 0, and no s and X of width 1."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.b, self.l, self.A, self.H = tables.H_Aw.shape
        none = tables.root.new_empty(0)
        self.goal: list[Tensor] = [none, none]  # log Z of the sentences of this length at the scale of s, [b]
        self.s: list[Tensor] = [none, none]
        self.X: list[Tensor] = [none, none]  # the outside pass puts d log Z / dX in its place
        self.I: list[Tensor] = [none, tables.leaf_B.expand(self.b, self.l, 1, -1, -1)]
        self.T: list[Tensor] = [none, none]  # sum_q s[i, j, q, C] p(w_q, D | H), [b, i, C, D, H]
        self.K: list[Tensor] = [none, tables.w_H * tables.leaf_C]
        self.I_scale: list[Tensor] = [none, none.new_zeros(self.b, self.l)]
        self.K_scale: list[Tensor] = [none, torch.where(self.K[1].amax((2, 3)) > 0, 0.0, NEVER).to(none)]
        # what s and K were multiplied by to give the stored ones, [b, i]
        self.s_factor: list[Tensor] = [none, none]
        self.K_factor: list[Tensor] = [none, none]
        # split[w][u - 1, D], [b, i, 1]: what brings I K of the split w = u + v to the scale of X[w]
        self.split: list[Tensor] = [none, none]

    def inside(self, lengths: Tensor) -> Tensor:
        """Fill the chart; return log Z."""
        t = self.tables
        log_Z = []
        for w in range(2, self.l + 1):
            X, scale = self._split_sum(w)
            heads = _Heads(self.l, w, X.device)
            s = heads.ungroup((t.H_Aw @ heads.group(X).transpose(2, 3)).transpose(2, 3))
            s_factor, scale = _rescale_(s, scale)
            goal = (s[:, 0].log() + t.root[:, :w]).flatten(1).logsumexp(1)
            log_Z.append(goal + scale[:, 0] * log(2))
            T = (self._band(s) @ t.w_H.flatten(2)).view(self.b, -1, self.A, t.w_H.shape[2], self.H)
            K = torch.zeros_like(self.K[1][:, w - 1 :])
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

    def _split_sum(self, w: int) -> tuple[Tensor, Tensor]:
        """X of width w, [b, i, r, H], and its scale, [b, i]."""
        n = self.l - w + 1
        exponents = []
        for u in range(1, w):
            left = self.I_scale[u][:, :n] + self.K_scale[w - u][:, u : u + n]
            right = self.K_scale[u][:, :n] + self.I_scale[w - u][:, u : u + n]
            exponents.append(torch.stack([left, right]))
        exponent = torch.stack(exponents)
        scale = exponent.amax((0, 1))
        split = (exponent - scale).exp2_()[..., None]
        self.split.append(split)
        X = scale.new_zeros(self.b, n, w, self.H)
        for u in range(1, w):
            v = w - u
            K_left = self.K[v][:, u : u + n, LEFT] * split[u - 1, LEFT]
            K_right = self.K[u][:, :n, RIGHT] * split[u - 1, RIGHT]
            X[:, :, :u].addcmul_(self.I[u][:, :n, :, LEFT], K_left[:, :, None])
            X[:, :, u:].addcmul_(self.I[v][:, u : u + n, :, RIGHT], K_right[:, :, None])
        return X, scale

    def _band(self, s: Tensor) -> Tensor:
        """s of one width with every head at its place in the sentence, [b, i A, q]. This adds zeros, but makes
        one large matrix product of what would be one for each span.
        """
        band = s.new_zeros(self.b, s.shape[1], self.A, self.l)
        _diagonals(band, s.shape[2]).copy_(s)
        return band.flatten(1, 2)

    def outside(self, lengths: Tensor) -> tuple[Tables, Tensor]:
        """Put d log Z / dX in the place of X; return the gradients of the tables and the span posteriors."""
        t, b, l = self.tables, self.b, self.l
        d_root, d_H_Aw, d_w = torch.zeros_like(t.root), torch.zeros_like(t.H_Aw), torch.zeros_like(t.w_H)
        d_B, d_C = t.root.new_zeros(b, *t.B_H.shape), t.root.new_zeros(b, *t.C_H.shape)
        dK = [torch.zeros_like(K) for K in self.K]
        spans = t.root.new_zeros(b, l + 1, l + 1)
        for w in range(l, 1, -1):
            s = self.s[w]
            # ds, the sum over the three ways in which the span is used: by the root, by K and by I
            dI = self._dI(w)
            ds = (dI.flatten(3) @ t.B_H.flatten(1).t()).contiguous()
            # an s so small that its inverse overflows has no share in log Z; an impossible sentence has no gradient
            is_root = ((lengths == w) & self.goal[w].isfinite())[:, None, None]
            is_root = is_root & (s[:, 0] >= torch.finfo(s.dtype).tiny)
            d_goal = torch.where(is_root, t.root[:, :w] - self.goal[w][:, None, None], -torch.inf).exp()
            ds[:, 0] += d_goal
            d_root[:, :w] += d_goal * s[:, 0]
            dK_w = dK[w] * self.K_factor[w][..., None, None]
            T = self.T[w]
            dT = torch.empty_like(T)
            for C in range(self.A):
                dT[:, :, C] = (dK_w * t.C_H[C]).sum_to_size(T[:, :, C].shape)
                d_C[:, C] += (dK_w * T[:, :, C]).sum(1).sum_to_size(d_C[:, C].shape)
            dT = dT.flatten(3).flatten(1, 2)
            ds += _diagonals((dT @ t.w_H.flatten(2).transpose(1, 2)).view(b, -1, self.A, l), w)
            # gradients of the tables
            d_B += (s.flatten(1, 2).transpose(1, 2) @ dI.flatten(3).flatten(1, 2)).view_as(d_B)
            d_w += (self._band(s).transpose(1, 2) @ dT).view_as(d_w)
            spans.diagonal(w, 1, 2).copy_((s * ds).sum((2, 3)))
            ds *= self.s_factor[w][..., None, None]
            heads = _Heads(l, w, s.device)
            ds_by_head = heads.group(ds) * heads.valid
            d_H_Aw.flatten(0, 1).baddbmm_(
                ds_by_head.transpose(2, 3).flatten(0, 1), heads.group(self.X[w]).flatten(0, 1)
            )
            self.X[w] = heads.ungroup(ds_by_head @ t.H_Aw)
            self._add_dK(w, dK)
        d_leaf_B = self._dI(1).sum((1, 2))
        d_leaf_C = (dK[1] * t.w_H).sum(1).sum_to_size(b, *t.leaf_C.shape)
        d_w += (dK[1] * t.leaf_C).sum_to_size(d_w.shape)
        return Tables(d_root, d_H_Aw, d_B, d_leaf_B, d_C, d_leaf_C, d_w), spans

    def _dI(self, w: int) -> Tensor:
        """d log Z / dI of width w, [b, i, r, D, H], from the dX of the wider spans."""
        dI = torch.zeros(self.I[w].shape, dtype=self.I[w].dtype, device=self.I[w].device)
        for W in range(w + 1, self.l + 1):
            n, v = self.l - W + 1, W - w
            K_left = self.K[v][:, w : w + n, LEFT] * self.split[W][w - 1, LEFT]
            K_right = self.K[v][:, :n, RIGHT] * self.split[W][v - 1, RIGHT]
            dI[:, :n, :, LEFT].addcmul_(self.X[W][:, :, :w], K_left[:, :, None])
            dI[:, v : v + n, :, RIGHT].addcmul_(self.X[W][:, :, v:], K_right[:, :, None])
        return dI

    def _add_dK(self, w: int, dK: list[Tensor]) -> None:
        """Add to d log Z / dK of the narrower spans what comes from dX of width w."""
        n = self.l - w + 1
        dX = self.X[w]
        for u in range(1, w):
            v = w - u
            left = (dX[:, :, :u] * self.I[u][:, :n, :, LEFT]).sum(2)
            right = (dX[:, :, u:] * self.I[v][:, u : u + n, :, RIGHT]).sum(2)
            dK[v][:, u : u + n, LEFT].addcmul_(left, self.split[w][u - 1, LEFT])
            dK[u][:, :n, RIGHT].addcmul_(right, self.split[w][u - 1, RIGHT])

    def arcs(self) -> Tensor:
        """Posteriors of arcs, [b, p, q], after the outside pass: for every span as non-head child, the
        derivative of its K for each head p outside it, times the part of K with head q.
        """
        t, l = self.tables, self.l
        arcs = t.root.new_zeros(self.b, l, l)
        for w in range(1, l):
            n = l - w + 1
            q = (torch.arange(n, device=arcs.device)[:, None] + torch.arange(w, device=arcs.device)).flatten()
            w_H = t.w_H.index_select(1, q)
            for D in LEFT, RIGHT:
                # K_q[b, i, r, H]: the part of K with head q = i + r
                K_q = t.leaf_C[D] if w == 1 else (self.s[w] @ t.C_H[:, D]) * self.K_factor[w][..., None, None]
                K_q = K_q * w_H[:, :, D].unflatten(1, (n, w))
                counts = self._dK_by_head(w, D) @ K_q.transpose(2, 3)  # [b, i, p, r]
                arcs.index_add_(2, q, counts.transpose(1, 2).flatten(2))
        return arcs

    def _dK_by_head(self, w: int, D: int) -> Tensor:
        """d log Z / dK of width w as far as it comes through head p, [b, i, p, H]."""
        l, H = self.l, self.H
        dK = self.tables.root.new_zeros(self.b, l - w + 1, l, H)
        for W in range(w + 1, l + 1):
            n, u = l - W + 1, W - w
            if D == LEFT:  # the parent [i, i + W), its head child [i, i + u)
                dX, I, split, offset = self.X[W][:, :, :u], self.I[u][:, :n, :, D], self.split[W][u - 1, D], u * l
            else:  # its head child [i + w, i + W)
                dX, I, split, offset = self.X[W][:, :, w:], self.I[u][:, w : w + n, :, D], self.split[W][w - 1, D], w
            rows = dK.as_strided((self.b, n, u, H), (dK.stride(0), (l + 1) * H, H, 1), offset * H)
            rows.addcmul_(dX, I * split[:, :, None])
        return dK


class _Heads:
    """Rows (i, r) of width w grouped by head: each head p is in at most min(w, l - w + 1) of the spans."""

    def __init__(self, l: int, w: int, device: torch.device) -> None:
        n = l - w + 1
        self.rows, self.groups = (n, w), (l, min(n, w))
        p, i = torch.arange(l, device=device)[:, None], torch.arange(n, device=device)[:, None]
        first = (p - w + 1).clamp(min=0)  # the first span that has the head p
        spans = first + torch.arange(min(n, w), device=device)
        valid = (spans <= p) & (spans < n)
        heads = i + torch.arange(w, device=device)
        self.valid = valid[..., None]
        self.row_of_place = torch.where(valid, spans * w + p - spans, 0).flatten()
        self.place_of_row = (heads * min(n, w) + i - first[heads, 0]).flatten()

    def group(self, x: Tensor) -> Tensor:
        """[b, i, r, x] to [b, p, t, x]; arbitrary rows where `valid`, [p, t, 1], does not hold."""
        return x.flatten(1, 2).index_select(1, self.row_of_place).unflatten(1, self.groups)

    def ungroup(self, x: Tensor) -> Tensor:
        """[b, p, t, x] to [b, i, r, x]."""
        return x.flatten(1, 2).index_select(1, self.place_of_row).unflatten(1, self.rows)


def _diagonals(band: Tensor, w: int) -> Tensor:
    """The entries (i, A, q) of a band [b, i, A, q] with q inside the span of width w, as [b, i, r, A]."""
    b, n, A, l = band.shape
    return band.as_strided((b, n, w, A), (n * A * l, A * l + 1, 1, l))


def _rescale_(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply the entries of each span, x[b, i], by a power of two that makes the largest about 2^PEAK. Return the
    factors and the new scales, [b, i].
    """
    peak = x.flatten(2).amax(2)
    exponent = (peak.log2().floor() - PEAK).clamp(min=-120)  # a factor of 2^120 at most, also where the peak is 0
    factor = (-exponent).exp2()
    x *= factor[..., None, None]
    return factor, torch.where(peak > 0, scale + exponent, NEVER)
