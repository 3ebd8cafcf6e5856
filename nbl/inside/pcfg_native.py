"""The recursions of N-PCFG and C-PCFG (nbl/native/pcfg.cpp) and of TN-PCFG (nbl/native/rank.cpp) on the CPU.

The kernels take log-probabilities, with respect to which the gradients are expected counts of rules. There are four
steps, each of several items that threads share: `pack` makes tables of rules that the batch shares, `inside` fills the
charts, `outside` follows their gradients, `unpack` sums the counts of shared rules over the batch.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from nbl import native
from nbl.inside import Marginals
from nbl.rules import PCFGRules, RankRules, check_lengths

KERNELS = {PCFGRules: "pcfg", RankRules: "rank"}
PARTS = 8  # items of `unpack`


def available(rules: PCFGRules | RankRules) -> bool:
    """Whether there is a kernel for these rules."""
    kinds = {(factor.device.type, factor.dtype) for factor in rules}
    return any(kinds == {("cpu", dtype)} and native.load(KERNELS[type(rules)], dtype) for dtype in native.TYPES)


def log_prob(rules: PCFGRules | RankRules, lengths: Tensor) -> Tensor:
    """log p(w) of each sentence, [b], differentiable."""
    return _LogZ.apply(type(rules), lengths, *rules)


def span_marginals(rules: PCFGRules | RankRules, lengths: Tensor) -> Marginals:
    """log p(w) and the posteriors of spans."""
    charts = _Charts(rules, lengths)
    return Marginals(charts.log_Z, charts.spans(), None)


class _LogZ(Function):
    """log Z of each sentence, with the outside pass as its gradient."""

    @staticmethod
    def forward(ctx: Any, kind: type[PCFGRules] | type[RankRules], lengths: Tensor, *rules: Tensor) -> Tensor:
        charts = _Charts(kind(*rules), lengths)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(*rules)
            ctx.charts = charts
        return charts.log_Z.clone()  # its own output in ctx would never be freed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Any:
        _ = ctx.saved_tensors  # an error if they have changed
        return None, None, *ctx.charts.gradients(weight)


class _Charts:
    """The charts of a batch; the constructor is the inside pass."""

    def __init__(self, rules: PCFGRules | RankRules, lengths: Tensor) -> None:
        check_lengths(rules, lengths)
        self.rules = type(rules)(*(factor.detach().contiguous() for factor in rules))
        self.shared = isinstance(rules, RankRules) or len(rules.logp_BC_A) == 1
        self.lengths = lengths.to(native.HOST, torch.int64).contiguous().clone()  # it must last until backward
        # so that no thread is left with long sentences at the end; those of a group are of similar lengths
        self.order = self.lengths.argsort(descending=True, stable=True)
        self.log_Z = rules.logp_w_T.new_empty(len(lengths))
        self.kernel = native.load(KERNELS[type(rules)], self.log_Z.dtype)
        self.memory: dict[str, native.Scratch] = {}
        self.memory["kept"] = native.Scratch(self._count("kept_bytes"))
        if self.shared:
            self._run("pack", 1)
        self._run("inside", self._count("groups"))

    def gradients(self, weight: Tensor) -> tuple[Tensor, ...]:
        """The gradients of the rules, from those of log Z."""
        gradients = {f"d_{name}": torch.empty_like(factor) for name, factor in self.rules._asdict().items()}
        gradients["d_logp_w_T"].zero_()  # the padding
        gradients["d_logp_A_S"] = self.log_Z.new_empty(len(weight), self.rules.logp_A_S.shape[1])
        results = {"weight": weight.contiguous(), **gradients}
        self.memory["counted"] = native.Scratch(self._count("counted_bytes"))
        self._run("outside", self._count("groups"), **results)
        if self.shared:
            self._run("unpack", PARTS, **results)
        del self.memory["counted"]
        gradients["d_logp_A_S"] = gradients["d_logp_A_S"].sum_to_size(self.rules.logp_A_S.shape)
        return tuple(gradients.values())

    def spans(self) -> Tensor:
        """The posteriors of spans, [b, i, j]."""
        b, l, _ = self.rules.logp_w_T.shape
        spans = self.log_Z.new_zeros(b, l + 1, l + 1)
        self._run("outside", self._count("groups"), spans=spans)
        return spans

    def _count(self, name: str) -> int:
        function = getattr(self.kernel, name)
        function.restype = ctypes.c_int64
        return function(ctypes.byref(self._problem()))

    def _run(self, step: str, items: int, **results: Tensor) -> None:
        problems = [self._problem(item=item, items=items, **results) for item in range(items)]
        native.run_all(getattr(self.kernel, step), problems, self._count("scratch_bytes"))

    def _problem(self, item: int = 0, items: int = 1, **results: Tensor) -> ctypes.Structure:
        root, *_, word = self.rules
        sizes = {"b": word.shape[0], "l": word.shape[1], "A": root.shape[1], "PT": word.shape[2], "n_roots": len(root)}
        if isinstance(self.rules, PCFGRules):
            sizes["n_rules"] = len(self.rules.logp_BC_A)
        else:
            sizes["R"] = self.rules.logp_R_A.shape[1]
        tensors = {"lengths": self.lengths, "order": self.order, "log_Z": self.log_Z, **self.rules._asdict(), **results}
        pointers = {name: native.pointer(tensor) for name, tensor in tensors.items()}
        pointers |= {name: memory.pointer for name, memory in self.memory.items()}
        return PROBLEMS[type(self.rules)](item=item, items=items, **sizes, **pointers)


def _problem_type(kind: type[PCFGRules] | type[RankRules]) -> type[ctypes.Structure]:
    """struct Problem of the kernel."""
    sizes = ("item", "items", "b", "l", "A", "PT", "n_roots", "n_rules" if kind is PCFGRules else "R")
    rules, gradients = kind._fields, [f"d_{name}" for name in kind._fields]
    pointers = ("lengths", "order", *rules, "log_Z", "weight", *gradients, "spans", "kept", "counted", "scratch")
    fields = [*((name, ctypes.c_int64) for name in sizes), *((name, ctypes.c_void_p) for name in pointers)]
    return type("Problem", (ctypes.Structure,), {"_fields_": fields})


PROBLEMS = {kind: _problem_type(kind) for kind in KERNELS}
