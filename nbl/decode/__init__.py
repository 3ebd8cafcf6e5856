"""From a grammar's rules for a batch of sentences to their trees."""

from __future__ import annotations

from torch import Tensor

from nbl.decode import cyk, cyk_pcfg
from nbl.decode.mbr import mbr
from nbl.decode.parse import Parse
from nbl.errors import UserError
from nbl.inside import lexical, marginals
from nbl.rules import LexicalRules, PCFGRules, RankRules, Rules, check_lengths

__all__ = ["DECODERS", "Parse", "decode"]

DECODERS = ("mbr", "cyk")


def decode(rules: Rules, lengths: Tensor, decoder: str = "mbr", legacy: bool = False) -> list[Parse]:
    """One tree per sentence; lengths [b], each at least 2.

    "mbr" maximises the expected number of right spans and that of right heads; "cyk" finds the most
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
