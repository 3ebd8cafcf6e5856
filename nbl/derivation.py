"""The choices that make a tree from the top down, for each kind of grammar: what sampling consists of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from nbl.rules import LEFT, BilexicalRules, LexicalRules, PCFGRules, RankRules, Rules
from nbl.whole_grammar import RulesOf, any_rules, of_all_words

Kind = TypeVar("Kind", bound=Rules)
NO_WORD = -1


class Item(NamedTuple):
    """A symbol and its head word, `NO_WORD` in a grammar without heads."""

    symbol: int
    word: int = NO_WORD


class Derivation(ABC, Generic[Kind]):
    """Draws from a grammar. `rules` are those of any word.

    `emissions` name the factors that give words: the root's word by the last, all others by the first.
    """

    lexicalised: bool
    emissions: tuple[str, ...]

    def __init__(self, rules_of: RulesOf, rules: Kind, vocab_size: int, random: torch.Generator):
        self.rules, self.random = rules, random
        self.p_A_S = rules.logp_A_S.flatten().exp()
        self.NT = len(self.p_A_S)
        p_w = of_all_words(rules_of, vocab_size, *self.emissions)
        self.p_w, self.p_w_root = p_w[0], p_w[-1]  # [V, ...]

    def draw(self, p: Tensor) -> int:
        """A position in probabilities p, taken as flat."""
        return int(torch.multinomial(p.flatten(), 1, generator=self.random))

    @abstractmethod
    def root(self) -> Item:
        """S -> A."""

    @abstractmethod
    def expand(self, parent: Item) -> tuple[int, Item, Item]:
        """A -> B C: the direction D, the head child B and the other child C."""

    @abstractmethod
    def word(self, preterminal: Item) -> int:
        """T -> w."""


class Unlexicalised(Derivation[Kind]):
    """Words come last, given their preterminals."""

    lexicalised = False
    emissions = ("logp_w_T",)

    def root(self) -> Item:
        return Item(self.draw(self.p_A_S))

    def word(self, preterminal: Item) -> int:
        return self.draw(self.p_w[:, preterminal.symbol - self.NT])


class PCFGDerivation(Unlexicalised[PCFGRules]):
    """N-PCFG and C-PCFG."""

    def expand(self, parent: Item) -> tuple[int, Item, Item]:
        p_BC = self.rules.logp_BC_A[0, parent.symbol].exp()
        B, C = divmod(self.draw(p_BC), p_BC.shape[1])
        return LEFT, Item(B), Item(C)


class RankDerivation(Unlexicalised[RankRules]):
    """TN-PCFG: R, then B and C given it."""

    def expand(self, parent: Item) -> tuple[int, Item, Item]:
        R = self.draw(self.rules.logp_R_A[parent.symbol].exp())
        B, C = (self.draw(factor[R].exp()) for factor in (self.rules.logp_B_R, self.rules.logp_C_R))
        return LEFT, Item(B), Item(C)


class Lexicalised(Derivation[Kind]):
    """Words come with their symbols; a head child inherits its parent's."""

    lexicalised = True

    def __init__(self, rules_of: RulesOf, rules: Kind, vocab_size: int, random: torch.Generator):
        super().__init__(rules_of, rules, vocab_size, random)
        self.rules_of_word: Callable[[int], Any] = cache(lambda word: rules_of(torch.tensor([[word]])))

    def root(self) -> Item:
        A = self.draw(self.p_A_S)
        return Item(A, self.draw(self.p_w_root[:, A]))

    def word(self, preterminal: Item) -> int:
        return preterminal.word


class LexicalDerivation(Lexicalised[LexicalRules]):
    """NL-PCFG: the root's word and each child's are drawn given their symbols."""

    emissions = ("logp_w_X",)

    def expand(self, parent: Item) -> tuple[int, Item, Item]:
        A, rules = parent.symbol, self.rules_of_word(parent.word)
        p_BD = rules.logp_BD_Aw[0, 0, A].exp()
        D, B = divmod(self.draw(p_BD), p_BD.shape[1])
        C = self.draw((rules.word_C[0, 0, D, B] + rules.parent_C[0, A, D, B]).softmax(0))
        return D, Item(B, parent.word), Item(C, self.draw(self.p_w[:, C]))


class BilexicalDerivation(Lexicalised[BilexicalRules]):
    """NBL-PCFG: H, then D, B, C and the child's word given it."""

    emissions = ("logp_w_H", "logp_w_A")

    def expand(self, parent: Item) -> tuple[int, Item, Item]:
        H = self.draw(self.rules_of_word(parent.word).logp_H_Aw[0, 0, parent.symbol].exp())
        # each [1|2, ...]: D is an axis of one of them
        factors = self.rules.logp_B_H[:, H].exp(), self.rules.logp_C_H[:, H].exp(), self.p_w[:, :, H].T
        p_D = torch.ones(2, dtype=self.p_w.dtype)
        for factor in factors:
            p_D = p_D * factor.sum(1)
        D = self.draw(p_D)
        B, C, word = (self.draw(factor[D % len(factor)]) for factor in factors)
        return D, Item(B, parent.word), Item(C, word)


KINDS: dict[type, type[Derivation[Any]]] = {
    PCFGRules: PCFGDerivation,
    RankRules: RankDerivation,
    LexicalRules: LexicalDerivation,
    BilexicalRules: BilexicalDerivation,
}


def derivation(rules_of: RulesOf, vocab_size: int, random: torch.Generator) -> Derivation[Any]:
    """The choices of the grammar that gives these rules."""
    rules = any_rules(rules_of)
    return KINDS[type(rules)](rules_of, rules, vocab_size, random)
