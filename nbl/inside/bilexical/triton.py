"""The kernels of `nbl.inside.bilexical.gpu` in Triton: one launch each, with the scales handled inside.

A program does BLOCK values of H for one entry of the chart, and sums over the splits in tiles of TILE, in a fixed
order: no atomic additions, the same bytes each time. The splits of a span [i, i + w) with head i + r, after u words,
belong to D = LEFT where u > r, else to D = RIGHT, so that one sum over u has them all.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nbl.inside.bilexical.gpu import Chart, TorchKernels
from nbl.inside.bilexical.torch import NEVER, PEAK

TILE = 8
BLOCK = 64


@triton.jit
def _cell(w, i, r, l):
    """The cell of the span [i, i + w) with head i + r."""
    base = (l + 1) * ((w - 1) * w // 2) - (w - 1) * w * (2 * w - 1) // 6
    return (base + i * w + r).to(tl.int64)


@triton.jit
def _place(w, i, p, l, places):
    """The row of X of the span [i, i + w) with head p."""
    v, half = w - 1, (l + 1) // 2
    beyond = tl.maximum(v - half, 0)
    base = v * (v + 1) // 2 - 1 - beyond * (beyond + l % 2)
    return (p * places + base + i - tl.maximum(p - w + 1, 0)).to(tl.int64)


@triton.jit
def _span(w, i, l):
    """The row of a table [i, w]."""
    return (i * (l + 1) + w).to(tl.int64)


@triton.jit(do_not_specialize=["l", "w", "cells", "places"])
def split_sum_kernel(
    IU, K, I_scale, K_scale, X_scale, X, l, w, cells, places,
    H: tl.constexpr, D_B: tl.constexpr, D_K: tl.constexpr, D: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """X of one span and head, [H], and the scale of the span."""
    n = l - w + 1
    m = tl.minimum(n, w)
    p, b = tl.program_id(0) // m, tl.program_id(1).to(tl.int64)
    first = tl.maximum(p - w + 1, 0)
    i = first + tl.program_id(0) % m
    r = p - i
    h = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    h_in = h < H
    spans = (l + 1) * (l + 1)
    X_row = X + (b * l * places + _place(w, i, p, l, places)) * H
    if (i <= p) & (i < n):
        I_scale += b * spans
        K_scale += b * spans
        IU += b * cells * D * H
        K += b * spans * D_K * H
        # the scale is the largest exponent of all splits of the span, LEFT and RIGHT
        every = tl.arange(0, WORDS)
        is_split = (every > 0) & (every < w)
        one, other = _span(every, i, l), _span(w - every, i + every, l)
        left = tl.load(I_scale + one, is_split, float("-inf")) + tl.load(K_scale + other, is_split, float("-inf"))
        right = tl.load(K_scale + one, is_split, float("-inf")) + tl.load(I_scale + other, is_split, float("-inf"))
        scale = tl.max(tl.maximum(left, right))
        if (r == 0) & (tl.program_id(2) == 0):
            tl.store(X_scale + b * spans + _span(w, i, l), scale)
        total = tl.zeros([BLOCK], dtype=X.dtype.element_ty)
        for u0 in range(1, w, TILE):
            u = u0 + tl.arange(0, TILE)
            u_in = u < w
            is_left = u > r
            width, start = tl.where(is_left, u, w - u), tl.where(is_left, i, i + u)
            head_span, other_span = _span(width, start, l), _span(w - width, tl.where(is_left, i + u, i), l)
            exponent = tl.load(I_scale + head_span, u_in, float("-inf")) + tl.load(K_scale + other_span, u_in, 0.0)
            weight = tl.exp2(exponent - scale)
            I_row = _cell(width, start, p - start, l) * D + tl.where(is_left, 0, D_B - 1)
            K_row = other_span * D_K + tl.where(is_left, 0, D_K - 1)
            mask = u_in[:, None] & h_in[None, :]
            I_part = tl.load(IU + I_row[:, None] * H + h[None, :], mask, 0.0)
            K_part = tl.load(K + K_row[:, None] * H + h[None, :], mask, 0.0)
            total += tl.sum(I_part * K_part * weight[:, None], 0)
        tl.store(X_row + h, total, h_in)
    else:
        tl.store(X_row + h, tl.zeros([BLOCK], dtype=X.dtype.element_ty), h_in)


@triton.jit
def _shift(peak, PEAK: tl.constexpr):
    """The power of two that makes a peak about 2^PEAK, at most 120."""
    return tl.minimum(PEAK - tl.floor(tl.log2(peak)), 120.0)


@triton.jit(do_not_specialize=["l", "w", "cells"])
def rescale_kernel(
    S, s, I_scale, X_scale, s_factor, l, w, cells,
    A: tl.constexpr, ROWS: tl.constexpr, SYMBOLS: tl.constexpr, PEAK: tl.constexpr, NEVER: tl.constexpr,
):  # fmt: skip
    """s of one span, [r, A], from S[b, p, place, A]; its scale and factor."""
    n = l - w + 1
    m = tl.minimum(n, w)
    i, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    r, A_ = tl.arange(0, ROWS), tl.arange(0, SYMBOLS)
    mask = (r < w)[:, None] & (A_ < A)[None, :]
    p = i + r
    place = ((b * l + p) * m + i - tl.maximum(p - w + 1, 0)) * A
    values = tl.load(S + place[:, None] + A_[None, :], mask, 0.0)
    peak = tl.max(tl.max(values, 1), 0)
    shift = _shift(peak, PEAK)
    span = b * (l + 1) * (l + 1) + _span(w, i, l)
    scale = tl.load(X_scale + span)
    factor = tl.exp2(shift)
    tl.store(I_scale + span, tl.where(peak > 0, scale - shift, NEVER))
    tl.store(s_factor + span, factor)
    row = (b * cells + _cell(w, i, r, l)) * A
    tl.store(s + row[:, None] + A_[None, :], values * factor, mask)


@triton.jit(do_not_specialize=["l", "w", "cells"])
def close_kernel(
    IU, w_H, K, I_scale, K_scale, K_factor, l, w, cells,
    H: tl.constexpr, D_B: tl.constexpr, D_C: tl.constexpr, D_w: tl.constexpr, D_K: tl.constexpr, D: tl.constexpr,
    ALL: tl.constexpr, PEAK: tl.constexpr, NEVER: tl.constexpr,
):  # fmt: skip
    """K of one span, [D, H]; its scale and factor."""
    i, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    d, h = tl.arange(0, D_K)[:, None], tl.arange(0, ALL)[None, :]
    mask = (d < D_K) & (h < H)
    U = IU + (b * cells + _cell(w, i, 0, l)) * D * H + (D_B + d * (D_C - 1)) * H + h
    word = w_H + (b * l + i) * D_w * H + d * (D_w - 1) * H + h
    total = tl.zeros([D_K, ALL], dtype=K.dtype.element_ty)
    for _ in range(w):
        total += tl.load(U, mask, 0.0) * tl.load(word, mask, 0.0)
        U += D * H
        word += D_w * H
    peak = tl.max(tl.max(total, 1), 0)
    shift = _shift(peak, PEAK)
    span = b * (l + 1) * (l + 1) + _span(w, i, l)
    scale = tl.load(I_scale + span)
    factor = tl.exp2(shift)
    tl.store(K_scale + span, tl.where(peak > 0, scale - shift, NEVER))
    tl.store(K_factor + span, factor)
    tl.store(K + span * D_K * H + d * H + h, total * factor, mask)


@triton.jit(do_not_specialize=["l", "w", "places"])
def d_parts_kernel(
    X, K, w_H, dK_left, dK_right, I_scale, K_scale, X_scale, K_factor, d_IU, l, w, places,
    H: tl.constexpr, D_B: tl.constexpr, D_C: tl.constexpr, D_w: tl.constexpr, D_K: tl.constexpr, D: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """d log Z / dI and d log Z / dU of one span and head, [D, H]."""
    n = l - w + 1
    i, r, b = tl.program_id(0) // w, tl.program_id(0) % w, tl.program_id(1).to(tl.int64)
    p = i + r
    h = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    h_in = h < H
    spans = (l + 1) * (l + 1)
    of_b = b * spans
    own = tl.load(I_scale + of_b + _span(w, i, l))
    left = tl.zeros([BLOCK], dtype=X.dtype.element_ty)
    right = tl.zeros([BLOCK], dtype=X.dtype.element_ty)
    # the parents: i of them end where this span ends, with the other child on its left; the others begin with it
    for e0 in range(0, l - w, TILE):
        e = e0 + tl.arange(0, TILE)
        e_in = e < l - w
        is_left = e >= i
        start, width = tl.where(is_left, i, e), tl.where(is_left, w + 1 + e - i, i + w - e)
        sister = _span(width - w, tl.where(is_left, i + w, e), l)
        exponent = own + tl.load(K_scale + of_b + sister, e_in, 0.0)
        exponent -= tl.load(X_scale + of_b + _span(width, start, l), e_in, float("inf"))
        weight = tl.exp2(exponent)
        mask = e_in[:, None] & h_in[None, :]
        dX = tl.load(X + (b * l * places + _place(width, start, p, l, places))[:, None] * H + h[None, :], mask, 0.0)
        K_row = (of_b + sister) * D_K + tl.where(is_left, 0, D_K - 1)
        product = dX * tl.load(K + K_row[:, None] * H + h[None, :], mask, 0.0) * weight[:, None]
        left += tl.sum(tl.where(is_left[:, None], product, 0.0), 0)
        right += tl.sum(tl.where(is_left[:, None], 0.0, product), 0)
    row = d_IU + ((b * n + i) * w + r) * D * H + h
    if D_B == 1:
        tl.store(row, left + right, h_in)
    else:
        tl.store(row, left, h_in)
        tl.store(row + H, right, h_in)
    factor = tl.load(K_factor + of_b + _span(w, i, l))
    word = w_H + (b * l + p) * D_w * H + h
    left = tl.load(dK_left + (of_b + _span(w, i + w, l)) * H + h, h_in, 0.0) * factor * tl.load(word, h_in, 0.0)
    right = tl.load(dK_right + (of_b + _span(w, i, l)) * H + h, h_in, 0.0) * factor
    right *= tl.load(word + (D_w - 1) * H, h_in, 0.0)
    if D_C == 1:
        tl.store(row + D_B * H, left + right, h_in)
    else:
        tl.store(row + D_B * H, left, h_in)
        tl.store(row + (D_B + 1) * H, right, h_in)


@triton.jit(do_not_specialize=["l", "w", "cells"])
def spread_kernel(
    ds, s, d_goal, lengths, s_factor, spans, by_head, l, w, cells,
    A: tl.constexpr, ROWS: tl.constexpr, SYMBOLS: tl.constexpr,
):  # fmt: skip
    """d log Z / ds of one span, [r, A], with what the root adds, before scaling; the posterior of the span."""
    n = l - w + 1
    m = tl.minimum(n, w)
    i, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    r, A_ = tl.arange(0, ROWS), tl.arange(0, SYMBOLS)
    mask = (r < w)[:, None] & (A_ < A)[None, :]
    d = tl.load(ds + (((b * n + i) * w + r) * A)[:, None] + A_[None, :], mask, 0.0)
    if (i == 0) & (tl.load(lengths + b) == w):
        d += tl.load(d_goal + ((b * l + r) * A)[:, None] + A_[None, :], mask, 0.0)
    values = tl.load(s + ((b * cells + _cell(w, i, r, l)) * A)[:, None] + A_[None, :], mask, 0.0)
    tl.store(spans + b * (l + 1) * (l + 1) + i * (l + 1) + i + w, tl.sum(tl.sum(values * d, 1), 0))
    factor = tl.load(s_factor + b * (l + 1) * (l + 1) + _span(w, i, l))
    p = i + r
    place = ((b * l + p) * m + i - tl.maximum(p - w + 1, 0)) * A
    tl.store(by_head + place[:, None] + A_[None, :], d * factor, mask)


@triton.jit(do_not_specialize=["l", "w", "cells", "places"])
def add_dK_kernel(
    X, IU, I_scale, K_scale, X_scale, dK_left, dK_right, l, w, cells, places,
    H: tl.constexpr, D_B: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """What one span and split add to d log Z / dK of the child on the right (LEFT) and on the left (RIGHT), [H]."""
    i, u, b = tl.program_id(0) // (w - 1), tl.program_id(0) % (w - 1) + 1, tl.program_id(1).to(tl.int64)
    h = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    h_in = h < H
    of_b = b * (l + 1) * (l + 1)
    left = tl.zeros([BLOCK], dtype=X.dtype.element_ty)
    right = tl.zeros([BLOCK], dtype=X.dtype.element_ty)
    for r0 in range(0, w, TILE):
        r = r0 + tl.arange(0, TILE)
        is_left = r < u
        mask = (r < w)[:, None] & h_in[None, :]
        dX = tl.load(X + (b * l * places + _place(w, i, i + r, l, places))[:, None] * H + h[None, :], mask, 0.0)
        width, start = tl.where(is_left, u, w - u), tl.where(is_left, i, i + u)
        row = (b * cells + _cell(width, start, i + r - start, l)) * D + tl.where(is_left, 0, D_B - 1)
        product = dX * tl.load(IU + row[:, None] * H + h[None, :], mask, 0.0)
        left += tl.sum(tl.where(is_left[:, None], product, 0.0), 0)
        right += tl.sum(tl.where(is_left[:, None], 0.0, product), 0)
    one, other = of_b + _span(u, i, l), of_b + _span(w - u, i + u, l)
    scale = tl.load(X_scale + of_b + _span(w, i, l))
    left *= tl.exp2(tl.load(I_scale + one) + tl.load(K_scale + other) - scale)
    right *= tl.exp2(tl.load(K_scale + one) + tl.load(I_scale + other) - scale)
    target = dK_left + (of_b + _span(w - u, i + w, l)) * H + h  # by the end of the child
    tl.store(target, tl.load(target, h_in, 0.0) + left, h_in)
    target = dK_right + one * H + h
    tl.store(target, tl.load(target, h_in, 0.0) + right, h_in)


@triton.jit(do_not_specialize=["l", "cells"])
def d_word_kernel(
    IU, dK_left, dK_right, K_factor, d_w, l, cells,
    H: tl.constexpr, D_B: tl.constexpr, D_C: tl.constexpr, D_w: tl.constexpr, D: tl.constexpr,
    BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """d log Z / dw_H of one word, [D, H]: over all spans that hold it."""
    q, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    h = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    h_in = h < H
    of_b = b * (l + 1) * (l + 1)
    left = tl.zeros([BLOCK], dtype=IU.dtype.element_ty)
    right = tl.zeros([BLOCK], dtype=IU.dtype.element_ty)
    for w in range(1, l + 1):
        for i0 in range(tl.maximum(q - w + 1, 0), tl.minimum(q, l - w) + 1, TILE):
            i = i0 + tl.arange(0, TILE)
            i_in = (i <= q) & (i + w <= l)
            mask = i_in[:, None] & h_in[None, :]
            factor = tl.load(K_factor + of_b + _span(w, i, l), i_in, 0.0)[:, None]
            row = ((b * cells + _cell(w, i, q - i, l)) * D + D_B)[:, None] * H + h[None, :]
            d_left = tl.load(dK_left + (of_b + _span(w, i + w, l))[:, None] * H + h[None, :], mask, 0.0) * factor
            d_right = tl.load(dK_right + (of_b + _span(w, i, l))[:, None] * H + h[None, :], mask, 0.0) * factor
            left += tl.sum(d_left * tl.load(IU + row, mask, 0.0), 0)
            right += tl.sum(d_right * tl.load(IU + row + (D_C - 1) * H, mask, 0.0), 0)
    row = d_w + (b * l + q) * D_w * H + h
    if D_w == 1:
        tl.store(row, left + right, h_in)
    else:
        tl.store(row, left, h_in)
        tl.store(row + H, right, h_in)


@triton.jit(do_not_specialize=["l", "w", "cells", "places"])
def d_heads_kernel(
    X, IU, I_scale, K_scale, X_scale, d_heads, l, w, cells, places,
    H: tl.constexpr, D_B: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """d log Z / dK of one span as far as it comes through head p, [H]: LEFT where p is before the span, else RIGHT."""
    n = l - w + 1
    i, p, b = tl.program_id(0) // l, tl.program_id(0) % l, tl.program_id(1).to(tl.int64)
    h = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    h_in = h < H
    of_b = b * (l + 1) * (l + 1)
    total = tl.zeros([BLOCK], dtype=X.dtype.element_ty)
    is_left = p < i
    # the parents [e, i + w), e <= p, or [i, p + 1 + e)
    parents = tl.where(is_left, p + 1, tl.where(p >= i + w, l - p, 0))
    own = tl.load(K_scale + of_b + _span(w, i, l))
    for e0 in range(0, parents, TILE):
        e = e0 + tl.arange(0, TILE)
        e_in = e < parents
        start, end = tl.where(is_left, e, i), tl.where(is_left, i + w, p + 1 + e)
        width, head = end - start - w, tl.where(is_left, e, i + w)
        exponent = own + tl.load(I_scale + of_b + _span(width, head, l), e_in, 0.0)
        exponent -= tl.load(X_scale + of_b + _span(end - start, start, l), e_in, float("inf"))
        mask = e_in[:, None] & h_in[None, :]
        dX = tl.load(X + (b * l * places + _place(end - start, start, p, l, places))[:, None] * H + h[None, :], mask, 0)
        row = (b * cells + _cell(width, head, p - head, l)) * D + tl.where(is_left, 0, D_B - 1)
        product = dX * tl.load(IU + row[:, None] * H + h[None, :], mask, 0.0)
        total += tl.sum(product * tl.exp2(exponent)[:, None], 0)
    tl.store(d_heads + ((b * n + i) * l + p) * H + h, total, h_in)


@triton.jit(do_not_specialize=["l", "w", "cells"])
def children_kernel(
    IU, w_H, K_factor, K_q, l, w, cells,
    H: tl.constexpr, D_B: tl.constexpr, D_C: tl.constexpr, D_w: tl.constexpr, D_K: tl.constexpr, D: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The part of K of one span with head i + r, [D, H], in [b, i, D, r, H]."""
    n = l - w + 1
    i, r, b = tl.program_id(0) // w, tl.program_id(0) % w, tl.program_id(1).to(tl.int64)
    h = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    h_in = h < H
    factor = tl.load(K_factor + b * (l + 1) * (l + 1) + _span(w, i, l))
    U = IU + ((b * cells + _cell(w, i, r, l)) * D + D_B) * H + h
    word = w_H + (b * l + i + r) * D_w * H + h
    for d in tl.static_range(D_K):
        part = tl.load(U + d * (D_C - 1) * H, h_in, 0.0) * tl.load(word + d * (D_w - 1) * H, h_in, 0.0) * factor
        tl.store(K_q + (((b * n + i) * D_K + d) * w + r) * H + h, part, h_in)


@triton.jit(do_not_specialize=["l", "w"])
def add_arcs_kernel(counts, arcs, l, w, D_K: tl.constexpr, WORDS: tl.constexpr):
    """Add to the arcs from one head p, [q], those to the heads of the children of width w: counts [b, i, p, D, r]."""
    n = l - w + 1
    p, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    q = tl.arange(0, WORDS)
    total = tl.zeros([WORDS], dtype=arcs.dtype.element_ty)
    for i in range(n):
        d = tl.where(p < i, 0, D_K - 1)
        r = q - i
        total += tl.load(counts + (((b * n + i) * l + p) * D_K + d) * w + r, (r >= 0) & (r < w), 0.0)
    target = arcs + (b * l + p) * l + q
    tl.store(target, tl.load(target, q < l, 0.0) + total, q < l)


class TritonKernels:
    """As `nbl.inside.bilexical.gpu.TorchKernels`."""

    words = TorchKernels.words

    @staticmethod
    def split_sum(c: Chart, w: int) -> None:
        rows = c.l * min(c.l - w + 1, w)
        scales = c.I_scale, c.K_scale, c.X_scale
        sizes = {"H": c.H, "D_B": c.D_B, "D_K": c.D_K, "D": c.D, "WORDS": _power(c.l + 1), **_tiles(c)}
        _launch(split_sum_kernel, (rows, c.b, _blocks(c)), (c.IU, c.K, *scales, c.X), c, w, "cells places", **sizes)

    @staticmethod
    def rescale(c: Chart, w: int, s: Tensor) -> None:
        tensors = s, c.s, c.I_scale, c.X_scale, c.s_factor
        _launch(rescale_kernel, (c.l - w + 1, c.b), tensors, c, w, "cells", **_of_symbols(c), **SCALES)

    @staticmethod
    def close(c: Chart, w: int) -> None:
        tensors = c.IU, c.tables.w_H, c.K, c.I_scale, c.K_scale, c.K_factor
        _launch(close_kernel, (c.l - w + 1, c.b), tensors, c, w, "cells", **_of_D(c), ALL=_power(c.H), **SCALES)

    @staticmethod
    def d_parts(c: Chart, w: int) -> Tensor:
        n = c.l - w + 1
        d_IU = c.IU.new_empty(c.b, n * w, c.D * c.H)
        scales = c.I_scale, c.K_scale, c.X_scale, c.K_factor
        tensors = c.X, c.K, c.tables.w_H, c.dK_left, c.dK_right, *scales, d_IU
        _launch(d_parts_kernel, (n * w, c.b, _blocks(c)), tensors, c, w, "places", **_of_D(c), **_tiles(c))
        return d_IU

    @staticmethod
    def spread(c: Chart, w: int, ds: Tensor) -> Tensor:
        n = c.l - w + 1
        by_head = ds.new_zeros(c.b * c.l, min(n, w), c.A)
        tensors = ds, c.s, c.d_goal, c.lengths, c.s_factor, c.spans, by_head
        _launch(spread_kernel, (n, c.b), tensors, c, w, "cells", **_of_symbols(c))
        return by_head

    @staticmethod
    def add_dK(c: Chart, w: int) -> None:
        tensors = c.X, c.IU, c.I_scale, c.K_scale, c.X_scale, c.dK_left, c.dK_right
        grid = (c.l - w + 1) * (w - 1), c.b, _blocks(c)
        _launch(add_dK_kernel, grid, tensors, c, w, "cells places", H=c.H, D_B=c.D_B, D=c.D, **_tiles(c))

    @staticmethod
    def end(c: Chart) -> None:
        """The gradient of w_H."""
        sizes = {name: size for name, size in _of_D(c).items() if name != "D_K"}
        tensors = c.IU, c.dK_left, c.dK_right, c.K_factor, c.d_w
        _launch(d_word_kernel, (c.l, c.b, _blocks(c)), tensors, c, None, "cells", **sizes, **_tiles(c))

    @staticmethod
    def add_arcs(c: Chart, w: int, arcs: Tensor) -> None:
        n = c.l - w + 1
        d_heads = c.K.new_empty(c.b * n, c.l, c.H)
        tensors = c.X, c.IU, c.I_scale, c.K_scale, c.X_scale, d_heads
        sizes = {"H": c.H, "D_B": c.D_B, "D": c.D, **_tiles(c)}
        _launch(d_heads_kernel, (n * c.l, c.b, _blocks(c)), tensors, c, w, "cells places", **sizes)
        K_q = c.K.new_empty(c.b * n, c.D_K * w, c.H)
        inputs = c.IU, c.tables.w_H, c.K_factor
        _launch(
            children_kernel,
            (n * w, c.b, _blocks(c)),
            (*inputs, K_q),
            c,
            w,
            "cells",
            **_of_D(c),
            BLOCK=_tiles(c)["BLOCK"],
        )
        counts = d_heads @ K_q.mT  # [b i, p, D r]
        _launch(add_arcs_kernel, (c.l, c.b), (counts, arcs), c, w, "", D_K=c.D_K, WORDS=_power(c.l))


SCALES = {"PEAK": PEAK, "NEVER": NEVER}


def run(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], sizes: dict[str, float]) -> None:
    """Launch a kernel. What counts launches takes the place of this function."""
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](*arguments, **sizes)


def _launch(
    kernel: Any, grid: tuple[int, ...], tensors: tuple[Tensor, ...], c: Chart, w: int | None, more: str, **sizes: float
) -> None:
    numbers = [c.l, *([] if w is None else [w]), *(getattr(c.layout, name) for name in more.split())]
    run(kernel, grid, (*tensors, *numbers), sizes)


def _power(size: int) -> int:
    return triton.next_power_of_2(size)


def _blocks(c: Chart) -> int:
    return triton.cdiv(c.H, _tiles(c)["BLOCK"])


def _tiles(c: Chart) -> dict[str, int]:
    return {"BLOCK": min(BLOCK, _power(c.H)), "TILE": TILE}


def _of_D(c: Chart) -> dict[str, int]:
    return {"H": c.H, "D_B": c.D_B, "D_C": c.D_C, "D_w": c.D_w, "D_K": c.D_K, "D": c.D}


def _of_symbols(c: Chart) -> dict[str, int]:
    return {"A": c.A, "ROWS": _power(c.l), "SYMBOLS": _power(c.A)}
