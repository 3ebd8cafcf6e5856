"""The cleaning of Kim et al. (2019), which later work on grammar induction shares.

Only words with one of 36 tags stay. Punctuation, traces, the currency signs tagged `$` and `#`, and
constituents left empty are dropped. Words are lower-cased, then each number becomes `N`.
Labels keep their function tags here; scoring cuts them (`nbl.sentence.bare_label`).
"""

from __future__ import annotations

import re

from nbl.corpus.treebank import Tree
from nbl.sentence import Span

WORD_TAGS = frozenset(
    "CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO "
    "UH VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB".split()
)
# The treebank's other tags: punctuation, currency signs, traces.
REMOVED_TAGS = frozenset("-NONE- , . : `` '' -LRB- -RRB- $ #".split())
NUMBER = re.compile(r"[0-9]+(?:[,.]?[0-9]*)*")


def is_word(preterminal: Tree) -> bool:
    """Whether cleaning keeps this (tag word) leaf."""
    return preterminal.label in WORD_TAGS


def normalise(word: str) -> str:
    """Lower case, then numbers to `N`.

    >>> [normalise(word) for word in ["The", "1,000.50", "10-year", "'80s", "x86-64"]]
    ['the', 'N', 'N-year', "'Ns", 'xN-N']
    """
    return NUMBER.sub("N", word.lower())


def words_of(tree: Tree) -> list[str]:
    """The normalised words that cleaning keeps."""
    return [normalise(leaf.word) for leaf in tree.preterminals() if is_word(leaf)]


def tags_of(tree: Tree) -> list[str]:
    """The tags of `words_of`."""
    return [leaf.label for leaf in tree.preterminals() if is_word(leaf)]


def spans_of(tree: Tree) -> list[Span]:
    """The constituents of two or more kept words in pre-order, so the sentence comes first.

    A unary chain gives one span per constituent: duplicates are kept.
    """
    spans: list[Span] = []

    def visit(node: Tree, i: int) -> int:
        """Add the spans of `node`, whose first kept word is number i; return the end of its words."""
        if node.word:
            return i + is_word(node)
        slot = len(spans)
        j = i
        for child in node.children:
            j = visit(child, j)
        if j - i >= 2:
            spans.insert(slot, Span(i, j, node.label))
        return j

    visit(tree, 0)
    return spans
