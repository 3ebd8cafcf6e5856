"""Scores by hand on the cases that other implementations get differently, and by property."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbl.corpus.clean import spans_of
from nbl.errors import UserError
from nbl.metrics import (
    Branching,
    Counts,
    Mean,
    Recall,
    attachment,
    branching,
    compare,
    corpus_counts,
    f1_by_length,
    label_recall,
    left_branching,
    mean_sentence_f1,
    oracle,
    perplexity,
    right_branching,
    self_f1,
    sentence_f1,
)

CONVENTIONS = ["kim", "release"]
CHAIN = [(0, 4, "S"), (0, 4, "VP"), (1, 4, "NP")]  # a unary chain at the root
DUPLICATES = [(0, 5, "S"), (1, 5, "VP"), (2, 5, "SBAR"), (2, 5, "S"), (2, 5, "VP")]


@st.composite
def gold_trees(draw, n):
    """Gold spans of a random tree of n words, unary chains included."""

    def constituent(i, j):
        if j - i < 2:
            return []
        cuts = draw(st.sets(st.integers(i + 1, j - 1), min_size=1))
        posts = [i, *sorted(cuts), j]
        labels = draw(st.lists(st.sampled_from(["S", "NP-SBJ", "VP", "NP=2"]), min_size=1, max_size=3))
        children = [constituent(a, b) for a, b in pairwise(posts)]
        return [(i, j, label) for label in labels] + [span for spans in children for span in spans]

    return constituent(0, n)


@st.composite
def gold_and_predictions(draw, predictions=1, min_length=2):
    """A gold tree and some binary trees over the same words."""
    n = draw(st.integers(min_length, 7))
    return draw(gold_trees(n)), *(oracle(draw(gold_trees(n))) for _ in range(predictions))


@st.composite
def gold_and_predicted_heads(draw):
    """Heads of some sentences: any numbers, trees or not."""
    lengths = draw(st.lists(st.integers(2, 6), min_size=1, max_size=4))
    heads = [st.lists(st.integers(0, n), min_size=n, max_size=n) for n in lengths]
    return [draw(some) for some in heads], [draw(some) for some in heads]


class TestSentenceF1:
    @pytest.mark.parametrize("convention", CONVENTIONS)
    def test_by_hand(self, convention):
        gold = [(0, 5, "S"), (0, 2, "NP"), (2, 5, "VP")]
        predicted = [(0, 5, None), (0, 2, 7), (0, 3, 1), (3, 5, 2)]
        assert compare(gold, predicted, convention) == Counts(1, 2, 1)
        assert sentence_f1(gold, predicted, convention) == pytest.approx(2 / 5)

    @pytest.mark.parametrize("convention", CONVENTIONS)
    @pytest.mark.parametrize("predicted", [[], [(0, 2)], [(0, 2), (0, 1), (1, 2)]])
    def test_two_words_score_one(self, predicted, convention):
        assert sentence_f1([(0, 2, "NP")], predicted, convention) == 1

    def test_two_words_with_a_chain_score_zero_by_kim(self):
        gold = [(0, 2, "S"), (0, 2, "VP")]
        assert sentence_f1(gold, [(0, 2)], "kim") == 0
        assert sentence_f1(gold, [(0, 2)], "release") == 1

    @pytest.mark.parametrize("convention", CONVENTIONS)
    def test_flat_gold_tree(self, convention):
        assert sentence_f1([(0, 4, "NP")], right_branching(4), convention) == 0
        assert sentence_f1([(0, 4, "NP")], [(0, 4)], convention) == 1

    def test_nothing_predicted(self):
        assert sentence_f1([(0, 4, "S"), (1, 4, "VP")], []) == 0

    def test_root_chain(self):
        assert compare(CHAIN, right_branching(4), "kim") == Counts(1, 1, 1)
        assert compare(CHAIN, right_branching(4), "release") == Counts(1, 1, 0)
        assert sentence_f1(CHAIN, right_branching(4), "kim") == pytest.approx(1 / 2)
        assert sentence_f1(CHAIN, right_branching(4), "release") == pytest.approx(2 / 3)

    @pytest.mark.parametrize("convention", CONVENTIONS)
    def test_duplicate_spans_count_once(self, convention):
        assert compare(DUPLICATES, right_branching(5), convention) == Counts(2, 1, 0)
        assert compare(DUPLICATES, [(1, 5), (1, 5, "X"), (3, 5)], convention) == Counts(1, 1, 1)

    @pytest.mark.parametrize("gold", [[], [(0, 1, "NP")]])
    def test_one_word_is_not_counted(self, gold):
        assert sentence_f1(gold, []) is None
        assert sentence_f1(gold, [(0, 1)]) is None
        assert mean_sentence_f1([gold, [(0, 2, "NP")]], [[], []]) == Mean(1.0, 1)

    def test_spans_outside_the_sentence_are_refused(self):
        with pytest.raises(UserError, match=r"\(2, 6\) is not in a sentence of 4 words"):
            sentence_f1(CHAIN, [(2, 6)])

    @pytest.mark.parametrize("gold", [[(0, 2, "NP"), (0, 4, "S")], [(1, 4, "VP"), (2, 4, "NP")]])
    def test_gold_without_the_sentence_first_is_refused(self, gold):
        with pytest.raises(UserError, match="begin with the whole sentence"):
            sentence_f1(gold, [])

    def test_unknown_convention_is_refused(self):
        with pytest.raises(UserError, match="'evalb'"):
            sentence_f1(CHAIN, [], "evalb")

    @given(gold_and_predictions(), st.sampled_from(CONVENTIONS))
    def test_agrees_with_the_textbook_formula(self, trees, convention):
        """Precision and recall as other implementations write them, 1e-8 and all."""
        gold, predicted = trees
        n = gold[0][1]
        gold_set = {(i, j) for i, j, _ in gold[1:] if convention == "kim" or (i, j) != (0, n)}
        predicted_set = set(predicted) - {(0, n)}
        overlap = len(gold_set & predicted_set)
        precision = overlap / (len(predicted_set) + 1e-8)
        recall = overlap / (len(gold_set) + 1e-8)
        if not gold_set:
            recall = 1
            if not predicted_set:
                precision = 1
        f1 = 2 * precision * recall / (precision + recall + 1e-8)
        assert sentence_f1(gold, predicted, convention) == pytest.approx(f1, abs=1e-7)

    @given(st.integers(2, 7).flatmap(gold_trees))
    def test_a_tree_agrees_with_itself(self, gold):
        root_chain = gold[1:2] and gold[1][:2] == gold[0][:2]
        assert sentence_f1(gold, gold, "release") == 1
        assert (sentence_f1(gold, gold, "kim") == 1) == (not root_chain)

    @given(gold_and_predictions())
    def test_kim_is_the_stricter_convention(self, trees):
        assert sentence_f1(*trees, "kim") <= sentence_f1(*trees, "release")

    @given(gold_and_predictions(), st.randoms(use_true_random=False))
    def test_only_the_set_of_predicted_spans_matters(self, trees, generator):
        gold, predicted = trees
        n = gold[0][1]
        noisy = [(i, j, "X") for i, j in predicted if j - i < n] * 2 + [(i, i + 1) for i in range(n)]
        generator.shuffle(noisy)
        assert compare(gold, noisy) == compare(gold, predicted)

    def test_precision_and_recall_of_nothing(self):
        assert (Counts(0, 0, 3).precision, Counts(0, 0, 3).recall) == (0, 0)
        assert (Counts(0, 3, 0).precision, Counts(0, 3, 0).recall) == (0, 1)
        assert (Counts(0, 0, 0).precision, Counts(0, 0, 0).recall) == (1, 1)

    @given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
    def test_f1_is_the_harmonic_mean(self, both, predicted_only, gold_only):
        counts = Counts(both, predicted_only, gold_only)
        total = counts.precision + counts.recall
        assert counts.f1 == pytest.approx(2 * counts.precision * counts.recall / total if total else 0)


class TestCorpora:
    GOLDS = ([(0, 2, "NP")], [], CHAIN, DUPLICATES)
    PREDICTIONS = ([], [], right_branching(4), [(1, 5), (0, 2), (3, 5)])

    def test_mean_sentence_f1(self):
        kim = mean_sentence_f1(self.GOLDS, self.PREDICTIONS, "kim")
        release = mean_sentence_f1(self.GOLDS, self.PREDICTIONS, "release")
        assert kim == (pytest.approx((1 + 1 / 2 + 2 / 5) / 3), 3)
        assert release == (pytest.approx((1 + 2 / 3 + 2 / 5) / 3), 3)

    def test_corpus_f1(self):
        counts = corpus_counts(self.GOLDS, self.PREDICTIONS, "kim")
        assert counts == Counts(both=2, predicted_only=3, gold_only=2)
        assert counts.precision == pytest.approx(2 / 5)
        assert counts.recall == pytest.approx(2 / 4)
        assert counts.f1 == pytest.approx(4 / 9)

    def test_f1_by_length(self):
        buckets = f1_by_length(self.GOLDS, self.PREDICTIONS, [2, 3, 5, 10], "release")
        assert buckets == {2: (1, 1), 3: (pytest.approx(2 / 3), 1), 5: (pytest.approx(2 / 5), 1)}
        assert f1_by_length(self.GOLDS, self.PREDICTIONS, [5]) == {5: (pytest.approx(2 / 5), 1)}

    @given(st.lists(gold_and_predictions(), min_size=1, max_size=4))
    def test_buckets_add_up(self, pairs):
        golds, predictions = zip(*pairs, strict=True)
        whole = mean_sentence_f1(golds, predictions)
        buckets = f1_by_length(golds, predictions, [2, 4, 6]).values()
        assert sum(bucket.n for bucket in buckets) == whole.n
        assert sum(bucket.value * bucket.n for bucket in buckets) == pytest.approx(whole.value * whole.n)

    def test_nothing_to_average_is_refused(self):
        with pytest.raises(UserError, match="no sentence has two or more words"):
            mean_sentence_f1([[]], [[]])

    def test_predictions_must_be_as_many(self):
        with pytest.raises(ValueError, match="shorter"):
            mean_sentence_f1(self.GOLDS, self.PREDICTIONS[:-1])


class TestLabelRecall:
    def test_each_member_of_a_chain_counts(self):
        recalls = label_recall([DUPLICATES], [[(2, 5), (3, 5)]])
        assert recalls == {"VP": Recall(1, 2), "S": Recall(1, 1), "SBAR": Recall(1, 1)}
        assert recalls["VP"].value == 1 / 2

    def test_rest_of_a_root_chain(self):
        assert label_recall([CHAIN], [right_branching(4)], "kim") == {"NP": (1, 1), "VP": (0, 1)}
        assert label_recall([CHAIN], [right_branching(4)], "release") == {"NP": (1, 1)}

    def test_function_tags_are_cut_and_labels_sorted(self):
        gold = [(0, 6, "S"), (0, 2, "NP-SBJ-1"), (2, 6, "VP"), (3, 6, "NP=2"), (4, 6, "ADVP|PRT")]
        recalls = label_recall([gold, []], [[(2, 6), (0, 2)], []])
        assert list(recalls.items()) == [("NP", (1, 2)), ("ADVP", (0, 1)), ("VP", (1, 1))]

    def test_totals_on_the_sample(self, sample_trees):
        golds = [spans_of(tree) for _, _, tree in sample_trees]
        oracles = [oracle(gold) for gold in golds]
        release = label_recall(golds, oracles, "release")
        assert sum(recall.total for recall in release.values()) == 58750
        assert all(recall.value == 1 for recall in release.values())
        kim = label_recall(golds, oracles, "kim")
        missed = sum(recall.total - recall.found for recall in kim.values())
        assert missed == 19  # 17 root chains of two and one of three constituents
        assert corpus_counts(golds, oracles, "release") == Counts(58750 - 4058, 19862, 0)


class TestAttachment:
    def test_by_hand(self):
        # right head; turned arc; wrong root; wrong head
        score = attachment([[2, 0, 2, 3]], [[2, 3, 0, 1]])
        assert score == (1 / 4, 2 / 4, 4)

    def test_wrong_root_on_which_the_last_word_hangs(self):
        golds, predictions = [[2, 0, 1]], [[0, 3, 1]]
        assert attachment(golds, predictions) == (1 / 3, 1 / 3, 3)
        assert attachment(golds, predictions, legacy=True) == (1 / 3, 2 / 3, 3)

    def test_other_wrong_roots_are_no_hit_in_legacy_either(self):
        golds, predictions = [[2, 0, 2]], [[0, 3, 1]]  # the one hit is the turned arc between 2 and 3
        assert attachment(golds, predictions, legacy=True) == attachment(golds, predictions) == (0, 1 / 3, 3)

    def test_words_are_averaged_over_the_corpus_without_one_word_sentences(self):
        score = attachment([[0], [0, 1], [0, 1, 1, 1]], [[0], [2, 0], [0, 1, 1, 1]])
        assert score == (4 / 6, 5 / 6, 6)

    def test_without_root(self):
        golds, predictions = [[0, 1, 2], [2, 0]], [[2, 0, 2], [2, 0]]
        assert attachment(golds, predictions) == (3 / 5, 4 / 5, 5)
        assert attachment(golds, predictions, with_root=False) == (2 / 3, 2 / 3, 3)

    @given(gold_and_predicted_heads())
    def test_undirected_is_shared_edges(self, heads):
        """With the root as a node 0, a word's arc is right if the gold graph has that edge."""
        shared = legacy = 0
        for gold, predicted in zip(*heads, strict=True):
            edges = {frozenset(arc) for arc in enumerate(gold, start=1)}
            shared += sum(frozenset(arc) in edges for arc in enumerate(predicted, start=1))
            roots = [word for word, head in enumerate(predicted, start=1) if head == 0]
            legacy += sum(gold[root - 1] != 0 and gold[-1] == root for root in roots)
        score = attachment(*heads)
        assert score.uuas == pytest.approx(shared / score.words)
        assert attachment(*heads, legacy=True).uuas == pytest.approx((shared + legacy) / score.words)

    @given(gold_and_predicted_heads())
    def test_bounds(self, heads):
        golds, predictions = heads
        score = attachment(golds, predictions)
        assert 0 <= score.udas <= score.uuas <= 1
        assert attachment(golds, golds) == (1, 1, sum(map(len, golds)))

    def test_bad_input_is_refused(self):
        with pytest.raises(UserError, match="no heads to score"):
            attachment([[0]], [[0]])
        with pytest.raises(ValueError, match="shorter"):
            attachment([[0, 1, 1]], [[0, 1]])


class TestPerplexity:
    def test_uniform_words_and_ends(self):
        assert perplexity([4 * math.log(1 / 50), 9 * math.log(1 / 50)], [3, 8]) == pytest.approx(50)

    def test_end_of_sentence_counts(self):
        assert perplexity([-6.0], [2]) == pytest.approx(math.exp(2))

    def test_impossible_sentence(self):
        assert perplexity([-math.inf, -1.0], [3, 3]) == math.inf
        assert perplexity([-5000.0], [3]) == math.inf

    def test_no_sentence_is_refused(self):
        with pytest.raises(UserError, match="no sentence"):
            perplexity([], [])

    def test_numbers_must_match(self):
        with pytest.raises(ValueError, match="1 log-probabilities for 2 sentences"):
            perplexity([-1.0], [3, 3])


class TestAgreementAndBranching:
    @given(gold_and_predictions(predictions=2))
    def test_self_f1(self, trees):
        gold, one, other = trees
        n = gold[0][1]
        scores = self_f1({0: [one], 1: [other], 2: [one]}, [n])
        score = scores[0, 1]
        assert scores == {(0, 1): score, (0, 2): (1, 1), (1, 2): score}
        assert 0 <= score.value <= 1
        assert score.value == pytest.approx(sentence_f1([(0, n), *one], other, "release"))

    def test_self_f1_counts_sentences_of_two_or_more_words(self):
        left, right = left_branching(3), right_branching(3)
        assert self_f1({0: [[], [], left], 1: [[], [(0, 2)], right]}, [1, 2, 3]) == {(0, 1): (1 / 2, 2)}

    def test_branching_of_the_extremes(self):
        lengths = [1, 2, 3, 8]
        assert branching([left_branching(n) for n in lengths], lengths) == Branching(1, 0, 1 + 6)
        assert branching([right_branching(n) for n in lengths], lengths) == Branching(0, 1, 1 + 6)

    @given(gold_and_predictions(min_length=3))
    def test_mirrored_trees_branch_the_other_way(self, trees):
        gold, tree = trees
        n = gold[0][1]
        mirrored = [(n - j, n - i) for i, j in tree]
        shares = branching([tree], [n])
        assert branching([mirrored], [n]) == (shares.right, shares.left, shares.constituents)
        assert shares.left + shares.right <= 1 + 1e-12

    def test_no_constituent_is_refused(self):
        with pytest.raises(UserError, match="three or more words"):
            branching([[(0, 2)]], [2])
