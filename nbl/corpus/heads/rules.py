"""Which child of a constituent is its head, by the rules of Stanford's basic dependencies.

`TABLE` holds the search lists of each category, `search` applies them and `first_conjunct` makes
the first conjunct head a coordination. `special_head` takes precedence over the table: a content word,
not its auxiliaries or its copula, heads a verb group. The trees have bare labels and lower-case words;
`nbl.corpus.heads.rewrites` has prepared them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from nbl.corpus.treebank import Tree

PUNCTUATION = frozenset(", : . `` '' -LRB- -RRB-".split())
CONJUNCTIONS = frozenset({"CC", "CONJP"})


SearchLists = list[tuple[str, list[str]]]


def parse_table(rules: Mapping[str, str]) -> dict[str, SearchLists]:
    """The search lists of each category as (direction, labels), from their notation.

    `<` takes the labels in the order given and looks for the leftmost child of each, `>` for the
    rightmost; `>>` takes the rightmost child with any of the labels; `;` begins the list to try next.
    If all lists fail, the head is the outermost child on the side of the last list, punctuation aside.

    >>> parse_table({"S": "< VP S ; > NP"})
    {'S': [('<', ['VP', 'S']), ('>', ['NP'])]}
    """
    lists = {label: [search.split() for search in rule.split(";")] for label, rule in rules.items()}
    return {label: [(direction, labels) for direction, *labels in searches] for label, searches in lists.items()}


NOUN_PHRASE = """>> NN NNP NNPS NNS NX NML JJR WP ; < NP PRP ; >> ADJP FW ; > CD ;
    >> JJ JJS QP DT WDT NML PRN RB RBR ADVP ; >> VP VB VBZ VBD VBP ; < POS"""
TABLE = parse_table(
    {
        "NP": NOUN_PHRASE,
        "NX": NOUN_PHRASE,
        "NML": NOUN_PHRASE,
        "WHNP": """>> NN NNP NNPS NNS NX NML JJR WP ; < WHNP NP ; >> ADJP PRN FW ; > CD ; >> JJ JJS RB QP ;
            < WHPP WHADJP WP$ WDT""",
        "VP": "< TO VBD VBN MD VBZ VB VBG VBP VP ADJP NN NNS JJ NP NNP",
        "S": "< VP S FRAG SBAR ADJP UCP TO ; > NP",
        "SBAR": "< S SQ SINV SBAR FRAG VP WHNP WHPP WHADVP WHADJP IN DT",
        "SBARQ": "< SQ S SINV SBARQ FRAG SBAR",
        "SQ": "< VP SQ ADJP VB VBZ VBD VBP MD",
        "SINV": "< VBZ VBD VBP VB MD VBN VP S SINV ADJP NP",
        "PP": "> IN TO VBG VBN RP FW JJ SYM ; < PP",
        "WHPP": "> IN TO FW",
        "ADJP": ">> NNS NN JJ JJR JJS QP VBN VBG ; < ADJP ; >> DT RB RBR CD IN VBD ; < ADVP NP",
        "ADVP": "< ADVP IN ; >> RB RBR RBS JJ JJR JJS ; >> RP DT NN CD NP VBN NNP CC FW NNS ADJP NML",
        "WHADJP": "< ADJP JJ JJR WP ; > RB ; >",
        "WHADVP": ">> WRB WHADVP RB JJ",
        "QP": "> NNS NN CD JJ PDT DT IN RB QP JJR JJS",
        "PRN": "< VP SQ S SINV SBAR NP ADJP PP ADVP INTJ WHNP NAC VBP JJ NN NNP",
        "NAC": ">> NN NNS NNP NNPS ; < NML NP NAC EX CD QP PRP VBG JJ JJS JJR ADJP FW",
        "FRAG": "< IN ; > RB ; < NP ; < ADJP ADVP FRAG S SBAR VP",
        "CONJP": "> CC VB JJ RB IN",
        "RRC": "< RRC ; > VP ADJP NP PP ADVP",
        "UCP": "<",
        "INTJ": "<",
        "X": "> S VP ADJP NP SBAR PP X",
        "PRT": "> RP",
        "LST": "> LS :",
        "XS": "> IN",  # made by rewrites.group_quantifier: "more than"
        "XSL": "<",  # "up to"
    }
)
_OTHER: SearchLists = [("<", [])]


def search(node: Tree, table: Mapping[str, SearchLists]) -> Tree:
    """The head child by the table alone."""
    lists = table.get(node.label, _OTHER)
    for direction, labels in lists:
        found = _find(node.children, direction, labels)
        if found is not None:
            return found
    children = node.children if lists[-1][0] == "<" else node.children[::-1]
    return next((child for child in children if child.label not in PUNCTUATION), children[0])


def _find(children: Sequence[Tree], direction: str, labels: Sequence[str]) -> Tree | None:
    """The child that one search list finds."""
    ordered = children if direction == "<" else children[::-1]
    if direction == ">>":
        return next((child for child in ordered if child.label in labels), None)
    return next((child for label in labels for child in ordered if child.label == label), None)


def first_conjunct(node: Tree, head: Tree) -> Tree:
    """The head child, or the first conjunct if the head child is a later one."""
    children = node.children
    i = children.index(head)
    if i < 2 or children[i - 1].label not in CONJUNCTIONS:
        return head
    i -= 2
    while i >= 0 and (children[i].label in PUNCTUATION or children[i].label in {"INTJ", "UH"}):
        i -= 1
    while i >= 2 and children[i - 1].label in {",", ":"}:
        i -= 2
    return children[i] if i >= 0 else head


BE = frozenset("be being been am are is was were 'm 're 's ai".split())
# Modals are not listed: they have a tag of their own, MD.
AUXILIARIES = frozenset("have has had having 've 'd do does did get gets getting got gotten".split())
VERBS = frozenset("VB VBD VBN VBG VBZ VBP".split())
PARTICIPLES = frozenset({"VBN", "VBG", "VBD"})  # VBD is often a mistake for VBN
PREDICATES = ("VP", "ADJP", "NP", "WHADJP", "WHNP")


def special_head(node: Tree, parent: Tree | None) -> Tree | None:
    """The head child if a rule takes precedence over the table, else None."""
    if node.label == "CONJP":
        return _head_of_conjunction(node)
    if node.label == "SBARQ":
        return _head_of_question(node)
    if node.label == "SINV":
        return _head_of_inversion(node) or _head_of_verb_group(node, parent)
    if node.label in {"VP", "SQ"}:
        return _head_of_verb_group(node, parent)
    return None


def _head_of_conjunction(node: Tree) -> Tree | None:
    """The adverb of `but also`, `and not`, `and yet`; of `and so` it is the conjunction."""
    *_, last_leaf = node.subtrees()
    is_adverb = node.children[0].label == "CC" and last_leaf.word in {"not", "also", "rather", "yet"}
    return node.children[-1] if is_adverb else None


def _head_of_question(node: Tree) -> Tree | None:
    """`what is wrong` has the head `wrong`, `who is the president` the head `who`.

    `rewrites.flatten_question` puts the copula beside its wh-phrase.
    """
    copula = next((i for i, child in enumerate(node.children) if is_form_of(child, BE)), 0)
    question = _find(node.children[:copula], "<", ["WHNP"])
    return question and (_find(node.children[copula:], "<", ["ADJP"]) or question)


def _head_of_inversion(node: Tree) -> Tree | None:
    """`such a great idea this was` has the head `idea`."""
    last = next((i for i, child in enumerate(node.children) if child.label == "VP"), 0)
    nps = [child for child in node.children[:last] if child.label == "NP" and not child.adverbial]
    verb = node.children[last]
    is_copula = any(is_form_of(child, BE) for child in verb.children) and not verb.has(*PREDICATES)
    return nps[0] if len(nps) > 1 and is_copula else None


def is_form_of(leaf: Tree, words: frozenset[str]) -> bool:
    """Whether the leaf is a verb with one of the forms."""
    return leaf.label in VERBS and leaf.word in words


def _head_of_verb_group(node: Tree, parent: Tree | None) -> Tree | None:
    """The phrase that auxiliaries or a copula belong to."""
    has_be = any(is_form_of(child, BE) for child in node.children)
    has_modal = node.has("TO", "MD")
    has_auxiliary = has_modal or any(is_form_of(child, AUXILIARIES) for child in node.children)
    is_passive_or_progressive = has_be and any(map(_has_participle, node.children))
    if has_auxiliary or is_passive_or_progressive:
        found = _find(node.children, "<", ["VP", "ADJP"] if has_modal or has_be else ["VP"])
        if found is not None:
            return found
    if has_be and not _is_existential(node, parent) and not _is_wh_question(node, parent):
        return _predicate(node)
    return None


def _has_participle(phrase: Tree) -> bool:
    """Whether this is a verb phrase with a participle, its own or in its conjunct before a conjunction."""
    if phrase.label != "VP":
        return False
    return phrase.has(*PARTICIPLES) or any(
        left.label == "VP" and left.has(*PARTICIPLES) and right.label in CONJUNCTIONS
        for left, right in pairwise(phrase.children)
    )


def _is_existential(node: Tree, parent: Tree | None) -> bool:
    """Whether `there` stands before the verb phrase (`there is a problem`) or in the question."""
    scope: list[Tree] = []
    if node.label == "SQ":
        scope = node.children
    elif node.label == "VP" and parent is not None:
        scope = parent.children[: parent.children.index(node)]
    return any(inner.label == "EX" for phrase in scope for inner in phrase.subtrees())


def _is_wh_question(node: Tree, parent: Tree | None) -> bool:
    if parent is None or node.label != "SQ" or parent.label != "SBARQ":
        return False
    return any(sister.label.startswith("WH") for sister in parent.children)


def _predicate(node: Tree) -> Tree | None:
    """The predicate of a copula; in a question, the subject stands between the two."""
    candidates = [child for child in node.children if not _is_adverbial(child)]
    if node.label != "SQ":
        return _find(candidates, "<", PREDICATES)
    found = _find(candidates, ">", PREDICATES)
    is_subject = found is not None and found.label == "NP" and _find(node.children, "<", ["NP"]) is found
    return None if is_subject else found


def _is_adverbial(node: Tree) -> bool:
    """Whether this is a phrase such as `last year`, or an elided verb phrase of which only that is left."""
    if node.label == "VP":
        has_verb = any(child.word or child.label == "VP" for child in node.children)
        return not has_verb and any(child.adverbial for child in node.children)
    return node.adverbial
