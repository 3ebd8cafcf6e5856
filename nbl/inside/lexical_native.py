"""The NL-PCFG's recursions on the CPU by the native kernel (nbl/native/lexical.cpp)."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from nbl import native
from nbl.rules import LexicalRules

LINE_BYTES = 64  # kLineBytes of nbl/native/dense.h


class Solution(NamedTuple):
    """What the kernel returns; all but log_Z where asked for."""

    log_Z: Tensor  # [b]
    gradients: LexicalRules | None = None  # d log_Z[b] / d factor; all factors have an axis b
    spans: Tensor | None = None  # [b, i, j]   posteriors of spans and arcs, as in Marginals
    arcs: Tensor | None = None  # [b, h, q]


def tables(rules: LexicalRules) -> LexicalRules:
    """The rules as the kernel reads them: parent_C is [1|b, D, B, C, A], with A padded to whole cache lines."""
    line = LINE_BYTES // rules.parent_C.element_size()
    parent_C = F.pad(rules.parent_C.permute(0, 2, 3, 4, 1), (0, -rules.parent_C.shape[1] % line))
    return rules._replace(parent_C=parent_C)


def solve(
    rules: LexicalRules, lengths: Tensor, gradients: bool = False, posteriors: bool = False, legacy: bool = False
) -> Solution:
    """log p(w) of the `tables` of rules and, on request, its gradients or the posteriors, those of arcs with the
    released code's errors if `legacy`. Padding words count for nothing, and their gradients are 0."""
    factors = [factor.detach().contiguous() for factor in rules]
    b, l, S = rules.logp_w_X.shape
    NT = rules.logp_A_S.shape[1]
    log_Z = rules.word_C.new_empty(b)
    derivatives = [factor.new_empty(b, *factor.shape[1:]) for factor in factors] if gradients else [None] * len(factors)
    spans, arcs = (log_Z.new_zeros(b, l + 1, n) if posteriors else None for n in (l + 1, l))

    def problem(k: int, length: int) -> _Problem:
        inputs = [factor[k % len(factor)] for factor in factors]
        results = [None if result is None else result[k] for result in (log_Z, *derivatives, spans, arcs)]
        return _Problem(length, l, NT, S - NT, legacy, *map(native.pointer, (*inputs, *results)))

    native.solve_all("lexical", log_Z.dtype, [problem(*item) for item in enumerate(lengths.tolist())])
    return Solution(log_Z, LexicalRules(*derivatives) if gradients else None, spans, arcs)


class _Problem(ctypes.Structure):
    """struct Problem of nbl/native/heads.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "l", "A", "PT", "legacy")),
        *((name, ctypes.c_void_p) for name in (*LexicalRules._fields, "log_Z")),
        *((f"d_{name}", ctypes.c_void_p) for name in LexicalRules._fields),
        *((name, ctypes.c_void_p) for name in ("spans", "arcs", "scratch")),
    ]
