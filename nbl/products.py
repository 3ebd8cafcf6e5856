"""Products of large matrices, differentiable.

On a CPU by native code (native/matrix.h), which reaches the rate of the processor where torch's library does
not; torch's own product elsewhere, without a compiler, and for small matrices, where calls cost more than they gain.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nbl import native

SMALL = 2**22  # multiplications and additions of a product that torch does as fast


class Linear(nn.Linear):
    """torch's linear layer, by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


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
    kernel = native.load("networks", A.dtype)
    assert kernel is not None
    # Each thread has some of the rows, or of the columns if there are more of those.
    parts = []
    for start, size in native.shares(max(M, N)):
        A_part, B_part, C_part = (A[start:], B, C[start:]) if M >= N else (A, B[:, start:], C[:, start:])
        sizes = (size, N, K) if M >= N else (M, size, K)
        parts.append(
            _Problem(*sizes, A_part.data_ptr(), *A.stride(), B_part.data_ptr(), *B.stride(), C_part.data_ptr(), N)
        )
    kernel.product_scratch_bytes.restype = ctypes.c_int64
    native.run_all(kernel.multiply, parts, kernel.product_scratch_bytes())


class _Problem(ctypes.Structure):
    """struct Product of nbl/native/networks.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("M", "N", "K")),
        *(("A", ctypes.c_void_p), ("A_row", ctypes.c_int64), ("A_column", ctypes.c_int64)),
        *(("B", ctypes.c_void_p), ("B_row", ctypes.c_int64), ("B_column", ctypes.c_int64)),
        *(("C", ctypes.c_void_p), ("C_row", ctypes.c_int64), ("scratch", ctypes.c_void_p)),
    ]
