"""Sentences and trees drawn from a grammar, from the top down."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from nbl.errors import UserError
from nbl.formats import Spans
from nbl.models.base import CompoundGrammar, Grammar
from nbl.rules import LEFT, BilexicalRules, LexicalRules, PCFGRules, RankRules, Rules
from nbl.seed import generator
from nbl.show import RulesOf, any_rules, grammar_at, of_all_words

MAX_REJECTED = 10_000  # trees for each sentence


class Sample(NamedTuple):
    """Vocabulary numbers of a sentence's words, and its tree as in `nbl.decode.Parse`."""

    words: list[int]
    spans: Spans
    heads: list[int] | None


@torch.no_grad()
def sample(model: Grammar, vocab_size: int, n: int, max_length: int = 40, seed: int = 0) -> tuple[list[Sample], int]:
    """n sentences of at most `max_length` words, and how many longer ones were rejected on the way.

    So what is drawn are sentences given that they are no longer. A grammar may well have most of its
    mass on endless trees: after `MAX_REJECTED` times n rejections it gives up. The model is on the CPU;
    a compound one draws z from its prior N(0, I) for each tree.
    """
    random = generator(seed, "samples")
    found: list[Sample] = []
    rejected = 0
    for choices in _derivations(model, vocab_size, random):
        if len(found) == n:
            break
        drawn = _grow(choices, max_length)
        if drawn is not None:
            found.append(drawn)
            continue
        rejected += 1
        if rejected > MAX_REJECTED * n:
            raise UserError(
                f"only {len(found)} of {n} sentences came out, and {rejected} trees of more than "
                f"{max_length} words: choose a larger --max-length"
            )
    return found, rejected


def _derivations(model: Grammar, vocab_size: int, random: torch.Generator) -> Iterator[Derivation[Any]]:
    """One for each tree."""
    if isinstance(model, CompoundGrammar) and model.z_dim:
        like = next(model.parameters())
        while True:
            z = torch.randn(1, model.z_dim, generator=random, dtype=like.dtype)
            yield derivation(grammar_at(model, z), vocab_size, random)
    yield from repeat(derivation(grammar_at(model), vocab_size, random))


@dataclass(eq=False)
class Node:
    """A constituent; the words it covers are known when the tree is grown."""

    item: Item
    left: Node | None = None
    right: Node | None = None
    head_child: Node | None = None
    i: int = 0
    j: int = 0
    p: int = 0


def _grow(choices: Derivation[Any], max_length: int) -> Sample | None:
    """A tree, or None as soon as it must have more words than allowed."""
    words: list[int] = []
    nodes: list[Node] = []  # from the top down, left to right
    agenda = [Node(choices.root())]
    while agenda:
        if len(words) + len(agenda) > max_length:  # each symbol becomes one word or more
            return None
        node = agenda.pop()
        nodes.append(node)
        if node.item.symbol >= choices.NT:
            node.i, node.j, node.p = len(words), len(words) + 1, len(words)
            words.append(choices.word(node.item))
        else:
            D, B, C = choices.expand(node.item)
            node.head_child, child = Node(B), Node(C)
            node.left, node.right = (node.head_child, child) if D == LEFT else (child, node.head_child)
            agenda += [node.right, node.left]
    return _finished(nodes, words, choices.lexicalised)


def _finished(nodes: list[Node], words: list[int], lexicalised: bool) -> Sample:
    spans: list[tuple[int, int, int | str | None]] = []
    heads = [0] * len(words)
    for node in reversed(nodes):  # children first
        if node.left and node.right and node.head_child:
            node.i, node.j, node.p = node.left.i, node.right.j, node.head_child.p
            spans.append((node.i, node.j, node.item.symbol))
            child = node.right if node.head_child is node.left else node.left
            heads[child.p] = node.p + 1
    return Sample(words, spans[::-1], heads if lexicalised else None)


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
