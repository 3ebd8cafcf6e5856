"""Inside algorithms: log p(w), its gradients, and posteriors of spans and arcs.

One package per kind of rules, all of the same shape: `__init__` has the recursion and its tables,
`torch` an implementation for any device, `native` one for the CPU. Each implementation has

    tables(rules, lengths) -> Tables                                   differentiable by autograd
    solve(tables, lengths, gradients, posteriors) -> Solution          written by hand

Why by hand, and not one recursion over a semiring whose gradient autograd finds? Charts of scaled
probabilities turn the sums over splits and symbols into matrix products, which run at the speed of
the machine; charts of logarithms do not, and autograd would keep every intermediate of the O(l^3)
sums. Nor can CYK be the same recursion with maxima for sums: it must sum over H (or the rank R)
before it maximises, as H is not part of a tree (`nbl.decode`).

Names are the same everywhere: `log_Z` is log p(w), `d_x` the derivative of log Z with respect to x,
`width` and `offset` (of the head: p - i) locate an entry of a span, `scale` is the logarithm of what
an entry must be multiplied by, `NEVER` the scale of what is impossible. `naive` defines what is
correct.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Marginals(NamedTuple):
    """Posteriors given the sentence, for a batch right-padded to l words; padding holds 0."""

    log_prob: Tensor  # [b]   log p(w)
    spans: Tensor  # [b, i, j]   i, j fence posts 0..l; p(words[i:j] is a constituent), width >= 2
    arcs: Tensor | None  # [b, h, q]   h in 0..l, 0 the root: p(word h-1 governs word q); None: no heads


class Solution(NamedTuple):
    """What `solve` returns; all but log_Z only where asked for."""

    log_Z: Tensor  # [b]
    spans: Tensor | None = None  # posteriors, as in Marginals
    arcs: Tensor | None = None
    # (weight [b], *saved) -> the gradient of sum_b weight[b] log_Z[b] with respect to each table, None for constants
    gradients: Callable[..., Sequence[Tensor | None]] | None = None
    saved: Sequence[Tensor] = ()


class Implementation(Protocol):
    """The modules `torch` and `native` of each package."""

    def tables(self, rules: Any, lengths: Tensor) -> Any:
        """The rules as `solve` needs them: a tuple of tensors."""

    def solve(self, tables: Any, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
        """log Z and, on request, its gradients and the posteriors."""


def log_Z(implementation: Implementation, rules: Any, lengths: Tensor) -> Tensor:
    """log p(w) of each sentence, [b]; differentiable with respect to every tensor of the rules."""
    tables = implementation.tables(rules, lengths)
    return _LogZ.apply(implementation.solve, type(tables), lengths, *tables)


@torch.no_grad()
def posteriors(implementation: Implementation, rules: Any, lengths: Tensor, **options: bool) -> Marginals:
    """log p(w) and the posteriors; `options` are those of the implementation's `solve`."""
    solution = implementation.solve(implementation.tables(rules, lengths), lengths, posteriors=True, **options)
    assert solution.spans is not None
    return Marginals(solution.log_Z, solution.spans, solution.arcs)


class _LogZ(torch.autograd.Function):
    """`solve` as an operation of autograd."""

    @staticmethod
    def forward(ctx: Any, solve: Callable[..., Solution], kind: type, lengths: Tensor, *tables: Tensor) -> Tensor:
        solution = solve(kind(*tables), lengths, gradients=any(ctx.needs_input_grad))
        ctx.gradients = solution.gradients
        ctx.save_for_backward(*solution.saved)
        return solution.log_Z.clone()  # a chart in ctx that holds its own output would never be freed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Any:
        return None, None, None, *ctx.gradients(weight, *ctx.saved_tensors)


def weighted(shapes: Sequence[torch.Size], weight: Tensor, *gradients: Tensor) -> list[Tensor | None]:
    """`Solution.gradients` of tables of these shapes, from saved gradients of each sentence, [b, ...].

    A table that the sentences share gets the sum of theirs; tables beyond the last gradient are constants.
    """
    found: list[Tensor | None] = [None] * len(shapes)
    for k, d in enumerate(gradients):
        if d.shape == shapes[k]:
            found[k] = weight.view(-1, *[1] * (d.dim() - 1)) * d
        else:
            found[k] = torch.tensordot(weight, d, 1).view(shapes[k])
    return found
