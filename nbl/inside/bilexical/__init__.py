"""NBL-PCFG (Eq. inside_ours), for each way of binding the head direction D.

Of each span [i, j) two parts are kept beside s:

    I[i, j, p, D, H] = sum_B s[i, j, p, B] p(B, D | H)                    as head child (Term D1-1)
    K[i, j, D, H] = sum_q p(w_q, D | H) sum_C s[i, j, q, C] p(C, D | H)   as the other child (Term D1-2)

    X[i, j, p, H] = sum_k I[i, k, p, LEFT, H] K[k, j, LEFT, H] + sum_k I[k, j, p, RIGHT, H] K[i, k, RIGHT, H]
    s[i, j, p, A] = sum_H p(H | A, w_p) X[i, j, p, H]
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

# not `import torch`, which in this package is the module beside this one
from torch import Tensor, arange, float64, inf, where

from nbl.inside import Solution, weighted
from nbl.rules import BilexicalRules


class Tables(NamedTuple):
    """The rules as probabilities; preterminals are summed, as each generates its word with probability 1.

    The large tables H_Aw and w_H come as logarithms: their exponentials are not part of autograd's graph, which saves
    two passes over memory. The recursions work on `probabilities(tables)`.
    """

    root: Tensor  # [b, p, A]   log p(A | S) p(w_p | A), relative to the scale of w_H[p]
    H_Aw: Tensor  # [b, p, A, H]   0 in the padding
    B_H: Tensor  # [B, 1|2, H]   nonterminals
    leaf_B: Tensor  # [1|2, H]   all preterminals
    C_H: Tensor  # [C, 1|2, H]   nonterminals
    leaf_C: Tensor  # [1|2, H]   all preterminals
    w_H: Tensor  # [b, q, 1|2, H]   divided by a scale for each word; 0 in the padding
    scale: Tensor  # [b]   log of the product of those scales; a constant


LOGS = ("H_Aw", "w_H")
SHARED = ("B_H", "leaf_B", "C_H", "leaf_C")  # the tables without an axis b


def tables(rules: BilexicalRules, lengths: Tensor) -> Tables:
    """Every word is generated once, by p(w_q | H) or, the root's, by p(w_p | A). Both are divided by the largest
    p(w_q | H) of the word, so that rare words do not drive the products out of the range of a float.
    """
    rules = BilexicalRules(*(factor if factor.dtype == float64 else factor.float() for factor in rules))
    l, NT = rules.logp_w_A.shape[1:]
    padding = arange(l, device=lengths.device) >= lengths[:, None]
    never = where(padding, inf, 0.0).to(rules.logp_w_A)[..., None]
    peak = rules.logp_w_H.detach().amax((2, 3)).masked_fill(padding, 0.0)
    peak = where(peak.isfinite(), peak, 0.0)
    shift = peak[..., None] + never
    B_H, C_H = (factor.exp().permute(2, 0, 1) for factor in (rules.logp_B_H, rules.logp_C_H))
    return Tables(
        root=rules.logp_A_S + rules.logp_w_A - shift,
        H_Aw=rules.logp_H_Aw - never[..., None],
        B_H=B_H[:NT],
        leaf_B=B_H[NT:].sum(0),
        C_H=C_H[:NT],
        leaf_C=C_H[NT:].sum(0),
        w_H=rules.logp_w_H - shift[..., None],
        scale=peak.sum(1),
    )


def probabilities(tables: Tables) -> Tables:
    """The tables with none as logarithms."""
    return tables._replace(**{name: getattr(tables, name).exp() for name in LOGS})


def solution(
    given: Tables, log_Z: Tensor, gradients: Tables | None, spans: Tensor | None = None, arcs: Tensor | None = None
) -> Solution:
    """From log Z relative to the scale, and the gradients of each sentence with respect to the `probabilities` given.

    No chart outlives `solve`: the outside pass has run, and what is left to do is a weighted sum.
    """
    log_Z = given.scale + log_Z
    if gradients is None:
        return Solution(log_Z, spans, arcs)
    for name in LOGS:
        getattr(gradients, name).mul_(getattr(given, name))
    return Solution(log_Z, spans, arcs, partial(weighted, [table.shape for table in given]), gradients[:-1])
