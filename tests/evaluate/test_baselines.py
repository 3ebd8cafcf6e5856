"""Trees without a model: valid, reproducible, optimal where they claim to be; and the known scores."""

import random
from collections import Counter
from itertools import chain, pairwise, product

import pytest

from nbl.corpus.clean import spans_of, words_of
from nbl.metrics import (
    left_branching,
    mean_sentence_f1,
    oracle,
    random_branching,
    right_branching,
    sentence_f1,
)


def all_trees(i, j):
    """Every tree without unary chains over words[i:j], as spans in pre-order, the widest first."""
    if j - i < 2:
        return [[]]
    trees = []
    for cuts in product([False, True], repeat=j - i - 1):
        posts = [i, *(k for k, cut in enumerate(cuts, start=i + 1) if cut), j]
        if len(posts) == 2:
            continue
        parts = [all_trees(a, b) for a, b in pairwise(posts)]
        trees += [[(i, j), *chain.from_iterable(choice)] for choice in product(*parts)]
    return trees


def is_binary(spans, n):
    """A binary tree of n words is n - 1 spans that do not cross, the sentence among them."""
    crossing = any(a < c < b < d for a, b in spans for c, d in spans)
    in_order = spans == sorted(spans, key=lambda span: (span[0], -span[1]))
    return len(set(spans)) == len(spans) == n - 1 and (0, n) in spans and not crossing and in_order


def test_enumerator_counts_trees():
    assert [len(all_trees(0, n)) for n in range(2, 7)] == [1, 3, 11, 45, 197]  # little Schroeder numbers
    binary = [sum(is_binary(tree, n) for tree in all_trees(0, n)) for n in range(2, 7)]
    assert binary == [1, 2, 5, 14, 42]  # Catalan numbers


def test_one_and_two_words():
    for tree in (left_branching, right_branching, lambda n: random_branching(n, random.Random(0))):
        assert tree(1) == []
        assert tree(2) == [(0, 2)]
    assert oracle([]) == []
    assert oracle([(0, 2, "NP")]) == [(0, 2)]


@pytest.mark.parametrize("n", [3, 4, 7, 250])
def test_trees_are_binary(n):
    assert is_binary(left_branching(n), n)
    assert is_binary(right_branching(n), n)
    for seed in range(5):
        assert is_binary(random_branching(n, random.Random(seed)), n)
    assert is_binary(oracle([(0, n, "S")]), n)


def test_very_long_sentences():
    n = 1500  # more than Python's recursion limit
    assert len(random_branching(n, random.Random(0))) == n - 1
    assert oracle([(0, n, "X")]) == right_branching(n)
    assert oracle(left_branching(n)) == left_branching(n)


def test_random_trees_follow_the_seed():
    def draw(seed):
        generator = random.Random(seed)
        return [random_branching(20, generator) for _ in range(10)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert len(set(map(tuple, draw(7)))) == 10  # the generator moves on between trees


def test_random_split_is_uniform():
    generator = random.Random(0)
    draws = Counter(tuple(random_branching(4, generator)) for _ in range(6000))
    expected = {tuple(tree): 1000 for tree in all_trees(0, 4) if is_binary(tree, 4)}
    expected[((0, 4), (0, 2), (2, 4))] = 2000
    assert draws.keys() == expected.keys()
    assert all(abs(draws[tree] - count) < 150 for tree, count in expected.items())  # about 5 deviations


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("convention", ["kim", "release"])
def test_no_binary_tree_beats_the_oracle(n, convention):
    trees = all_trees(0, n)
    binary = [tree for tree in trees if is_binary(tree, n)]
    for gold in trees:
        best = oracle(gold)
        assert is_binary(best, n)
        assert set(gold) <= set(best)
        assert sentence_f1(gold, best, convention) == max(sentence_f1(gold, tree, convention) for tree in binary)


def test_oracle_takes_unary_chains():
    gold = [(0, 4, "S"), (0, 4, "VP"), (1, 4, "NP"), (1, 4, "NP"), (1, 3, "ADJP")]
    assert oracle(gold) == [(0, 4), (1, 4), (1, 3)]


@pytest.fixture(scope="module")
def sample(sample_trees):
    """(length, gold spans) of the sample's sentences."""
    return [(len(words_of(tree)), spans_of(tree)) for _, _, tree in sample_trees]


@pytest.mark.parametrize(
    ("baseline", "convention", "percent"),
    [
        ("left", "kim", 8.27),
        ("left", "release", 8.32),
        ("right", "kim", 39.61),
        ("right", "release", 39.71),
        ("oracle", "kim", 84.25),
        ("oracle", "release", 84.35),
    ],
)
def test_scores_on_the_sample(sample, baseline, convention, percent):
    """What independent computations by the two conventions gave, to both decimals."""
    trees = {
        "left": lambda n, gold: left_branching(n),
        "right": lambda n, gold: right_branching(n),
        "oracle": lambda n, gold: oracle(gold),
    }
    golds = [gold for _, gold in sample]
    score = mean_sentence_f1(golds, [trees[baseline](n, gold) for n, gold in sample], convention)
    assert score.n == 3901
    assert round(100 * score.value, 2) == percent


def test_special_sentences_of_the_sample(sample):
    root_chains = [gold for _, gold in sample if len(gold) > 1 and gold[1][:2] == gold[0][:2]]
    flat = [gold for n, gold in sample if n > 2 and all(span[:2] == (0, n) for span in gold)]
    assert (len(root_chains), len(flat)) == (18, 8)
