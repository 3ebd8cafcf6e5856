"""Sentences and trees drawn from a grammar, from the top down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import torch

from nbl.derivation import Derivation, Item, derivation
from nbl.errors import UserError
from nbl.formats import Spans
from nbl.models.base import CompoundGrammar, Grammar
from nbl.rules import LEFT
from nbl.seed import generator
from nbl.whole_grammar import grammar_at

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
