"""The kinds of rules, and all that the package computes from rules: log p, posteriors, trees.

`FAMILIES` is the one place that knows the kinds. To add one: its tuple in `nbl.rules`, a package in
`nbl.inside` of the same shape as the others, a CYK in `nbl.decode`, and an entry here. What only looks at
grammars knows their kinds by itself, so that it can change without making trained runs stale:
`nbl.sampler`, `nbl.show` (`describe`, `mean_rules`) and `nbl.testing.random_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nbl import native
from nbl.decode import Parse, cyk_pcfg
from nbl.decode import cyk as cyk_lexicalised
from nbl.decode.mbr import mbr
from nbl.errors import UserError
from nbl.inside import Implementation, Marginals, log_Z, posteriors
from nbl.inside.bilexical import gpu as bilexical_gpu
from nbl.inside.bilexical import native as bilexical_native
from nbl.inside.bilexical import torch as bilexical_torch
from nbl.inside.lexical import native as lexical_native
from nbl.inside.lexical import torch as lexical_torch
from nbl.inside.pcfg import native as pcfg_native
from nbl.inside.pcfg import torch as pcfg_torch
from nbl.inside.rank import gpu as rank_gpu
from nbl.inside.rank import native as rank_native
from nbl.inside.rank import torch as rank_torch
from nbl.rules import BilexicalRules, LexicalRules, PCFGRules, RankRules, Rules, check_lengths
from nbl.settings import DECODERS, LEGACY


@dataclass(frozen=True)
class Family:
    """What one kind of rules needs.

    `kernel` is the C++ source of the native implementation. `cyk` takes rules and lengths and, if there are `legacy`
    decoders (which repeat the errors of released code), whether to be one.
    """

    kernel: str
    torch: Implementation
    native: Implementation
    cyk: Callable[..., list[Parse]]
    lexicalised: bool = False  # trees have heads
    legacy: bool = False
    gpu: Implementation | None = None  # one with fewer launches than torch

    def implementation(self, rules: Rules, allow_native: bool = True) -> Implementation:
        """The native one if the rules are on the CPU and there is a kernel for them; the one with few launches if they
        are elsewhere and there is one; otherwise torch."""
        kinds = {(factor.device.type, factor.dtype) for factor in rules}
        if allow_native and len(kinds) == 1:
            [(device, dtype)] = kinds
            if device == "cpu" and native.load(self.kernel, dtype) is not None:
                return self.native
        if self.gpu is not None and all(device != "cpu" for device, _ in kinds):
            return self.gpu
        return self.torch


FAMILIES: dict[type, Family] = {
    PCFGRules: Family("pcfg", pcfg_torch, pcfg_native, cyk_pcfg.cyk),
    RankRules: Family("rank", rank_torch, rank_native, cyk_pcfg.cyk, gpu=rank_gpu),
    LexicalRules: Family(
        *("lexical", lexical_torch, lexical_native, cyk_lexicalised.cyk), lexicalised=True, legacy=True
    ),
    BilexicalRules: Family(
        *("bilexical", bilexical_torch, bilexical_native, cyk_lexicalised.cyk), lexicalised=True, gpu=bilexical_gpu
    ),
}


def inside(rules: Rules, lengths: Tensor, allow_native: bool = True) -> Tensor:
    """log p(w) of each sentence, [b], differentiable with respect to the rules.

    Args:
        rules: of a batch of sentences.
        lengths: [b], each at least 2.
        allow_native: whether a native kernel may be used where there is one.
    """
    check_lengths(rules, lengths)
    return log_Z(FAMILIES[type(rules)].implementation(rules, allow_native), rules, lengths)


def marginals(rules: Rules, lengths: Tensor, allow_native: bool = True, legacy: bool = False) -> Marginals:
    """log p(w) and the posteriors of spans and, in lexicalised grammars, of arcs; arguments as of `inside`.

    `legacy` repeats errors of the released code, see `nbl.inside.lexical.torch.solve`.
    """
    check_lengths(rules, lengths)
    options: dict[str, Any] = {"legacy": True} if legacy else {}
    return posteriors(FAMILIES[type(rules)].implementation(rules, allow_native), rules, lengths, **options)


def decode(rules: Rules, lengths: Tensor, decoder: str = "mbr") -> list[Parse]:
    """One tree per sentence.

    Args:
        rules: of a batch of sentences.
        lengths: [b], each at least 2.
        decoder: "mbr" maximises the expected number of correct spans and that of correct heads; "cyk" finds
            the most probable tree, and labels it. "mbr-legacy" and "cyk-legacy" repeat the errors of the
            released NL-PCFG decoders: MBR misses some arcs and gives others to the wrong head, CYK forgets
            the root's word.
    """
    if decoder not in DECODERS:
        raise UserError(f"unknown decoder {decoder!r}: choose one of {', '.join(DECODERS)}")
    family, legacy = FAMILIES[type(rules)], decoder.endswith(LEGACY)
    if legacy and not family.legacy:
        raise UserError(f"{decoder} of {type(rules).__name__}: only NL-PCFG has legacy decoders, leave {LEGACY} out")
    check_lengths(rules, lengths)
    if decoder.removesuffix(LEGACY) == "cyk":
        return family.cyk(rules, lengths, **({"legacy": True} if legacy else {}))
    return mbr(marginals(rules, lengths, legacy=legacy), lengths)
