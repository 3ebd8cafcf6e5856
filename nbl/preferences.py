"""The paper's qualitative analysis: what trees and heads of a grammar show about its preferences.

Which constituents are headed by their first word, whether these heads are the gold ones, and how
*a rough market* is bracketed. Spans and heads are those of `nbl.metrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nbl.metrics import Bracket
from nbl.sentence import bare_label, head_word

NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
SHAPES = ("right", "left", "neither")  # (a (rough market)), ((a rough) market), or not a constituent

Tree = tuple[Sequence[Bracket], Sequence[int]]  # spans and heads of a sentence


class Headed(NamedTuple):
    """Counts of the gold constituents of a label that have exactly one gold head.

    gold:       all of them
    gold_left:  the gold head is the first word
    found:      the grammar has the constituent too, with exactly one head
    left:       of these, the head is the first word
    correct:    of these, the head is the gold head
    """

    gold: int = 0
    gold_left: int = 0
    found: int = 0
    left: int = 0
    correct: int = 0


def left_headed(trees: Iterable[Tree]) -> float | None:
    """The share headed by their first word, of all constituents with exactly one head; None if there are none.

    >>> left_headed([([(0, 3), (1, 3)], [0, 1, 2]), ([(0, 2)], [2, 0])])
    0.6666666666666666
    """
    flags = [
        head == i
        for spans, heads in trees
        for i, j in {span[:2] for span in spans}
        if (head := head_word(heads, i, j)) is not None
    ]
    return sum(flags) / len(flags) if flags else None


def headedness(
    golds: Iterable[tuple[Sequence[tuple[int, int, str]], Sequence[int]]], trees: Iterable[Tree]
) -> dict[str, Headed]:
    """Counts for each label of the gold constituents, without function tags.

    >>> gold = [(0, 4, "S"), (0, 2, "NP-SBJ"), (2, 4, "VP")], [2, 3, 0, 3]
    >>> headedness([gold], [([(0, 4), (1, 4), (2, 4)], [3, 3, 4, 0])])["VP"]
    Headed(gold=1, gold_left=1, found=1, left=0, correct=0)
    """
    counts: dict[str, Counter[str]] = {}
    for (gold, gold_heads), (spans, heads) in zip(golds, trees, strict=True):
        predicted = {span[:2] for span in spans}
        for i, j, label in gold:
            if (gold_head := head_word(gold_heads, i, j)) is None:
                continue
            of_label = counts.setdefault(bare_label(label), Counter())
            of_label.update(gold=1, gold_left=int(gold_head == i))
            if (i, j) in predicted and (head := head_word(heads, i, j)) is not None:
                of_label.update(found=1, left=int(head == i), correct=int(head == gold_head))
    return {label: Headed(**of_label) for label, of_label in counts.items()}


def adjective_noun(tags: Sequence[str], gold: Iterable[Bracket], predicted: Iterable[Bracket]) -> list[str]:
    """The predicted shape of each gold constituent that is exactly determiner, adjective and noun.

    >>> adjective_noun(["DT", "JJ", "NN", "VBD"], [(0, 4), (0, 3)], [(0, 4), (0, 3), (0, 2)])
    ['left']
    """
    spans = {span[:2] for span in predicted}
    shapes = []
    for i, j in dict.fromkeys(span[:2] for span in gold):
        if j - i == 3 and list(tags[i : i + 2]) == ["DT", "JJ"] and tags[i + 2] in NOUNS:
            whole, right = (i, j) in spans, (i + 1, j) in spans
            shapes.append("neither" if not whole else "right" if right else "left")
    return shapes
