"""The NBL-PCFG's recursions on the CPU by the native kernel (nbl/native/bilexical.cpp)."""

from __future__ import annotations

import ctypes

from torch import Tensor

from nbl import native
from nbl.inside.bilexical_torch import SHARED, Solution, Tables


def solve(tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """As `bilexical_torch.solve`, but gradients or posteriors."""
    tables = Tables(*(table.detach().contiguous() for table in tables))
    b, l = tables.root.shape[:2]
    zeros = tables.root.new_zeros
    log_Z = zeros(b)
    derivatives, spans, arcs = None, None, None
    if gradients:
        shapes = [(b, *table.shape) if name in SHARED else table.shape for name, table in tables._asdict().items()]
        derivatives = Tables(*map(zeros, shapes))
    if posteriors:
        spans, arcs = zeros(b, l + 1, l + 1), zeros(b, l + 1, l)

    def problem(k: int, length: int) -> _Problem:
        inputs = [table if name in SHARED else table[k] for name, table in tables._asdict().items()]
        results = [None if t is None else t[k] for t in (log_Z, *(derivatives or [None] * len(tables)), spans, arcs)]
        D_sizes = tables.B_H.shape[1], tables.C_H.shape[1], tables.w_H.shape[2]
        return _Problem(length, *tables.H_Aw.shape[1:], *D_sizes, *map(native.pointer, (*inputs, *results)))

    native.solve_all("bilexical", tables.root.dtype, [problem(*item) for item in enumerate(lengths.tolist())])
    return Solution(log_Z, derivatives, spans, arcs)


class _Problem(ctypes.Structure):
    """struct Problem of chart.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "l", "A", "H", "D_B", "D_C", "D_w")),
        *((name, ctypes.c_void_p) for name in (*Tables._fields, "log_Z")),
        *((f"d_{name}", ctypes.c_void_p) for name in Tables._fields),
        *((name, ctypes.c_void_p) for name in ("spans", "arcs", "scratch")),
    ]
