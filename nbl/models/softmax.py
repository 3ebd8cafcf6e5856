"""Softmaxes over large outcomes, above all the vocabulary."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nbl import native
from nbl.products import is_native, linear

BLOCK = 2**19  # logits of a block of outcomes: 2 MB
NATIVE_BLOCK = 192  # outcomes of a block of the native kernel: with 300 rows, all that is worked on fits into 1 MB


class Softmax(nn.Module):
    """p(y | x) = softmax over y of query(x) . key(v_y) + b_y.

    The released code has its networks in the query: they see what is conditioned on. The paper's
    appendix has them in the key: they see what is generated. `output` holds the v_y and, if it has
    a bias, the b_y.
    """

    def __init__(self, query: nn.Module, output: nn.Linear, key: nn.Module | None = None):
        super().__init__()
        self.query, self.output, self.key = query, output, key or nn.Identity()

    def forward(self, *x: Tensor) -> Tensor:
        """log p(y | x) for every y, [..., y]."""
        return linear(self.query(*x), self.key(self.output.weight), self.output.bias).log_softmax(-1)

    def at(self, y: Tensor, *x: Tensor) -> Tensor:
        """log p(y | x) for the given outcomes y [b, ...] and every x, [b, ..., x].

        query(x) is [x, dim], or [1, x, dim], or [b, x, dim] with an x of its own for each sentence.
        """
        query = self.query(*x)
        query = query.reshape(-1, *query.shape[-2:])
        logp = log_softmax_at(query, self.key(self.output.weight), self.output.bias, y.reshape(len(query), -1))
        return logp.view(*y.shape, -1)


def tied(weight: nn.Parameter) -> nn.Linear:
    """An output layer whose v_y are the rows of a table, without a bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = weight
    return layer


def log_softmax_at(x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor) -> Tensor:
    """log_softmax(x weight^T + bias), only at the outcomes y.

    x [g, r, dim] in g groups of r rows, weight [V, dim], bias [V], y [g, n] -> [g, n, r].
    The gradient of the logits is -P scaled row by row, plus n columns: it is never written out.
    """
    if bias is None:
        bias = weight.new_zeros(len(weight))
    if not torch.is_grad_enabled():  # inside a Function, a parameter would still seem to need one
        x, weight, bias = x.detach(), weight.detach(), bias.detach()
    by_kernel = is_native(x, weight, x[..., 0].numel() * weight.numel())
    return (_NativeLogSoftmaxAt if by_kernel else _LogSoftmaxAt).apply(x, weight, bias, y).mT


class _LogSoftmaxAt(torch.autograd.Function):
    """By torch. Outcomes are taken block by block, each while it is in the cache, and exp(logits) stay divided by their
    block's peak: P is a block of them times its `share`, [row, block]. The expected weight under P, which the
    gradient of x needs, is summed up on the way.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        size = max(BLOCK // len(rows) // 16 * 16, 16)  # rows of a block start at multiples of 64 bytes
        needs_grad = any(ctx.needs_input_grad)
        blocks, peaks, sums, expected = [], [], [], []
        for block_weight, block_bias in zip(weight.split(size), bias.split(size), strict=True):
            block = torch.addmm(block_bias, rows, block_weight.T)
            peaks.append(block.amax(1, keepdim=True))
            block.sub_(peaks[-1]).exp_()
            sums.append(block.sum(1, keepdim=True))
            if needs_grad:
                blocks.append(block)
                expected.append(block @ block_weight)
        peak = torch.cat(peaks, 1)
        log_sum = (peak + torch.cat(sums, 1).log()).logsumexp(1, keepdim=True)
        weight_y, logits = _logits_at(x, weight, bias, y)
        if needs_grad:
            share = (peak - log_sum).exp()
            mean = (share[:, None] @ torch.stack(expected, 1)).view_as(x)
            ctx.save_for_backward(x, y, weight_y, mean, share, *blocks)
        return logits - log_sum.view(*x.shape[:2], 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, y, weight_y, mean, share, *blocks = ctx.saved_tensors  # grad is [g, r, n]
        scale = -grad.sum(2, keepdim=True)
        sizes = [block.shape[1] for block in blocks]
        grad_weight, grad_bias = x.new_empty(sum(sizes), x.shape[2]), x.new_empty(sum(sizes))
        scaled, row_scale = (scale * x).flatten(0, 1), scale.view(-1, 1) * share
        outputs = zip(grad_weight.split(sizes), grad_bias.split(sizes), strict=True)
        for k, (block, (block_weight, block_bias)) in enumerate(zip(blocks, outputs, strict=True)):
            torch.mm(block.T, scaled * share[:, k, None], out=block_weight)
            torch.mv(block.T, row_scale[:, k], out=block_bias)
        _add_outcomes(grad, x, y, grad_weight, grad_bias)
        return torch.baddbmm(scale * mean, grad, weight_y), grad_weight, grad_bias, None


def _logits_at(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of the outcomes y, [g, n, dim], and the logits there, [g, r, n]."""
    weight_y = F.embedding(y, weight)  # which has no negative numbers
    return weight_y, torch.baddbmm(bias[y][:, None], x, weight_y.mT)


def _add_outcomes(grad: Tensor, x: Tensor, y: Tensor, grad_weight: Tensor, grad_bias: Tensor) -> None:
    """Add the gradients of the logits at the outcomes y."""
    grad_weight.index_add_(0, y.flatten(), (grad.mT @ x).flatten(0, 1))
    grad_bias.index_add_(0, y.flatten(), grad.sum(1).flatten())


class _NativeLogSoftmaxAt(torch.autograd.Function):
    """The same by the native kernel (nbl/native/networks.cpp)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> Tensor:
        rows, weight, bias = (tensor.detach().contiguous() for tensor in (x.flatten(0, 1), weight, bias))
        (R, dim), V = rows.shape, len(weight)
        width = -(-R // 16) * 16  # rows of P start at multiples of 64 bytes
        needs_grad = any(ctx.needs_input_grad)
        P, peaks = rows.new_empty(V if needs_grad else 0, width), rows.new_empty(-(-V // NATIVE_BLOCK), width)
        mean, log_sum = rows.new_empty(R if needs_grad else 0, dim), rows.new_empty(R)
        parts = []
        for n, size in native.shares(R, 32):
            tables = {"x": rows[n:], "weight": weight, "bias": bias, "peaks": peaks[:, n:], "log_sum": log_sum[n:]}
            if needs_grad:
                tables |= {"P": P[:, n:], "mean": mean[n:]}
            parts.append(_problem(size, dim, V, width, tables))
        _run("softmax", parts, rows.dtype)
        weight_y, logits = _logits_at(x, weight, bias, y)
        if needs_grad:
            ctx.save_for_backward(x, y, weight_y, mean.view(x.shape), P, peaks, log_sum)
        return logits.sub_(log_sum.view(*x.shape[:2], 1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, y, weight_y, mean, P, peaks, log_sum = ctx.saved_tensors  # grad is [g, r, n]
        (V, width), dim, scale = P.shape, x.shape[2], -grad.sum(2, keepdim=True)
        grad_weight, grad_bias = x.new_empty(V, dim), x.new_empty(V)
        of_rows = {"x": x.flatten(0, 1).contiguous(), "scale": scale.contiguous(), "log_sum": log_sum}
        parts = []
        for v, size in native.shares(V, NATIVE_BLOCK):
            of_words = {"P": P[v:], "peaks": peaks[v // NATIVE_BLOCK :]}
            of_words |= {"d_weight": grad_weight[v:], "d_bias": grad_bias[v:]}
            parts.append(_problem(len(log_sum), dim, size, width, of_rows | of_words))
        _run("derive_softmax", parts, x.dtype)
        _add_outcomes(grad, x, y, grad_weight, grad_bias)
        return torch.baddbmm(scale * mean, grad, weight_y), grad_weight, grad_bias, None


class _Problem(ctypes.Structure):
    """struct Softmax of nbl/native/networks.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("rows", "dim", "words", "block", "P_row")),
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "P", "peaks", "log_sum", "mean")),
        *((name, ctypes.c_void_p) for name in ("scale", "d_weight", "d_bias", "scratch")),
    ]


def _problem(rows: int, dim: int, words: int, P_row: int, tables: dict[str, Tensor]) -> _Problem:
    pointers = {name: table.data_ptr() for name, table in tables.items()}
    return _Problem(rows, dim, words, NATIVE_BLOCK, P_row, **pointers)


def _run(function: str, parts: list[_Problem], dtype: torch.dtype) -> None:
    kernel = native.load("networks", dtype)
    assert kernel is not None
    kernel.softmax_scratch_bytes.restype = ctypes.c_int64
    native.run_all(getattr(kernel, function), parts, kernel.softmax_scratch_bytes(ctypes.byref(parts[0])))
