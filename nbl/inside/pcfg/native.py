"""The recursions of N-PCFG and C-PCFG on the CPU by the native kernel (nbl/native/pcfg.cpp); TN-PCFG's work alike.

The kernels take log-probabilities, with respect to which the gradients are expected counts of rules. There are four
steps, each of several items that threads share: `pack` makes tables of rules that the batch shares, `inside` fills the
charts, `outside` follows their gradients, `unpack` sums the counts of shared rules over the batch.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from nbl import native
from nbl.inside import Solution
from nbl.rules import PCFGRules, RankRules

PARTS = 8  # items of `unpack`


def problem_type(kernel: str, rules: type[PCFGRules] | type[RankRules], size: str) -> type[ctypes.Structure]:
    """struct Problem of a kernel; `size` is the one that the other kernel has not."""
    sizes = ("item", "items", "b", "l", "A", "PT", "n_roots", size)
    gradients = [f"d_{name}" for name in rules._fields]
    results = ("log_Z", "weight", *gradients, "spans", "kept", "counted", "scratch")
    return native.structure(kernel, "Problem", sizes, ("lengths", "order", *rules._fields, *results))


class Charts:
    """The charts of a batch; the constructor is the inside pass.

    Args:
        kernel: the name of the kernel, and the type of its problems.
        rules: log-probabilities.
        lengths: those of the sentences, [b].
        size: the kernel's own size, by name.
        shared: whether all sentences have the same rules.
    """

    def __init__(
        self,
        kernel: tuple[str, type[ctypes.Structure]],
        rules: PCFGRules | RankRules,
        lengths: Tensor,
        size: dict[str, int],
        shared: bool,
    ) -> None:
        name, self.problem_type = kernel
        self.rules = type(rules)(*(factor.detach().contiguous() for factor in rules))
        root, word = self.rules.logp_A_S, self.rules.logp_w_T
        self.sizes = {"b": word.shape[0], "l": word.shape[1], "A": root.shape[1], "PT": word.shape[2]}
        self.sizes |= {"n_roots": len(root), **size}
        self.shared = shared
        self.lengths = lengths.to(native.HOST, torch.int64).contiguous().clone()  # it must last until backward
        # so that no thread is left with long sentences at the end; those of a group are of similar lengths
        self.order = self.lengths.argsort(descending=True, stable=True)
        self.log_Z = word.new_empty(len(lengths))
        self.kernel = native.kernel(name, word.dtype)
        self.memory: dict[str, native.Scratch] = {}
        self.memory["kept"] = native.Scratch(self._count("kept_bytes"))
        if shared:
            self._run("pack", 1)
        self._run("inside", self._count("groups"))

    def solution(self, gradients: bool, posteriors: bool) -> Solution:
        """What the charts say; the rules are saved so that autograd notices if they change before `gradients`."""
        spans = self._spans() if posteriors else None
        if not gradients:
            return Solution(self.log_Z, spans)
        return Solution(self.log_Z, spans, None, self._gradients, self.rules)

    def _gradients(self, weight: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        d = {f"d_{name}": torch.empty_like(factor) for name, factor in self.rules._asdict().items()}
        d["d_logp_w_T"].zero_()  # the padding
        d["d_logp_A_S"] = self.log_Z.new_empty(len(weight), self.sizes["A"])
        results = {"weight": weight.contiguous(), **d}
        self.memory["counted"] = native.Scratch(self._count("counted_bytes"))
        self._run("outside", self._count("groups"), **results)
        if self.shared:
            self._run("unpack", PARTS, **results)
        del self.memory["counted"]
        d["d_logp_A_S"] = d["d_logp_A_S"].sum_to_size(self.rules.logp_A_S.shape)
        return tuple(d.values())

    def _spans(self) -> Tensor:
        """The posteriors of spans, [b, i, j]."""
        fences = self.sizes["l"] + 1
        spans = self.log_Z.new_zeros(self.sizes["b"], fences, fences)
        self._run("outside", self._count("groups"), spans=spans)
        return spans

    def _count(self, name: str) -> int:
        return native.count(getattr(self.kernel, name), self._problem())

    def _run(self, step: str, items: int, **results: Tensor) -> None:
        problems = [self._problem(item=item, items=items, **results) for item in range(items)]
        native.run_all(getattr(self.kernel, step), problems, self._count("scratch_bytes"))

    def _problem(self, item: int = 0, items: int = 1, **results: Tensor) -> ctypes.Structure:
        tensors = {"lengths": self.lengths, "order": self.order, "log_Z": self.log_Z, **self.rules._asdict(), **results}
        memory = {name: memory.pointer for name, memory in self.memory.items()}
        return self.problem_type(item=item, items=items, **self.sizes, **native.pointers(tensors), **memory)


KERNEL = "pcfg", problem_type("pcfg", PCFGRules, "n_rules")


def tables(rules: PCFGRules, lengths: Tensor) -> PCFGRules:
    """The rules: the kernel makes its tables itself."""
    return rules


def solve(tables: PCFGRules, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """log Z and, on request, its gradients and the posteriors."""
    n_rules = len(tables.logp_BC_A)
    return Charts(KERNEL, tables, lengths, {"n_rules": n_rules}, n_rules == 1).solution(gradients, posteriors)
