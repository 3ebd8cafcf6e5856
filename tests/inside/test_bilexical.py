"""The NBL-PCFG's inside algorithm: both implementations against the definition, for every binding of D."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nbl import native
from nbl.families import inside, marginals
from nbl.inside import naive
from nbl.rules import BilexicalRules
from nbl.testing import BINDINGS, count_rules, detached, random_rules, single


@pytest.fixture(autouse=True)
def _unwritten_memory_is_nan():
    """An entry of a chart or a result that is read before it is written fails loudly."""
    torch.use_deterministic_algorithms(True)
    native.free_scratch.clear()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["torch", "native"])
def allow_native(request):
    if request.param == "native" and native.load("bilexical", torch.float64) is None:
        pytest.skip("no C++ compiler")
    return request.param == "native"


def batch(binding, lengths, NT, PT, H, seed, scale=2.0, V=7, padding=3.0):
    """Random rules and the lengths of a batch; `padding` is what stands beyond the end of a sentence."""
    rules = random_rules(binding, len(lengths), max(lengths), NT, PT, H, seed, scale, V)
    lengths = torch.tensor(lengths)
    beyond = torch.arange(max(lengths)) >= lengths[:, None]
    padded = {
        name: getattr(rules, name).transpose(1, -1).masked_fill(beyond.view(len(lengths), *[1] * n, -1), padding)
        for name, n in (("logp_w_A", 1), ("logp_H_Aw", 2), ("logp_w_H", 2))
    }
    return rules._replace(**{name: factor.transpose(1, -1) for name, factor in padded.items()}), lengths


def solved(inside, rules, lengths, weights=None):
    """log p(w), and the gradient of its weighted sum with respect to each factor."""
    rules = detached(rules)
    log_Z = inside(rules, lengths)
    weights = torch.ones_like(log_Z) if weights is None else weights
    return log_Z.detach(), torch.autograd.grad((log_Z * weights).sum(), rules)


def fast(allow_native):
    return lambda rules, lengths: inside(rules, lengths, allow_native)


def by_definition(rules, lengths):
    return naive.inside(rules.dense(), lengths)


def assert_same(result, expected, **tolerance):
    torch.testing.assert_close(result[0], expected[0], **tolerance)
    for name, gradient, wanted in zip(BilexicalRules._fields, result[1], expected[1], strict=True):
        torch.testing.assert_close(gradient, wanted, **tolerance, msg=lambda text, name=name: f"d {name}: {text}")


EXACT = {"rtol": 1e-9, "atol": 1e-9}
LENGTHS = st.lists(st.integers(2, 6), min_size=1, max_size=3)
SYMBOLS = st.integers(1, 3)


@settings(max_examples=40, deadline=None)
@given(st.booleans(), st.sampled_from(BINDINGS), LENGTHS, SYMBOLS, SYMBOLS, st.integers(1, 4), st.integers(0, 2**31))
def test_values_and_gradients_are_those_of_the_definition(allow_native, binding, lengths, NT, PT, H, seed):
    rules, lengths = batch(binding, lengths, NT, PT, H, seed)
    weights = torch.randn(len(lengths), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = solved(by_definition, rules, lengths, weights)
    assert_same(solved(fast(allow_native), rules, lengths, weights), expected, **EXACT)


def test_any_factors_may_depend_on_the_direction(allow_native):
    rules, lengths = batch("D-B", [4, 3], 2, 2, 3, seed=1)
    rules = rules._replace(
        logp_C_H=torch.cat([rules.logp_C_H, rules.logp_C_H.roll(1, 2)]),
        logp_w_H=torch.cat([rules.logp_w_H, rules.logp_w_H - 0.3], 2),
    )
    assert_same(solved(fast(allow_native), rules, lengths), solved(by_definition, rules, lengths), **EXACT)


@pytest.mark.parametrize("binding", BINDINGS)
def test_counts_trees(allow_native, binding):
    NT, PT, lengths = 2, 3, [2, 3, 5, 9]
    rules, lengths = batch(binding, lengths, NT, PT, 4, seed=0)
    log_Z = inside(count_rules(rules), lengths, allow_native)
    # binary bracketings, a head child and a symbol for each of their l - 1 nodes, a preterminal for each word
    counts = [math.comb(2 * l - 2, l - 1) // l * 2 ** (l - 1) * NT ** (l - 1) * PT**l for l in lengths.tolist()]
    torch.testing.assert_close(log_Z.exp(), torch.tensor(counts, dtype=torch.float64), rtol=1e-9, atol=0)


@pytest.mark.parametrize("binding", BINDINGS)
def test_large_tables_are_the_same_in_both_implementations(binding):
    """Sizes beyond a cache line of symbols, a panel of H and a band of widths of the kernel."""
    if native.load("bilexical", torch.float64) is None:
        pytest.skip("no C++ compiler")
    rules, lengths = batch(binding, [13, 7, 12, 2], 18, 20, 75, seed=3)
    compiled, torch_only = (solved(fast(allow_native), rules, lengths) for allow_native in (True, False))
    assert_same(compiled, torch_only, **EXACT)
    for ours, theirs in zip(*(marginals(rules, lengths, allow) for allow in (True, False)), strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


def test_kept_scratch_memory_changes_nothing():
    """Neither what is in it, nor that it was made for a longer or a shorter sentence."""
    if native.load("bilexical", torch.float64) is None:
        pytest.skip("no C++ compiler")
    problems = [batch("D-C", [l], 2, 3, 4, seed=l) for l in (5, 8, 3)]
    expected = []
    for rules, lengths in problems:
        native.free_scratch.clear()
        expected.append(solved(fast(True), rules, lengths))
    for (rules, lengths), wanted in zip(problems, expected, strict=True):
        assert_same(solved(fast(True), rules, lengths), wanted, rtol=0, atol=0)
    assert len(native.free_scratch) == 1


def test_a_very_large_scratch_memory_is_not_kept(monkeypatch):
    if native.load("bilexical", torch.float64) is None:
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(native, "MAX_KEPT", 0)
    inside(*batch("D-C", [4], 2, 3, 4, seed=0))
    assert not native.free_scratch


def test_a_batch_is_its_sentences(allow_native):
    rules, lengths = batch("D-C", [5, 2, 7], 2, 3, 4, seed=5, padding=1e4)
    log_Z, gradients = solved(fast(allow_native), rules, lengths)
    for k, l in enumerate(lengths.tolist()):
        alone = BilexicalRules(
            rules.logp_A_S,
            rules.logp_w_A[k : k + 1, :l],
            rules.logp_H_Aw[k : k + 1, :l],
            rules.logp_B_H,
            rules.logp_C_H,
            rules.logp_w_H[k : k + 1, :l],
        )
        log_Z_alone, gradients_alone = solved(fast(allow_native), alone, torch.tensor([l]))
        torch.testing.assert_close(log_Z[k : k + 1], log_Z_alone, **EXACT)
        for index in (1, 2, 5):
            torch.testing.assert_close(gradients[index][k, :l], gradients_alone[index][0], **EXACT)
            assert (gradients[index][k, l:] == 0).all()


@pytest.mark.parametrize("binding", BINDINGS)
def test_marginals_are_sums_over_trees(allow_native, binding):
    NT, PT = 2, 1
    rules, lengths = batch(binding, [4, 2, 3], NT, PT, 3, seed=7)
    dense = rules.dense()
    result = marginals(rules, lengths, allow_native)
    spans, arcs = torch.zeros_like(result.spans), torch.zeros_like(result.arcs)
    for b, l in enumerate(lengths.tolist()):
        for tree in naive.trees(l, NT, PT):
            posterior = (naive.tree_log_prob(tree, dense, b) - result.log_prob[b]).exp()
            for i, j in tree.spans():
                spans[b, i, j] += posterior
            for q, head in enumerate(tree.heads()):
                arcs[b, head, q] += posterior
    torch.testing.assert_close(result.log_prob, naive.inside(dense, lengths), **EXACT)
    torch.testing.assert_close(result.spans, spans, **EXACT)
    torch.testing.assert_close(result.arcs, arcs, **EXACT)


@pytest.mark.parametrize("binding", BINDINGS)
def test_posteriors_add_up(allow_native, binding):
    rules, lengths = batch(binding, [11, 17], 3, 4, 20, seed=8)
    _, spans, arcs = marginals(rules, lengths, allow_native)
    torch.testing.assert_close(spans.sum((1, 2)), lengths.double() - 1, **EXACT)
    is_word = torch.arange(17) < lengths[:, None]
    torch.testing.assert_close(arcs.sum(1), is_word.double(), **EXACT)


@pytest.mark.parametrize(("binding", "l", "scale"), [("D-C", 40, 2.0), ("D-B", 40, 15.0), ("D-C", 120, 15.0)])
def test_float32_is_float64(allow_native, binding, l, scale):
    rules, lengths = batch(binding, [l], 3, 4, 6, seed=11, scale=scale, V=50)
    exact = solved(fast(allow_native), rules, lengths)
    rough = solved(fast(allow_native), single(rules), lengths)
    torch.testing.assert_close(rough[0].double(), exact[0], rtol=1e-6, atol=0)
    for name, gradient, wanted in zip(rules._fields, rough[1], exact[1], strict=True):
        assert gradient.dtype == torch.float32
        error = (gradient - wanted).abs().max() / wanted.abs().max()
        assert error < 1e-4, name


@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_very_sharp_rules_are_finite(seed):
    """A derivative may be so large that its product with an entry is beyond the range until it is scaled."""
    if native.load("bilexical", torch.float32) is None:
        pytest.skip("no C++ compiler")
    rules, lengths = batch("D-C", [25], 4, 6, 40, seed, scale=40.0, V=50)
    _, gradients = solved(fast(True), single(rules), lengths)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_impossible_rules(allow_native):
    """Rules with probability 0 give 0, not NaN: in a possible sentence and in an impossible one."""
    rules, lengths = batch("D-C", [4, 3], 2, 2, 3, seed=13)
    never = torch.zeros(2, 4, 1, 3, dtype=torch.bool)
    never[0, 2] = True  # the first sentence's third word can only be its root
    never[1, :2] = True  # the second sentence has two such words
    rules = rules._replace(logp_w_H=rules.logp_w_H.masked_fill(never, -torch.inf))
    log_Z, gradients = solved(fast(allow_native), rules, lengths)
    assert log_Z[1] == -torch.inf
    torch.testing.assert_close(log_Z[:1], by_definition(rules, lengths)[:1], **EXACT)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[2][1] == 0).all()
    heads = marginals(rules, lengths, allow_native).arcs
    assert heads[0, 0, 2] == pytest.approx(1)
    assert (heads[1] == 0).all()


def test_gradcheck(allow_native):
    rules, lengths = batch("D-wq", [4, 3], 2, 2, 2, seed=17)
    assert torch.autograd.gradcheck(
        lambda *factors: fast(allow_native)(BilexicalRules(*factors), lengths), tuple(detached(rules))
    )


def test_no_gradient_is_computed_where_none_is_needed(allow_native):
    rules, lengths = batch("D-C", [5], 2, 2, 3, seed=19)
    log_Z = inside(rules, lengths, allow_native)
    assert not log_Z.requires_grad
    torch.testing.assert_close(log_Z, by_definition(rules, lengths), **EXACT)


def test_threads_do_not_change_results():
    if native.load("bilexical", torch.float32) is None:
        pytest.skip("no C++ compiler")
    rules, lengths = batch("D-C", [9, 14, 5, 11, 3], 3, 4, 20, seed=23)
    threads = torch.get_num_threads()
    results = []
    for number in (1, 3):
        torch.set_num_threads(number)
        results.append(solved(fast(True), single(rules), lengths))
    torch.set_num_threads(threads)
    assert_same(*results, rtol=0, atol=0)


def test_runs_without_data():
    """On torch's device for shapes only, so nothing in it waits for a value: as a GPU needs it."""
    rules, lengths = batch("D-C", [5, 3], 2, 2, 3, seed=29)
    rules = BilexicalRules(*(factor.detach().to("meta").requires_grad_() for factor in rules))
    log_Z = inside(rules, lengths.to("meta"))
    log_Z.sum().backward()
    assert log_Z.shape == (2,)
    assert rules.logp_H_Aw.grad.shape == rules.logp_H_Aw.shape
