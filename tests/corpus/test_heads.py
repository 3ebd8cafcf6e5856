"""Gold heads: every rule on a hand-made tree, the shape of the result on random ones, the reference."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbl.corpus.clean import WORD_TAGS, is_word
from nbl.corpus.heads import SCHEMES, keep_words
from nbl.corpus.treebank import Tree, parse_trees
from nbl.sentence import MAX_DEPTH


def arcs(text: str, scheme: str = "stanford") -> str:
    """The dependencies of a bracketed tree as `word<head`, in the order of the words."""
    [tree] = parse_trees(text)
    words = ["ROOT", *(leaf.word for leaf in tree.preterminals() if is_word(leaf))]
    heads = SCHEMES[scheme].heads(tree)
    return " ".join(f"{word}<{words[head]}" for word, head in zip(words[1:], heads, strict=True))


def is_dependency_tree(heads: list[int]) -> bool:
    """One root, every head in range, and every word below the root."""

    def reaches_root(word: int) -> bool:
        for _ in heads:
            word = heads[word - 1]
            if word == 0:
                return True
        return False

    words = range(1, len(heads) + 1)
    return all(0 <= head <= len(heads) for head in heads) and all(map(reaches_root, words)) and heads.count(0) <= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(NP (DT a) (JJ red) (NN stone) (NN wall))", "a<wall red<wall stone<wall wall<ROOT", id="flat"),
        pytest.param(
            "(NP (NP (NNP Ann) (POS 's)) (NN dog))",
            "Ann<dog 's<Ann dog<ROOT",
            id="the noun heads its possessor",
        ),
        pytest.param("(NP (NP (NNS dogs)) (, ,) (NP (NNS pets)))", "dogs<ROOT pets<dogs", id="apposition"),
        pytest.param("(PP (IN in) (NP (DT the) (NN sun)))", "in<ROOT the<sun sun<in", id="preposition"),
        pytest.param("(NP (CD 3) (JJ big))", "3<ROOT big<3", id="the lists are tried in their order"),
        pytest.param("(S (NP (NNS dogs)) (VP (VBP bark)) (. .))", "dogs<bark bark<ROOT", id="clause"),
        pytest.param("(FOO (, ,) (NN a) (NN b))", "a<ROOT b<a", id="unknown category: the first word"),
        pytest.param("(SBAR (IN if) (S (VP (VB go))))", "if<go go<ROOT", id="complementiser"),
        pytest.param("(CONJP (RB not) (TO to) (VB say))", "not<say to<say say<ROOT", id="conjunction phrase"),
    ],
)
def test_the_table(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(VP (MD will) (VP (VB bark)))", "will<bark bark<ROOT", id="modal"),
        pytest.param("(VP (TO to) (VP (VB bark)))", "to<bark bark<ROOT", id="infinitive"),
        pytest.param("(VP (VBZ Has) (VP (VBN barked)))", "Has<barked barked<ROOT", id="perfect, in any case"),
        pytest.param("(VP (VBP have) (NP (NNS dogs)))", "have<ROOT dogs<have", id="have as a full verb"),
        pytest.param("(VP (VBD got) (VP (VBN fed)))", "got<fed fed<ROOT", id="get"),
        pytest.param(
            "(VP (VBZ is) (VP (VP (VBN fed)) (CC and) (VP (VBN washed))))",
            "is<fed fed<ROOT and<fed washed<fed",
            id="coordinated participles",
        ),
        pytest.param("(VP (VBD went) (VP (VBG fishing)))", "went<ROOT fishing<went", id="no auxiliary"),
        pytest.param("(SQ (VBP do) (NP (PRP we)) (VP (VB bark)))", "do<bark we<bark bark<ROOT", id="question"),
        pytest.param(
            "(SINV (RB so) (VBP do) (NP (PRP we)) (VP (VB bark)))",
            "so<bark do<bark we<bark bark<ROOT",
            id="inverted",
        ),
        pytest.param("(VP (MD can) (ADJP (JJ free)))", "can<free free<ROOT", id="elided copula"),
        pytest.param(
            "(S (NP (EX there)) (VP (VBZ is) (VP (VBN found) (NP (NN oil)))))",
            "there<found is<found found<ROOT oil<found",
            id="passive with existential there",
        ),
        pytest.param(
            "(S (NP (EX there)) (VP (VBZ is) (VP (VP (VBN found)) (CC or) (VP (VBN made)))))",
            "there<found is<found found<ROOT or<found made<found",
            id="coordinated passive with existential there",
        ),
    ],
)
def test_auxiliaries(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(VP (VBZ is) (ADJP (JJ red)))", "is<red red<ROOT", id="adjective"),
        pytest.param("(VP (VBP are) (NP (NNS pets)))", "are<pets pets<ROOT", id="noun"),
        pytest.param("(VP (VBZ is) (PP (IN in) (NP (NN sun))))", "is<ROOT in<is sun<in", id="no predicate"),
        pytest.param(
            "(VP (VBD was) (NP-TMP (NN today)) (PP (IN in)))",
            "was<ROOT today<was in<was",
            id="-TMP is no predicate",
        ),
        pytest.param(
            "(VP (VBD was) (NP-ADV (PRP itself)) (ADJP (JJ red)))",
            "was<red itself<red red<ROOT",
            id="nor is -ADV",
        ),
        pytest.param(
            "(VP (VBD was) (VP (-NONE- *?*) (NP-TMP (NN today))))",
            "was<ROOT today<was",
            id="nor an elided verb's",
        ),
        pytest.param("(VP (VBZ is) (VP (JJ known)))", "is<known known<ROOT", id="mistagged participle"),
        pytest.param(
            "(S (NP (EX there)) (VP (VBZ is) (NP (NN sun))))",
            "there<is is<ROOT sun<is",
            id="existential there",
        ),
        pytest.param(
            "(S (NP (EX there)) (VP (MD will) (VP (VB be) (NP (NN sun)))))",
            "there<sun will<sun be<sun sun<ROOT",
            id="existential there is seen only from the next verb phrase",
        ),
        pytest.param(
            "(SQ (VBZ is) (NP (PRP he)) (NP (DT a) (NN king)))",
            "is<king he<king a<king king<ROOT",
            id="question",
        ),
        pytest.param(
            "(SQ (VBZ is) (NP (PRP he)) (ADVP (RB here)))",
            "is<ROOT he<is here<is",
            id="a subject is no predicate",
        ),
        pytest.param(
            "(SQ (VBZ is) (NP (EX there)) (NP (NN sun)))",
            "is<ROOT there<is sun<is",
            id="existential question",
        ),
    ],
)
def test_copula(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "(SBARQ (WHNP (WP what)) (SQ (VBZ is) (ADJP (JJ wrong))) (. ?))",
            "what<wrong is<wrong wrong<ROOT",
            id="what is wrong",
        ),
        pytest.param(
            "(SBARQ (WHNP (WP who)) (SQ (VBZ is) (NP (DT the) (NN king))) (. ?))",
            "who<ROOT is<who the<king king<who",
            id="who is the king",
        ),
        pytest.param(
            "(SBARQ (WHADVP (WRB how)) (SQ (VBZ is) (NP (PRP he)) (NP (NN king))) (. ?))",
            "how<is is<ROOT he<is king<is",
            id="no copula rule after a wh-word",
        ),
        pytest.param(
            "(SBARQ (WHNP (WP who)) (SQ (VBZ is) (NP (PRP he)) (VP (VBG feeding))) (. ?))",
            "who<feeding is<feeding he<feeding feeding<ROOT",
            id="who is he feeding",
        ),
        pytest.param(
            "(SINV (NP (DT a) (NN joy)) (NP (DT this)) (VP (VBD was)))",
            "a<joy joy<ROOT this<joy was<joy",
            id="inverted",
        ),
        pytest.param(
            "(SBARQ (WHNP (WP what)) (SQ (VBZ is) (PP (IN on))) (. ?))",
            "what<is is<ROOT on<is",
            id="what is on",
        ),
    ],
)
def test_questions(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(NP (NN salt) (CC and) (NN oil))", "salt<ROOT and<salt oil<salt", id="two words"),
        pytest.param(
            "(NP (NN salt) (, ,) (NN rice) (, ,) (CC and) (NN oil))",
            "salt<ROOT rice<salt and<salt oil<salt",
            id="a list of words",
        ),
        pytest.param(
            "(S (S (VP (VB go))) (INTJ (UH oh)) (CC and) (VP (VB run)))",
            "go<ROOT oh<go and<go run<go",
            id="an interjection before the conjunction",
        ),
        pytest.param(
            "(VP (VP (VB go)) (CONJP (CC but) (RB also)) (VP (VB run)))",
            "go<ROOT but<also also<go run<go",
            id="but also",
        ),
        pytest.param("(CONJP (CC and) (RB so))", "and<ROOT so<and", id="and so"),
        pytest.param(
            "(X (`` ``) (CC and) (X (NN salt)) (. .))",
            "and<salt salt<ROOT",
            id="nothing but punctuation before the conjunction",
        ),
    ],
)
def test_first_conjunct(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "(NP (NN gold) (CC and) (NN iron) (NNS rods))",
            "gold<rods and<gold iron<gold rods<ROOT",
            id="modifiers",
        ),
        pytest.param(
            "(NP (DT the) (NN gold) (CC and) (NN iron) (NNS rods))",
            "the<rods gold<rods and<gold iron<gold rods<ROOT",
            id="modifiers after a determiner",
        ),
        pytest.param(
            "(NP (JJ old) (NN gold) (, ,) (NN tin) (CC and) (NN iron) (NNS rods))",
            "old<rods gold<rods tin<gold and<gold iron<gold rods<ROOT",
            id="a list of modifiers",
        ),
        pytest.param(
            "(NP (DT both) (NN gold) (NNS rings) (CC and) (NN iron) (NNS rods))",
            "both<rings gold<rings rings<ROOT and<rings iron<rods rods<rings",
            id="two phrases and a preconjunct",
        ),
        pytest.param(
            "(NP (NNS rings) (CC and) (NN iron) (NNS rods))",
            "rings<ROOT and<rings iron<rods rods<rings",
            id="plural",
        ),
        pytest.param(
            "(NP (NN gold) (CC and) (NN tin) (NNS rings) (CC plus) (NN iron) (NNS rods))",
            "gold<rings and<gold tin<gold rings<ROOT plus<rings iron<rods rods<rings",
            id="modifiers, then a second phrase",
        ),
        pytest.param(
            "(NP (JJ old) (NNS rings) (CC and) (NNS rods) (CC plus) (NNS bars))",
            "old<rings rings<ROOT and<rings rods<rings plus<rings bars<rings",
            id="three phrases",
        ),
        pytest.param(
            "(NP (JJR newer) (JJ big) (CC and) (JJ small) (NNS rods))",
            "newer<big big<ROOT and<big small<rods rods<big",
            id="an adjective before the conjunction makes an ADJP",
        ),
        pytest.param(
            "(NP (NN gold) (NN ring) (CC and) (NP (NN rod)) (NN box))",
            "gold<box ring<box and<box rod<box box<ROOT",
            id="not flat: left alone",
        ),
        pytest.param(
            "(NP (DT the) (NN gold) (CC and) (NN tin) (NN ring) (NN box))",
            "the<gold gold<ROOT and<gold tin<box ring<box box<gold",
            id="more than one noun after the second word: two phrases",
        ),
        pytest.param(
            "(S (NP (JJ old) (NNS rings) (CC and) (CC or) (NNS rods) (NNS bars)) (VP (VBP shine)))",
            "old<rings rings<shine and<rings or<rings rods<bars bars<rings shine<ROOT",
            id="two conjunctions in a row",
        ),
    ],
)
def test_flat_coordination(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "(UCP (NN tin) (, ,) (NN gold) (CC and) (JJ old))",
            "tin<gold gold<ROOT and<gold old<gold",
            id="NP",
        ),
        pytest.param("(UCP (VBG old) (JJ red) (CC or) (PP (IN in)))", "old<ROOT red<old or<old in<old", id="UCP"),
        pytest.param("(UCP (DT any) (JJ red) (CC or) (NN tin))", "any<red red<ROOT or<red tin<red", id="ADJP after DT"),
        pytest.param("(UCP (CD 13) (ADJP (JJR older)))", "13<older older<ROOT", id="older"),
        pytest.param(
            "(UCP (DT either) (ADVP (RB now)) (CC or) (PP (IN in)))",
            "either<ROOT now<either or<either in<either",
            id="no ADVP after DT",
        ),
    ],
)
def test_mixed_coordination(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(QP (JJR more) (IN than) (CD ten))", "more<than than<ten ten<ROOT", id="more than"),
        pytest.param("(QP (IN at) (JJS least) (CD ten))", "at<ten least<at ten<ROOT", id="at least"),
        pytest.param("(QP (RB as) (JJ many) (IN of) (CD ten))", "as<of many<of of<ten ten<ROOT", id="as many as"),
        pytest.param("(QP (RB up) (TO to) (CD ten))", "up<ten to<up ten<ROOT", id="up to"),
        pytest.param("(QP (CD one) (IN in) (CD ten))", "one<ten in<ten ten<ROOT", id="no quantifier"),
        pytest.param("(QP (JJR more) (IN than) (PDT half))", "more<half than<half half<ROOT", id="no number"),
        pytest.param(
            "(QP (CD two) (CD million) (CC or) (JJR more))",
            "two<million million<ROOT or<million more<million",
            id="or",
        ),
        pytest.param(
            "(NP (QP (CD two)) (QP (CC or) (CD three)) (NNS dogs))",
            "two<dogs or<two three<two dogs<ROOT",
            id="two QPs",
        ),
        pytest.param(
            "(NP (QP (RB only) (RB nearly) (DT all)) (NNS dogs))",
            "only<nearly nearly<dogs all<dogs dogs<ROOT",
            id="nearly all",
        ),
        pytest.param("(QP (JJR more) (IN than) ($ $) (CD 5))", "more<than than<5 5<ROOT", id="currency signs go first"),
        pytest.param(
            "(QP (CD 2) (CD million) (CC or) (CD 3) (CD billion))",
            "2<million million<ROOT or<million 3<billion billion<million",
            id="two numbers",
        ),
    ],
)
def test_quantities(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "(NP (NP (NN gold)) (CC and) (ADVP (RB even)) (NP (NN tin)))",
            "gold<ROOT and<gold even<tin tin<gold",
            id="an adverb moves into the conjunct after it",
        ),
        pytest.param(
            "(VP (VP (VB run)) (, ,) (RB then) (VP (VB hop)) (, ,) (RB not) (VP (VB fly)))",
            "run<ROOT then<hop hop<run not<fly fly<run",
            id="so do then and not",
        ),
        pytest.param(
            "(NP (NP (NN gold)) (, ,) (RB also) (NP (NN tin)))",
            "gold<ROOT also<gold tin<gold",
            id="no other bare word",
        ),
        pytest.param(
            "(ADJP (ADJP (JJ old)) (CC and) (ADVP (RB even)) (ADJP (JJ red)))",
            "old<ROOT and<old even<old red<old",
            id="nor any adverb in an adjective phrase",
        ),
        pytest.param(
            "(VP (VP (VB run)) (CC and) (ADVP (RB so)) (VP (VB win)))",
            "run<ROOT and<run so<and win<run",
            id="and so",
        ),
        pytest.param(
            "(VP (VP (VB run)) (CC and) (ADVP (RB yet)) (VP (VB lose)))",
            "run<ROOT and<yet yet<run lose<run",
            id="and yet",
        ),
        pytest.param(
            "(NP (NP (NN growth)) (SBAR (IN since) (S (NP (PRP it)) (VP (VBD fell)))))",
            "growth<ROOT since<growth it<fell fell<since",
            id="a temporal clause after a noun",
        ),
        pytest.param(
            "(VP (VBD grew) (SBAR (IN since) (S (NP (PRP it)) (VP (VBD fell)))))",
            "grew<ROOT since<fell it<fell fell<grew",
            id="a temporal clause after a verb",
        ),
        pytest.param(
            "(S (ADVP (RB well)) (, ,) (ADVP (RB now)) (NP (NNS dogs)) (VP (VBP bark)))",
            "well<bark now<bark dogs<bark bark<ROOT",
            id="nor without a conjunct before the comma",
        ),
    ],
)
def test_other_rewrites(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "(VP (VBP want) (S (NP (PRP him)) (VP (TO to) (VP (VB go)))))",
            "want<ROOT him<want to<go go<want",
            id="raised",
        ),
        pytest.param("(VP (VBP see) (S (NP (PRP him)) (VP (VB go))))", "see<ROOT him<go go<see", id="not raised"),
        pytest.param(
            "(NP (NP (NN gold)) (PRN (, ,) (S (NP (PRP we)) (VP (VBP say))) (, ,)) (VP (VBN found)))",
            "gold<ROOT we<say say<found found<gold",
            id="parenthesis",
        ),
        pytest.param(
            "(SBAR (WHNP (WP what)) (S (NP (PRP he)) (VP (VBD saw) (PP (IN to)))))",
            "what<to he<saw saw<ROOT to<saw",
            id="stranded preposition",
        ),
        pytest.param(
            "(SBAR (WHNP (WP who)) (S (VP (VBD saw) (PP (IN to)))))",
            "who<saw saw<ROOT to<saw",
            id="not stranded",
        ),
        pytest.param(
            "(VP (VBP go) (PRN (, ,) (S (VP (VB look))) (, ,)) (VP (VBG fishing)))",
            "go<ROOT look<go fishing<go",
            id="parenthesis in a verb phrase",
        ),
        pytest.param(
            "(NP (PRN (S (VP (VBP say)))) (VP (VBN found)))",
            "say<ROOT found<say",
            id="no arc that makes a cycle",
        ),
    ],
)
def test_distant_arcs(text: str, expected: str) -> None:
    assert arcs(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(NP (DT the) (JJ old) (NN dog))", "the<ROOT old<dog dog<the", id="determiner"),
        pytest.param(
            "(NP (NP (DT the) (JJ old) (NN man) (POS 's)) (JJ red) (NN dog))",
            "the<'s old<man man<the 's<ROOT red<dog dog<'s",
            id="possessor",
        ),
        pytest.param(
            "(S (NP (PRP$ her) (NN dog)) (VP (MD will) (VP (VB be) (ADJP (JJ red)))))",
            "her<will dog<her will<ROOT be<will red<be",
            id="auxiliary and copula",
        ),
        pytest.param("(VP (TO to) (VP (VB go)))", "to<ROOT go<to", id="infinitive"),
        pytest.param("(SBAR (IN that) (S (VP (VBZ barks))))", "that<ROOT barks<that", id="complementiser"),
        pytest.param(
            "(SBAR (WHNP (WDT which) (NN dog)) (S (VP (VBZ barks))))",
            "which<ROOT dog<which barks<which",
            id="wh",
        ),
        pytest.param(
            "(SBARQ (WHADVP (WRB why)) (SQ (VBZ does) (NP (PRP it)) (VP (VB bark))))",
            "why<ROOT does<why it<does bark<does",
            id="question",
        ),
        pytest.param(
            "(NP (NP (NN salt)) (CC and) (NP (DT the) (NN oil)))",
            "salt<ROOT and<salt the<salt oil<the",
            id="first conjunct",
        ),
        pytest.param("(PP (IN in) (NP (NN sun)))", "in<ROOT sun<in", id="preposition"),
        pytest.param(
            "(SBAR (WHNP (WP what)) (S (NP (PRP he)) (VP (VBD saw) (PP (IN to)))))",
            "what<ROOT he<saw saw<what to<saw",
            id="a wh-word that heads its clause depends on no preposition in it",
        ),
    ],
)
def test_function_heads(text: str, expected: str) -> None:
    assert arcs(text, "function") == expected


def test_schemes_are_known_by_their_names() -> None:
    assert {name: scheme.name for name, scheme in SCHEMES.items()} == {
        "stanford": "stanford",
        "function": "function",
    }


def test_a_tree_of_punctuation_and_traces_has_no_heads() -> None:
    assert arcs("(S (NP (-NONE- *)) (. .))") == ""
    assert arcs("(S (NP (-NONE- *)))") == ""


def test_a_single_word_is_the_root() -> None:
    assert arcs("(NN dog)") == "dog<ROOT"


def test_a_category_as_a_tag_does_no_harm() -> None:
    assert arcs("(NP (QP three) (NN dog))") == "dog<ROOT"


def test_the_deepest_tree_the_reader_allows() -> None:
    depth = MAX_DEPTH - 1
    assert arcs("(NP (NN a) (CC or) (NN b) " * depth + "(NN dog)" + ")" * depth).count("ROOT") == 1


CATEGORIES = """NP NP-TMP NX WHNP VP S SBAR SBARQ SQ SINV PP WHPP ADJP ADVP WHADJP WHADVP QP PRN NAC FRAG
    CONJP RRC UCP INTJ X PRT LST FOO""".split()
TAGS = [*sorted(WORD_TAGS), *", : . `` '' -LRB- $ # -NONE- NP QP S".split()]
WORDS = "dog is be have get got not then so yet and but also up to both either since after older".split()
leaf_trees = st.builds(lambda tag, word: Tree(tag, word=word), st.sampled_from(TAGS), st.sampled_from(WORDS))
trees = st.recursive(
    leaf_trees,
    lambda children: st.builds(Tree, st.sampled_from(CATEGORIES), st.lists(children, min_size=1, max_size=6)),
    max_leaves=40,
)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(tree=trees)
def test_any_tree_gives_one_root_and_no_cycle(scheme: str, tree: Tree) -> None:
    before = asdict(tree)
    heads = SCHEMES[scheme].heads(tree)
    assert asdict(tree) == before
    assert len(heads) == sum(map(is_word, tree.preterminals()))
    assert is_dependency_tree(heads)


@st.composite
def dependency_trees(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    """Random heads, and which tokens are kept: each token hangs from one earlier in a random order."""
    order = draw(st.permutations(range(1, draw(st.integers(1, 8)) + 1)))
    heads = [0] * len(order)
    for i, token in enumerate(order[1:], start=1):
        heads[token - 1] = order[draw(st.integers(0, i - 1))]
    return heads, draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))


@given(dependency_trees())
def test_kept_words_hang_from_their_nearest_kept_ancestor(case: tuple[list[int], list[bool]]) -> None:
    heads, kept = case
    words = [i for i, keep in enumerate(kept, start=1) if keep]
    result = keep_words(heads, kept)
    assert is_dependency_tree(result)

    def ancestors(token: int) -> list[int]:
        return [] if heads[token - 1] == 0 else [heads[token - 1], *ancestors(heads[token - 1])]

    tops = []
    for word, head in zip(words, result, strict=True):
        above = [ancestor for ancestor in ancestors(word) if ancestor in words]
        if above:
            assert words[head - 1] == above[0]
        else:
            tops.append(head)
    if words:
        root = result.index(0) + 1
        assert tops == [0] + [root] * (len(tops) - 1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_root_and_no_cycle_in_the_sample(scheme: str, sample_trees: list[tuple[str, int, Tree]]) -> None:
    for stem, index, tree in sample_trees:
        heads = SCHEMES[scheme].heads(tree)
        assert len(heads) == sum(map(is_word, tree.preterminals())), (stem, index)
        assert is_dependency_tree(heads), (stem, index)


def test_the_sample_is_not_modified(sample_trees: list[tuple[str, int, Tree]]) -> None:
    for stem, index, tree in sample_trees[:300]:
        before = str(tree)
        SCHEMES["stanford"].heads(tree)
        assert str(tree) == before, (stem, index)


def test_agreement_with_corenlp(sample_trees: list[tuple[str, int, Tree]]) -> None:
    """tests/data/stanford_heads.jsonl: CoreNLP 4.5.10's heads of wsj_0001 to wsj_0149, without words."""
    reference = Path(__file__).parents[1] / "data" / "stanford_heads.jsonl"
    records = [json.loads(line) for line in reference.read_text().splitlines()]
    trees = {(stem, index): tree for stem, index, tree in sample_trees}
    words = correct = 0
    for record in records:
        heads = SCHEMES["stanford"].heads(trees[record["file"], record["tree"]])
        correct += sum(ours == theirs for ours, theirs in zip(heads, record["heads"], strict=True))
        words += len(heads)
    assert words == 68_557
    assert correct == words
