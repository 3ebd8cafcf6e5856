"""At the limits: lengths, impossible sentences, single precision, devices. Every grammar and every implementation."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import COMPOUND, SIMPLE, TINY, tiny
from torch.overrides import TorchFunctionMode

from nbl import models
from nbl.families import decode, inside, marginals
from nbl.inside import naive
from nbl.optimiser import Adam, clipped_step
from nbl.rules import logsum_of_pairs
from nbl.settings import BINDINGS
from nbl.testing import GRAMMARS, detached, random_rules, single

KINDS = ("pcfg", "rank", "lexical", *BINDINGS)
# name -> kind of grammar, inside algorithm, marginals
IMPLEMENTATIONS = {kind: (kind, inside, marginals) for kind in KINDS} | {
    f"{kind}-torch": (kind, partial(inside, allow_native=False), partial(marginals, allow_native=False))
    for kind in KINDS
}
each_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
each_grammar = pytest.mark.parametrize("grammar", GRAMMARS)
each_model = pytest.mark.parametrize(("name", "hyperparameters"), SIMPLE + COMPOUND)
SIZES = [(2, 3, 3), (3, 2, 2), (3, 3, 1), (4, 2, 1), (4, 1, 2), (5, 1, 1)]  # l, NT, PT: few trees


# ---------------------------------------------------------------- the definition itself


@each_grammar
@settings(max_examples=15, deadline=None)
@given(size=st.sampled_from(SIZES), H=st.integers(1, 4), seed=st.integers(0, 999))
def test_the_naive_recursion_sums_over_all_trees(grammar, size, H, seed):
    l, NT, PT = size
    dense = random_rules(grammar, 2, l, NT, PT, H, seed).dense()
    log_probs = [[naive.tree_log_prob(tree, dense, b) for tree in naive.trees(l, NT, PT)] for b in range(2)]
    expected = torch.stack([torch.stack(of_sentence).logsumexp(0) for of_sentence in log_probs])
    torch.testing.assert_close(naive.inside(dense, torch.tensor([l, l])), expected, rtol=0, atol=1e-9)


# ---------------------------------------------------------------- lengths


@each_grammar
@pytest.mark.parametrize("length", [0, 1, 6])
def test_lengths_without_a_tree_are_refused(grammar, length):
    rules, lengths = random_rules(grammar, 2, 5, 2, 2, 3, seed=0), torch.tensor([5, length])
    for call in (inside, marginals, *(lambda r, n, name=name: decode(r, n, name) for name in ("mbr", "cyk"))):
        with pytest.raises(ValueError, match=f"a sentence has {length} words; it must have 2 to 5"):
            call(rules, lengths)


@each_grammar
@pytest.mark.parametrize(
    "lengths", [torch.tensor([5]), torch.tensor([5, 4, 3]), torch.tensor([[5, 4]]), torch.tensor([5.0, 4.0])]
)
def test_lengths_must_be_whole_numbers_one_a_sentence(grammar, lengths):
    rules = random_rules(grammar, 2, 5, 2, 2, 3, seed=0)
    for call in (inside, marginals, *(lambda r, n, name=name: decode(r, n, name) for name in ("mbr", "cyk"))):
        with pytest.raises(ValueError, match="they must be 2 whole numbers"):
            call(rules, lengths)


@each_model
@pytest.mark.parametrize("word", [-1, 6])
def test_words_beyond_the_vocabulary_are_refused(name, hyperparameters, word):
    with pytest.raises(IndexError):
        tiny(name, hyperparameters).log_likelihood(torch.tensor([[0, 1, word]]), torch.tensor([3]))


# ---------------------------------------------------------------- impossible rules


@each_implementation
@pytest.mark.parametrize("seed", range(12))
def test_no_nan_where_rules_are_impossible(implementation, seed):
    """A third of all rules has probability 0, so that some sentences have no tree; one of three does not count."""
    grammar, fast, posteriors = IMPLEMENTATIONS[implementation]
    rules, lengths = random_rules(grammar, 3, 5, 2, 2, 3, seed), torch.tensor([5, 4, 2])
    generator = torch.Generator().manual_seed(seed)
    names = [name for name in rules._fields if name.startswith("logp")]
    never = {name: torch.rand(getattr(rules, name).shape, generator=generator) < 0.35 for name in names}
    rules = detached(
        rules._replace(**{n: getattr(rules, n).masked_fill(mask, -torch.inf) for n, mask in never.items()})
    )
    found, expected = fast(rules, lengths), naive.inside(rules.dense(), lengths)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    possible = expected.isfinite()
    upstream = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    gradients = torch.autograd.grad(found, rules, upstream)
    right = torch.autograd.grad(torch.where(possible, expected, 0.0), rules, upstream, allow_unused=True)
    for gradient, wanted in zip(gradients, right, strict=True):
        assert gradient.isfinite().all()
        if wanted is not None and wanted.isfinite().all():  # autograd through the definition has NaN of its own
            torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-9)
    result = posteriors(rules, lengths)
    torch.testing.assert_close(
        result.spans.sum((1, 2)), torch.where(possible, lengths - 1.0, 0.0).double(), rtol=0, atol=1e-9
    )
    if result.arcs is not None:
        torch.testing.assert_close(
            result.arcs.sum((1, 2)), torch.where(possible, lengths, 0).double(), rtol=0, atol=1e-9
        )


@each_implementation
def test_a_root_that_is_impossible_leaves_nothing(implementation):
    grammar, fast, posteriors = IMPLEMENTATIONS[implementation]
    rules, lengths = random_rules(grammar, 2, 4, 2, 2, 3, seed=0), torch.tensor([4, 3])
    rules = detached(rules._replace(logp_A_S=torch.full_like(rules.logp_A_S, -torch.inf)))
    found = fast(rules, lengths)
    assert (found == -torch.inf).all()
    for upstream in (0.0, 1.0):
        for gradient in torch.autograd.grad(
            found, rules, torch.full_like(found, upstream), retain_graph=True, allow_unused=True
        ):
            assert gradient is None or (gradient == 0).all()
    spans, arcs = posteriors(rules, lengths)[1:]
    assert (spans == 0).all()
    assert arcs is None or (arcs == 0).all()


# ---------------------------------------------------------------- single precision


@pytest.mark.parametrize(
    ("implementation", "l", "scale"),
    [
        *((name, 40, scale) for name in IMPLEMENTATIONS for scale in (2.0, 15.0, 25.0)),
        *((name, 120, 15.0) for name in ("pcfg", "rank", "lexical", "lexical-torch", "D-C", "D-wq", "D-C-torch")),
    ],
)
def test_single_precision(implementation, l, scale):
    """Values, gradients and posteriors of nearly deterministic grammars, for long sentences."""
    grammar, fast, posteriors = IMPLEMENTATIONS[implementation]
    rules, lengths = random_rules(grammar, 1, l, 3, 4, 6, seed=5, scale=scale, V=50), torch.tensor([l])
    rough = detached(single(rules))
    double = detached(type(rules)(*(factor.double() for factor in rough)))
    found, expected = fast(rough, lengths), fast(double, lengths)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    for name, ours, exact in zip(
        rules._fields, torch.autograd.grad(found, rough), torch.autograd.grad(expected, double), strict=True
    ):
        assert (ours - exact).abs().max() <= 1e-3 * exact.abs().max().clamp(min=1), name
    ours, exact = posteriors(rough, lengths), posteriors(double, lengths)
    torch.testing.assert_close(ours.spans.double(), exact.spans, rtol=0, atol=1e-3)
    assert ours.spans.sum().item() == pytest.approx(l - 1, rel=1e-3)
    if ours.arcs is not None:
        torch.testing.assert_close(ours.arcs.double(), exact.arcs, rtol=0, atol=1e-3)
        torch.testing.assert_close(ours.arcs.sum(1), torch.ones(1, l), rtol=0, atol=1e-3)


@pytest.mark.parametrize("implementation", ["lexical", "lexical-torch"])
def test_gradients_of_sharp_rules_in_single_precision(implementation):
    """A gradient may be as large as its value is small: in some grammars of many one is."""
    grammar, fast, posteriors = IMPLEMENTATIONS[implementation]
    for seed in range(40):
        l = (8, 20)[seed % 2]
        rules, lengths = random_rules(grammar, 1, l, 3, 4, 6, seed=seed, scale=20.0, V=50), torch.tensor([l])
        rough = detached(single(rules))
        double = detached(type(rules)(*(factor.double() for factor in rough)))
        gradients = (torch.autograd.grad(fast(r, lengths), r) for r in (rough, double))
        for ours, exact in zip(*gradients, strict=True):
            torch.testing.assert_close(ours.double(), exact, rtol=0, atol=1e-2)
        assert posteriors(single(rules), lengths).spans.sum().item() == pytest.approx(l - 1, rel=1e-3)


@each_grammar
@pytest.mark.parametrize("l", [40, 120])
def test_cyk_single(grammar, l):
    rules, lengths = random_rules(grammar, 1, l, 2, 3, 4, seed=5, scale=15.0, V=50), torch.tensor([l])
    (exact,) = decode(rules, lengths, "cyk")
    (ours,) = decode(single(rules), lengths, "cyk")
    assert ours.log_prob == pytest.approx(exact.log_prob, rel=1e-5)
    assert len(ours.spans) == l - 1


def test_sums_over_pairs_of_far_apart_logits():
    """The word's favourite C is 200 below the parent's, and the other way round."""
    word, parent = torch.tensor([0.0, -200.0, -90.0]), torch.tensor([-200.0, 0.0, -110.0])
    word, parent = word.view(1, 1, 1, 1, 3).requires_grad_(), parent.view(1, 1, 1, 1, 3)
    found = logsum_of_pairs(word, parent)
    torch.testing.assert_close(found.item(), (word + parent).detach().double().logsumexp(-1).item())
    (gradient,) = torch.autograd.grad(found.sum(), word)
    torch.testing.assert_close(gradient, (word + parent).detach().softmax(-1))
    farther = logsum_of_pairs(10 * word, 10 * parent)  # beyond the range of a double
    torch.testing.assert_close(farther.item(), (10 * (word + parent)).detach().double().logsumexp(-1).item())


# ---------------------------------------------------------------- devices


class NoDefaultDevice(TorchFunctionMode):
    """Every new tensor must say where it is to be, by the device of another one."""

    FACTORIES = ("arange", "empty", "eye", "full", "ones", "rand", "randn", "randint", "tensor", "zeros", "linspace")

    def __init__(self):
        super().__init__()
        self.factories = {getattr(torch, name) for name in self.FACTORIES}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in self.factories:
            assert isinstance(kwargs.get("device"), torch.device), f"torch.{function.__name__} names no device"
        return function(*args, **kwargs)


@each_model
def test_no_device_is_taken_for_granted(name, hyperparameters):
    """A training step and both decoders."""
    model = tiny(name, hyperparameters).float()
    optimiser = Adam(model, 0.001)
    words, lengths = torch.tensor([[0, 1, 2, 3], [3, 4, 5, 0]]), torch.tensor([4, 3])
    with NoDefaultDevice():
        loss = -model.log_likelihood(words, lengths).mean()
        loss.backward()
        clipped_step(optimiser, 3.0)
        for decoder in ("mbr", "cyk"):
            assert len(model.parse(words, lengths, decoder)) == 2


@each_model
def test_likelihood_and_posteriors_need_no_values_on_the_host(name, hyperparameters):
    """On the device for shapes only there are none: nothing in a step makes the host wait for a GPU."""
    with torch.device("meta"):
        model = models.build(name, 6, **TINY, **hyperparameters)
    words, lengths = torch.zeros(2, 4, dtype=torch.long, device="meta"), torch.full((2,), 4, device="meta")
    model.log_likelihood(words, lengths).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    found = marginals(model.rules(words, lengths), lengths)
    assert found.spans.shape == (2, 5, 5)
    assert found.arcs is None or found.arcs.shape == (2, 5, 4)
