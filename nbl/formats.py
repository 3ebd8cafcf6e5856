"""Trees as text: brackets, CoNLL-X and JSON, one sentence at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from nbl.corpus.treebank import Tree
from nbl.sentence import head_word

Spans = Sequence[tuple[int, int, int | str | None]]


@dataclass(frozen=True)
class Analysis:
    """A sentence and its tree: words as they are to be printed, the rest as in `nbl.decode.Parse`.

    A sentence of one word has no spans; it is the root if there are heads.
    """

    words: list[str]
    spans: Spans
    heads: list[int] | None
    log_prob: float | None = None  # of the sentence

    def head_of(self, i: int, j: int) -> int | None:
        """The one head of a span; None if there are several, or no heads."""
        return None if self.heads is None else head_word(self.heads, i, j)


def symbol(label: int | str | None) -> str:
    """A nonterminal's name, or a gold label; X where a decoder gives no labels."""
    return "X" if label is None else label if isinstance(label, str) else f"NT{label}"


def tree_of(analysis: Analysis) -> Tree:
    """The tree of a sentence of one or more words; with heads, a label is A[w] as in the paper."""
    # at[i]: the widest constituent so far that begins with word i, and where it ends
    at = [(Tree("T", word=_escaped(word)), i + 1) for i, word in enumerate(analysis.words)]
    for i, j, label in sorted(analysis.spans, key=lambda span: span[1] - span[0]):
        children, k = [], i
        while k < j:
            child, k = at[k]
            children.append(child)
        p = analysis.head_of(i, j)
        head = "" if p is None else f"[{_escaped(analysis.words[p])}]"
        at[i] = Tree(symbol(label) + head, children), j
    return at[0][0]


def _escaped(word: str) -> str:
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def brackets(analysis: Analysis) -> str:
    """A line of brackets, as `nbl.corpus.treebank` reads them; an empty line for an empty sentence.

    >>> print(brackets(Analysis(["dogs", "bark", "loudly"], [(0, 3, 1), (1, 3, 0)], [2, 0, 2])), end="")
    (NT1[bark] (T dogs) (NT0[bark] (T bark) (T loudly)))
    """
    return f"{tree_of(analysis)}\n" if analysis.words else "\n"


def conllx(analysis: Analysis) -> str:
    """A line a word with its number, form and head, and an empty line.

    >>> print(conllx(Analysis(["dogs", "bark"], [(0, 2, None)], [2, 0])).replace("\\t", " "), end="")
    1 dogs _ _ _ _ 2 _ _ _
    2 bark _ _ _ _ 0 _ _ _
    <BLANKLINE>
    """
    if analysis.heads is None:
        raise ValueError("a grammar without heads has nothing to write as CoNLL-X")
    rows = (
        [str(q), word, *"____", str(head), *"___"]
        for q, (word, head) in enumerate(zip(analysis.words, analysis.heads, strict=True), start=1)
    )
    return "".join("\t".join(row) + "\n" for row in rows) + "\n"


def as_json(analysis: Analysis) -> str:
    """A line with an object: words, spans with the names of their labels, heads, log p.

    >>> print(as_json(Analysis(["dogs", "bark"], [(0, 2, 3)], None, -7.25)), end="")
    {"words": ["dogs", "bark"], "spans": [[0, 2, "NT3"]], "heads": null, "log_prob": -7.25}
    """
    record = {
        "words": analysis.words,
        "spans": [(i, j, symbol(label)) for i, j, label in analysis.spans],
        "heads": analysis.heads,
        "log_prob": analysis.log_prob,
    }
    return json.dumps(record, ensure_ascii=False) + "\n"
