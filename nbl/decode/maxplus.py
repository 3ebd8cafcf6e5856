"""The inner loop of CYK: products of vectors and matrices with max in place of the sum, and + in place of *.

On the CPU by a native kernel (maxplus.cpp), elsewhere and without a compiler by torch.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from nbl.native import FOLDER, library

SOURCE = FOLDER / "maxplus.cpp"
CHUNK = 1 << 22  # numbers in a temporary tensor of the torch version: bounds its memory


def maxplus_(out: Tensor, v: Tensor, M: Tensor) -> None:
    """out[a, c, x] = max(out[a, c, x], max_r v[a, c, r] + M[a, c, r, x]), in place; v and M are broadcast."""
    a, c, x = out.shape
    r = v.shape[-1]
    v, M = v.expand(a, c, r), M.expand(a, c, r, x)
    kernel = _kernel(out.dtype) if out.device.type == "cpu" else None
    if kernel is None or not (out.stride(2) == M.stride(3) == 1 and out.dtype == v.dtype == M.dtype):
        _maxplus_torch(out, v, M)
    else:
        shape = _Shape(*M.shape, *out.stride()[:2], *v.stride(), *M.stride()[:3])
        kernel(out.data_ptr(), v.data_ptr(), M.data_ptr(), shape)


def _maxplus_torch(out: Tensor, v: Tensor, M: Tensor) -> None:
    a, c, r, x = M.shape
    rows = max(1, CHUNK // max(1, c * r * x))
    for begin in range(0, a, rows) if r else ():
        part = slice(begin, begin + rows)
        torch.maximum(out[part], (v[part, ..., None] + M[part]).amax(-2), out=out[part])


_Shape = ctypes.c_int64 * 12  # sizes and strides, see maxplus.cpp


@functools.cache
def _kernel(dtype: torch.dtype) -> Callable[..., None] | None:
    native = library(SOURCE)
    if native is None or dtype not in (torch.float32, torch.float64):
        return None
    kernel = native.maxplus_float32 if dtype == torch.float32 else native.maxplus_float64
    kernel.argtypes, kernel.restype = [ctypes.c_void_p] * 4, None
    return kernel
