"""Exact probabilities under a lexicalised grammar, summed over all derivations.

Both recursions are top-down and memoised. They end because every part of a rule yields at least one
kept word, and no constituent begins with one of its own category and head word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

from .grammar import Grammar
from .notation import Lexeme, Slot

Ends = Mapping[int, float]  # p(words[i:j]) by j, for a given i; absent = 0


def string_probability(grammar: Grammar, words: Sequence[str]) -> float:
    """p(words): derivations that differ only in what cleaning removes add up, numbers included."""
    present = {word for word in grammar.words if not word.surface.isdisjoint(words)}

    @cache
    def constituent(category: str, head: Lexeme, i: int) -> Ends:
        """p(words[i:j] | category, head) by j."""
        total: dict[int, float] = defaultdict(float)
        for parts, probability in grammar.sequences(category, head):
            ends: Ends = {i: probability}
            for part in parts:
                ends = extend(ends, part, head)
                if not ends:
                    break
            for j, p in ends.items():
                total[j] += p
        return total

    def extend(ends: Ends, part: Slot | str, head: Lexeme) -> Ends:
        """Where the rule's parts end with one part more."""
        if isinstance(part, str):
            return {j + 1: p for j, p in ends.items() if j < len(words) and words[j] == part}
        extended: dict[int, float] = defaultdict(float)
        for j, p in ends.items():
            for k, q in filled(part, head, j).items():
                extended[k] += p * q
        return extended

    @cache
    def filled(slot: Slot, head: Lexeme, i: int) -> Ends:
        """p(words[i:j] | slot, head of the rule) by j, summed over the slot's head words."""
        total: dict[int, float] = defaultdict(float)
        for word, probability in grammar.fillers(slot, head).pairs:
            if word in present or not slot.relation:
                for j, p in constituent(slot.category, word, i).items():
                    total[j] += probability * p
        return total

    return constituent(*grammar.start, 0).get(len(words), 0.0)


def length_probabilities(grammar: Grammar, longest: int) -> list[float]:
    """p(a sentence has l kept words) for l = 0 ... longest."""

    @cache
    def shapes(category: str, head: Lexeme) -> Mapping[tuple[int, tuple[Slot, ...]], float]:
        """The rules as numbers of words and slots, which is all that lengths depend on."""
        total: dict[tuple[int, tuple[Slot, ...]], float] = defaultdict(float)
        for parts, probability in grammar.sequences(category, head):
            slots = tuple(part for part in parts if isinstance(part, Slot))
            total[len(parts) - len(slots), slots] += probability
        return total

    @cache
    def constituent(category: str, head: Lexeme, l: int) -> float:
        """p(the constituent has l words)."""
        return sum(p * sequence(slots, head, l - n) for (n, slots), p in shapes(category, head).items())

    @cache
    def sequence(slots: tuple[Slot, ...], head: Lexeme, l: int) -> float:
        """p(these slots of one rule have l words in all)."""
        if not slots or l < len(slots):
            return float(not slots and l == 0)
        first, *rest = slots
        if not rest:
            return filled(first, head, l)
        return sum(filled(first, head, k) * sequence(tuple(rest), head, l - k) for k in range(1, l - len(rest) + 1))

    @cache
    def filled(slot: Slot, head: Lexeme, l: int) -> float:
        """p(what fills the slot has l words)."""
        return sum(p * constituent(slot.category, word, l) for word, p in grammar.fillers(slot, head).pairs)

    return [constituent(*grammar.start, l) for l in range(longest + 1)]
