"""The inside algorithm of the NBL-PCFG, for each way of binding the head direction.

The work is done by one of two implementations with the same results: torch (`nbl.inside.bilexical_torch`,
where the recursions are explained), and for the CPU a native kernel (`nbl.inside.bilexical_native`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nbl import native
from nbl.inside import Marginals, bilexical_native, bilexical_torch
from nbl.inside.bilexical_torch import SHARED, Solution, Tables
from nbl.rules import BilexicalRules

LOGS = ("H_Aw", "w_H")  # the large tables: their exponentials are no part of autograd's graph, which saves two passes


def inside(rules: BilexicalRules, lengths: Tensor, allow_native: bool = True) -> Tensor:
    """log p(w) of each sentence, [b]; differentiable with respect to every tensor of the rules."""
    tables, scale = _tables(rules, lengths)
    return scale + _LogZ.apply(_implementation(tables, allow_native), lengths, *tables)


@torch.no_grad()
def marginals(rules: BilexicalRules, lengths: Tensor, allow_native: bool = True) -> Marginals:
    """log p(w) and the posteriors of constituents and of dependency arcs."""
    tables, scale = _tables(rules, lengths)
    solution = _implementation(tables, allow_native)(_probabilities(tables), lengths, posteriors=True)
    assert solution.spans is not None
    return Marginals(scale + solution.log_Z, solution.spans, solution.arcs)


class _LogZ(torch.autograd.Function):
    """log Z of each sentence, from what `_tables` returns. The forward call runs the outside pass as well where a
    gradient is needed, and keeps the gradient of every sentence, so that no chart outlives it and backward is a
    weighted sum.
    """

    @staticmethod
    def forward(ctx: Any, solve: Callable[..., Solution], lengths: Tensor, *tables: Tensor) -> Tensor:
        given = _probabilities(Tables(*tables))
        solution = solve(given, lengths, gradients=any(ctx.needs_input_grad))
        if solution.gradients is not None:
            for name in LOGS:
                getattr(solution.gradients, name).mul_(getattr(given, name))
            ctx.save_for_backward(*solution.gradients)
        return solution.log_Z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Any:
        gradients = Tables(*ctx.saved_tensors)._asdict().items()
        return (
            None,
            None,
            *(
                torch.tensordot(weight, d, 1) if name in SHARED else weight.view(-1, *[1] * (d.dim() - 1)) * d
                for name, d in gradients
            ),
        )


def _implementation(tables: Tables, allow_native: bool) -> Callable[..., Solution]:
    on_cpu = tables.root.device.type == "cpu"
    use_native = allow_native and on_cpu and native.load("bilexical", tables.root.dtype) is not None
    return bilexical_native.solve if use_native else bilexical_torch.solve


def _probabilities(tables: Tables) -> Tables:
    return tables._replace(**{name: getattr(tables, name).exp() for name in LOGS})


def _tables(rules: BilexicalRules, lengths: Tensor) -> tuple[Tables, Tensor]:
    """The rules as probabilities (those of LOGS as their logarithms), and the logarithm, [b], of what their products
    must be multiplied by.

    Every word is generated once, by p(w_q | H) or, the root's, by p(w_p | A). Both are divided by the largest
    p(w_q | H) of the word: so rare words do not drive the products out of the range of a float.
    """
    rules = BilexicalRules(*(factor if factor.dtype == torch.float64 else factor.float() for factor in rules))
    l, NT = rules.logp_w_A.shape[1:]
    padding = torch.arange(l, device=lengths.device) >= lengths[:, None]
    never = torch.where(padding, torch.inf, 0.0).to(rules.logp_w_A)[..., None]
    peak = rules.logp_w_H.detach().amax((2, 3)).masked_fill(padding, 0.0)
    peak = torch.where(peak.isfinite(), peak, 0.0)
    shift = peak[..., None] + never
    B_H, C_H = (factor.exp().permute(2, 0, 1) for factor in (rules.logp_B_H, rules.logp_C_H))
    tables = Tables(
        root=rules.logp_A_S + rules.logp_w_A - shift,
        H_Aw=rules.logp_H_Aw - never[..., None],
        B_H=B_H[:NT],
        leaf_B=B_H[NT:].sum(0),
        C_H=C_H[:NT],
        leaf_C=C_H[NT:].sum(0),
        w_H=rules.logp_w_H - shift[..., None],
    )
    return tables, peak.sum(1)
