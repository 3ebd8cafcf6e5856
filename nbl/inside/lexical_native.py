"""The NL-PCFG's recursions on the CPU by the native kernel (nbl/native/lexical.cpp)."""

from __future__ import annotations

import ctypes
from math import log

import torch
from torch import Tensor

from nbl import native
from nbl.inside.lexical_rules import ChartRules

OF_SENTENCES = ("logp_A_S", "logp_w_C", "leaf", "log_leaf")  # the tables that begin with an axis b or 2b
WITH_GRADIENT = tuple(name for name in ChartRules._fields if name != "log_leaf")  # which is a scale


def solve(rules: ChartRules, lengths: Tensor, gradients: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
    """log p(w) of each sentence, [b], and if wanted its gradients by the name of the table.

    Those of words and leaves have all of it in the first half of their axis 2b.
    """
    b, NT = rules.logp_A_S.shape
    _, l, PT = rules.leaf.shape
    tables = {name: table.detach().contiguous() for name, table in rules._asdict().items()}
    tables["log_leaf"] = (tables["log_leaf"] / log(2)).round_()  # as an exponent of two
    log_prob = tables["logp_A_S"].new_zeros(b)
    derivatives = {name: torch.zeros_like(tables[name]) for name in WITH_GRADIENT} if gradients else {}

    def problem(k: int, length: int) -> _Problem:
        inputs = [_row(name, table, k) for name, table in tables.items()]
        results = [_row(name, derivatives.get(name), k) for name in WITH_GRADIENT]
        return _Problem(length, l, b, k, NT, PT, *map(native.pointer, (*inputs, log_prob[k], *results)))

    native.solve_all("lexical", log_prob.dtype, [problem(*item) for item in enumerate(lengths.tolist())])
    return log_prob, derivatives


def _row(name: str, table: Tensor | None, k: int) -> Tensor | None:
    return table[k] if table is not None and name in OF_SENTENCES else table


class _Problem(ctypes.Structure):
    """struct Problem of nbl/native/lexical.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "l", "b", "sentence", "NT", "PT")),
        *((name, ctypes.c_void_p) for name in (*ChartRules._fields, "log_prob")),
        *((f"d_{name}", ctypes.c_void_p) for name in WITH_GRADIENT),
        ("scratch", ctypes.c_void_p),
    ]
