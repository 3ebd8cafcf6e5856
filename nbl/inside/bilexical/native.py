"""NBL-PCFG's recursions on the CPU by the native kernel (nbl/native/bilexical.cpp)."""

from __future__ import annotations

import ctypes

from torch import Tensor

from nbl import native
from nbl.inside import Solution
from nbl.inside.bilexical import SHARED, Tables, probabilities, solution, tables

__all__ = ["solve", "tables"]

TABLES = Tables._fields[:-1]  # all but the scale
Problem = native.structure(
    *("bilexical", "Problem"),
    numbers=("length", "l", "A", "H", "D_B", "D_C", "D_w"),
    pointers=(*TABLES, "log_Z", *(f"d_{name}" for name in TABLES), "spans", "arcs", "scratch"),
)


def solve(tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """log Z and, on request, its gradients or the posteriors."""
    given = Tables(*(table.detach().contiguous() for table in probabilities(tables)))
    b, l = given.root.shape[:2]
    results: dict[str, Tensor] = {"log_Z": given.root.new_zeros(b)}
    if gradients:
        for name in TABLES:
            table = getattr(given, name)
            results[f"d_{name}"] = table.new_zeros((b, *table.shape) if name in SHARED else table.shape)
    if posteriors:
        results |= {"spans": given.root.new_zeros(b, l + 1, l + 1), "arcs": given.root.new_zeros(b, l + 1, l)}
    sizes = {"l": l, "A": given.H_Aw.shape[2], "H": given.H_Aw.shape[3]}
    sizes |= {"D_B": given.B_H.shape[1], "D_C": given.C_H.shape[1], "D_w": given.w_H.shape[2]}

    def problem(k: int, length: int) -> ctypes.Structure:
        inputs = {name: getattr(given, name) for name in TABLES}
        inputs = {name: table if name in SHARED else table[k] for name, table in inputs.items()}
        pointers = inputs | {name: result[k] for name, result in results.items()}
        return Problem(length=length, **sizes, **native.pointers(pointers))

    native.solve_all("bilexical", given.root.dtype, [problem(*item) for item in enumerate(lengths.tolist())])
    derivatives = Tables._make([*(results[f"d_{name}"] for name in TABLES), given.scale]) if gradients else None
    return solution(given, results["log_Z"], derivatives, results.get("spans"), results.get("arcs"))
