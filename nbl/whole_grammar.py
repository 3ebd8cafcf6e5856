"""A grammar for the whole vocabulary at once, where a model gives the rules for one sentence's words.

The vocabulary, cut into pieces, is handed to the model as if it were sentences: every factor then has
the values for every word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from nbl.models.base import CompoundGrammar, Grammar
from nbl.rules import BilexicalRules, LexicalRules, PCFGRules, RankRules, Rules

RulesOf = Callable[[Tensor], Rules]  # words [1, l] -> their rules
PIECE = 512  # words


def grammar_at(model: Grammar, z: Tensor | None = None) -> RulesOf:
    """The rules of a model for any words; a compound one's at z [1, z_dim], or 0, the prior's mean."""
    if not isinstance(model, CompoundGrammar):
        return model.rules
    if z is None:
        z = next(model.parameters()).new_zeros(1, model.z_dim)
    return partial(model.rules_given, z=z)


def any_rules(rules_of: RulesOf) -> Rules:
    """The rules of one word: what does not depend on words is the same for all."""
    return rules_of(torch.zeros(1, 1, dtype=torch.long))


def pieces(rules_of: RulesOf, vocab_size: int) -> Iterator[Rules]:
    """The rules of all words, a piece of the vocabulary at a time."""
    for start in range(0, vocab_size, PIECE):
        yield rules_of(torch.arange(start, min(start + PIECE, vocab_size))[None])


def of_all_words(rules_of: RulesOf, vocab_size: int, *factors: str) -> list[Tensor]:
    """The probabilities of factors that have a word's axis after the batch's: [V, ...]."""
    parts = [[getattr(rules, factor)[0].exp() for factor in factors] for rules in pieces(rules_of, vocab_size)]
    return [torch.cat(of_factor) for of_factor in zip(*parts, strict=True)]


def mean_rules(rules_of: RulesOf, vocab_size: int) -> Iterator[Tensor]:
    """For each nonterminal A, p(B, C, D | A), [1|2, B, C]; D has one value in a grammar without heads.

    In a lexicalised grammar the head word is drawn from p(w|A). So it is below the root and, in NL-PCFG,
    below every child; a head child has its parent's word, of which this is an average view.
    """
    rules = any_rules(rules_of)
    if isinstance(rules, PCFGRules):
        yield from rules.logp_BC_A[0].exp()[:, None]
    elif isinstance(rules, RankRules):
        p_B_R, p_C_R = rules.logp_B_R.exp(), rules.logp_C_R.exp()
        for p_R in rules.logp_R_A.exp():
            yield ((p_R[:, None] * p_B_R).T @ p_C_R)[None]
    elif isinstance(rules, LexicalRules):
        yield from _mean_lexical(rules_of, vocab_size)
    else:
        p_BD_H, p_CD_H = rules.logp_B_H.exp(), rules.logp_C_H.exp()
        [p_w_H] = of_all_words(rules_of, vocab_size, "logp_w_H")
        p_wD_H = p_w_H.sum(0)  # 1 unless D is bound to the word
        for p_H in mean_latent(rules_of, vocab_size):
            head_children = (p_H * p_wD_H)[..., None] * p_BD_H
            yield head_children.mT @ p_CD_H  # sum over H; D is an axis of one of them


def _mean_lexical(rules_of: RulesOf, vocab_size: int) -> Tensor:
    """p(B, C, D | A) of NL-PCFG, [A, D, B, C]."""
    parts = []
    for rules in pieces(rules_of, vocab_size):
        assert isinstance(rules, LexicalRules)
        NT = rules.logp_A_S.shape[-1]
        # p(w|A) p(B, D|A, w) p(C|A, B, D, w); the last is a factor of w times one of A, over a sum
        top_w, top_A = rules.word_C[0].amax(-1), rules.parent_C[0].amax(-1)
        weight = rules.logp_w_X[0, :, :NT, None, None] + rules.logp_BD_Aw[0] - rules.logsum_C[0]
        weight = (weight + top_w[:, None] + top_A).exp()
        of_w, of_A = (rules.word_C[0] - top_w[..., None]).exp(), (rules.parent_C[0] - top_A[..., None]).exp()
        parts.append(torch.einsum("padb,pdbc->adbc", weight, of_w) * of_A)
    return torch.stack(parts).sum(0)


def mean_latent(rules_of: RulesOf, vocab_size: int) -> Tensor:
    """p(H | A) of NBL-PCFG, [A, H], the head word drawn from p(w|A)."""
    parts = []
    for rules in pieces(rules_of, vocab_size):
        assert isinstance(rules, BilexicalRules)
        parts.append(torch.einsum("pa,pah->ah", rules.logp_w_A[0].exp(), rules.logp_H_Aw[0].exp()))
    return torch.stack(parts).sum(0)
