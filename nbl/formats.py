"""A sentence with its tree, and the tree as text: brackets, CoNLL-X and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from nbl.sentence import head_word

NO_LABEL = "X"  # printed where a decoder gives no labels
PRETERMINAL = "T"  # printed for every one of them: a parse does not say which


@dataclass(frozen=True, eq=False)
class Node:
    """A constituent of a tree or, at level 0, a word."""

    i: int
    j: int
    label: str | None
    head: int | None  # the position of the head word, where there is exactly one
    children: list[Node]
    level: int


@dataclass(frozen=True, repr=False)
class Tree:
    """A sentence and its tree.

    Attributes:
        words: the words as written, without punctuation.
        spans: (i, j, label) of every constituent of two or more words, covering words[i:j]. A label
            is a nonterminal's name such as `NT3`, or None from a decoder without labels (MBR).
        heads: the head of each word, counted from 1, 0 for the root; None if the grammar has none.
        log_prob: log p of the sentence, natural; None for fewer than two words, which no grammar
            here derives, and for trees that were not parsed.

    Example:
        >>> tree = Tree(["dogs", "bark", "loudly"], [(0, 3, "NT1"), (1, 3, "NT0")], [2, 0, 2])
        >>> tree.brackets
        '(NT1[bark] (T dogs) (NT0[bark] (T bark) (T loudly)))'
    """

    words: list[str]
    spans: list[tuple[int, int, str | None]]
    heads: list[int] | None
    log_prob: float | None = None

    def nodes(self) -> list[Node]:
        """The words, then the constituents, narrow before wide: the last one is the root."""
        nodes = [Node(i, i + 1, None, i, [], 0) for i in range(len(self.words))]
        widest = list(nodes)  # so far, of those that begin with each word
        for i, j, label in sorted(self.spans, key=lambda span: span[1] - span[0]):
            children = [widest[i]]
            while children[-1].j < j:
                children.append(widest[children[-1].j])
            head = None if self.heads is None else head_word(self.heads, i, j)
            widest[i] = Node(i, j, label, head, children, 1 + max(child.level for child in children))
            nodes.append(widest[i])
        return nodes

    @property
    def brackets(self) -> str:
        """The tree on one line; with heads, a label is A[w] as in the paper. Empty without words."""
        return self._bracket(self.nodes()[-1]) if self.words else ""

    def _bracket(self, node: Node) -> str:
        if node.level == 0:
            return f"({PRETERMINAL} {_escaped(self.words[node.i])})"
        head = "" if node.head is None else f"[{_escaped(self.words[node.head])}]"
        return f"({node.label or NO_LABEL}{head} {' '.join(map(self._bracket, node.children))})"

    @property
    def conllx(self) -> str:
        """One line per word with its number, form and head, in the ten columns of CoNLL-X.

        >>> print(Tree(["dogs", "bark"], [(0, 2, None)], [2, 0]).conllx.replace("\\t", " "), end="")
        1 dogs _ _ _ _ 2 _ _ _
        2 bark _ _ _ _ 0 _ _ _
        """
        if self.heads is None:
            raise ValueError("the tree of a grammar without heads cannot be written as CoNLL-X")
        words = enumerate(zip(self.words, self.heads, strict=True), start=1)
        return "".join("\t".join([str(q), word, *"____", str(head), *"___"]) + "\n" for q, (word, head) in words)

    @property
    def json(self) -> str:
        """The tree as a JSON object on one line.

        >>> Tree(["dogs", "bark"], [(0, 2, "NT3")], None, -7.25).json
        '{"words": ["dogs", "bark"], "spans": [[0, 2, "NT3"]], "heads": null, "log_prob": -7.25}'
        """
        spans = [(i, j, label or NO_LABEL) for i, j, label in self.spans]
        record = {"words": self.words, "spans": spans, "heads": self.heads, "log_prob": self.log_prob}
        return json.dumps(record, ensure_ascii=False)

    def __str__(self) -> str:
        return self.brackets

    def __repr__(self) -> str:
        log_prob = "" if self.log_prob is None else f", log p = {self.log_prob:.3f}"
        return f"<Tree {self.brackets or 'without words'}{log_prob}>"

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows."""
        from nbl.drawing import draw, svg  # which draws trees, and so imports this module

        return svg(draw([self]))


def named(spans: Iterable[tuple[int, int, int | str | None]]) -> list[tuple[int, int, str | None]]:
    """Spans with the names of their nonterminals in place of their numbers.

    >>> named([(0, 3, 4), (1, 3, None), (1, 2, "NP")])
    [(0, 3, 'NT4'), (1, 3, None), (1, 2, 'NP')]
    """
    return [(i, j, f"NT{label}" if isinstance(label, int) else label) for i, j, label in spans]


def _escaped(word: str) -> str:
    return word.replace("(", "-LRB-").replace(")", "-RRB-")
