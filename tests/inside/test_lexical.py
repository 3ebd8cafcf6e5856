"""The NL-PCFG's inside algorithms and posteriors, and Eisner-Satta's inside algorithm, against the definition."""

from collections.abc import Iterator
from functools import partial
from math import comb, log
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nbl import native
from nbl.families import inside as fast_inside
from nbl.families import marginals as fast_marginals
from nbl.inside import Marginals, eisner_satta, log_Z, naive
from nbl.inside.lexical import caches
from nbl.inside.lexical import native as lexical_native
from nbl.rules import LexicalRules
from nbl.testing import GRAMMARS, count_rules, detached, random_rules, single

LEXICAL = ("lexical", "compound-lexical")
SHARED = ("logp_A_S", "parent_C")  # the factors without an axis of positions
INSIDES = {
    "native": lambda rules, lengths: native_inside(rules, lengths),
    "split-sum": partial(fast_inside, allow_native=False),
    "C1-1": partial(log_Z, caches.C11),
    "C1-2": partial(log_Z, caches.C12),
    "eisner-satta": lambda rules, lengths: eisner_satta.inside(rules.dense(), lengths),
}
TORCH = ("split-sum", "C1-1", "C1-2")


def native_inside(rules: LexicalRules, lengths: Tensor) -> Tensor:
    """By the kernel, in memory that is NaN."""
    if native.load("lexical", rules.logp_A_S.dtype) is None:
        pytest.skip("no C++ compiler")
    native.free_scratch.clear()
    with mock.patch.object(lexical_native, "solve", wraps=lexical_native.solve) as solve:
        log_prob = fast_inside(rules, lengths)
    solve.assert_called_once()
    return log_prob


every_inside = pytest.mark.parametrize("inside", INSIDES.values(), ids=INSIDES)


@pytest.fixture(autouse=True)
def uninitialised_memory_is_nan():
    """So that a chart cell that is read before it is written fails loudly."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    native.free_scratch.clear()
    yield
    torch.use_deterministic_algorithms(False)


def value_and_gradients(inside, rules, lengths: Tensor, upstream: Tensor | float = 1.0) -> list[Tensor]:
    rules = detached(rules)
    log_prob = inside(rules, lengths)
    return [log_prob.detach(), *torch.autograd.grad((upstream * log_prob).sum(), list(rules))]


def naive_inside(rules: LexicalRules, lengths: Tensor) -> Tensor:
    return naive.inside(rules.dense(), lengths)


def assert_all_close(got: list[Tensor], expected: list[Tensor], tolerance: float = 1e-9) -> None:
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance, check_dtype=False)


sizes = st.fixed_dictionaries(
    {"b": st.integers(1, 3), "l": st.integers(2, 6), "NT": st.integers(1, 3), "PT": st.integers(1, 3)}
)


@every_inside
@settings(max_examples=20, deadline=None)
@given(sizes, st.sampled_from(LEXICAL), st.integers(0, 2**20), st.data())
def test_values_and_gradients_are_naive(inside, size, grammar, seed, data):
    b, l = size["b"], size["l"]
    rules = random_rules(grammar, **size, H=1, seed=seed)
    lengths = torch.tensor(data.draw(st.lists(st.integers(2, l), min_size=b, max_size=b)))
    upstream = torch.randn(b, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = value_and_gradients(naive_inside, rules, lengths, upstream)
    assert_all_close(value_and_gradients(inside, rules, lengths, upstream), expected)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_eisner_satta_serves_every_grammar(grammar):
    dense = random_rules(grammar, b=2, l=5, NT=2, PT=3, H=2, seed=4).dense()
    lengths = torch.tensor([5, 3])
    expected = value_and_gradients(naive.inside, dense, lengths)
    assert_all_close(value_and_gradients(eisner_satta.inside, dense, lengths), expected)


@every_inside
@pytest.mark.parametrize("l", [2, 3, 7, 12])
def test_all_ones_count_trees(inside, l):
    NT, PT = 2, 3
    rules = count_rules(random_rules("lexical", b=1, l=l, NT=NT, PT=PT, H=1, seed=0))
    bracketings = comb(2 * l - 2, l - 1) // l
    trees = log(bracketings) + (l - 1) * log(2 * NT) + l * log(PT)
    assert inside(rules, torch.tensor([l])).item() == pytest.approx(trees, abs=1e-9)


def one_sentence(rules: LexicalRules, n: int, length: int) -> LexicalRules:
    """Sentence n of a batch of compound rules, without its padding."""
    factors = rules._asdict().items()
    return LexicalRules(*(x[n : n + 1] if name in SHARED else x[n : n + 1, :length] for name, x in factors))


@every_inside
def test_batch_is_one_by_one_and_padding_counts_for_nothing(inside):
    lengths = torch.tensor([7, 2, 5])
    rules = random_rules("compound-lexical", b=3, l=7, NT=2, PT=3, H=1, seed=1)
    padding = torch.arange(7) >= lengths[:, None]
    noise = {
        name: x.masked_fill(padding.view(3, 7, *[1] * (x.dim() - 2)), 600.0)
        for name, x in rules._asdict().items()
        if name not in SHARED
    }
    log_prob, *gradients = value_and_gradients(inside, rules._replace(**noise), lengths)
    for n, length in enumerate(lengths.tolist()):
        got = [log_prob[n : n + 1], *one_sentence(LexicalRules(*gradients), n, length)]
        single = one_sentence(rules, n, length)
        assert_all_close(got, value_and_gradients(inside, single, lengths[n : n + 1]))
    for name, gradient in LexicalRules(*gradients)._asdict().items():
        if name not in SHARED:
            assert (gradient[padding] == 0).all()


def test_organisations_agree_on_long_sentences():
    rules = random_rules("lexical", b=1, l=70, NT=1, PT=2, H=1, seed=5)
    expected = value_and_gradients(INSIDES["C1-2"], rules, torch.tensor([70]))
    for cache in ("native", "split-sum", "C1-1"):
        assert_all_close(value_and_gradients(INSIDES[cache], rules, torch.tensor([70])), expected)


def native_marginals(rules: LexicalRules, lengths: Tensor, legacy: bool = False) -> Marginals:
    """By the kernel, in memory that is NaN."""
    if native.load("lexical", rules.logp_A_S.dtype) is None:
        pytest.skip("no C++ compiler")
    native.free_scratch.clear()
    return fast_marginals(rules, lengths, legacy=legacy)


def torch_marginals(rules: LexicalRules, lengths: Tensor, legacy: bool = False) -> Marginals:
    return fast_marginals(rules, lengths, allow_native=False, legacy=legacy)


every_marginals = pytest.mark.parametrize("marginals", [native_marginals, torch_marginals], ids=["native", "torch"])


@every_marginals
@pytest.mark.parametrize("grammar", LEXICAL)
@pytest.mark.parametrize(("l", "NT", "PT"), [(2, 2, 3), (3, 2, 2), (4, 2, 1), (5, 1, 1), (6, 1, 1)])
def test_marginals_are_sums_over_trees(marginals, grammar, l, NT, PT):
    rules = random_rules(grammar, b=1, l=l, NT=NT, PT=PT, H=1, seed=l)
    lengths, dense = torch.tensor([l]), rules.dense()
    log_prob = naive.inside(dense, lengths)
    spans = torch.zeros(l + 1, l + 1, dtype=torch.float64)
    arcs, legacy_arcs = torch.zeros(2, l + 1, l, dtype=torch.float64)
    for tree in naive.trees(l, NT, PT):
        posterior = (naive.tree_log_prob(tree, dense) - log_prob[0]).exp()
        for i, j in tree.spans():
            spans[i, j] += posterior
        for q, head in enumerate(tree.heads()):
            arcs[head, q] += posterior
        legacy_arcs[0, tree.p] += posterior
        for p, q in released_arcs(tree):
            legacy_arcs[p + 1, q] += posterior
    right = marginals(rules, lengths)
    assert_all_close([right.log_prob, right.spans[0], right.arcs[0]], [log_prob, spans, arcs])
    legacy = marginals(rules, lengths, legacy=True)
    assert_all_close([legacy.log_prob, legacy.spans[0], legacy.arcs[0]], [log_prob, spans, legacy_arcs])


def released_arcs(tree) -> Iterator[tuple[int, int]]:
    """The arcs (p, q) of a tree that the released MBR decoder sees, the root's apart.

    From a head child of several words it misses those to one word, and takes the word next to the head, in
    the child's direction, for the head of longer children.
    """
    for node in tree.subtrees():
        if node.child is None:
            continue
        p, q = node.p, node.child.p
        head_is_phrase, child_is_phrase = node.head_child.child is not None, node.child.child is not None
        if not head_is_phrase:
            yield p, q
        elif child_is_phrase:
            yield (p + 1 if p < q else p - 1), q


@every_marginals
def test_posteriors_of_a_batch_are_those_of_each_sentence(marginals):
    lengths = torch.tensor([9, 2, 6])
    rules = random_rules("compound-lexical", b=3, l=9, NT=17, PT=4, H=1, seed=3)
    for legacy in (False, True):
        batch = marginals(rules, lengths, legacy)
        for n, length in enumerate(lengths.tolist()):
            single = torch_marginals(one_sentence(rules, n, length), lengths[n : n + 1], legacy)
            spans, arcs = batch.spans[n, : length + 1, : length + 1], batch.arcs[n, : length + 1, :length]
            assert_all_close([batch.log_prob[n], spans, arcs], [single.log_prob[0], single.spans[0], single.arcs[0]])


@every_marginals
@pytest.mark.parametrize("legacy", [False, True])
def test_posteriors_in_single_precision(marginals, legacy):
    rules, lengths = random_rules("lexical", 1, 30, NT=3, PT=5, H=1, seed=2, scale=20.0, V=30), torch.tensor([30])
    expected = torch_marginals(rules, lengths, legacy)
    assert_all_close(list(marginals(single(rules), lengths, legacy)), list(expected), 1e-3)


@every_marginals
def test_an_impossible_sentence_has_no_posteriors(marginals):
    rules = random_rules("lexical", b=2, l=4, NT=2, PT=2, H=1, seed=8)
    rules.logp_w_X[0, 1] = -torch.inf
    found = marginals(rules, torch.tensor([4, 4]))
    assert found.log_prob[0] == -torch.inf
    assert (found.spans[0] == 0).all()
    assert (found.arcs[0] == 0).all()
    assert found.spans[1].sum().item() == pytest.approx(3)


@every_marginals
def test_posteriors_sum_to_one(marginals):
    lengths = torch.tensor([9, 2, 6])
    rules = random_rules("lexical", b=3, l=9, NT=3, PT=4, H=1, seed=3)
    found = marginals(rules, lengths)
    torch.testing.assert_close(found.spans.sum((1, 2)), lengths - 1.0, check_dtype=False)
    words = torch.arange(9) < lengths[:, None]
    torch.testing.assert_close(found.arcs.sum(1), words.double())
    torch.testing.assert_close(found.arcs[:, 0].sum(1), torch.ones(3).double())
    assert (found.spans[1, :, 3:] == 0).all()
    assert (found.arcs[1, 3:] == 0).all()
    legacy = marginals(rules, lengths, legacy=True).arcs.sum(1)
    assert (legacy[0] < 1).any()
    assert torch.allclose(legacy[1], words[1].double())  # two words: nothing to miss


@every_inside
def test_impossible_rules_leave_clean_gradients(inside):
    rules = random_rules("lexical", b=2, l=6, NT=3, PT=3, H=1, seed=8)
    lengths = torch.tensor([6, 4])
    generator = torch.Generator().manual_seed(0)
    impossible = {
        name: x.masked_fill(torch.rand(x.shape, generator=generator) < 0.3, -torch.inf)
        for name, x in rules._asdict().items()
    }
    for name in ("word_C", "parent_C"):
        impossible[name][..., -1] = getattr(rules, name)[..., -1]  # each rule has a child
    impossible["logp_w_X"][:, :, -1] = rules.logp_w_X[:, :, -1]  # each word has a preterminal
    impossible["logp_w_X"][0, 2, :3] = -torch.inf  # one has no nonterminal: it closes no phrase
    rules = rules._replace(**impossible)
    log_prob, *gradients = value_and_gradients(inside, rules, lengths)
    assert log_prob.isfinite().all()
    torch.testing.assert_close(log_prob, naive_inside(rules, lengths))
    # a tree has one root rule, one emission a word, and one binary rule fewer
    uses = LexicalRules(*gradients)
    assert uses.logp_A_S.sum().item() == pytest.approx(2)
    torch.testing.assert_close(uses.logp_w_X.sum((1, 2)), lengths.double())
    torch.testing.assert_close(uses.logp_BD_Aw.sum((1, 2, 3, 4)), lengths - 1.0, check_dtype=False)


@pytest.mark.parametrize("name", ["native", *TORCH])
def test_impossible_sentence(name):
    rules = random_rules("lexical", b=2, l=4, NT=2, PT=2, H=1, seed=8)
    rules.logp_w_X[0, 1] = -torch.inf
    log_prob, *gradients = value_and_gradients(INSIDES[name], rules, torch.tensor([4, 4]))
    assert log_prob[0] == -torch.inf
    assert log_prob[1].isfinite()
    for name, gradient in LexicalRules(*gradients)._asdict().items():
        assert gradient.isfinite().all()
        if name not in SHARED:
            assert (gradient[0] == 0).all()


@every_inside
@pytest.mark.parametrize("scale", [1.0, 15.0])
def test_single_precision(inside, scale):
    lengths = torch.tensor([40])
    rules = random_rules("lexical", b=1, l=40, NT=2, PT=3, H=1, seed=2, scale=scale, V=20)
    log_prob, *gradients = value_and_gradients(inside, single(rules), lengths)
    expected, *expected_gradients = value_and_gradients(INSIDES["split-sum"], rules, lengths)
    torch.testing.assert_close(log_prob.double(), expected, rtol=1e-6, atol=0)
    assert_all_close(gradients, expected_gradients, tolerance=1e-3)


@pytest.mark.parametrize("name", ["native", "split-sum"])
def test_single_precision_of_120_words(name):
    lengths = torch.tensor([120])
    rules = random_rules("lexical", b=1, l=120, NT=2, PT=3, H=1, seed=2, scale=15.0, V=20)
    log_prob, expected = INSIDES[name](single(rules), lengths), INSIDES["C1-2"](rules, lengths)
    torch.testing.assert_close(log_prob.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("grammar", LEXICAL)
def test_large_tables_are_the_same_in_both_implementations(grammar):
    """More nonterminals than a cache line of the kernel holds, in either precision."""
    rules, lengths = random_rules(grammar, b=4, l=9, NT=17, PT=20, H=1, seed=3), torch.tensor([9, 2, 8, 3])
    expected = value_and_gradients(INSIDES["split-sum"], rules, lengths)
    assert_all_close(value_and_gradients(native_inside, rules, lengths), expected)
    assert_all_close(value_and_gradients(native_inside, single(rules), lengths), expected, 1e-4)


@pytest.mark.parametrize("NT", [1, 16, 33])
def test_kernel_of_whole_and_odd_cache_lines(NT):
    rules, lengths = random_rules("lexical", b=2, l=6, NT=NT, PT=NT + 4, H=1, seed=3), torch.tensor([6, 5])
    expected = value_and_gradients(INSIDES["split-sum"], rules, lengths)
    assert_all_close(value_and_gradients(native_inside, rules, lengths), expected)
    assert_all_close(value_and_gradients(native_inside, single(rules), lengths), expected, 1e-4)
    posteriors = [list(find(rules, lengths)) for find in (native_marginals, torch_marginals)]
    assert_all_close(*posteriors)


@pytest.mark.parametrize("name", ["native", "split-sum"])
@pytest.mark.parametrize("grammar", LEXICAL)
def test_children_that_word_and_parent_disagree_on(name, grammar):
    """Of each C, one of both says exp(-100) or less: the product of their separately scaled exponentials vanishes."""
    rules, lengths = random_rules(grammar, b=2, l=5, NT=3, PT=5, H=1, seed=6), torch.tensor([5, 4])
    low = torch.arange(8) % 2 * -100.0
    disagreeing = rules._replace(word_C=rules.word_C + low, parent_C=rules.parent_C - 100.0 - low)
    agreeing = value_and_gradients(naive_inside, rules, lengths)
    assert_all_close(value_and_gradients(INSIDES[name], disagreeing, lengths), agreeing)
    assert_all_close(value_and_gradients(INSIDES[name], single(disagreeing), lengths), agreeing, 1e-4)
    sharp = rules._replace(word_C=300 * rules.word_C, parent_C=300 * rules.parent_C)
    expected = value_and_gradients(naive_inside, sharp, lengths)
    assert_all_close(value_and_gradients(INSIDES[name], sharp, lengths), expected)
    exact = rules._replace(word_C=sharp.word_C.round(), parent_C=sharp.parent_C.round())  # the same in float32
    expected = value_and_gradients(naive_inside, exact, lengths)
    assert_all_close(value_and_gradients(INSIDES[name], single(exact), lengths), expected, 1e-4)


@pytest.mark.parametrize("words", [1, 6])
def test_the_kernel_refuses_lengths_it_has_no_words_for(words):
    rules = random_rules("lexical", b=2, l=5, NT=2, PT=3, H=1, seed=0)
    with pytest.raises(ValueError, match=f"a sentence has {words} words; it must have 2 to 5"):
        native_inside(rules, torch.tensor([5, words]))


@pytest.mark.parametrize("name", ["native", "split-sum"])
def test_gradients_at_the_limits_of_single_precision_are_finite(name):
    # an outside probability that overflows belongs to an inside probability of 0, and must not make it NaN
    rules = random_rules("lexical", b=1, l=40, NT=3, PT=5, H=1, seed=2, scale=30.0, V=50)
    found = value_and_gradients(INSIDES[name], single(rules), torch.tensor([40]))
    assert all(tensor.isfinite().all() for tensor in found)


@pytest.mark.parametrize("name", ["native", "split-sum"])
def test_gradients_of_rules_that_overflow_on_the_way_are_right(name):
    rules = random_rules("lexical", b=1, l=20, NT=8, PT=10, H=1, seed=1030, scale=30.0, V=50)
    found = value_and_gradients(INSIDES[name], single(rules), torch.tensor([20]))
    expected = value_and_gradients(INSIDES["split-sum"], rules, torch.tensor([20]))
    assert_all_close(found, expected, 1e-3)


@pytest.mark.parametrize("name", TORCH)
def test_runs_on_the_meta_device(name):
    rules = random_rules("lexical", b=2, l=6, NT=2, PT=3, H=1, seed=0)
    meta = LexicalRules(*(x.to("meta").requires_grad_() for x in rules))
    log_prob = INSIDES[name](meta, torch.tensor([6, 4], device="meta"))
    assert log_prob.shape == (2,)
    for gradient, factor in zip(torch.autograd.grad(log_prob.sum(), list(meta)), meta, strict=True):
        assert gradient.shape == factor.shape


def test_threads_and_scratch_memory_do_not_change_the_result():
    rules = random_rules("compound-lexical", b=3, l=9, NT=3, PT=4, H=1, seed=5)
    lengths = torch.tensor([9, 4, 7])
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 2):  # the last with the memory that the others left behind
            torch.set_num_threads(threads)
            results.append(value_and_gradients(fast_inside, rules, lengths))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        for got, expected in zip(result, results[0], strict=True):
            assert torch.equal(got, expected)
