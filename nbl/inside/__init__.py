"""Inside algorithms: one module a grammar, all with the same two functions, chosen by the type of the rules."""

from __future__ import annotations

from torch import Tensor

from nbl.inside import bilexical, lexical, pcfg, rank
from nbl.inside.marginals import Marginals
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
