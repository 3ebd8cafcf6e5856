"""Decoders against enumeration: all trees, all bracketings, all dependency trees."""

from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nbl import native
from nbl.decode import Parse
from nbl.decode.cyk_bilexical import BilexicalSentence, _rules_torch, contracted_blocks
from nbl.decode.maxplus import _maxplus_torch, maxplus_
from nbl.decode.mbr import best_bracketings, eisner, mbr
from nbl.errors import UserError
from nbl.families import decode, marginals
from nbl.inside import naive
from nbl.rules import DenseRules
from nbl.testing import BINDINGS, GRAMMARS, random_rules, single

LEXICALISED = ("lexical", "compound-lexical", *BINDINGS)
SIZES = [(2, 3, 3), (3, 2, 2), (3, 3, 1), (4, 2, 1), (4, 1, 2), (5, 1, 1)]  # l, NT, PT: few trees


@pytest.fixture(autouse=True)
def nan_in_uninitialised_memory():
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


@cache
def all_trees(l: int, NT: int, PT: int) -> list[naive.Node]:
    return naive.trees(l, NT, PT)


def tree_log_probs(dense: DenseRules, l: int, b: int = 0) -> tuple[list[naive.Node], Tensor]:
    trees = all_trees(l, dense.logp_root.shape[2], dense.logp_leaf.shape[2])
    return trees, torch.stack([naive.tree_log_prob(tree, dense, b) for tree in trees])


def matches(tree: naive.Node, parse: Parse) -> bool:
    """Is this the tree of the parse, whatever its preterminals?"""
    spans = {(node.i, node.j, node.symbol) for node in tree.subtrees() if node.child is not None}
    return tree.heads() == parse.heads and spans == set(parse.spans)


def bracketings(i: int, j: int):
    if j - i == 1:
        yield frozenset()
    for k in range(i + 1, j):
        for left, right in product(bracketings(i, k), bracketings(k, j)):
            yield left | right | {(i, j)}


@cache
def dependency_trees(l: int) -> list[tuple[int, ...]]:
    """All projective trees over l words with one root, as 1-based heads."""
    candidates = product(range(l + 1), repeat=l)
    return [heads for heads in candidates if heads.count(0) == 1 and _is_projective_tree(heads)]


def _is_projective_tree(heads: tuple[int, ...]) -> bool:
    def ancestors(word: int) -> set[int]:
        seen: set[int] = set()
        while word and word not in seen:
            seen.add(word)
            word = heads[word - 1]
        return seen if word == 0 else set()

    return all(
        head == 0 or all(head in ancestors(between) for between in range(min(head, word), max(head, word)))
        for word, head in enumerate(heads, start=1)
    ) and all(ancestors(word) for word in range(1, len(heads) + 1))


def arc_sum(arcs: Tensor, heads) -> float:
    return sum(float(arcs[head, word]) for word, head in enumerate(heads))


def span_sum(spans: Tensor, brackets) -> float:
    return sum(float(spans[i, j]) for i, j in brackets)


# --- CYK ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grammar", LEXICALISED)
@settings(max_examples=20, deadline=None)
@given(size=st.sampled_from(SIZES), H=st.integers(1, 4), seed=st.integers(0, 999), data=st.data())
def test_cyk_finds_the_best_of_all_trees(grammar, size, H, seed, data):
    l, NT, PT = size
    lengths = [l, data.draw(st.integers(2, l))]
    rules = random_rules(grammar, 2, l, NT, PT, H, seed)
    dense = rules.dense()
    for b, parse in enumerate(decode(rules, torch.tensor(lengths), "cyk")):
        trees, log_probs = tree_log_probs(dense, lengths[b], b)
        assert parse.log_prob == pytest.approx(float(log_probs.max()), abs=1e-9)
        assert parse.spans == sorted(parse.spans, key=lambda span: (span[0], -span[1]))
        its_own = [log_prob for tree, log_prob in zip(trees, log_probs, strict=True) if matches(tree, parse)]
        assert float(max(its_own)) == pytest.approx(parse.log_prob, abs=1e-9)


@pytest.mark.parametrize("grammar", ["pcfg", "rank", *LEXICALISED])
@settings(max_examples=5, deadline=None)
@given(l=st.integers(6, 8), H=st.integers(1, 4), seed=st.integers(0, 999))
def test_cyk_is_the_definition_with_maxima(grammar, l, H, seed):
    """In sentences that have too many trees to look at them all."""
    rules, lengths = random_rules(grammar, 1, l, 2, 2, H, seed), torch.tensor([l])
    (parse,) = decode(rules, lengths, "cyk")
    assert parse.log_prob == pytest.approx(naive.best(rules.dense(), lengths).item(), abs=1e-9)


def test_cyk_sums_over_H_in_each_rule():
    """With a maximum over H in place of the sum another tree would win."""
    rules = random_rules("D-C", 1, 3, 2, 2, 4, seed=13)
    head, child = rules.logp_H_Aw[:, :, None, :, None, :, None, None], rules.logp_C_H[:, :, None]
    factors = head + rules.logp_B_H[..., None] + child + rules.logp_w_H[:, None, :, None, :, :, None, None]
    dense = rules.dense()
    torch.testing.assert_close(factors.logsumexp(5), dense.logp_rule)
    (parse,) = decode(rules, torch.tensor([3]), "cyk")
    trees, log_probs = tree_log_probs(dense, 3)
    assert matches(trees[int(log_probs.argmax())], parse)
    _, of_max = tree_log_probs(dense._replace(logp_rule=factors.amax(5)), 3)
    assert not matches(trees[int(of_max.argmax())], parse)


def test_legacy_cyk_forgets_the_word_of_the_root():
    rules = random_rules("lexical", 1, 3, 2, 2, 1, seed=0)
    lengths = torch.tensor([3])
    dense = rules.dense()
    trees, log_probs = tree_log_probs(dense, 3)
    (right,), (legacy,) = decode(rules, lengths, "cyk"), decode(rules, lengths, "cyk-legacy")
    no_emission = dense._replace(logp_root=rules.logp_A_S[:, None].expand(1, 3, 2))
    _, of_legacy = tree_log_probs(no_emission, 3)
    assert matches(trees[int(log_probs.argmax())], right)
    assert matches(trees[int(of_legacy.argmax())], legacy)
    assert legacy.heads != right.heads
    assert legacy.log_prob == pytest.approx(float(log_probs[of_legacy.argmax()]), abs=1e-9)
    assert legacy.log_prob < right.log_prob


@pytest.mark.parametrize("grammar", ["lexical", "D-C"])
@settings(max_examples=20, deadline=None)
@given(size=st.sampled_from(SIZES), seed=st.integers(0, 999), impossible=st.floats(0.1, 0.7))
def test_cyk_with_impossible_rules(grammar, size, seed, impossible):
    l, NT, PT = size
    rules = random_rules(grammar, 1, l, NT, PT, 2, seed)
    torch.manual_seed(seed)
    for name in {"logp_A_S", "logp_BD_Aw", "logp_H_Aw", "logp_B_H", "logp_C_H"} & set(rules._fields):
        factor = getattr(rules, name)
        factor[torch.rand_like(factor) < impossible] = -torch.inf
    (parse,) = decode(rules, torch.tensor([l]), "cyk")
    trees, log_probs = tree_log_probs(rules.dense(), l)
    assert parse.log_prob == pytest.approx(float(log_probs.max()), abs=1e-9)
    its_own = [log_prob for tree, log_prob in zip(trees, log_probs, strict=True) if matches(tree, parse)]
    # there is a tree even if all have probability 0
    assert float(max(its_own)) == pytest.approx(parse.log_prob, abs=1e-9)


@pytest.mark.parametrize("grammar", ["lexical", "D-C"])
def test_cyk_in_float32_with_extreme_scores(grammar):
    rules = random_rules(grammar, 1, 25, 4, 6, 16, seed=0, scale=15.0, V=50)
    lengths = torch.tensor([25])
    (exact,) = decode(rules, lengths, "cyk")
    (rough,) = decode(single(rules), lengths, "cyk")
    assert rough.log_prob == pytest.approx(exact.log_prob, rel=1e-5)


@pytest.mark.parametrize("grammar", ["lexical", "D-C"])
def test_cyk_of_a_long_sentence_needs_little_memory(grammar):
    status = Path("/proc/self/status")
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("peak memory cannot be measured here")

    def megabytes(name: str) -> float:
        return float(status.read_text().split(f"{name}:")[1].split()[0]) / 1024

    rules = single(random_rules(grammar, 1, 120, 3, 4, 4, seed=0, V=100))
    reset.write_text("5")
    before = megabytes("VmRSS")
    (parse,) = decode(rules, torch.tensor([120]), "cyk")
    assert len(parse.spans) == 119
    assert parse.heads is not None
    assert parse.heads.count(0) == 1
    assert megabytes("VmHWM") - before < 100  # a number for each k, j, p, q would take 800


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize(("l", "NT", "PT", "H"), [(2, 1, 1, 1), (7, 17, 3, 33), (9, 5, 20, 16)])
@pytest.mark.parametrize("scale", [2.0, 20.0])
def test_cyk_in_native_code_and_in_torch(dtype, binding, l, NT, PT, H, scale):
    """The rules with H summed out, and the chart; with symbols beyond a cache line, and impossible ones."""
    if native.load("cyk_bilexical", dtype) is None:
        pytest.skip("no C++ compiler")
    rules = random_rules(binding, 1, l, NT, PT, H, seed=1, scale=scale)
    rules.logp_B_H[:, :, 0] = -torch.inf
    rules.logp_H_Aw[0, 0] = -torch.inf
    rules = type(rules)(*(factor.to(dtype) for factor in rules))
    sentence = BilexicalSentence(rules, contracted_blocks(rules), 0, l)
    exact = type(rules)(*(factor.double() for factor in rules))
    R = _rules_torch(exact, contracted_blocks(exact), 0, l).to(dtype)
    tolerance = {"rtol": 2e-5, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    possible = R > -80  # far below that, a float is 0
    torch.testing.assert_close(sentence.R[possible], R[possible], **tolerance)
    assert sentence.R[R.isneginf()].isneginf().all()
    compiled = sentence.chart()
    sentence.kernel = None
    for j, column in enumerate(sentence.chart()):
        assert torch.equal(compiled[j], column)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_maxplus_in_native_code_and_in_torch(data):
    a, c, r, x = (data.draw(st.integers(0 if name == "r" else 1, 9)) for name in "acrx")
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 9999)))

    def drawn(*shape: int) -> Tensor:
        """Axes may be of size 1, to be broadcast; a part is -inf."""
        shape = tuple(size if data.draw(st.booleans()) else 1 for size in shape[:2]) + shape[2:]
        values = torch.randn(shape, generator=generator, dtype=dtype)
        return values.masked_fill(torch.rand(shape, generator=generator) < 0.3, -torch.inf)

    v, M = drawn(a, c, r), drawn(a, c, r, x)
    out = torch.randn(c, a, x + 2, generator=generator, dtype=dtype).transpose(0, 1)[..., 1:-1]
    products = (v[..., None] + M).expand(a, c, r, x)
    expected = torch.cat([products, out[:, :, None]], dim=2).amax(2)
    other = out.clone()
    _maxplus_torch(other, v.expand(a, c, r), M.expand(a, c, r, x))
    assert torch.equal(other, expected)
    maxplus_(out, v, M)  # not contiguous
    assert torch.equal(out, expected)


# --- MBR ---------------------------------------------------------------------------------------------------


def draw_scores(data, *shape: int) -> Tensor:
    """Few different values, so that there are ties, or many."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 9999)))
    if data.draw(st.booleans()):
        return torch.randint(-2, 3, shape, generator=generator).double()
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_best_bracketing_of_any_scores(data):
    lengths = data.draw(st.lists(st.integers(2, 6), min_size=1, max_size=3))
    l = max(lengths)
    spans = draw_scores(data, len(lengths), l + 1, l + 1)
    found_spans = best_bracketings(spans, torch.tensor(lengths))
    for matrix, found, length in zip(spans, found_spans, lengths, strict=True):
        possible = list(bracketings(0, length))
        assert frozenset(found) in possible
        assert len(found) == length - 1
        best = max(span_sum(matrix, brackets) for brackets in possible)
        assert span_sum(matrix, found) == pytest.approx(best, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_eisner_of_any_scores(data):
    lengths = data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    l = max(lengths)
    arcs = draw_scores(data, len(lengths), l + 1, l)
    for matrix, heads, length in zip(arcs, eisner(arcs, torch.tensor(lengths)), lengths, strict=True):
        assert tuple(heads) in dependency_trees(length)
        best = max(arc_sum(matrix, tree) for tree in dependency_trees(length))
        assert arc_sum(matrix, heads) == pytest.approx(best, abs=1e-9)


def test_number_of_dependency_trees():
    """The enumeration is right: 1, 2, 7, 30, 143 projective trees (binomial(3l - 2, l - 1) / l)."""
    assert [len(dependency_trees(l)) for l in range(1, 6)] == [1, 2, 7, 30, 143]


def test_eisner_lets_the_root_have_one_child():
    arcs = torch.tensor([[[9.0, 9.0], [0.0, 1.0], [2.0, 0.0]]])
    assert eisner(arcs, torch.tensor([2])) == [[2, 0]]


def test_of_equal_trees_the_first_split_is_taken():
    assert best_bracketings(torch.zeros(1, 5, 5), torch.tensor([4])) == [[(0, 4), (1, 4), (2, 4)]]
    assert eisner(torch.zeros(1, 5, 4), torch.tensor([4])) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("grammar", GRAMMARS)
@settings(max_examples=8, deadline=None)
@given(size=st.sampled_from(SIZES), seed=st.integers(0, 999))
def test_mbr_maximises_the_expected_number_of_right_spans_and_heads(grammar, size, seed):
    l, NT, PT = size
    rules = random_rules(grammar, 1, l, NT, PT, 3, seed)
    trees, log_probs = tree_log_probs(rules.dense(), l)
    spans = torch.zeros(l + 1, l + 1, dtype=torch.float64)
    arcs = torch.zeros(l + 1, l, dtype=torch.float64)
    for tree, posterior in zip(trees, log_probs.softmax(0), strict=True):
        for span in tree.spans():
            spans[span] += posterior
        for word, head in enumerate(tree.heads()):
            arcs[head, word] += posterior
    (parse,) = decode(rules, torch.tensor([l]))
    assert parse.log_prob == pytest.approx(float(log_probs.logsumexp(0)), abs=1e-9)
    best = max(span_sum(spans, brackets) for brackets in bracketings(0, l))
    assert span_sum(spans, [span[:2] for span in parse.spans]) == pytest.approx(best, abs=1e-9)
    assert all(label is None for *_, label in parse.spans)
    if grammar in LEXICALISED:
        assert tuple(parse.heads) in dependency_trees(l)
        best = max(arc_sum(arcs, tree) for tree in dependency_trees(l))
        assert arc_sum(arcs, parse.heads) == pytest.approx(best, abs=1e-9)
    else:
        assert parse.heads is None


def test_legacy_mbr_takes_the_legacy_arcs():
    rules = random_rules("lexical", 1, 4, 2, 2, 1, seed=0)
    lengths = torch.tensor([4])
    (right,), (legacy,) = decode(rules, lengths), decode(rules, lengths, "mbr-legacy")
    assert legacy == mbr(marginals(rules, lengths, legacy=True), lengths)[0]
    assert legacy.spans == right.spans
    assert legacy.heads != right.heads


# --- Both --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoder", ["mbr", "cyk"])
@pytest.mark.parametrize("grammar", GRAMMARS)
def test_batch_and_padding_change_nothing(grammar, decoder):
    lengths = torch.tensor([7, 2, 5, 3])
    rules = random_rules(grammar, 4, 7, 2, 3, 3, seed=1)
    per_word = "logp_w_T logp_w_X logp_BD_Aw word_C logsum_C logp_w_A logp_H_Aw logp_w_H".split()
    for name in set(per_word) & set(rules._fields):
        for b, length in enumerate(lengths):
            getattr(rules, name)[b, length:] = 50.0  # whatever stands there must not matter
    batch = decode(rules, lengths, decoder)
    for b, length in enumerate(lengths):
        alone = rules._asdict()
        for name, factor in alone.items():
            if name in per_word:
                alone[name] = factor[b : b + 1, :length]
            elif grammar.startswith("compound"):
                alone[name] = factor[b : b + 1]
        (one,) = decode(rules._replace(**alone), length[None], decoder)
        assert (one.spans, one.heads) == (batch[b].spans, batch[b].heads)
        assert one.log_prob == pytest.approx(batch[b].log_prob, abs=1e-9)
        assert len(one.spans) == length - 1


@pytest.mark.parametrize("decoder", ["mbr", "cyk"])
@pytest.mark.parametrize("grammar", LEXICALISED)
def test_two_words(grammar, decoder):
    """There is one bracketing; the head is the word with the larger posterior, or of the best rule."""
    rules = random_rules(grammar, 1, 2, 3, 2, 3, seed=0)
    trees, log_probs = tree_log_probs(rules.dense(), 2)
    (parse,) = decode(rules, torch.tensor([2]), decoder)
    assert [span[:2] for span in parse.spans] == [(0, 2)]
    by_head = [log_probs[torch.tensor([tree.p == p for tree in trees])] for p in (0, 1)]
    first, second = (x.max() if decoder == "cyk" else x.logsumexp(0) for x in by_head)
    assert parse.heads == ([0, 1] if first > second else [2, 0])


def test_what_is_refused():
    lengths = torch.tensor([3])
    with pytest.raises(UserError, match="unknown decoder 'viterbi'"):
        decode(random_rules("lexical", 1, 3, 2, 2, 1, seed=0), lengths, "viterbi")
    for grammar in ("pcfg", "rank", "D-C"):
        with pytest.raises(UserError, match="legacy"):
            decode(random_rules(grammar, 1, 3, 2, 2, 2, seed=0), lengths, "cyk-legacy")
