"""N-PCFG, C-PCFG and TN-PCFG: inside, marginals and CYK against enumeration and the naive recursion."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nbl import native
from nbl.decode.cyk_pcfg import cyk
from nbl.families import inside, marginals
from nbl.inside import naive
from nbl.rules import LEFT, RIGHT, DenseRules, PCFGRules, RankRules
from nbl.testing import count_rules, detached, random_rules, single

GRAMMARS = ("pcfg", "compound-pcfg", "rank")
each_grammar = pytest.mark.parametrize("grammar", GRAMMARS)


@pytest.fixture(autouse=True)
def nan_in_uninitialised_memory():
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    native.free_scratch.clear()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def kernels():
    if native.load("pcfg", torch.float64) is None:
        pytest.skip("no C++ compiler")


@pytest.fixture(params=["torch", "native"], scope="module")
def allow_native(request):
    if request.param == "native":
        request.getfixturevalue("kernels")
    return request.param == "native"


def gradients(log_prob: Tensor, upstream: Tensor, rules) -> tuple[Tensor, ...]:
    return torch.autograd.grad(log_prob, rules, upstream)


def heads_by_coin(rules: PCFGRules | RankRules) -> DenseRules:
    """The same grammar with the head of each rule chosen by a coin: no cell of the naive recursion is 0."""
    dense = rules.dense()
    rule = dense.logp_rule[..., LEFT, :, :] - math.log(2)
    return dense._replace(logp_rule=torch.stack([rule, rule.mT], dim=4))


def headless_trees(l: int, NT: int, PT: int) -> list[naive.Node]:
    """All trees, each once: of the lexicalised trees, those whose heads are all leftmost."""
    return [tree for tree in naive.trees(l, NT, PT) if all(node.D != RIGHT for node in tree.subtrees())]


def right_branching(l: int, logp_continue: float, logp_word: float, dtype: torch.dtype) -> PCFGRules:
    """One nonterminal, one preterminal, A -> T A and A -> T T alone: one tree for each sentence."""
    logp_stop = math.log1p(-math.exp(logp_continue))
    rule = torch.tensor([[-torch.inf, -torch.inf], [logp_continue, logp_stop]], dtype=dtype)
    return PCFGRules(torch.zeros(1, 1, dtype=dtype), rule[None, None], torch.full((1, l, 1), logp_word, dtype=dtype))


@each_grammar
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_values_and_gradients_equal_the_naive_recursion(allow_native, grammar, data):
    draw = data.draw
    NT, PT, H, b = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
    )
    lengths = torch.tensor(draw(st.lists(st.integers(2, 6), min_size=b, max_size=b)))
    upstream = torch.tensor(draw(st.lists(st.floats(-2, 2), min_size=b, max_size=b)), dtype=torch.float64)
    rules = detached(random_rules(grammar, b, int(lengths.max()), NT, PT, H, draw(st.integers(0, 999))))
    expected = naive.inside(heads_by_coin(rules), lengths)
    found = inside(rules, lengths, allow_native)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    for ours, theirs in zip(gradients(found, upstream, rules), gradients(expected, upstream, rules), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@each_grammar
def test_rules_of_one_count_trees(allow_native, grammar):
    lengths = torch.tensor([2, 3, 4, 7, 9])
    NT, PT = 2, 3
    rules = count_rules(random_rules(grammar, 5, 9, NT, PT, 4, seed=0))
    catalan = torch.tensor([math.comb(2 * n, n) // (n + 1) for n in (lengths - 1).tolist()])
    expected = catalan * NT ** (lengths - 1) * PT**lengths
    torch.testing.assert_close(inside(rules, lengths, allow_native).exp(), expected.double())


@each_grammar
def test_marginals_equal_enumeration(allow_native, grammar):
    l, NT, PT = 4, 2, 2
    rules = random_rules(grammar, 2, l, NT, PT, 3, seed=5)
    lengths = torch.tensor([l, l - 1])
    found = marginals(rules, lengths, allow_native)
    assert found.arcs is None
    for b, length in enumerate(lengths.tolist()):
        expected = torch.zeros(l + 1, l + 1, dtype=torch.float64)
        trees = headless_trees(length, NT, PT)
        probs = torch.stack([naive.tree_log_prob(tree, rules.dense(), b).exp() for tree in trees])
        for tree, prob in zip(trees, probs, strict=True):
            for i, j in tree.spans():
                expected[i, j] += prob / probs.sum()
        torch.testing.assert_close(found.spans[b], expected)
        torch.testing.assert_close(found.log_prob[b], probs.sum().log())


@each_grammar
def test_marginals_of_longer_sentences(allow_native, grammar):
    rules = random_rules(grammar, 3, 12, 3, 4, 5, seed=1)
    lengths = torch.tensor([12, 2, 9])
    found = marginals(rules, lengths, allow_native)
    torch.testing.assert_close(found.spans.sum((1, 2)), lengths.double() - 1)
    torch.testing.assert_close(found.spans[[0, 1, 2], 0, lengths], torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(found.log_prob, inside(rules, lengths, allow_native))
    assert found.spans.tril(1).eq(0).all(), "only widths of two or more"
    assert found.spans[1, :, 3:].eq(0).all(), "nothing in the padding"
    assert found.spans[2, :, 10:].eq(0).all(), "nothing in the padding"


@each_grammar
def test_batch_and_padding_change_nothing(allow_native, grammar):
    lengths = torch.tensor([7, 4, 2])
    rules = detached(random_rules(grammar, 3, 7, 3, 2, 4, seed=2))
    padding = torch.arange(7) >= lengths[:, None]
    rules.logp_w_T.data[padding] = 1e30
    together = inside(rules, lengths, allow_native)
    (emission,) = torch.autograd.grad(together.sum(), [rules.logp_w_T])
    assert emission[padding].eq(0).all()
    torch.testing.assert_close(emission.sum((1, 2)), lengths.double())  # each word is emitted once
    spans = marginals(rules, lengths, allow_native).spans
    for b, length in enumerate(lengths.tolist()):
        alone = rules._replace(logp_w_T=rules.logp_w_T[b : b + 1, :length])
        if grammar == "compound-pcfg":
            alone = alone._replace(logp_A_S=rules.logp_A_S[b : b + 1], logp_BC_A=rules.logp_BC_A[b : b + 1])
        torch.testing.assert_close(inside(alone, lengths[b : b + 1], allow_native), together[b : b + 1])
        torch.testing.assert_close(
            marginals(alone, lengths[b : b + 1], allow_native).spans[0], spans[b, : length + 1, : length + 1]
        )


@each_grammar
@pytest.mark.parametrize("scale", [2.0, 15.0])
@pytest.mark.parametrize("l", [40, 120])
def test_float32_follows_float64(allow_native, grammar, scale, l):
    lengths = torch.tensor([l, l - 7])
    rules = random_rules(grammar, 2, l, 4, 6, 8, seed=3, scale=scale)
    rough = detached(single(rules))
    exact = detached(type(rules)(*(factor.double() for factor in rough)))
    found, expected = inside(rough, lengths, allow_native), inside(exact, lengths, allow_native)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    upstream = torch.tensor([1.0, 0.5])
    for ours, theirs in zip(
        gradients(found, upstream, rough), gradients(expected, upstream.double(), exact), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_tree_by_hand_far_beyond_the_range_of_floats(allow_native, dtype):
    l, logp_continue, logp_word = 150, -0.25, -80.0
    rules = right_branching(l, logp_continue, logp_word, dtype)
    by_hand = l * logp_word + (l - 2) * logp_continue + math.log1p(-math.exp(logp_continue))
    found = marginals(rules, torch.tensor([l]), allow_native)
    assert found.log_prob.item() == pytest.approx(by_hand, rel=1e-6)
    expected = torch.zeros(l + 1, l + 1, dtype=dtype)
    expected[: l - 1, l] = 1
    torch.testing.assert_close(found.spans[0], expected)


@each_grammar
def test_impossible_sentences_and_cells_give_no_nan(allow_native, grammar):
    rules = random_rules(grammar, 2, 6, 3, 3, 3, seed=4)
    rules.logp_w_T[0, 2] = -torch.inf  # no preterminal emits the third word of the first sentence
    rules.logp_w_T[1, 2, 1:] = -torch.inf
    if grammar == "rank":
        rules.logp_B_R[0] = -torch.inf
        rules.logp_R_A[1, 1:] = -torch.inf
    else:
        rules.logp_BC_A[:, :, :3] = -torch.inf  # the left child is a word: most cells are right-branching
        rules.logp_BC_A[:, 1] = -torch.inf
    rules, lengths = detached(rules), torch.tensor([6, 6])
    found = inside(rules, lengths, allow_native)
    assert found[0] == -torch.inf
    torch.testing.assert_close(found[1:], naive.inside(rules.dense(), lengths)[1:])
    for gradient in gradients(found, torch.ones(2, dtype=torch.float64), rules):
        assert gradient.isfinite().all()
    log_prob = inside(rules, lengths, allow_native)
    (emission,) = gradients(log_prob, torch.ones(2, dtype=torch.float64), [rules.logp_w_T])
    assert emission[0].eq(0).all()
    torch.testing.assert_close(emission[1].sum(1), torch.ones(6, dtype=torch.float64))
    spans = marginals(rules, lengths, allow_native).spans
    assert spans[0].eq(0).all()
    torch.testing.assert_close(spans[1].sum(), torch.tensor(5.0, dtype=torch.float64))


def solved(rules, lengths: Tensor, allow_native: bool) -> tuple[Tensor, ...]:
    """log Z, its gradients with weights of both signs, posteriors of spans."""
    rules = detached(rules)
    weight = torch.linspace(-1, 2, len(lengths), dtype=rules.logp_w_T.dtype)
    log_Z = inside(rules, lengths, allow_native)
    return log_Z.detach(), *gradients(log_Z, weight, rules), marginals(rules, lengths, allow_native).spans


ODD_SIZES = [
    # lengths, NT, PT, R
    ([2], 1, 1, 1),
    ([3, 2], 3, 1, 17),
    ([4, 9, 3, 12, 5, 6], 17, 18, 113),
    ([12, 20], 33, 3, 40),
    ([10] * 9, 18, 35, 17),
    ([26, 4, 25, 3, 2], 3, 40, 250),
]


@each_grammar
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(("lengths", "NT", "PT", "H"), ODD_SIZES)
@pytest.mark.parametrize("scale", [2.0, 20.0])
def test_the_kernels_are_the_torch_code(grammar, lengths, NT, PT, H, scale):
    """Sizes of less and of more than a cache line, groups of sentences, nearly deterministic rules."""
    rules = random_rules(grammar, len(lengths), max(lengths), NT, PT, H, seed=7, scale=scale)
    lengths = torch.tensor(lengths)
    expected = solved(rules, lengths, allow_native=False)
    for ours, theirs in zip(solved(rules, lengths, True), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    rough = solved(single(rules), lengths, allow_native=True)
    torch.testing.assert_close(rough[0].double(), expected[0], rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(rough[1:], expected[1:], strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-3)


@each_grammar
@pytest.mark.usefixtures("kernels")
def test_results_do_not_depend_on_threads(grammar):
    lengths = torch.tensor([9, 14, 3, 11, 14, 2, 8, 7, 13])
    rules = single(random_rules(grammar, 9, 14, 19, 21, 33, seed=8))
    threads, results = torch.get_num_threads(), []
    try:
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            results.append(solved(rules, lengths, allow_native=True))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@each_grammar
def test_backward_twice(allow_native, grammar):
    lengths = torch.tensor([5, 7])
    rules = detached(random_rules(grammar, 2, 7, 3, 2, 4, seed=9))
    log_Z = inside(rules, lengths, allow_native)
    once, again = (torch.autograd.grad(log_Z.sum(), rules, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, once, again))


@each_grammar
def test_rules_that_are_not_numbers_are_noticed(allow_native, grammar):
    lengths = torch.tensor([5, 5])
    rules = random_rules(grammar, 2, 5, 3, 2, 4, seed=9)
    rules[1].fill_(torch.nan)
    assert not inside(rules, lengths, allow_native).isfinite().any()


@each_grammar
def test_shapes_alone_suffice(grammar):
    rules = random_rules(grammar, 2, 5, 2, 3, 4, seed=0)
    meta = detached(type(rules)(*(factor.to("meta") for factor in rules)))
    lengths = torch.full((2,), 5, device="meta")
    log_prob = inside(meta, lengths)
    log_prob.sum().backward()
    assert log_prob.shape == (2,)
    assert all(factor.grad.shape == factor.shape for factor in meta)
    assert marginals(meta, lengths).spans.shape == (2, 6, 6)


def labelled_spans(tree: naive.Node) -> set[tuple[int, int, int]]:
    return {(node.i, node.j, node.symbol) for node in tree.subtrees() if node.child is not None}


@each_grammar
@settings(max_examples=15, deadline=None)
@given(NT=st.integers(1, 3), PT=st.integers(1, 3), H=st.integers(1, 4), seed=st.integers(0, 999))
def test_cyk_finds_the_best_of_all_trees(grammar, NT, PT, H, seed):
    lengths = torch.tensor([4, 2, 3] if NT * PT < 5 else [3, 2, 3])
    rules = random_rules(grammar, 3, int(lengths[0]), NT, PT, H, seed)
    dense = rules.dense()
    for b, parse in enumerate(cyk(rules, lengths)):
        trees = headless_trees(int(lengths[b]), NT, PT)
        scores = torch.stack([naive.tree_log_prob(tree, dense, b) for tree in trees])
        its_own = [float(s) for t, s in zip(trees, scores, strict=True) if labelled_spans(t) == set(parse.spans)]
        assert max(its_own) == pytest.approx(float(scores.max()))
        assert len(parse.spans) == lengths[b] - 1
        assert parse.spans == sorted(parse.spans, key=lambda span: (span[0], -span[1]))
        assert parse.heads is None
        assert parse.log_prob == pytest.approx(float(scores.max()))


def textbook_cyk(rules, b: int, l: int, labels: dict[tuple[int, int], int] | None) -> float:
    """The best log-probability of all trees of sentence b, or of those with these labelled spans."""
    logp_root, logp_rule, logp_leaf = (factor[b] for factor in rules.dense())
    NT, PT = logp_root.shape[1], logp_leaf.shape[1]
    best = {}
    for i in range(l):
        best[i, i + 1] = torch.cat([torch.full((NT,), -torch.inf, dtype=torch.float64), logp_leaf[i]])
    for width in range(2, l + 1):
        for i, j in zip(range(l), range(width, l + 1), strict=False):
            pairs = [best[i, k][:, None] + best[k, j] for k in range(i + 1, j)]
            cell = (logp_rule[0, 0, :, LEFT] + torch.stack(pairs).amax(0)).amax((1, 2))
            best[i, j] = torch.cat([cell, torch.full((PT,), -torch.inf, dtype=torch.float64)])
            if labels is not None:
                best[i, j][torch.arange(NT + PT) != labels.get((i, j), -1)] = -torch.inf
    return float((logp_root[0] + best[0, l][:NT]).max())


@each_grammar
def test_cyk_of_longer_sentences(grammar):
    lengths = torch.tensor([11, 6, 8])
    rules = random_rules(grammar, 3, 11, 3, 2, 4, seed=6)
    for b, (parse, l) in enumerate(zip(cyk(rules, lengths), lengths.tolist(), strict=True)):
        labels = {(i, j): A for i, j, A in parse.spans}
        assert parse.log_prob == pytest.approx(textbook_cyk(rules, b, l, None))
        assert parse.log_prob == pytest.approx(textbook_cyk(rules, b, l, labels))


def test_cyk_sums_over_the_rank_inside_a_rule():
    """Of four states of R two have A -> T A, one A -> A T, one A -> T T."""
    B_R = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    C_R = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    R_A = torch.tensor([[0.2, 0.2, 0.3, 0.3]], dtype=torch.float64)
    rules = RankRules(
        torch.zeros(1, 1, dtype=torch.float64),
        R_A.log(),
        B_R.log(),
        C_R.log(),
        torch.zeros(1, 3, 1, dtype=torch.float64),
    )
    (parse,) = cyk(rules, torch.tensor([3]))
    assert parse.spans == [(0, 3, 0), (1, 3, 0)]
    assert parse.log_prob == pytest.approx(math.log(0.4 * 0.3))
    best_R = (R_A[..., None, None] * B_R[:, :, None] * C_R[:, None]).amax(1).log()
    (wrong,) = cyk(PCFGRules(rules.logp_A_S, best_R[None], rules.logp_w_T), torch.tensor([3]))
    assert wrong.spans == [(0, 3, 0), (0, 2, 0)]


@each_grammar
def test_cyk_breaks_ties_to_the_left(grammar):
    rules = count_rules(random_rules(grammar, 1, 6, 2, 2, 4, seed=0))
    (parse,) = cyk(rules, torch.tensor([6]))
    assert parse.spans == [(i, 6, 0) for i in range(5)]


@each_grammar
def test_cyk_of_an_impossible_sentence_is_some_tree(grammar):
    rules = random_rules(grammar, 1, 5, 2, 2, 3, seed=0)
    rules.logp_w_T[0, 3] = -torch.inf
    (parse,) = cyk(rules, torch.tensor([5]))
    assert parse.log_prob == -torch.inf
    assert len(parse.spans) == 4


@pytest.mark.parametrize("grammar", ["pcfg", "compound-pcfg", "rank"])
def test_lengths_may_have_any_strides(grammar):
    rules, lengths = random_rules(grammar, 3, 6, 3, 4, 5, seed=0), torch.tensor([[6, 2], [4, 3], [5, 2]])[:, 0]
    torch.testing.assert_close(inside(rules, lengths), naive.inside(rules.dense(), lengths), rtol=0, atol=1e-9)
