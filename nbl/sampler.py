"""Sentences and trees drawn from a grammar, from the top down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from nbl.errors import UserError
from nbl.formats import Tree, named
from nbl.models.base import CompoundGrammar, Grammar
from nbl.rules import LEFT, BilexicalRules, LexicalRules, PCFGRules, RankRules, Rules
from nbl.seed import generator
from nbl.show import RulesOf, any_rules, grammar_at, of_all_words

MAX_REJECTED = 10_000  # trees per sentence
NO_WORD = -1

SomeRules = TypeVar("SomeRules", bound=Rules)


@torch.no_grad()
def sample(model: Grammar, words: Sequence[str], n: int, max_length: int = 40, seed: int = 0) -> tuple[list[Tree], int]:
    """n sentences of at most `max_length` words with their trees, and how many longer ones were rejected.

    `words` is the vocabulary. The distribution is that of the grammar given the length limit. A
    grammar may put most of its mass on infinite trees: after `MAX_REJECTED` times n rejections the
    sampler gives up. The model is on the CPU; a compound one draws z from its prior N(0, I) for each tree.
    """
    random = generator(seed, "samples")
    found: list[Tree] = []
    rejected = 0
    for choices in _derivations(model, words, random):
        if len(found) == n:
            break
        tree = grow(choices, max_length)
        if tree is not None:
            found.append(tree)
            continue
        rejected += 1
        if rejected > MAX_REJECTED * n:
            raise UserError(
                f"only {len(found)} of {n} sentences were drawn, and {rejected} trees of more than "
                f"{max_length} words rejected: choose a larger --max-length"
            )
    return found, rejected


def _derivations(model: Grammar, words: Sequence[str], random: torch.Generator) -> Iterator[Derivation[Any]]:
    """One per tree."""
    if isinstance(model, CompoundGrammar) and model.z_dim:
        like = next(model.parameters())
        while True:
            z = torch.randn(1, model.z_dim, generator=random, dtype=like.dtype)
            yield derivation(grammar_at(model, z), words, random)
    yield from repeat(derivation(grammar_at(model), words, random))


def grow(choices: Derivation[Any], max_length: int) -> Tree | None:
    """A tree, or None as soon as it must have more words than allowed."""
    words: list[int] = []
    made: list[
        tuple[int, int | None]
    ] = []  # symbols from the top down, left to right, each with D unless it is a word's
    agenda = [choices.root()]
    while agenda:
        if len(words) + len(agenda) > max_length:  # each symbol becomes one word or more
            return None
        item = agenda.pop()
        if item.symbol >= choices.NT:
            made.append((item.symbol, None))
            words.append(choices.word(item))
        else:
            D, head_child, child = choices.expand(item)
            made.append((item.symbol, D))
            agenda += [child, head_child] if D == LEFT else [head_child, child]
    spans, heads = _spans_and_heads(made, len(words))
    return Tree([choices.words[word] for word in words], named(spans), heads if choices.lexicalised else None)


def _spans_and_heads(made: Sequence[tuple[int, int | None]], l: int) -> tuple[list[tuple[int, int, int]], list[int]]:
    """From the symbols of a tree with l words, as `grow` lists them."""
    spans, heads = [], [0] * l
    done: list[tuple[int, int, int]] = []  # i, j and head of constituents without a parent yet, the leftmost last
    for symbol, D in reversed(made):  # children first
        if D is None:
            l -= 1
            done.append((l, l + 1, l))
            continue
        i, _, p = done.pop()
        _, j, q = done.pop()
        if D != LEFT:
            p, q = q, p
        heads[q] = p + 1
        spans.append((i, j, symbol))
        done.append((i, j, p))
    return spans[::-1], heads


class Item(NamedTuple):
    """A symbol and its head word, `NO_WORD` in a grammar without heads."""

    symbol: int
    word: int = NO_WORD


class Derivation(ABC, Generic[SomeRules]):
    """The choices that make a tree, for one kind of rules. `rules` are those of any word.

    `emissions` names the factors that give words: the last the root's, the first all others.
    """

    lexicalised: bool
    emissions: tuple[str, ...]

    def __init__(self, rules_of: RulesOf, rules: SomeRules, words: Sequence[str], random: torch.Generator):
        self.rules, self.words, self.random = rules, words, random
        self.p_A_S = rules.logp_A_S.flatten().exp()
        self.NT = len(self.p_A_S)
        p_w = of_all_words(rules_of, len(words), *self.emissions)
        self.p_w, self.p_w_root = p_w[0], p_w[-1]  # [V, ...]

    def draw(self, p: Tensor) -> int:
        """A position in the flattened probabilities p."""
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


class Unlexicalised(Derivation[SomeRules]):
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


class Lexicalised(Derivation[SomeRules]):
    """Words come with their symbols; a head child inherits its parent's."""

    lexicalised = True

    def __init__(self, rules_of: RulesOf, rules: SomeRules, words: Sequence[str], random: torch.Generator):
        super().__init__(rules_of, rules, words, random)
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


DERIVATIONS: dict[type, type[Derivation[Any]]] = {
    PCFGRules: PCFGDerivation,
    RankRules: RankDerivation,
    LexicalRules: LexicalDerivation,
    BilexicalRules: BilexicalDerivation,
}


def derivation(rules_of: RulesOf, words: Sequence[str], random: torch.Generator) -> Derivation[Any]:
    """The choices of the grammar that gives these rules, over the words of the vocabulary."""
    rules = any_rules(rules_of)
    return DERIVATIONS[type(rules)](rules_of, rules, words, random)
