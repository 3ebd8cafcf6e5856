"""Changes to a tree before its heads are found, after Stanford's converter.

The treebank leaves some phrases flat, or labels them in a way that no head rule can handle. Each
rewrite changes the structure or the label of one constituent, never the order of its words;
`rewrite` applies them all.
"""

from __future__ import annotations

from itertools import pairwise

from nbl.corpus.heads.rules import BE, CONJUNCTIONS, is_form_of
from nbl.corpus.treebank import Tree


def rewrite(root: Tree) -> None:
    """Apply every rewrite to every constituent, one rewrite after the other."""
    for change in (
        relabel_mixed_coordination,
        structure_coordination,
        merge_quantities,
        group_quantifier,
        flatten_determiner,
        split_quantity,
        flatten_question,
        join_conjunction,
        move_adverb,
        relabel_temporal_clause,
    ):
        for node in root.constituents():
            change(node)


def group(node: Tree, label: str, i: int, j: int) -> Tree:
    """Put children[i:j] under a new constituent, which takes their place."""
    group = Tree(label, node.children[i:j])
    node.children[i:j] = [group]
    return group


def relabel_mixed_coordination(node: Tree) -> None:
    """A UCP is what its first conjunct is: (UCP (JJ red) (CC and) (NN steel)) is an ADJP."""
    if node.label != "UCP":
        return
    first = node.children[0]
    conjunct = node.children[1] if first.label == "DT" and len(node.children) > 1 else first
    *_, last = node.subtrees()
    if conjunct.label in {"ADJP", "JJ", "JJR", "JJS"} or last.word in {"older", "younger"}:
        node.label = "ADJP"
    elif conjunct.label in {"NP", "NN", "NNS", "NNP", "NNPS"}:
        node.label = "NP"
    elif first.label == "ADVP":
        node.label = "ADVP"


def structure_coordination(node: Tree) -> None:
    """Find the conjuncts of a flat noun phrase with a conjunction.

    It is a list of modifiers before the head noun, or else two or more noun phrases. What stays flat
    is a coordination of single words, which the table of heads handles.
    """
    labels = [child.label for child in node.children]
    end = len(labels)
    conjunctions = [i for i in range(1, end - 1) if labels[i] == "CC"]
    if node.label != "NP" or not conjunctions:
        return
    i = conjunctions[0]
    if i + 2 >= end or "NP" in labels[i:]:
        return
    second = conjunctions[1] if len(conjunctions) > 1 else end
    if i == 1 and labels[0] not in {"NP", "ADJP", "NNS"}:  # [gold and silver] coins
        if second < end:
            group(node, "NP", second + 1, end)
            node = group(node, "NP", 0, second)
        group(node, "NP", 0, 3)
    elif i == 2 and labels[0] == "DT" and labels[1] != "NNS" and 5 in {end, second}:
        group(node, "NP", 1, 4)  # the [gold and silver] coins
    elif i > 2 and labels[i - 2] == "," and labels[i - 1] != "NNS":  # some [gold, silver and copper] coins
        first = i - 1
        while first >= 2 and labels[first - 1] == ",":
            first -= 2
        group(node, "NP", first, i + 2)
    else:  # both [gold coins] and [silver bars] and [copper]
        before = 0 if node.children[0].word in {"both", "either", "neither"} else -1
        for left, right in reversed(list(pairwise([before, *conjunctions, end]))):
            if left + 1 < right:
                group(node, "ADJP" if labels[right - 1].startswith("JJ") else "NP", left + 1, right)


def merge_quantities(node: Tree) -> None:
    """(QP three) (QP or four) is one QP."""
    children = node.children
    for i, (left, right) in enumerate(pairwise(children)):
        if left.label == right.label == "QP" and right.has("CC"):
            children[i : i + 2] = [Tree("QP", left.children + right.children)]
            return


# The tags that each word may have, before a number or a determiner.
QUANTIFIERS = (
    (("RB", "IN"), ("JJ", "JJR", "RB", "RBR"), ("IN",)),  # as many as, no fewer than
    (("IN",), ("JJS", "RBS")),  # at least
    (("RB", "RBR", "JJ", "JJR", "IN"), ("IN",)),  # more than, well over
)


def group_quantifier(node: Tree) -> None:
    """(QP more than ten) is (QP (XS more than) ten), and `up to` likewise an XSL."""
    if node.label != "QP":
        return
    labels = [child.label for child in node.children]
    if [child.word for child in node.children[:2]] == ["up", "to"] and len(labels) > 2:
        group(node, "XSL", 0, 2)
        return
    for tags in QUANTIFIERS:
        n = len(tags)
        if labels[n : n + 1] in (["CD"], ["DT"]) and all(labels[k] in tags[k] for k in range(n)):
            group(node, "XS", 0, n)
            return


def flatten_determiner(node: Tree) -> None:
    """(NP (QP nearly all) coins) is (NP (ADVP nearly) all coins)."""
    quantity = node.children[0]
    if node.label != "NP" or quantity.label != "QP" or len(node.children) == 1:
        return
    *adverbs, determiner = quantity.children
    if adverbs and determiner.label == "DT" and all(adverb.label == "RB" for adverb in adverbs):
        node.children[:1] = [Tree("ADVP", adverbs), determiner]


def split_quantity(node: Tree) -> None:
    """(QP two million or more) is a coordination of (NP two million) and (NP more)."""
    labels = [child.label for child in node.children]
    if node.label == "QP" and "CC" in labels[1:-1]:
        i = labels.index("CC", 1)
        group(node, "NP", i + 1, len(labels))
        group(node, "NP", 0, i)


def flatten_question(node: Tree) -> None:
    """(SBARQ (WHNP who) (SQ is the king)) loses its SQ, so that `who` can be the head."""
    for i, clause in enumerate(node.children):
        if (
            node.label == "SBARQ"
            and clause.label == "SQ"
            and any(sister.label == "WHNP" for sister in node.children[:i])
            and any(is_form_of(child, BE) for child in clause.children)
            and clause.has("NP", "ADJP")
            and not clause.has("VP")
        ):
            node.children[i : i + 1] = clause.children
            return


def _only_word(node: Tree) -> str:
    """The word of a leaf or of a constituent over one leaf, else an empty text."""
    while len(node.children) == 1:
        node = node.children[0]
    return node.word


def join_conjunction(node: Tree) -> None:
    """`and so` and `and yet` are conjunctions."""
    if node.label == "CONJP":
        return
    for i, (conjunction, adverb) in enumerate(pairwise(node.children)):
        if conjunction.label == "CC" and conjunction.word == "and" and _only_word(adverb) in {"so", "yet"}:
            group(node, "CONJP", i, i + 2)
            return


CONJUNCTS = ("NP", "VP", "PP", "S", "SBAR", "SBARQ", "SINV", "SQ")


def move_adverb(node: Tree) -> None:
    """(NP (NP gold) (CC and) (ADVP even) (NP silver)): the adverb belongs to the second conjunct."""
    if node.label not in CONJUNCTS:
        return
    children = node.children
    for i in reversed(range(2, len(children) - 1)):
        separator, adverb, conjunct = children[i - 1 : i + 2]
        is_adverb = (adverb.label == "RB" and adverb.word in {"not", "then"}) or (
            adverb.label == "ADVP" and _only_word(adverb)
        )
        if (
            is_adverb
            and (separator.label == "," or separator.label in CONJUNCTIONS)
            and conjunct.label in CONJUNCTS
            and any(child.label in CONJUNCTS for child in children[: i - 1])
        ):
            conjunct.children.insert(0, children.pop(i))


def relabel_temporal_clause(node: Tree) -> None:
    """(NP (NP a rise) (SBAR since prices fell)): the preposition heads such a modifier of a noun."""
    if node.label != "NP":
        return
    for clause in node.children:
        if (
            clause.label == "SBAR"
            and clause.has("S")
            and clause.children[0].word in {"after", "before", "until", "since", "during"}
        ):
            clause.label = "PP"
