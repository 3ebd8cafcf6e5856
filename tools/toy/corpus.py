"""The embedded corpus: sentences drawn from a lexicalised grammar of English, of which all is known.

The trees are written in the Penn Treebank's format, with function tags, traces and punctuation, and go
through the same cleaning as any treebank. The grammar gives what no treebank has: gold heads that need
no conversion, the probability of every sentence, hence the lowest perplexity that a model can reach, and
the share of it that is owed to bilexical dependencies.

A corpus is made by drawing sentences and rejecting those of fewer than 3 or more than 20 kept words.
The package holds one such corpus as data (`contents`).
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from nbl.corpus.clean import is_word, words_of
from nbl.metrics import perplexity
from nbl.sentence import SPLITS

from .chart import length_probabilities, string_probability
from .grammar import Draw, Grammar
from .lexicon import LEXICON
from .notation import Lexeme, Slot
from .rules import RULES

SHORTEST, LONGEST = 3, 20  # kept words


class ToyTree(NamedTuple):
    """One sampled sentence.

    bracket:  the tree on one line, `( (S ...) )`, punctuation and traces included
    words:    its words after cleaning
    heads:    the head of each of these words in Stanford's basic dependencies; 1-based, 0 = root
    log_prob: log probability (nats) of this derivation under the grammar, before any rejection
    draws:    the choices of a word given its head word
    """

    bracket: str
    words: list[str]
    heads: list[int]
    log_prob: float
    draws: list[Draw]


class BilexicalInformation(NamedTuple):
    """Nats per sentence that head words tell about their dependents.

    total:         what is lost if only category and relation are known, not the head word
    beyond_class:  what is lost if the semantic class of the head word is known too
    """

    total: float
    beyond_class: float


@cache
def toy_grammar() -> Grammar:
    """The embedded grammar."""
    return Grammar(RULES, LEXICON)


def sample_corpus(seed: int = 0, sizes: tuple[int, int, int] = (2000, 300, 300)) -> dict[str, list[ToyTree]]:
    """Draw train, dev and test: the same bytes for a seed on every machine.

    Every split has a random sequence of its own, so the size of one changes nothing in another.
    """
    return {
        split: _sample_split(random.Random(f"{seed} {split}"), size) for split, size in zip(SPLITS, sizes, strict=True)
    }


def _sample_split(generator: random.Random, size: int) -> list[ToyTree]:
    trees: list[ToyTree] = []
    while len(trees) < size:
        tree, heads, draws, log_prob = toy_grammar().sample(generator)
        if SHORTEST <= len(heads) <= LONGEST:
            first = next(filter(is_word, tree.preterminals()))
            first.word = first.word[0].upper() + first.word[1:]
            trees.append(ToyTree(f"( {tree} )", words_of(tree), heads, log_prob, draws))
    return trees


def contents() -> tuple[str, str]:
    """The package's data files: the trees, one per line, and what is known about them, as JSON.

    sizes:       trees of train, dev and test, in this order
    lexicon:     every word the grammar can write
    bilexical_nats_per_sentence:  `bilexical_information` of train
    true_perplexity:  of dev and test
    """
    sampled = sample_corpus()
    information = bilexical_information(sampled["train"])._asdict()
    known = {
        "sizes": {split: len(trees) for split, trees in sampled.items()},
        "bilexical_nats_per_sentence": {name: round(nats, 6) for name, nats in information.items()},
        "true_perplexity": {
            split: round(true_perplexity(tree.words for tree in sampled[split]), 6) for split in ("dev", "test")
        },
        "lexicon": toy_grammar().surface_words(),
    }
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in known.items())
    return "".join(f"{tree.bracket}\n" for trees in sampled.values() for tree in trees), f"{{\n{lines}\n}}\n"


def sentence_log_prob(words: Sequence[str]) -> float:
    """log p(cleaned words) in nats as the corpus is made: exact, over all derivations, rejection included.

    Minus infinity for a string that the corpus cannot contain.
    """
    if not SHORTEST <= len(words) <= LONGEST:
        return -math.inf
    probability = string_probability(toy_grammar(), words)
    return math.log(probability / acceptance()) if probability else -math.inf


@cache
def length_distribution() -> list[float]:
    """The probabilities that the grammar gives to 0, 1, ..., LONGEST kept words: exact, about two seconds."""
    return length_probabilities(toy_grammar(), LONGEST)


def acceptance() -> float:
    """The probability that a drawn sentence is not rejected."""
    return math.fsum(length_distribution()[SHORTEST:])


def true_perplexity(sentences: Iterable[Sequence[str]]) -> float:
    """exp(-sum log p / sum (l + 1)) of cleaned sentences: no model can expect a lower perplexity."""
    pairs = [(sentence_log_prob(words), len(words)) for words in sentences]
    return perplexity([log_prob for log_prob, _ in pairs], [length for _, length in pairs])


def bilexical_information(trees: Sequence[ToyTree]) -> BilexicalInformation:
    """The information in the grammar's p(dependent | head, relation), at the rates of use in these trees.

    The perplexity of a model that knows all but the head words is about
    true_perplexity * exp(total * sentences / sum (l + 1)).
    """
    return BilexicalInformation(
        _head_information(trees, lambda draw: draw.slot),
        _head_information(trees, lambda draw: (draw.slot, draw.head.word_class)),
    )


def _head_information(trees: Sequence[ToyTree], known: Callable[[Draw], Hashable]) -> float:
    """I(dependent; head | what is known), in nats, summed over the draws and averaged over the trees.

    Words are what a reader sees: the entries of one preposition for several kinds of object are one word.
    """
    uses: dict[Hashable, Counter[tuple[Slot, Lexeme]]] = defaultdict(Counter)
    for tree in trees:
        for draw in tree.draws:
            uses[known(draw)][draw.slot, draw.head] += 1
    total = 0.0
    for heads in uses.values():
        joint: dict[tuple[str, str], float] = defaultdict(float)  # expected counts of (head, dependent)
        of_head: dict[str, float] = defaultdict(float)
        of_dependent: dict[str, float] = defaultdict(float)
        for (slot, head), count in heads.items():
            for dependent, p in toy_grammar().fillers(slot, head).pairs:
                joint[head.base, dependent.base] += count * p
                of_head[head.base] += count * p
                of_dependent[dependent.base] += count * p
        for (head_word, word), n in joint.items():
            total += n * math.log(n * heads.total() / (of_head[head_word] * of_dependent[word]))
    return total / len(trees)
