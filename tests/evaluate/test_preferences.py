"""What a grammar prefers, against counts by brute force."""

from hypothesis import given
from hypothesis import strategies as st

from nbl.preferences import adjective_noun, headedness, left_headed
from nbl.sentence import head_word


@st.composite
def sentences(draw):
    """Spans with labels and heads, gold and predicted; the heads are any, so a span may have several."""
    l = draw(st.integers(2, 7))
    span = st.tuples(st.integers(0, l - 2), st.integers(2, l)).filter(lambda s: s[1] - s[0] >= 2)
    spans = st.lists(span.flatmap(lambda s: st.sampled_from("AB").map(lambda label: (*s, label))), max_size=6)
    heads = st.lists(st.integers(0, l), min_size=l, max_size=l)
    return draw(spans), draw(heads), draw(spans), draw(heads)


def tops(heads, i, j):
    """Words of a span that hang on the root or on a word outside of it."""
    return {word for word in range(i, j) if heads[word] == 0 or heads[word] - 1 not in range(i, j)}


@given(st.lists(sentences(), max_size=4))
def test_headedness_counts_what_it_says(corpus):
    found = headedness([(s[0], s[1]) for s in corpus], [(s[2], s[3]) for s in corpus])
    for label in "AB":
        gold = [
            (tops(heads, i, j), tops(ours, i, j), i, (i, j) in {span[:2] for span in predicted})
            for spans, heads, predicted, ours in corpus
            for i, j, name in spans
            if name == label and len(tops(heads, i, j)) == 1
        ]
        assert (label in found) == bool(gold)
        if gold:
            hits = [(right, ours, i) for right, ours, i, hit in gold if hit and len(ours) == 1]
            assert found[label] == (
                len(gold),
                sum(right == {i} for right, _, i, _ in gold),
                len(hits),
                sum(ours == {i} for _, ours, i in hits),
                sum(ours == right for right, ours, _ in hits),
            )


@given(st.lists(sentences(), max_size=4))
def test_the_left_headed_share_is_of_constituents_with_one_head(corpus):
    flags = [
        tops(heads, i, j) == {i}
        for *_, spans, heads in corpus
        for i, j in {span[:2] for span in spans}
        if len(tops(heads, i, j)) == 1
    ]
    assert left_headed([(s[2], s[3]) for s in corpus]) == (sum(flags) / len(flags) if flags else None)


def test_a_constituent_with_two_heads_has_none():
    assert head_word([0, 1, 1, 3], 1, 3) is None
    assert headedness([([(0, 4, "S"), (1, 3, "NP")], [0, 1, 1, 3])], [([(1, 3)], [0, 1, 1, 3])]).keys() == {"S"}


def test_only_phrases_of_determiner_adjective_and_noun_have_a_shape():
    tags = ["DT", "JJ", "NNS", "DT", "JJ", "JJ", "NN", "DT", "JJ", "NNP"]
    gold = [(0, 10), (0, 3), (0, 3), (3, 7), (4, 7), (7, 10)]  # the first phrase has a unary chain: one phrase
    assert adjective_noun(tags, gold, [(0, 3), (1, 3), (3, 7), (4, 7), (8, 10)]) == ["right", "neither"]
    assert adjective_noun(tags, gold, [(0, 3), (0, 2), (7, 10)]) == ["left", "left"]
