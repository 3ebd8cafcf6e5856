"""A lexicalised probabilistic grammar and its sampler.

A constituent is a category with a head word, e.g. VP.VBD of *eat*; `tools.toy.rules` and
`tools.toy.lexicon` show how rules and words are written. The sampler walks the rules' brackets,
which gives the tree, its heads and its probability; `tools.toy.chart` reads the same brackets as
sequences of words.

Sampling decides by integers and `random.random()` alone, the one method whose sequence Python promises
to keep, so a seed gives the same trees on every machine.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from nbl.corpus.clean import is_word
from nbl.corpus.treebank import Tree

from .notation import Lexeme, Rule, Slot, read_lexicon, read_rules, slot_of

Option = TypeVar("Option")


class Choice(Generic[Option]):
    """Options with integer weights; `pairs` lists them with their probabilities."""

    def __init__(self, weights: Mapping[Option, int]) -> None:
        self._totals = list(accumulate(weights.values()))
        self.pairs = [(option, weight / self._totals[-1]) for option, weight in weights.items()]

    def draw(self, generator: random.Random) -> tuple[Option, float]:
        """An option and its log probability."""
        option, probability = self.pairs[bisect(self._totals, int(generator.random() * self._totals[-1]))]
        return option, math.log(probability)


class Draw(NamedTuple):
    """One use of p(dependent | head, relation), over the dependents that fit the slot's category."""

    slot: Slot
    head: Lexeme
    dependent: Lexeme


class Derivation(NamedTuple):
    """A tree, the heads of its kept words (1-based, 0 = root), its draws and its log probability in nats."""

    tree: Tree
    heads: list[int]
    draws: list[Draw]
    log_prob: float


class Grammar:
    """Rules and words that fit together. A sentence is a ROOT whose head word is the lexicon's first word.

    A rule applies to a head word if the word has what the rule needs and each slot can be filled by a
    word that itself has a rule that applies.
    """

    def __init__(self, rules: str, lexicon: str) -> None:
        self._rules = read_rules(rules)
        self.words = read_lexicon(lexicon)
        self.start = ("ROOT", self.words[0])
        self._productive: set[tuple[str, Lexeme]] = set()  # pairs that derive at least one string
        self._find_productive()
        self.expansions = cache(self._expansions)
        self.fillers = cache(self._fillers)
        self.sequences = cache(self._sequences)

    def _find_productive(self) -> None:
        """The least fixed point: begin with nothing, add pairs that a rule derives from those there are."""
        pending = {
            (category, word): suiting
            for category, rules in self._rules.items()
            for word in self.words
            if (suiting := [rule for rule in rules if rule.suits(word)])
        }
        while found := {
            (category, word)
            for (category, word), rules in pending.items()
            if any(self._fillable(rule, word) for rule in rules)
        }:
            self._productive |= found
            pending = {pair: rules for pair, rules in pending.items() if pair not in found}

    def _fillable(self, rule: Rule, head: Lexeme) -> bool:
        """Has each slot of a rule that suits the head word a productive filler?"""
        return all(self._filler_weights(slot, head) for slot in rule.slots)

    def _filler_weights(self, slot: Slot, head: Lexeme) -> dict[Lexeme, int]:
        words = head.partners[slot.relation] if slot.relation else {head: 1}
        return {word: weight for word, weight in words.items() if (slot.category, word) in self._productive}

    def _expansions(self, category: str, head: Lexeme) -> Choice[Rule]:
        """The rules that apply to a constituent."""
        rules = [rule for rule in self._rules[category] if rule.suits(head) and self._fillable(rule, head)]
        return Choice({rule: rule.weight for rule in rules})

    def _fillers(self, slot: Slot, head: Lexeme) -> Choice[Lexeme]:
        """The head words of a slot in a rule with this head word."""
        return Choice(self._filler_weights(slot, head))

    def _sequences(self, category: str, head: Lexeme) -> list[tuple[list[Slot | str], float]]:
        """The rules that apply as sequences of slots and cleaned words, with their probabilities."""
        return [(rule.parts(head), p) for rule, p in self.expansions(category, head).pairs]

    def surface_words(self) -> list[str]:
        """Every cleaned word that some rule can write, in alphabetical order."""
        parts = (part for pair in self._productive for parts, _ in self.sequences(*pair) for part in parts)
        return sorted({part for part in parts if isinstance(part, str)})

    def sample(self, generator: random.Random) -> Derivation:
        """Draw one derivation, from the top down."""
        governors: dict[int, Tree] = {}  # by the identity of the dependent leaf
        draws: list[Draw] = []
        log_probs: list[float] = []
        traces = 0

        def expand(category: str, head: Lexeme) -> tuple[Tree, Tree | None]:
            """A constituent and the leaf that heads it (None if cleaning leaves nothing of it)."""
            nonlocal traces
            rule, log_prob = self.expansions(category, head).draw(generator)
            log_probs.append(log_prob)
            traces += rule.has_trace
            return fill(rule.tree, rule, head, str(traces))

        def fill(node: Tree, rule: Rule, head: Lexeme, trace: str) -> tuple[Tree, Tree | None]:
            """The same for one node of a rule's bracket; `trace` is the rule's number for `#`."""
            label = node.label.replace("#", trace)
            if slot := slot_of(node):
                word, log_prob = self.fillers(slot, head).draw(generator)
                log_probs.append(log_prob)
                if slot.relation:
                    draws.append(Draw(slot, head, word))
                tree, top = expand(slot.category, word)
                tree.label += label.removeprefix(slot.category)
                return tree, top
            if node.word:
                leaf = Tree(label, word=head.spell(node).replace("#", trace))
                return leaf, leaf if is_word(leaf) else None
            parts = [(child, *fill(child, rule, head, trace)) for child in node.children]
            # the part with the rule's anchor heads the bracket; without one, the first part does
            by_rank = sorted(parts, key=lambda part: not rule.holds_anchor(part[0]))
            tops = [top for _, _, top in by_rank if top is not None]
            governors.update((id(dependent), tops[0]) for dependent in tops[1:])
            return Tree(label, [tree for _, tree, _ in parts]), tops[0] if tops else None

        tree, _ = expand(*self.start)
        words = [leaf for leaf in tree.preterminals() if is_word(leaf)]
        numbers = {id(leaf): number for number, leaf in enumerate(words, start=1)}
        heads = [numbers[id(governors[id(leaf)])] if id(leaf) in governors else 0 for leaf in words]
        return Derivation(tree, heads, draws, math.fsum(log_probs))
