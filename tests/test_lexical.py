"""The NL-PCFG's inside algorithms and posteriors, and Eisner-Satta's inside algorithm, against the definition."""

from math import comb, log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rules import GRAMMARS, count_rules, detached, random_rules
from torch import Tensor

from nbl.inside import eisner_satta, lexical, naive
from nbl.rules import LexicalRules

LEXICAL = ("lexical", "compound-lexical")
INSIDES = {cache: lambda rules, lengths, cache=cache: lexical.inside(rules, lengths, cache) for cache in lexical.CACHES}
INSIDES["eisner-satta"] = lambda rules, lengths: eisner_satta.inside(rules.dense(), lengths)
every_inside = pytest.mark.parametrize("inside", INSIDES.values(), ids=INSIDES)


@pytest.fixture(autouse=True, scope="module")
def uninitialised_memory_is_nan():
    """So that a chart cell that is read before it is written fails loudly."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def value_and_gradients(inside, rules, lengths: Tensor, upstream: Tensor | float = 1.0) -> list[Tensor]:
    rules = detached(rules)
    log_prob = inside(rules, lengths)
    return [log_prob.detach(), *torch.autograd.grad((upstream * log_prob).sum(), list(rules))]


def assert_all_close(got: list[Tensor], expected: list[Tensor], tolerance: float = 1e-9) -> None:
    for x, y in zip(got, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance, check_dtype=False)


sizes = st.fixed_dictionaries({name: st.integers(1, 3) for name in ("b", "NT", "PT")} | {"l": st.integers(2, 6)})


@every_inside
@settings(max_examples=15, deadline=None)
@given(sizes, st.sampled_from(LEXICAL), st.integers(0, 2**20), st.data())
def test_values_and_gradients_are_naive(inside, size, grammar, seed, data):
    rules = random_rules(grammar, **size, H=1, seed=seed)
    lengths = torch.tensor(data.draw(st.lists(st.integers(2, size["l"]), min_size=size["b"], max_size=size["b"])))
    upstream = torch.randn(size["b"], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = value_and_gradients(lambda rules, lengths: naive.inside(rules.dense(), lengths), rules, lengths, upstream)
    assert_all_close(value_and_gradients(inside, rules, lengths, upstream), expected)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_eisner_satta_serves_every_grammar(grammar):
    dense = random_rules(grammar, b=2, l=5, NT=2, PT=3, H=2, seed=4).dense()
    lengths = torch.tensor([5, 3])
    assert_all_close(
        value_and_gradients(eisner_satta.inside, dense, lengths), value_and_gradients(naive.inside, dense, lengths)
    )


@every_inside
@pytest.mark.parametrize("l", [2, 3, 7, 12])
def test_all_ones_count_trees(inside, l):
    NT, PT = 2, 3
    rules = count_rules(random_rules("lexical", b=1, l=l, NT=NT, PT=PT, H=1, seed=0))
    bracketings = comb(2 * l - 2, l - 1) // l
    trees = log(bracketings) + (l - 1) * log(2 * NT) + l * log(PT)
    assert inside(rules, torch.tensor([l])).item() == pytest.approx(trees, abs=1e-9)


def one_by_one(rules: LexicalRules, n: int, length: int) -> LexicalRules:
    """Sentence n without padding; axes shared by all sentences stay."""
    shared = {"logp_A_S", "parent_C"}
    own = {name: x if x.shape[0] == 1 else x[n : n + 1] for name, x in rules._asdict().items()}
    return LexicalRules(**{name: x if name in shared else x[:, :length] for name, x in own.items()})


@every_inside
def test_batch_is_one_by_one_and_padding_counts_for_nothing(inside):
    lengths = torch.tensor([7, 2, 5])
    rules = random_rules("compound-lexical", b=3, l=7, NT=2, PT=3, H=1, seed=1)
    padding = torch.arange(7) >= lengths[:, None]
    noisy = LexicalRules(
        *(
            x if name in ("logp_A_S", "parent_C") else x.masked_fill(padding.view(3, 7, *[1] * (x.dim() - 2)), 600.0)
            for name, x in rules._asdict().items()
        )
    )
    batch = value_and_gradients(inside, noisy, lengths)
    for n, length in enumerate(lengths.tolist()):
        single = value_and_gradients(inside, one_by_one(rules, n, length), lengths[n : n + 1])
        assert_all_close([batch[0][n : n + 1], *one_by_one(LexicalRules(*batch[1:]), n, length)], single)
    for name, gradient in LexicalRules(*batch[1:])._asdict().items():
        if name not in ("logp_A_S", "parent_C"):
            assert (gradient[padding] == 0).all()


def test_organisations_agree_on_long_sentences():
    rules = random_rules("lexical", b=1, l=70, NT=2, PT=2, H=1, seed=5)
    split_sum, *others = (value_and_gradients(INSIDES[cache], rules, torch.tensor([70])) for cache in lexical.CACHES)
    for other in others:
        assert_all_close(other, split_sum)


@pytest.mark.parametrize("grammar", LEXICAL)
@pytest.mark.parametrize(("l", "NT", "PT"), [(2, 2, 3), (3, 2, 2), (4, 2, 1), (5, 1, 1)])
def test_marginals_are_sums_over_trees(grammar, l, NT, PT):
    rules = random_rules(grammar, b=1, l=l, NT=NT, PT=PT, H=1, seed=l)
    dense = rules.dense()
    log_prob = naive.inside(dense, torch.tensor([l]))
    spans, arcs, legacy = torch.zeros(l + 1, l + 1), torch.zeros(l + 1, l), torch.zeros(l + 1, l)
    spans, arcs, legacy = spans.double(), arcs.double(), legacy.double()
    for tree in naive.trees(l, NT, PT):
        posterior = (naive.tree_log_prob(tree, dense) - log_prob[0]).exp()
        for i, j in tree.spans():
            spans[i, j] += posterior
        for q, head in enumerate(tree.heads()):
            arcs[head, q] += posterior
        legacy[tree.p + 1 - tree.p - 1, tree.p] += posterior
        for node in tree.subtrees():
            if node.child is not None:
                one_word_of_phrase = node.child.j - node.child.i == 1 and node.head_child.j - node.head_child.i > 1
                legacy[node.p + 1, node.child.p] += 0 if one_word_of_phrase else posterior
    marginals = lexical.marginals(rules, torch.tensor([l]))
    assert_all_close([marginals.log_prob, marginals.spans[0], marginals.arcs[0]], [log_prob, spans, arcs])
    released = lexical.marginals(rules, torch.tensor([l]), legacy=True)
    assert_all_close([released.log_prob, released.spans[0], released.arcs[0]], [log_prob, spans, legacy])
    assert (l == 2) == torch.equal(released.arcs, marginals.arcs)


def test_posteriors_sum_to_one():
    lengths = torch.tensor([9, 2, 6])
    log_prob, spans, arcs = lexical.marginals(random_rules("lexical", b=3, l=9, NT=3, PT=4, H=1, seed=3), lengths)
    torch.testing.assert_close(spans.sum((1, 2)), lengths - 1.0, check_dtype=False)
    words = torch.arange(9) < lengths[:, None]
    torch.testing.assert_close(arcs.sum(1), words.double())
    torch.testing.assert_close(arcs[:, 0].sum(1), torch.ones(3).double())
    assert (spans[1, :, 3:] == 0).all() and (arcs[1, 3:] == 0).all()


@every_inside
def test_impossible_rules_leave_clean_gradients(inside):
    rules = random_rules("lexical", b=2, l=6, NT=3, PT=3, H=1, seed=8)
    lengths = torch.tensor([6, 4])
    generator = torch.Generator().manual_seed(0)
    impossible = {
        name: x.masked_fill(torch.rand(x.shape, generator=generator) < 0.3, -torch.inf)
        for name, x in rules._asdict().items()
        if name in ("logp_A_S", "logp_w_X", "logp_BD_Aw", "word_C", "parent_C")
    }
    impossible["logp_w_X"][:, :, -1] = rules.logp_w_X[:, :, -1]  # each word has a preterminal
    impossible["logp_w_X"][0, 2, :3] = -torch.inf  # and one has no nonterminal: it can't head a child or a sentence
    rules = rules._replace(**impossible)
    log_prob, *gradients = value_and_gradients(inside, rules, lengths)
    torch.testing.assert_close(log_prob, naive.inside(rules.dense(), lengths))
    assert log_prob.isfinite().all()
    # a tree has one root rule, one emission a word, one binary rule fewer
    uses = LexicalRules(*gradients)
    assert uses.logp_A_S.sum().item() == pytest.approx(2)
    torch.testing.assert_close(uses.logp_w_X.sum((1, 2)), lengths.double())
    torch.testing.assert_close(uses.logp_BD_Aw.sum((1, 2, 3, 4)), lengths - 1.0, check_dtype=False)


@pytest.mark.parametrize("cache", lexical.CACHES)
def test_impossible_sentence(cache):
    rules = random_rules("lexical", b=2, l=4, NT=2, PT=2, H=1, seed=8)
    rules.logp_w_X[0, 1] = -torch.inf
    log_prob, *gradients = value_and_gradients(INSIDES[cache], rules, torch.tensor([4, 4]))
    assert log_prob[0] == -torch.inf and log_prob[1].isfinite()
    for gradient in LexicalRules(*gradients)[1:4]:
        assert (gradient[0] == 0).all() and gradient[1].isfinite().all()


def single(rules: LexicalRules) -> LexicalRules:
    return LexicalRules(*(x.float() for x in rules))


@every_inside
@pytest.mark.parametrize("scale", [1.0, 15.0])
def test_single_precision_40_words(inside, scale):
    rules = random_rules("lexical", b=1, l=40, NT=2, PT=3, H=1, seed=2, scale=scale, V=20)
    expected = value_and_gradients(inside, rules, torch.tensor([40]))
    got = value_and_gradients(inside, single(rules), torch.tensor([40]))
    torch.testing.assert_close(got[0].double(), expected[0], rtol=1e-6, atol=0)
    assert_all_close(got[1:], expected[1:], tolerance=1e-3)


@pytest.mark.parametrize("scale", [1.0, 15.0])
def test_single_precision_120_words(scale):
    rules = random_rules("lexical", b=1, l=120, NT=2, PT=3, H=1, seed=2, scale=scale, V=20)
    lengths = torch.tensor([120])
    torch.testing.assert_close(
        lexical.inside(single(rules), lengths).double(), lexical.inside(rules, lengths), rtol=1e-6, atol=0
    )


def test_beyond_single_precision_stays_finite():
    rules = single(random_rules("lexical", b=1, l=40, NT=3, PT=5, H=1, seed=0, scale=100.0, V=50))
    log_prob, *gradients = value_and_gradients(lexical.inside, rules, torch.tensor([40]))
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("cache", lexical.CACHES)
def test_runs_on_the_meta_device(cache):
    rules = random_rules("lexical", b=2, l=6, NT=2, PT=3, H=1, seed=0)
    meta = LexicalRules(*(x.to("meta").requires_grad_() for x in rules))
    log_prob = lexical.inside(meta, torch.tensor([6, 4], device="meta"), cache)
    assert log_prob.shape == (2,)
    for gradient, factor in zip(torch.autograd.grad(log_prob.sum(), list(meta)), meta, strict=True):
        assert gradient.shape == factor.shape
