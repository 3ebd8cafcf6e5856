"""Random grammars for tests and benchmarks: proper conditional distributions, or all rules equal to one."""

from __future__ import annotations

from math import log

import torch
from torch import Tensor

from nbl.rules import BilexicalRules, LexicalRules, PCFGRules, RankRules
from nbl.settings import BINDINGS

GRAMMARS = ("pcfg", "compound-pcfg", "rank", "lexical", "compound-lexical", *BINDINGS)


def random_rules(grammar: str, b: int, l: int, NT: int, PT: int, H: int, seed: int, scale: float = 2.0, V: int = 7):
    """Rules of the named kind in float64, as leaves of the autograd graph's softmaxes.

    `scale` is the standard deviation of the logits: large values give nearly deterministic rules.
    Words are drawn from a vocabulary of V, so that emissions are proper distributions over it.
    """
    generator = torch.Generator().manual_seed(seed)

    def logits(*shape: int) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    def log_softmax(x: Tensor, axes: int = 1) -> Tensor:
        """Normalise over the last `axes` axes together."""
        return x.flatten(-axes).log_softmax(-1).view(x.shape)

    S = NT + PT
    words = torch.randint(V, (b, l), generator=generator)
    root = log_softmax(logits(NT))
    if grammar in ("pcfg", "compound-pcfg", "rank"):
        w_T = log_softmax(logits(PT, V))[:, words].permute(1, 2, 0)
        if grammar == "rank":
            factors = log_softmax(logits(NT, H)), log_softmax(logits(H, S)), log_softmax(logits(H, S))
            return RankRules(root[None], *factors, w_T)
        n = b if grammar == "compound-pcfg" else 1
        return PCFGRules(log_softmax(logits(n, NT)), log_softmax(logits(n, NT, S, S), 2), w_T)
    if grammar in ("lexical", "compound-lexical"):
        n = b if grammar == "compound-lexical" else 1
        w_X = log_softmax(logits(S, V))[:, words].permute(1, 2, 0)
        BD_Aw = log_softmax(logits(b, l, NT, 2, S), 2)
        word_C, parent_C = logits(b, l, 2, S, S), logits(n, NT, 2, S, S)
        return LexicalRules(log_softmax(logits(n, NT)), w_X, BD_Aw, parent_C, word_C)
    D_B, D_C, D_w = (2 if grammar == binding else 1 for binding in ("D-B", "D-C", "D-wq"))
    w_A = log_softmax(logits(NT, V))[:, words].permute(1, 2, 0)
    H_Aw = log_softmax(logits(b, l, NT, H))
    B_H = log_softmax(logits(H, D_B, S), 2).transpose(0, 1)
    C_H = log_softmax(logits(H, D_C, S), 2).transpose(0, 1)
    if grammar == "D-alone":
        C_H = C_H + log_softmax(logits(H, 2)).t()[..., None]
    w_H = log_softmax(logits(H, D_w, V), 2)[:, :, words].permute(2, 3, 1, 0)
    return BilexicalRules(root, w_A, H_Aw, B_H, C_H, w_H)


def count_rules(rules):
    """The same grammar with every rule equal to one, so that the inside algorithm counts trees.

    A latent variable is given one state's worth of mass, so that summing it out gives one.
    """
    ones = type(rules)(*(torch.zeros_like(factor) for factor in rules))
    if isinstance(rules, BilexicalRules):
        return ones._replace(
            logp_H_Aw=ones.logp_H_Aw - torch.tensor(float(rules.logp_H_Aw.shape[-1]), dtype=torch.float64).log()
        )
    if isinstance(rules, RankRules):
        return ones._replace(
            logp_R_A=ones.logp_R_A - torch.tensor(float(rules.logp_R_A.shape[-1]), dtype=torch.float64).log()
        )
    if isinstance(rules, LexicalRules):  # p(C | A, B, D, w) is normalised, whatever the logits are
        return ones._replace(logp_BD_Aw=ones.logp_BD_Aw + log(rules.word_C.shape[-1]))
    return ones


def detached(rules):
    """The rules as leaf tensors with gradients."""
    return type(rules)(*(factor.detach().clone().requires_grad_() for factor in rules))


def single(rules):
    """The rules in float32."""
    return type(rules)(*(factor.float() for factor in rules))
