"""What the networks are made of, differentiable and as fast on a CPU as its matrix products are.

Products of large matrices, the softmax over the vocabulary and the LSTM: on a CPU by native code
(networks.cpp, lstm.cpp), which reaches the rate of the processor where torch's library does not.
Torch computes them elsewhere, without a compiler, and where matrices are small, so that the calls
would cost more than they gain.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nbl import native

Product = native.structure(
    *("networks", "Product"),
    numbers=("M", "N", "K", "A_row", "A_column", "B_row", "B_column", "C_row"),
    pointers=("A", "B", "C", "scratch"),
)
Softmax = native.structure(
    *("networks", "Softmax"),
    numbers=("rows", "dim", "words", "block", "P_row"),
    pointers=(
        *("x", "weight", "bias", "P", "peaks", "log_sum", "mean"),
        *("scale", "d_weight", "d_bias", "scratch"),
    ),
)
Recurrence = native.structure(
    *("lstm", "Recurrence"),
    numbers=("b", "l", "h"),
    pointers=("weight", "gates", "c", "state", "d_state", "d_gates", "scratch"),
)
SMALL = 2**22  # multiplications and additions of a product that torch does as fast
BLOCK = 2**19  # logits of a block of outcomes: 2 MB
NATIVE_BLOCK = 192  # outcomes of a block of the native kernel: with 300 rows, all that is worked on fits into 1 MB


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias: x [..., in], weight [out, in], bias [out] -> [..., out]."""
    if not is_native(x, weight, x.numel() * weight.shape[0]):
        return nn.functional.linear(x, weight, bias)
    return _Product.apply(x, weight, bias, True)


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """x weight: x [..., in], weight [in, out] -> [..., out]."""
    if not is_native(x, weight, x.numel() * weight.shape[1]):
        return x @ weight
    return _Product.apply(x, weight, None, False)


def is_native(x: Tensor, weight: Tensor, size: int) -> bool:
    """Whether native code computes a product of so many multiplications and additions."""
    return (size >= SMALL and x.device.type == "cpu" == weight.device.type and x.dtype == weight.dtype) and native.load(
        "networks", x.dtype
    ) is not None


class _Product(torch.autograd.Function):
    """x weight, or x weight^T if `turned`, plus a bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, turned: bool) -> Tensor:
        ctx.turned = turned
        ctx.save_for_backward(x, weight)
        y = x.new_empty(*x.shape[:-1], weight.shape[0 if turned else 1])
        multiply(_rows(x), weight.T if turned else weight, _rows(y))
        return y if bias is None else y.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows, d_rows = _rows(x), _rows(d_y)
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        d_x = torch.empty_like(x, memory_format=torch.contiguous_format) if needs_x else None
        d_weight = torch.empty_like(weight, memory_format=torch.contiguous_format) if needs_weight else None
        if d_x is not None:
            multiply(d_rows, weight if ctx.turned else weight.T, _rows(d_x))
        if d_weight is not None:
            multiply(*((d_rows.T, rows) if ctx.turned else (rows.T, d_rows)), d_weight)
        return d_x, d_weight, d_rows.sum(0) if needs_bias else None, None


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def multiply(A: Tensor, B: Tensor, C: Tensor) -> None:
    """C = A B by the native kernel: A [m, k] and B [k, n] of any strides, C [m, n] contiguous."""
    (M, K), N = A.shape, B.shape[1]
    if K == 0:
        C.zero_()
        return
    kernel = native.kernel("networks", A.dtype)
    strides = {"A_row": A.stride(0), "A_column": A.stride(1), "B_row": B.stride(0), "B_column": B.stride(1)}
    # Each thread has some of the rows, or of the columns if there are more of those.
    parts = []
    for start, size in native.shares(max(M, N)):
        if M >= N:
            sizes, tensors = {"M": size, "N": N}, {"A": A[start:], "B": B, "C": C[start:]}
        else:
            sizes, tensors = {"M": M, "N": size}, {"A": A, "B": B[:, start:], "C": C[:, start:]}
        parts.append(Product(K=K, **sizes, **strides, C_row=N, **native.pointers(tensors)))
    native.run_all(kernel.multiply, parts, native.count(kernel.product_scratch_bytes, parts[0]))


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
            parts.append(_softmax(size, dim, V, width, tables))
        _run_softmax("softmax", parts, rows.dtype)
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
            parts.append(_softmax(len(log_sum), dim, size, width, of_rows | of_words))
        _run_softmax("derive_softmax", parts, x.dtype)
        _add_outcomes(grad, x, y, grad_weight, grad_bias)
        return torch.baddbmm(scale * mean, grad, weight_y), grad_weight, grad_bias, None


def _softmax(rows: int, dim: int, words: int, P_row: int, tensors: dict[str, Tensor]) -> ctypes.Structure:
    return Softmax(rows=rows, dim=dim, words=words, block=NATIVE_BLOCK, P_row=P_row, **native.pointers(tensors))


def _run_softmax(function: str, parts: list[ctypes.Structure], dtype: torch.dtype) -> None:
    kernel = native.kernel("networks", dtype)
    native.run_all(getattr(kernel, function), parts, native.count(kernel.softmax_scratch_bytes, parts[0]))


def has_native_lstm(x: Tensor) -> bool:
    """Whether native code computes an LSTM on x; torch's spends most of a step on small batches reordering weights."""
    return x.device.type == "cpu" and all(native.load(name, x.dtype) for name in ("lstm", "networks"))


def lstm_states(x: Tensor, W_x: Tensor, W_h: Tensor, bias_x: Tensor, bias_h: Tensor) -> Tensor:
    """x [b, l, in] to the states [b, l, h] of an LSTM, by native code; the weights are those of `nn.LSTM`."""
    return _States.apply(x, W_x, W_h, bias_x, bias_h)


class _States(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, W_x: Tensor, W_h: Tensor, bias_x: Tensor, bias_h: Tensor) -> Tensor:
        x, W_h = x.contiguous(), W_h.contiguous()
        b, l, _ = x.shape
        gates = x.new_empty(b, l, len(W_x))
        multiply(x.flatten(0, 1), W_x.T, gates.flatten(0, 1))
        gates += bias_x + bias_h
        c, states = x.new_empty(b, l, W_h.shape[1]), x.new_empty(b, l, W_h.shape[1])
        _run_lstm("forward", weight=W_h, gates=gates, c=c, state=states)
        ctx.save_for_backward(x, W_x, W_h, gates, c, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor, ...]:
        x, W_x, W_h, gates, c, states = ctx.saved_tensors
        d_gates = torch.empty_like(gates)
        given = {"weight": W_h, "gates": gates, "c": c, "state": states}
        _run_lstm("backward", **given, d_state=d_states.contiguous(), d_gates=d_gates)
        d_x, d_W_x, d_W_h = torch.empty_like(x), torch.empty_like(W_x), torch.empty_like(W_h)
        rows = d_gates.flatten(0, 1)
        multiply(rows, W_x, d_x.flatten(0, 1))
        multiply(rows.T, x.flatten(0, 1), d_W_x)
        # each state but the last of its sentence is an input of the gates after it
        multiply(d_gates[:, 1:].flatten(0, 1).T, states[:, :-1].flatten(0, 1), d_W_h)
        d_bias = rows.sum(0)
        return d_x, d_W_x, d_W_h, d_bias, d_bias


def _run_lstm(function: str, **tensors: Tensor) -> None:
    (b, l, _), kernel = tensors["gates"].shape, native.kernel("lstm", tensors["gates"].dtype)
    problem = Recurrence(b=b, l=l, h=tensors["weight"].shape[1], **native.pointers(tensors))
    native.run_all(getattr(kernel, function), [problem], native.count(kernel.scratch_bytes, problem))
