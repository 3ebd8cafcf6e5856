"""An LSTM that is as fast on a CPU as its matrix products are.

torch's spends most of a training step on small batches in reordering weights. On a CPU the recurrence runs
natively here (nbl/native/lstm.cpp), and all else is a few large products.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nbl import native
from nbl.products import multiply


class LSTM(nn.LSTM):
    """torch's LSTM of one layer and one direction: x [b, l, in] to its states [b, l, h]."""

    def __init__(self, width: int, h: int):
        super().__init__(width, h, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        if x.device.type == "cpu" and native.load("lstm", x.dtype) and native.load("networks", x.dtype):
            return _States.apply(x, self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0)
        states: Tensor = super().forward(x)[0]
        return states


class _States(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, W_x: Tensor, W_h: Tensor, bias_x: Tensor, bias_h: Tensor) -> Tensor:
        x, W_h = x.contiguous(), W_h.contiguous()
        b, l, _ = x.shape
        gates = x.new_empty(b, l, len(W_x))
        multiply(x.flatten(0, 1), W_x.T, gates.flatten(0, 1))
        gates += bias_x + bias_h
        c, states = x.new_empty(b, l, W_h.shape[1]), x.new_empty(b, l, W_h.shape[1])
        _run("forward", W_h, gates, c, states)
        ctx.save_for_backward(x, W_x, W_h, gates, c, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor, ...]:
        x, W_x, W_h, gates, c, states = ctx.saved_tensors
        d_gates = torch.empty_like(gates)
        _run("backward", W_h, gates, c, states, d_states.contiguous(), d_gates)
        d_x, d_W_x, d_W_h = torch.empty_like(x), torch.empty_like(W_x), torch.empty_like(W_h)
        rows = d_gates.flatten(0, 1)
        multiply(rows, W_x, d_x.flatten(0, 1))
        multiply(rows.T, x.flatten(0, 1), d_W_x)
        # each state but the last of its sentence is an input of the gates after it
        multiply(d_gates[:, 1:].flatten(0, 1).T, states[:, :-1].flatten(0, 1), d_W_h)
        d_bias = rows.sum(0)
        return d_x, d_W_x, d_W_h, d_bias, d_bias


class _Problem(ctypes.Structure):
    """struct Problem of nbl/native/lstm.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("b", "l", "h")),
        *((name, ctypes.c_void_p) for name in ("weight", "gates", "c", "state", "d_state", "d_gates", "scratch")),
    ]


def _run(function: str, W_h: Tensor, gates: Tensor, *others: Tensor) -> None:
    kernel = native.load("lstm", gates.dtype)
    assert kernel is not None
    b, l, _ = gates.shape
    problem = _Problem(b, l, W_h.shape[1], *(tensor.data_ptr() for tensor in (W_h, gates, *others)))
    kernel.scratch_bytes.restype = ctypes.c_int64
    native.run_all(getattr(kernel, function), [problem], kernel.scratch_bytes(ctypes.byref(problem)))
