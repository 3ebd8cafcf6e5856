"""NL-PCFG's recursions on the CPU by the native kernel (nbl/native/lexical.cpp)."""

from __future__ import annotations

import ctypes
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from nbl import native
from nbl.inside import Solution, weighted
from nbl.rules import LexicalRules

LINE_BYTES = 64  # kLineBytes of nbl/native/dense.h
FACTORS = LexicalRules._fields
Problem = native.structure(
    *("lexical", "Problem"),
    numbers=("length", "l", "A", "PT", "legacy"),
    pointers=(*FACTORS, "log_Z", *(f"d_{name}" for name in FACTORS), "spans", "arcs", "scratch"),
)


def tables(rules: LexicalRules, lengths: Tensor) -> LexicalRules:
    """The rules as the kernel reads them: parent_C is [1|b, D, B, C, A], with A padded to whole cache lines."""
    line = LINE_BYTES // rules.parent_C.element_size()
    parent_C = F.pad(rules.parent_C.permute(0, 2, 3, 4, 1), (0, -rules.parent_C.shape[1] % line))
    return rules._replace(parent_C=parent_C)


def solve(
    tables: LexicalRules, lengths: Tensor, gradients: bool = False, posteriors: bool = False, legacy: bool = False
) -> Solution:
    """log Z and, on request, its gradients or the posteriors; `legacy` as in `nbl.inside.lexical.torch.solve`.

    Padding words count for nothing, and their gradients are 0.
    """
    given = {name: factor.detach().contiguous() for name, factor in tables._asdict().items()}
    b, l, S = tables.logp_w_X.shape
    A = tables.logp_A_S.shape[1]
    results = {"log_Z": tables.word_C.new_empty(b)}
    if gradients:
        results |= {f"d_{name}": factor.new_empty(b, *factor.shape[1:]) for name, factor in given.items()}
    if posteriors:
        results |= {name: tables.word_C.new_zeros(b, l + 1, n) for name, n in (("spans", l + 1), ("arcs", l))}

    def problem(k: int, length: int) -> ctypes.Structure:
        tensors = {name: factor[k % len(factor)] for name, factor in given.items()}
        tensors |= {name: result[k] for name, result in results.items()}
        return Problem(length=length, l=l, A=A, PT=S - A, legacy=legacy, **native.pointers(tensors))

    native.solve_all("lexical", tables.word_C.dtype, [problem(*item) for item in enumerate(lengths.tolist())])
    found = Solution(results["log_Z"], results.get("spans"), results.get("arcs"))
    if not gradients:
        return found
    derivatives = [results[f"d_{name}"] for name in FACTORS]
    return found._replace(gradients=partial(weighted, [factor.shape for factor in tables]), saved=derivatives)
