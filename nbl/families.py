"""The kinds of rules, and what is computed from each: log p, posteriors, trees."""

from __future__ import annotations

from torch import Tensor

from nbl.decode import DECODERS, Parse, cyk, cyk_pcfg
from nbl.decode.mbr import mbr
from nbl.errors import UserError
from nbl.inside import Marginals, bilexical, lexical, pcfg, rank
from nbl.rules import BilexicalRules, LexicalRules, PCFGRules, RankRules, Rules, check_lengths

_MODULES = {PCFGRules: pcfg, RankRules: rank, LexicalRules: lexical, BilexicalRules: bilexical}


def inside(rules: Rules, lengths: Tensor) -> Tensor:
    """log p(w) of each sentence, [b], differentiable with respect to the rules; lengths [b], each at least 2."""
    check_lengths(rules, lengths)
    return _MODULES[type(rules)].inside(rules, lengths)


def marginals(rules: Rules, lengths: Tensor) -> Marginals:
    """Posteriors of spans, and of arcs for lexicalised grammars."""
    check_lengths(rules, lengths)
    return _MODULES[type(rules)].marginals(rules, lengths)


def decode(rules: Rules, lengths: Tensor, decoder: str = "mbr", legacy: bool = False) -> list[Parse]:
    """One tree per sentence; lengths [b], each at least 2.

    "mbr" maximises the expected number of correct spans and that of correct heads; "cyk" finds the most
    probable tree, and labels it. `legacy` repeats the errors of the released NL-PCFG decoders: MBR misses some
    arcs and gives others to the wrong head (`nbl.inside.lexical.marginals`), CYK forgets the root's word
    (`nbl.decode.cyk`).
    """
    if decoder not in DECODERS:
        raise UserError(f"unknown decoder {decoder!r}: choose one of {', '.join(DECODERS)}.")
    if legacy and not isinstance(rules, LexicalRules):
        raise UserError(f"legacy decoding of {type(rules).__name__}: only NL-PCFG has it, leave it out.")
    check_lengths(rules, lengths)
    if decoder == "cyk":
        if isinstance(rules, PCFGRules | RankRules):
            return cyk_pcfg.cyk(rules, lengths)
        return cyk.cyk(rules, lengths, legacy)
    if isinstance(rules, LexicalRules):
        return mbr(lexical.marginals(rules, lengths, legacy), lengths)
    return mbr(marginals(rules, lengths), lengths)
