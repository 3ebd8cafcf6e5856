"""Sentences and trees drawn from a grammar, from the top down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nbl.errors import UserError
from nbl.formats import Tree, named
from nbl.models.base import CompoundGrammar, System
from nbl.rules import LEFT, BilexicalRules, LexicalRules, PCFGRules, RankRules
from nbl.seed import generator
from nbl.show import RulesOf, any_rules, grammar_at, of_all_words

MAX_REJECTED = 10_000  # trees per sentence
NO_WORD = -1


@torch.no_grad()
def sample(model: System, words: Sequence[str], n: int, max_length: int = 40, seed: int = 0) -> tuple[list[Tree], int]:
    """n sentences of at most `max_length` words with their trees, and how many longer ones were rejected.

    `words` is the vocabulary. The distribution is that of the grammar given the length limit. A
    grammar may put most of its mass on infinite trees: after `MAX_REJECTED` times n rejections the
    sampler gives up. A compound model draws z from its prior N(0, I) for each tree.
    """
    if next(model.parameters()).device.type != "cpu":
        raise UserError("sentences are drawn on the CPU: open the grammar with the device cpu")
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
                f"{max_length} words were rejected: choose a larger --max-length"
            )
    return found, rejected


def _derivations(model: System, words: Sequence[str], random: torch.Generator) -> Iterator[Derivation]:
    """One per tree."""
    if isinstance(model, CompoundGrammar) and model.z_dim:
        like = next(model.parameters())
        while True:
            z = torch.randn(1, model.z_dim, generator=random, dtype=like.dtype)
            yield Derivation(grammar_at(model, z), words, random)
    yield from repeat(Derivation(grammar_at(model), words, random))


def grow(choices: Derivation, max_length: int) -> Tree | None:
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


class Derivation:
    """The random choices that make a tree, over the words of the vocabulary.

    In a grammar without heads words come last, given their preterminals. In a lexicalised one they
    come with their symbols, and a head child inherits its parent's.
    """

    def __init__(self, rules_of: RulesOf, words: Sequence[str], random: torch.Generator):
        self.words, self.random = words, random
        self.rules = any_rules(rules_of)
        self.rules_of_word: Callable[[int], Any] = cache(lambda word: rules_of(torch.tensor([[word]])))
        self.lexicalised = isinstance(self.rules, LexicalRules | BilexicalRules)
        self.p_A_S = self.rules.logp_A_S.flatten().exp()
        self.NT = len(self.p_A_S)
        # [V, ...]: words of preterminals or, in a lexicalised grammar, of the root; words of other children
        emissions = {BilexicalRules: ("logp_w_A", "logp_w_H"), LexicalRules: ("logp_w_X",)}
        p_w = of_all_words(rules_of, len(words), *emissions.get(type(self.rules), ("logp_w_T",)))
        self.p_w, self.p_w_child = p_w[0], p_w[-1]

    def draw(self, p: Tensor) -> int:
        """A position in the flattened probabilities p."""
        return int(torch.multinomial(p.flatten(), 1, generator=self.random))

    def root(self) -> Item:
        """S -> A."""
        A = self.draw(self.p_A_S)
        return Item(A, self.draw(self.p_w[:, A]) if self.lexicalised else NO_WORD)

    def word(self, preterminal: Item) -> int:
        """T -> w."""
        return preterminal.word if self.lexicalised else self.draw(self.p_w[:, preterminal.symbol - self.NT])

    def expand(self, parent: Item) -> tuple[int, Item, Item]:
        """A -> B C: the direction D, the head child B and the other child C."""
        A, rules = parent.symbol, self.rules
        if isinstance(rules, PCFGRules):
            p_BC = rules.logp_BC_A[0, A].exp()
            B, C = divmod(self.draw(p_BC), p_BC.shape[1])
            return LEFT, Item(B), Item(C)
        if isinstance(rules, RankRules):
            R = self.draw(rules.logp_R_A[A].exp())
            B, C = (self.draw(factor[R].exp()) for factor in (rules.logp_B_R, rules.logp_C_R))
            return LEFT, Item(B), Item(C)
        if isinstance(rules, LexicalRules):
            D, B, C, word = self._lexical(A, self.rules_of_word(parent.word))
        else:
            D, B, C, word = self._bilexical(rules, self.rules_of_word(parent.word).logp_H_Aw[0, 0, A].exp())
        return D, Item(B, parent.word), Item(C, word)

    def _lexical(self, A: int, rules: Any) -> tuple[int, int, int, int]:
        """NL-PCFG: D and B, then C, then its word; `rules` are the head word's."""
        p_BD = rules.logp_BD_Aw[0, 0, A].exp()
        D, B = divmod(self.draw(p_BD), p_BD.shape[1])
        C = self.draw((rules.word_C[0, 0, D, B] + rules.parent_C[0, A, D, B]).softmax(0))
        return D, B, C, self.draw(self.p_w_child[:, C])

    def _bilexical(self, rules: BilexicalRules, p_H: Tensor) -> tuple[int, int, int, int]:
        """NBL-PCFG: H, then D, B, C and the child's word given it."""
        H = self.draw(p_H)
        # each [1|2, ...]: D is an axis of one of them
        factors = rules.logp_B_H[:, H].exp(), rules.logp_C_H[:, H].exp(), self.p_w_child[:, :, H].T
        p_D = torch.ones(2, dtype=self.p_w.dtype)
        for factor in factors:
            p_D = p_D * factor.sum(1)
        D = self.draw(p_D)
        B, C, word = (self.draw(factor[D % len(factor)]) for factor in factors)
        return D, B, C, word
