"""Cleaning: hand cases, and the counts on the treebank sample that anyone can check."""

from collections import Counter

from nbl.corpus.clean import spans_of, tags_of, words_of
from nbl.corpus.treebank import parse_trees
from nbl.sentence import Span

TEXT = """
( (S-1
    (NP-SBJ (`` ``) (NP (DT The) (NN fund)) (PP (-NONE- *ICH*-2)))
    (VP (VBD paid)
        (NP (QP ($ $) (CD 1.5) (CD million)) (-NONE- *U*))
        (ADVP-TMP (RB again))
        (SBAR (-NONE- 0) (S (NP (-NONE- *T*-3)) (VP (-NONE- *?*)))))
    (. .)) )
"""


def test_punctuation_traces_currency_and_emptied_constituents_go():
    (tree,) = parse_trees(TEXT)
    assert words_of(tree) == ["the", "fund", "paid", "N", "million", "again"]
    assert tags_of(tree) == ["DT", "NN", "VBD", "CD", "CD", "RB"]
    assert spans_of(tree) == [
        Span(0, 6, "S-1"),
        Span(0, 2, "NP-SBJ"),
        Span(0, 2, "NP"),  # the chain NP over NP that removing the trace leaves
        Span(2, 6, "VP"),
        Span(3, 5, "NP"),
        Span(3, 5, "QP"),
    ]


def test_the_sample_has_the_known_counts(sample_trees):
    sentences = [words_of(tree) for _, _, tree in sample_trees]
    lengths = [len(words) for words in sentences]
    assert len(sentences) == 3914
    assert sum(lengths) == 82_369
    assert Counter(length for length in lengths if length <= 2) == {1: 13, 2: 21}
    assert max(lengths) == 171
    assert sum(2 <= length <= 40 for length in lengths) == 3751
    assert sum(length for length in lengths if 2 <= length <= 40) == 75_150
    counts = Counter(word for words in sentences for word in words)
    assert len(counts) == 9960
    assert sum(count >= 2 for count in counts.values()) == 5105


def test_the_sample_has_the_known_constituents(sample_trees):
    below, duplicates = 0, 0
    for _, _, tree in sample_trees:
        n = len(words_of(tree))
        spans = [span[:2] for span in spans_of(tree) if span[:2] != (0, n)]
        below += len(spans)
        duplicates += len(spans) - len(set(spans))
    assert (below, duplicates) == (58_750, 4058)


def test_the_sample_loses_the_known_tokens(sample_trees):
    all_tags = Counter(leaf.label for _, _, tree in sample_trees for leaf in tree.preterminals())
    kept = Counter(tag for _, _, tree in sample_trees for tag in tags_of(tree))
    removed = {"-NONE-": 6592, ",": 4886, ".": 3874, "$": 724, "``": 712, "''": 694, ":": 563}
    removed |= {"-RRB-": 126, "-LRB-": 120, "#": 16}
    assert dict(all_tags - kept) == removed
