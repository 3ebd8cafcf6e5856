"""The recursions of TN-PCFG on the CPU by the native kernel (nbl/native/rank.cpp), in the steps of the PCFG's."""

from __future__ import annotations

from torch import Tensor

from nbl.inside import Solution
from nbl.inside.pcfg.native import Charts, problem_type
from nbl.rules import RankRules

KERNEL = "rank", problem_type("rank", RankRules, "R")


def tables(rules: RankRules, lengths: Tensor) -> RankRules:
    """The rules: the kernel makes its tables itself."""
    return rules


def solve(tables: RankRules, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """log Z and, on request, its gradients and the posteriors."""
    size = {"R": tables.logp_R_A.shape[1]}
    return Charts(KERNEL, tables, lengths, size, shared=True).solution(gradients, posteriors)
