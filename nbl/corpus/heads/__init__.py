"""Gold heads: from a treebank tree to one dependency tree over the words that cleaning keeps.

A *head scheme* decides which word heads each constituent. `Stanford` gives the basic Stanford
Dependencies of CoreNLP, which the paper evaluates against: content words are heads. Another scheme is
one small class, such as `FunctionHeads`; `SCHEMES` names them all.

A scheme copies the tree without traces, changes the copy (`rewrites`), finds the head child of each
constituent (`rules`) and lets head words percolate; a few arcs do not follow from head children.
Heads are numbered from 1 over the kept words of a sentence; 0 is the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol

from nbl.corpus.clean import is_word
from nbl.corpus.heads.rewrites import group, rewrite
from nbl.corpus.heads.rules import NOUN_PHRASE, TABLE, first_conjunct, parse_table, search, special_head
from nbl.corpus.treebank import Tree
from nbl.sentence import bare_label

CURRENCY_TAGS = frozenset({"$", "#"})  # removed before the conversion; punctuation is removed after it
ADVERBIAL = re.compile(r"(NP|UCP)-.*\b(TMP|ADV)\b")


class HeadScheme(Protocol):
    """What a corpus needs of a scheme: a name for its files, and the heads of a raw tree."""

    name: str

    def heads(self, tree: Tree) -> list[int]:
        """The head of each word that cleaning keeps: numbered from 1, 0 = root, one root, no cycle."""
        ...


class Stanford:
    """Basic Stanford Dependencies, as CoreNLP 4.5 converts them.

    >>> from nbl.corpus.treebank import parse_trees
    >>> Stanford().heads(next(parse_trees("(S (NP (PRP it)) (VP (VBZ is) (ADJP (JJ red))) (. .))")))
    [3, 3, 0]
    """

    name = "stanford"
    table = TABLE

    def heads(self, tree: Tree) -> list[int]:
        leaves: list[Tree] = []
        root = _copy(tree, leaves)
        if root is None:
            return []
        self.rewrite(root)
        heads = self._percolate(root, len(leaves))
        for dependent, governor in _distant_arcs(root):
            if not _dominates(dependent, governor, heads):
                heads[dependent - 1] = governor
        return keep_words(heads, [is_word(leaf) for leaf in leaves])

    def _percolate(self, root: Tree, length: int) -> list[int]:
        """Set the head of every constituent; return the head of every leaf."""
        heads = [0] * length
        nodes = list(root.constituents())
        parents = {child: node for node in nodes for child in node.children}
        for node in reversed(nodes):
            node.head = self.head_child(node, parents.get(node)).head
            for child in node.children:
                if child.head != node.head:
                    heads[child.head - 1] = node.head
        return heads

    def rewrite(self, root: Tree) -> None:
        """Change the tree before its heads are found."""
        rewrite(root)

    def head_child(self, node: Tree, parent: Tree | None) -> Tree:
        """The child of a constituent that its head word comes from."""
        if len(node.children) == 1:
            return node.children[0]
        return self.special_head(node, parent) or first_conjunct(node, search(node, self.table))

    def special_head(self, node: Tree, parent: Tree | None) -> Tree | None:
        """The head child if a rule takes precedence over the table, else None."""
        return special_head(node, parent)


class FunctionHeads(Stanford):
    """Function words head their phrases: determiners, auxiliaries, complementisers, wh-words.

    A possessor is a determiner, headed by its mark: `'s` heads `the king 's crown`.
    """

    name = "function"
    table = TABLE | parse_table(
        {
            "NP": f"< POS DT PRP$ ; {NOUN_PHRASE}",
            "WHNP": "< WDT WP$ WP WRB WHADJP WHNP NP",
            "WHADJP": "< WRB ; >",
            "SBAR": "< IN DT WHNP WHPP WHADVP WHADJP S SQ SINV SBAR FRAG VP",
            "SBARQ": "< WHNP WHPP WHADVP WHADJP SQ S SINV SBARQ FRAG SBAR",
            "SQ": "< MD VBZ VBD VBP VB VP SQ ADJP",
        }
    )

    def rewrite(self, root: Tree) -> None:
        """Group what a determiner or a possessive mark governs, which the treebank leaves flat."""
        super().rewrite(root)
        for node in root.constituents():
            last = len(node.children) - 1
            if node.label not in {"NP", "WHNP"} or last < 2:
                continue
            if node.children[last].label == "POS":
                group(node, "NP", 0, last)
            else:
                i = next((i for i, child in enumerate(node.children) if _is_determiner(child)), last)
                if i < last:
                    group(node, "NX", i + 1, last + 1)

    def special_head(self, node: Tree, parent: Tree | None) -> Tree | None:
        possessors = [child for child in node.children if child.children and _is_determiner(child)]
        return possessors[0] if node.label == "NP" and possessors else None


def _is_determiner(node: Tree) -> bool:
    return node.label in {"DT", "PRP$", "WDT", "WP$"} or (node.label == "NP" and node.has("POS"))


SCHEMES: dict[str, HeadScheme] = {scheme.name: scheme for scheme in (Stanford(), FunctionHeads())}


def keep_words(heads: Sequence[int], kept: Sequence[bool]) -> list[int]:
    """The heads of the kept tokens, renumbered: a word whose head is dropped gets its nearest kept ancestor.

    If the root is dropped, the first kept word without a kept ancestor is the new root and governs the others.

    >>> keep_words([2, 0, 2, 3], [True, False, True, True])
    [0, 1, 2]
    """
    number = [0]  # number[i] kept tokens up to token i
    for keep in kept:
        number.append(number[-1] + keep)
    root = 0
    result = []
    for head, keep in zip(heads, kept, strict=True):
        if not keep:
            continue
        while head and not kept[head - 1]:
            head = heads[head - 1]
        if head:
            result.append(number[head])
        else:
            result.append(root)
            root = root or len(result)
    return result


def _copy(tree: Tree, leaves: list[Tree]) -> Tree | None:
    """A copy with bare labels and lower-case words, without traces, `$`, `#` and what these leave empty.

    Adds the leaves it keeps to `leaves`. Each leaf is its own head.
    """
    if tree.word:
        if tree.label == "-NONE-" or tree.label in CURRENCY_TAGS:
            return None
        leaves.append(tree)
        tag = "" if tree.label in TABLE else tree.label  # a leaf must not pass for a constituent
        return Tree(tag, word=tree.word.lower(), head=len(leaves))
    children = []
    for child in tree.children:  # a comprehension would double the depth of the stack
        if copy := _copy(child, leaves):
            children.append(copy)
    adverbial = ADVERBIAL.match(tree.label) is not None
    return Tree(bare_label(tree.label), children, adverbial=adverbial) if children else None


Arcs = Iterator[tuple[int, int]]  # (dependent, governor)


def _distant_arcs(root: Tree) -> Arcs:
    """The arcs that do not follow from the head children of constituents."""
    for node in root.constituents():
        yield from _raised_object(node)
        yield from _parenthesis(node)
        yield from _stranded_preposition(node)


def _raised_object(node: Tree) -> Arcs:
    """(VP want (S (NP him) (VP to go))): the higher verb governs the subject of the infinitive."""
    for clause in node.children:
        if node.label == "VP" and clause.label == "S":
            for subject, infinitive in pairwise(clause.children):
                if subject.label == "NP" and infinitive.label == "VP" and infinitive.has("TO"):
                    yield subject.head, node.head


def _parenthesis(node: Tree) -> Arcs:
    """(NP (NP a coin) (PRN they say) (VP made of gold)): the verb phrase governs the clause."""
    verbs = [child.head for child in node.children if child.label == "VP"]
    for child in node.children:
        if child.label == "PRN" and child.has("S", "SINV", "SBAR") and verbs and node.label != "VP":
            yield child.head, verbs[0]


def _stranded_preposition(node: Tree) -> Arcs:
    """(SBAR (WHNP what) (S (NP he) (VP looks (PP at)))): the preposition governs the wh-phrase."""
    for question, clause in pairwise(node.children):
        if question.label == "WHNP" and clause.label in {"S", "SQ"} and clause.has("NP"):
            for phrase in (phrase for vp in clause.children if vp.label == "VP" for phrase in vp.children):
                if phrase.label == "PP" and len(phrase.children) == 1 and phrase.has("IN", "TO"):
                    yield question.head, phrase.head


def _dominates(ancestor: int, word: int, heads: Sequence[int]) -> bool:
    """Whether `ancestor` is the word itself or above it; an arc from below would make a cycle."""
    while word and word != ancestor:
        word = heads[word - 1]
    return word == ancestor
