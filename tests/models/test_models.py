"""The neural grammars: sizes, proper distributions, likelihoods, randomness, devices."""

import itertools
import math
import random

import pytest
import torch
from tiny_models import BILEXICAL, COMPOUND, LATENT, SIMPLE, TINY, tiny

from nbl import models
from nbl.inside import naive
from nbl.rules import LEFT

each_model = pytest.mark.parametrize(("name", "settings"), SIMPLE + COMPOUND)
simple_models = pytest.mark.parametrize(("name", "settings"), SIMPLE)
compound_models = pytest.mark.parametrize(("name", "settings"), COMPOUND)


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("name", "settings", "parameters"),
    [
        ("npcfg", {}, 5_341_140),
        ("cpcfg", {}, 15_347_028),
        ("tnpcfg", {}, 4_195_816),
        ("nlpcfg", {}, 14_447_404),
        ("nlpcfg", {"NT": 10}, 7_003_744),
        ("nblpcfg", {}, 9_301_478),
    ],
)
def test_sizes_are_those_of_the_released_code_without_its_unused_parameters(name, settings, parameters):
    """The released NBL-PCFG has 26,880 parameters more, which it never uses."""
    with torch.device("meta"):
        model = models.build(name, 10_002, **settings)
    assert sum(p.numel() for p in model.parameters()) == parameters


@each_model
def test_every_parameter_has_a_gradient(name, settings):
    model = tiny(name, settings | {"dim": 64})  # wide enough that no layer's ReLUs are all at zero
    words, lengths = torch.tensor([[0, 1, 2, 3], [3, 4, 5, 0]]), torch.tensor([4, 3])
    model.log_likelihood(words, lengths).sum().backward()
    assert [key for key, parameter in model.named_parameters() if not parameter.grad.any()] == []


# ---------------------------------------------------------------- distributions


@each_model
def test_distributions_sum_to_one(name, settings):
    """The batch is one sentence, the whole vocabulary; z is the same for all its words."""
    model = tiny(name, settings, spread=3.0)
    dense = model.rules(torch.arange(6)[None]).dense()
    NT, one = TINY["NT"], torch.ones((), dtype=torch.float64)
    rule, root, leaf = (factor.exp()[0] for factor in (dense.logp_rule, dense.logp_root, dense.logp_leaf))
    if name in ("npcfg", "cpcfg", "tnpcfg"):
        torch.testing.assert_close(root[0].sum(), one)
        torch.testing.assert_close(rule[0, 0].sum((1, 2, 3)), one.expand(NT))
        torch.testing.assert_close(leaf.sum(0), one.expand(TINY["PT"]))
    else:
        torch.testing.assert_close(root.sum(), one)  # over words and A
        torch.testing.assert_close(rule.sum((1, 3, 4, 5)), one.expand(6, NT))  # over w_q, D, B and C


@pytest.mark.parametrize("compound", [False, True])
def test_each_factor_of_the_nlpcfg_sums_to_one(compound):
    rules = tiny("nlpcfg", {"compound": compound, **LATENT}, spread=3.0).rules(torch.arange(6)[None])
    for logp, axes in ((rules.logp_A_S, -1), (rules.logp_w_X, 1), (rules.logp_BD_Aw, (-2, -1))):
        assert logp.exp().sum(axes).allclose(torch.ones((), dtype=torch.float64))
    logp_C = rules.logp_BCD_Aw() - rules.logp_BD_Aw[..., None]
    assert logp_C.exp().sum(-1).allclose(torch.ones((), dtype=torch.float64))


@pytest.mark.parametrize(("binding", "parameterisation"), BILEXICAL)
def test_each_factor_of_the_nblpcfg_sums_to_one(binding, parameterisation):
    settings = {"d_H": 3, "binding": binding, "parameterisation": parameterisation}
    rules = tiny("nblpcfg", settings, spread=3.0).rules(torch.arange(6)[None])
    sums = {
        "A_S": rules.logp_A_S.exp().sum(),
        "w_A": rules.logp_w_A.exp().sum(1),
        "H_Aw": rules.logp_H_Aw.exp().sum(-1),
        "B_H": rules.logp_B_H.exp().sum((0, 2)),
        "C_H": rules.logp_C_H.exp().sum((0, 2)),
        "w_H": rules.logp_w_H.exp().sum((1, 2)),
    }
    for factor, total in sums.items():
        assert total.allclose(torch.ones((), dtype=torch.float64)), factor
    with_D = {"D-B": rules.logp_B_H.shape[0], "D-wq": rules.logp_w_H.shape[2], "C": rules.logp_C_H.shape[0]}
    bound = binding if binding in with_D else "C"
    assert with_D == {key: 2 if key == bound else 1 for key in with_D}
    if binding == "D-alone":  # p(D|C, H) is the same for every C
        log_odds = rules.logp_C_H[0] - rules.logp_C_H[1]
        assert log_odds.allclose(log_odds[:, :1])


def test_right_headed_rules_are_normalised_over_the_left_child():
    """One linear layer for each D, softmax over the child that is not the head."""
    model = tiny("nlpcfg", {}, spread=3.0)
    words = torch.tensor([[4, 1]])
    logp = model.rules(words).logp_BCD_Aw() - model.rules(words).logp_BD_Aw[..., None]
    S = TINY["NT"] + TINY["PT"]
    for D, layer in enumerate((model.C_left, model.C_right)):
        for p, A in itertools.product(range(2), range(TINY["NT"])):
            x = torch.cat([model.w_w[words[0, p]], model.u_A[A]])
            expected = (x @ layer.weight + layer.bias).view(S, S).log_softmax(1)
            torch.testing.assert_close(logp[0, p, A, D], expected)


def test_appendix_applies_its_networks_to_what_is_generated():
    """p(w|A) and p(w|H) prop. to exp(u^T h(w_w)), p(H|A, w) prop. to exp(u_H^T f([w_A; w_w])), by hand."""
    model = tiny("nblpcfg", {"d_H": 3, "parameterisation": "paper"}, spread=2.0)
    words = torch.tensor([[4, 1]])
    rules = model.rules(words)

    def g(block, x):
        return (block.V.weight @ (block.U.weight @ x + block.U.bias).relu() + block.V.bias).relu() + x

    def h(network, x):
        return g(network.g[1], g(network.g[0], x @ network.W.weight + network.W.bias))

    def f(w_A, w_w):
        joined = torch.cat([w_A, w_w]) @ model.p_H_Aw.query.W.weight + model.p_H_Aw.query.W.bias
        return h(model.p_H_Aw.query.h, joined.relu() + w_w)

    u_H = model.u_Hw
    h_w_A, h_w_H = (torch.stack([h(p.key, w) for w in model.w_w]) for p in (model.p_w_A, model.p_w_H))
    h_A = torch.stack([h(model.p_A_S.key, w) for w in model.w_A])
    torch.testing.assert_close(rules.logp_A_S, (h_A @ model.u_S[0]).log_softmax(0))
    torch.testing.assert_close(rules.logp_w_A[0], (model.u_A @ h_w_A.T).log_softmax(1)[:, words[0]].T)
    torch.testing.assert_close(rules.logp_w_H[0, :, 0], (u_H @ h_w_H.T).log_softmax(1)[:, words[0]].T)
    for p, A in itertools.product(range(2), range(TINY["NT"])):
        expected = (u_H @ f(model.w_A[A], model.w_w[words[0, p]])).log_softmax(0)
        torch.testing.assert_close(rules.logp_H_Aw[0, p, A], expected)


# ---------------------------------------------------------------- likelihood


@each_model
def test_log_likelihood_is_that_of_the_rules(name, settings):
    model = tiny(name, settings, spread=2.0).eval()
    words, lengths = torch.tensor([[5, 0, 2, 2], [1, 4, 3, 0]]), torch.tensor([4, 3])
    expected = naive.inside(model.rules(words, lengths).dense(), lengths)
    if getattr(model, "inference", None):
        mean, log_variance = model.inference(words, lengths)
        q = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        expected = expected - torch.distributions.kl_divergence(q, prior).sum(1)
    torch.testing.assert_close(model.log_likelihood(words, lengths), expected)


@each_model
def test_padding_and_batching_change_nothing(name, settings):
    model = tiny(name, settings, spread=2.0).eval()
    words, lengths = torch.tensor([[5, 0, 2, 2], [1, 4, 3, 5], [3, 3, 0, 1]]), torch.tensor([4, 3, 2])
    alone = [model.log_likelihood(words[k : k + 1, :n], lengths[k : k + 1]) for k, n in enumerate(lengths)]
    torch.testing.assert_close(model.log_likelihood(words, lengths), torch.cat(alone))
    model.log_likelihood(words, lengths).sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model.log_likelihood(words.masked_fill(torch.arange(4) >= lengths[:, None], 0), lengths).sum().backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@simple_models
def test_strings_of_each_length_are_as_frequent_as_in_samples(name, settings):
    """Over two words, the likelihoods of all strings of n words add up to what a top-down sampler yields."""
    model = tiny(name, settings, vocab_size=2, spread=2.0)
    with torch.no_grad():
        dense = model.rules(torch.arange(2)[None]).dense()
        p_length = {}
        for n in (2, 3, 4):
            strings = torch.tensor(list(itertools.product(range(2), repeat=n)))
            log_p = model.log_likelihood(strings, torch.full((2**n,), n))
            p_length[n] = log_p.exp()
    sentences = sample(dense, 10_000, longest=4, draw=random.Random(1))
    for n, probabilities in p_length.items():
        total = probabilities.sum().item()
        lengths = [len(sentence) for sentence in sentences if sentence is not None]
        assert_frequent(lengths.count(n), len(sentences), total)
        for string, p in zip(itertools.product(range(2), repeat=n), probabilities.tolist(), strict=True):
            assert_frequent(sentences.count(string), len(sentences), p)


def assert_frequent(count, samples, p):
    """`count` is within five standard deviations of the expected one, or two for the rarest."""
    assert abs(count - samples * p) <= max(2, 5 * math.sqrt(samples * p * (1 - p)))


def sample(dense, samples, longest, draw):
    """Sentences of the grammar, top down, over the words of `dense`; None if one has more than `longest`.

    In a lexicalised grammar a symbol comes with its word. The rules of a PCFG are the same for every
    word, one stands for all, and the leaf draws.
    """
    root, rule, leaf = (dense.logp_root.exp()[0], dense.logp_rule.exp()[0], dense.logp_leaf.exp()[0])
    words, NT = root.shape
    lexicalised = bool((leaf == 1).all())
    if not lexicalised:
        words, root, rule = 1, root[:1], rule[:1, :1]
    pick_root = picker(root, draw)
    pick_rule = {(A, p): picker(rule[p, :, A], draw) for p in range(words) for A in range(NT)}
    pick_word = [None if lexicalised else picker(leaf[:, T], draw) for T in range(leaf.shape[1])]

    def sentence():
        p, A = pick_root()
        stack, done = [(A, p)], []  # the leftmost symbol last
        while stack and len(done) + len(stack) <= longest:
            symbol, p = stack.pop()
            if symbol < NT:
                q, D, B, C = pick_rule[symbol, p]()
                stack += [(C, q), (B, p)] if D == LEFT else [(B, p), (C, q)]
            else:
                done.append(p if lexicalised else pick_word[symbol - NT]()[0])
        return None if stack else tuple(done)

    return [sentence() for _ in range(samples)]


def picker(probabilities, draw):
    """A function that draws an index of the table `probabilities`."""
    torch.testing.assert_close(probabilities.sum(), torch.ones((), dtype=torch.float64))
    indices = list(itertools.product(*map(range, probabilities.shape)))
    cumulative = probabilities.flatten().cumsum(0).tolist()
    return lambda: draw.choices(indices, cum_weights=cumulative)[0]


@each_model
@pytest.mark.parametrize("decoder", ["mbr", "cyk"])
def test_parse_gives_a_binary_tree(name, settings, decoder):
    model = tiny(name, settings).eval()
    parses = model.parse(torch.tensor([[5, 0, 2, 2], [1, 4, 3, 0]]), torch.tensor([4, 3]), decoder=decoder)
    assert [len(parse.spans) for parse in parses] == [3, 2]
    for parse, length in zip(parses, (4, 3), strict=True):
        assert (0, length) in {span[:2] for span in parse.spans}
        assert (parse.heads is None) == (name in ("npcfg", "cpcfg", "tnpcfg"))
        assert parse.heads is None or sorted(parse.heads)[0] == 0


# ---------------------------------------------------------------- randomness


@each_model
def test_a_seed_gives_the_same_parameters(name, settings):
    first, again, other = (list(tiny(name, settings, seed=seed).parameters()) for seed in (3, 3, 4))
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(first, other, strict=True))


@compound_models
def test_z_is_drawn_from_the_models_generator(name, settings):
    model = tiny(name, settings)
    words, lengths = torch.tensor([[5, 0, 2], [1, 4, 3]]), torch.tensor([3, 3])
    draws = []
    for seed in (7, 7, 8):
        model.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(len(draws))  # the global generator plays no part
        draws.append(model.log_likelihood(words, lengths))
    assert torch.equal(draws[0], draws[1])
    assert not torch.isclose(draws[0], draws[2]).any()
    assert torch.equal(*(model.eval().log_likelihood(words, lengths) for _ in range(2)))


@compound_models
def test_training_estimates_a_bound_of_the_likelihood(name, settings):
    """log p(w) by importance sampling from the prior; the mean of the bound lies below it."""
    model = tiny(name, settings, spread=1.5)
    model.generator = torch.Generator().manual_seed(0)
    words, lengths = torch.tensor([[5, 0]]).expand(1000, -1), torch.full((1000,), 2)
    with torch.no_grad():
        bound = model.log_likelihood(words, lengths)
        z = torch.randn(1000, 3, generator=model.generator, dtype=torch.float64)
        log_p = naive.inside(model.rules_given(words, z).dense(), lengths)
    log_p_w = log_p.logsumexp(0) - math.log(1000)
    assert bound.std() > 0
    assert bound.mean() < log_p_w + 5 * (bound.std() + log_p.std()) / math.sqrt(1000)
    assert bound.mean() > log_p_w - 5


def test_matrices_begin_xavier_uniform():
    """Biases keep torch's default, and the TN-PCFG all of it."""
    for name in ("npcfg", "cpcfg", "nlpcfg", "nblpcfg"):
        torch.manual_seed(0)
        for key, parameter in models.build(name, 500, NT=5).named_parameters():
            if parameter.dim() > 1:
                bound = math.sqrt(6 / sum(parameter.shape))
                assert 0.95 * bound < parameter.abs().max() <= bound, key
                if parameter.numel() >= 2000:
                    assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05), key
    torch.manual_seed(0)
    model = models.build("tnpcfg", 500)
    assert model.u_X.std().item() == pytest.approx(1, rel=0.01)
    assert model.u_X.abs().max() > 3
    for layer in (model.p_w_T.output, model.p_w_T.query.W, model.p_R_A[0]):
        assert layer.weight.std().item() == pytest.approx(256**-0.5 / math.sqrt(3), rel=0.02)
        assert 0.9 * 256**-0.5 < layer.bias.abs().max() <= 256**-0.5


# ---------------------------------------------------------------- devices


@each_model
def test_rules_need_no_values_on_the_host(name, settings):
    """On the meta device there are none; shapes and types are those of the real rules."""
    with torch.device("meta"):
        model = models.build(name, 6, **TINY, **settings)
    words, lengths = torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.tensor([3, 2])
    rules = model.rules(words.to("meta"), lengths.to("meta"))
    real = models.build(name, 6, **TINY, **settings).rules(words, lengths)
    assert [(x.shape, x.dtype) for x in rules] == [(x.shape, x.dtype) for x in real]
    sum(factor.sum() for factor in rules).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_words_that_occur_twice_are_computed_once_and_right():
    model = tiny("nblpcfg", {"d_H": 3})
    words = torch.tensor([[5, 0, 5], [0, 4, 0]])
    every_position = model.p_H_Aw(model.w_A, model.w_w[words][:, :, None])
    torch.testing.assert_close(model.rules(words).logp_H_Aw, every_position)
