"""A sentence with its spans and heads: the types that corpora, predictions and scores share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SPLITS = ("train", "dev", "test")
CONLLX_SCHEME = "conllx"  # gold heads that come from a file
MAX_WORDS = 10_000  # of a vocabulary, unless the user chooses
# What is larger is not a sentence: readers refuse it before it fills the memory or the stack.
MAX_LENGTH = 250  # words after cleaning, as in the longest sentence of the Wall Street Journal
MAX_LEAVES = 2000  # words and punctuation of a tree
MAX_DEPTH = 500  # open brackets; the deepest tree of the Wall Street Journal has about 40
MAX_TOKEN = 500  # characters of a word or a label
MAX_LINE = 100_000  # characters of a sentence of plain text


class Span(NamedTuple):
    """A constituent over words[i:j] of a cleaned sentence."""

    i: int
    j: int
    label: str


@dataclass
class Sentence:
    """A cleaned sentence and its gold annotation.

    id:     the file and the number of the sentence in it, from 0
    words:  normalised words, without punctuation
    ids:    their numbers in the vocabulary; empty until the vocabulary is known
    tags:   part-of-speech tags; None without a gold tree
    spans:  constituents of two or more words in pre-order, the sentence first; None without a gold tree
    heads:  for each head scheme, the head of each word: counted from 1, 0 is the root
    """

    id: str
    words: list[str]
    ids: list[int] = field(default_factory=list)
    tags: list[str] | None = None
    spans: list[Span] | None = None
    heads: dict[str, list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.words)


def bare_label(label: str) -> str:
    """The category without function tags and indices.

    >>> [bare_label(label) for label in ["NP-SBJ-1", "PP=2", "PRT|ADVP", "-NONE-"]]
    ['NP', 'PP', 'PRT', '-NONE-']
    """
    return label if label.startswith("-") else re.split(r"[-=|]", label, maxsplit=1)[0]


def head_word(heads: Sequence[int], i: int, j: int) -> int | None:
    """The one word of [i, j), from 0, whose head is outside; None if there are several.

    CYK's constituents have exactly one. Those of MBR need not: it chooses spans and heads independently.

    >>> head_word([2, 0, 2], 0, 3), head_word([2, 0, 2], 1, 3), head_word([3, 3, 0], 0, 2)
    (1, 1, None)
    """
    words = [word for word in range(i, j) if not i < heads[word] <= j]
    return words[0] if len(words) == 1 else None


def best_scheme(schemes: Iterable[str]) -> str | None:
    """The head scheme to score against: the user's own, else Stanford's; None if there is neither.

    >>> best_scheme(["stanford", "function", "conllx"]), best_scheme(["function"])
    ('conllx', None)
    """
    available = set(schemes)
    return next((scheme for scheme in (CONLLX_SCHEME, "stanford") if scheme in available), None)
