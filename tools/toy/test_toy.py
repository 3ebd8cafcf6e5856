"""The embedded corpus: its sampler, its heads and its exact probabilities."""

import gzip
import math
import random
import re
from collections import Counter
from hashlib import sha256

import pytest

from nbl.corpus.clean import spans_of, words_of
from nbl.corpus.heads import SCHEMES
from nbl.corpus.treebank import parse_trees
from nbl.metrics import left_branching, mean_sentence_f1, right_branching

from . import corpus as toy
from .__main__ import FOLDER
from .chart import length_probabilities, string_probability
from .grammar import Grammar
from .notation import Slot

# Recursive and ambiguous: a PP may belong to the verb or to the noun, a comma and two numbers vanish.
TINY_RULES = """
ROOT
  1       (S =root)
S
  3       (S (NP-SBJ =subj) (VP (VBD _)) (. .))
  2       (S (NP-SBJ =subj) (VP (VBD _) (PP =pp)) (. .))
  1       (S (NP-SBJ =subj) (, ,) (VP (VBD _)) (. .))
NP
  4       (NB =)
  2       (NP (NB =) (PP =pp))
NB
  2       (NP (DT the) (NN _))
  1 NNS   (NP (CD 2) (NNS _))
  1 NNS   (NP (CD 35) (NNS _))
PP
  1       (PP (IN _) (NP =pobj))
"""
TINY_LEXICON = """
start  root ROOT : root~act
act    verb see/saw/seen sleep/slept/slept : subj=person pp=with
person noun man/men girl : pp=with
thing  noun hat : pp=with
thing  mass hay
with   prep with : pobj=person:1,thing:2
"""


@pytest.fixture(scope="module")
def corpus():
    return toy.sample_corpus()


@pytest.fixture(scope="module")
def tiny():
    return Grammar(TINY_RULES, TINY_LEXICON)


def trees_of(corpus):
    return [tree for split in corpus.values() for tree in split]


def enumerate_strings(grammar, longest):
    """All strings of up to `longest` words with their probabilities, by rewriting from the left."""
    strings = Counter()
    todo = [((), [(Slot(grammar.start[0], ""), grammar.start[1])], 1.0)]
    while todo:
        words, rest, probability = todo.pop()
        if len(words) + len(rest) > longest:  # every symbol yields at least one word
            continue
        if not rest:
            strings[words] += probability
            continue
        (part, head), rest = rest[0], rest[1:]
        if isinstance(part, str):
            todo.append(((*words, part), rest, probability))
            continue
        for word, p in grammar.fillers(part, head).pairs:
            for rule, q in grammar.expansions(part.category, word).pairs:
                todo.append((words, [(part, word) for part in rule.parts(word)] + rest, probability * p * q))
    return strings


def test_corpus_is_the_same_on_every_machine(corpus):
    text = "".join(f"{tree.bracket}\n" for tree in trees_of(corpus))
    assert sha256(text.encode()).hexdigest() == "238dabe26abcf7aeb9c3d36cfd0e14a48381e88c38da766a1b45f26ac58ab692"


def test_the_package_holds_what_the_generator_makes():
    trees, known = toy.contents()
    assert gzip.decompress((FOLDER / "toy.mrg.gz").read_bytes()).decode() == trees
    assert (FOLDER / "toy.json").read_text() == known


def test_seed_and_sizes(corpus):
    small = toy.sample_corpus(sizes=(20, 10, 0))
    assert small == {"train": corpus["train"][:20], "dev": corpus["dev"][:10], "test": []}
    other = toy.sample_corpus(seed=1, sizes=(20, 10, 10))
    assert [tree.bracket for tree in other["train"]] != [tree.bracket for tree in small["train"]]


def test_corpus_is_of_the_promised_shape(corpus):
    assert {split: len(trees) for split, trees in corpus.items()} == {"train": 2000, "dev": 300, "test": 300}
    assert {len(tree.words) for tree in trees_of(corpus)} == set(range(3, 21))
    counts = Counter(word for tree in corpus["train"] for word in tree.words)
    assert 300 <= len(counts) <= 700
    frequencies = sorted(counts.values(), reverse=True)
    assert frequencies[0] > 4 * frequencies[9] > 16 * frequencies[99]  # Zipf-like
    assert not [tree for tree in trees_of(corpus) if re.search(r"\ba [aeiou]", " ".join(tree.words))]
    brackets = " ".join(tree.bracket for tree in trees_of(corpus))
    for piece in [
        "NP-SBJ-1 ",
        "(-NONE- *T*-2)",
        "(-NONE- *-1)",
        "*U*",
        "($ $)",
        "(QP ",
        "(`` ``)",
        "(: ;)",
        "(POS 's)",
    ]:
        assert piece in brackets


def test_brackets_are_read_and_cleaned_like_a_treebank(corpus):
    for toy_tree in trees_of(corpus):
        (tree,) = parse_trees(toy_tree.bracket)
        assert toy_tree.bracket == f"( {tree} )"
        assert words_of(tree) == toy_tree.words


def test_grammar_heads_are_stanford_heads(corpus):
    for toy_tree in trees_of(corpus):
        (tree,) = parse_trees(toy_tree.bracket)
        assert SCHEMES["stanford"].heads(tree) == toy_tree.heads, toy_tree.bracket


def test_trees_branch_both_ways(corpus):
    gold = [spans_of(tree) for toy_tree in trees_of(corpus) for tree in parse_trees(toy_tree.bracket)]
    lengths = [len(tree.words) for tree in trees_of(corpus)]
    assert 0.35 < mean_sentence_f1(gold, [right_branching(n) for n in lengths]).value < 0.60
    assert mean_sentence_f1(gold, [left_branching(n) for n in lengths]).value < 0.20


def test_tables_by_hand(tiny):
    root, see, sleep, man, girl, hat, hay, with_ = tiny.words
    # without favourites, the first and second word of a class weigh 1/4 and 1/5
    assert dict(tiny.fillers(Slot("S", "root"), root).pairs) == pytest.approx({see: 5 / 9, sleep: 4 / 9}, rel=1e-8)
    # with favourites, they weigh that over rank squared, in either order
    subjects = dict(tiny.fillers(Slot("NP", "subj"), see).pairs)
    assert any(subjects[man] == pytest.approx(p, rel=1e-8) for p in [20 / 24, 5 / 21])
    # the noun's rules for plurals do not apply to hay, nor does its rule for a PP
    assert [p for _, p in tiny.expansions("NB", hat).pairs] == [0.5, 0.25, 0.25]
    assert [p for _, p in tiny.expansions("NB", hay).pairs] == [1.0]
    assert [p for _, p in tiny.expansions("NP", hay).pairs] == [1.0]
    # p(verb | subject) is p(subject | verb) normalised
    does = {verb: dict(tiny.fillers(Slot("NP", "subj"), verb).pairs)[girl] for verb in (see, sleep)}
    weights = {verb: girl.partners["does"][verb] for verb in (see, sleep)}
    assert weights[see] / weights[sleep] == pytest.approx(does[see] / does[sleep], rel=1e-6)
    assert with_.forms == {"IN": "with"}


def test_string_probability_is_the_sum_over_derivations(tiny):
    strings = enumerate_strings(tiny, longest=9)
    assert len(strings) > 500
    for words, probability in strings.items():
        assert string_probability(tiny, words) == pytest.approx(probability, rel=1e-12)
    assert string_probability(tiny, ["the", "hat", "slept"]) == 0  # things are not subjects
    assert string_probability(tiny, ["the", "man"]) == 0
    assert string_probability(tiny, []) == 0


def test_length_probabilities_are_the_sums_over_strings(tiny):
    strings = enumerate_strings(tiny, longest=9)
    expected = [sum(p for words, p in strings.items() if len(words) == l) for l in range(10)]
    assert length_probabilities(tiny, 9) == pytest.approx(expected, rel=1e-12)
    assert math.fsum(length_probabilities(tiny, 120)) == pytest.approx(1, abs=1e-6)


def test_samples_are_as_frequent_as_they_are_probable(tiny):
    generator = random.Random(0)
    derivations = [tiny.sample(generator) for _ in range(4000)]
    counts = Counter(tuple(words_of(derivation.tree)) for derivation in derivations)
    for words, count in counts.most_common(12):
        p = string_probability(tiny, words)
        assert abs(count - 4000 * p) < 5 * math.sqrt(4000 * p * (1 - p))


def test_a_string_is_at_least_as_probable_as_its_derivation(corpus):
    surplus = [math.log(string_probability(toy.toy_grammar(), tree.words)) - tree.log_prob for tree in corpus["dev"]]
    assert min(surplus) > -1e-9
    # the words nearly determine the tree: most sentences have one derivation to speak of
    assert sum(nats < 0.1 for nats in surplus) > 0.6 * len(surplus)


def test_acceptance_is_the_rate_of_the_sampler():
    generator = random.Random(0)
    lengths = [len(toy.toy_grammar().sample(generator).heads) for _ in range(2000)]
    accepted = sum(3 <= length <= 20 for length in lengths)
    p = toy.acceptance()
    assert abs(accepted - 2000 * p) < 5 * math.sqrt(2000 * p * (1 - p))
    assert p < 0.99  # so the check above would notice a missing term


def test_lengths_are_as_frequent_as_they_are_probable(corpus):
    counts = Counter(len(tree.words) for tree in trees_of(corpus))
    for l in range(toy.SHORTEST, toy.LONGEST + 1):
        p = toy.length_distribution()[l] / toy.acceptance()
        assert abs(counts[l] - 2600 * p) < 5 * math.sqrt(2600 * p * (1 - p))


def test_sentence_log_prob_counts_the_rejection(corpus):
    words = corpus["dev"][0].words
    raw = math.log(string_probability(toy.toy_grammar(), words))
    assert toy.sentence_log_prob(words) == pytest.approx(raw - math.log(toy.acceptance()), rel=1e-12)
    assert toy.sentence_log_prob(["anna", "slept"]) == -math.inf  # derivable, but too short
    assert string_probability(toy.toy_grammar(), ["anna", "slept"]) > 0
    assert toy.sentence_log_prob(["the", "zebra", "slept"]) == -math.inf


def test_attachment_is_decided_by_words(corpus):
    """In the sampled trees, with + instrument always goes to a verb, with + feature always to a noun."""
    arcs = Counter()
    for tree in trees_of(corpus):
        for dependent, head in enumerate(tree.heads):
            if head and tree.words[dependent] == "with":
                objects = [tree.words[i] for i, h in enumerate(tree.heads) if h == dependent + 1]
                arcs[tree.words[head - 1], objects[0]] += 1
    governors = {noun: {head for head, object in arcs if object == noun} for noun in ("camera", "telescope", "beard")}
    verbs = {form for word in toy.toy_grammar().words if word.paradigm == "verb" for form in word.forms.values()}
    assert governors["camera"] | governors["telescope"] <= verbs
    assert governors["beard"]
    assert not governors["beard"] & verbs


def test_true_perplexity_and_bilexical_information(corpus):
    perplexity = toy.true_perplexity(tree.words for tree in corpus["test"])
    assert perplexity == pytest.approx(7.7360, abs=1e-4)
    total, beyond_class = toy.bilexical_information(corpus["train"])
    assert total == pytest.approx(10.8200, abs=1e-4)
    assert beyond_class == pytest.approx(2.1553, abs=1e-4)


def test_bilexical_information_by_hand(monkeypatch):
    """Two verbs, each with a subject of its own, used equally often: one bit a sentence."""
    rules = "ROOT\n  1 (S =root)\nS\n  1 (S (NP-SBJ =subj) (VP (VBD _)) (. .))\nNP\n  1 (NP (DT the) (NN _))"
    lexicon = (
        "start root ROOT : root~crow,low\ncrow verb crow : subj=cock\nlow verb low : subj=cow\n"
        "cock mass cock\ncow mass cow"
    )
    grammar = Grammar(rules, lexicon)
    monkeypatch.setattr(toy, "toy_grammar", lambda: grammar)
    trees = {" ".join(tree.words): tree for tree in toy._sample_split(random.Random(0), 50)}
    assert set(trees) == {"the cock crowed", "the cow lowed"}
    information = toy.bilexical_information(list(trees.values()))
    assert information == pytest.approx((math.log(2), 0), abs=1e-7)
