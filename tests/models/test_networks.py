"""The networks of the neural grammars: every distribution a second time, vector by vector, from the parameters.

Only the order of a layer's inputs and outputs is the models' own: [A; w] or [w; A], D before the symbol or the word.
"""

import functools
import itertools
import math

import pytest
import torch
from tiny_models import BILEXICAL, COMPOUND, LATENT, TINY, tiny
from torch import nn

from nbl.inside import naive
from nbl.settings import BINDINGS

WORDS = torch.tensor([[4, 1, 4, 2], [0, 5, 2, 3]])  # the second sentence has three words and padding
LENGTHS = torch.tensor([4, 3])
NT, S, V = TINY["NT"], TINY["NT"] + TINY["PT"], 6

compound_models = pytest.mark.parametrize(("name", "settings"), COMPOUND)
each_binding = pytest.mark.parametrize("binding", BINDINGS)
assert_close = functools.partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- building blocks


def linear(layer, x):
    """W x + b, for one vector x."""
    return layer.weight @ x + layer.bias


def joined(layer, *parts):
    """W [x; y; ...] + b; this layer's matrix is stored as W^T."""
    return layer.weight.T @ torch.cat(parts) + layer.bias


def g(block, x):
    """g(x) = ReLU(V ReLU(U x)) + x."""
    return linear(block.V, linear(block.U, x).relu()).relu() + x


def h(network, *parts):
    """h(x) = g_1(g_2(W x)), x the concatenation of the parts."""
    return g(network.g[1], g(network.g[0], joined(network.W, *parts)))


def residual_softmax(p, *parts):
    """log p(y | x) = log softmax of a linear layer on h(x), for every y."""
    return linear(p.output, h(p.query, *parts)).log_softmax(0)


def at(words, logp):
    """From log p(w | x) for every word, [x, V], those of the sentences' words: [..., x]."""
    return logp[:, words].movedim(0, -1)


def stack(rows):
    return torch.stack(list(rows))


def assert_rules(ours, expected):
    """Each factor is the expected one; axes of size 1 stand for all sentences."""
    for factor, values in expected.items():
        value = getattr(ours, factor)
        value = value() if callable(value) else value
        assert_close(value.expand_as(values), values, msg=lambda text, factor=factor: f"{factor}: {text}")


# ---------------------------------------------------------------- inference network


def posterior(model, words, lengths):
    """Mean and log-variance of q(z|w): a bidirectional LSTM on each sentence alone, the maximum over its words."""
    ours = model.inference
    lstm = nn.LSTM(ours.w_w.shape[1], LATENT["h_dim"], bidirectional=True).double()
    parameters = dict(ours.forwards.named_parameters())
    parameters |= {f"{key}_reverse": value for key, value in ours.backwards.named_parameters()}
    means, log_variances = [], []
    for sentence, length in zip(words, lengths, strict=True):
        states, _ = torch.func.functional_call(lstm, parameters, ours.w_w[sentence[:length]])
        mean, log_variance = linear(ours.output, states.amax(0)).split(LATENT["z_dim"])
        means.append(mean)
        log_variances.append(log_variance)
    return stack(means), stack(log_variances)


def closed_form_KL(mean, log_variance):
    """KL(N(mean, diag(variance)) || N(0, I)) = -1/2 sum (log variance - mean^2 - variance + 1)."""
    return -0.5 * (log_variance - mean**2 - log_variance.exp() + 1).sum(1)


@compound_models
def test_inference_network_is_a_bidirectional_lstm_and_a_maximum(name, settings):
    """Of each sentence alone, whatever its padding."""
    model = tiny(name, settings, spread=2.0)
    words = torch.tensor([[4, 1, 4, 2, 0], [0, 5, 2, 3, 3], [1, 1, 5, 2, 4]])
    for lengths in (torch.tensor([4, 2, 5]), torch.tensor([5, 3, 3])):
        assert_close(model.inference(words, lengths), posterior(model, words, lengths))
        padded = words.masked_fill(torch.arange(5) >= lengths[:, None], 5)
        assert_close(model.inference(padded, lengths), posterior(model, words, lengths))
    assert_close(model.inference(words), posterior(model, words, torch.tensor([5, 5, 5])))


@compound_models
def test_z_in_training_has_the_mean_and_the_variance_of_the_posterior(name, settings):
    """(z - mean) / sqrt(variance) of many draws has mean 0 and covariance I; in evaluation z is the mean."""
    n = 20_000
    model = tiny(name, settings, spread=2.0)
    model.generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.inference.output.bias[LATENT["z_dim"] :] += torch.tensor([-3.0, 0.0, 3.0])  # variances far from 1
        mean, log_variance = posterior(model, WORDS[:1], LENGTHS[:1])
        z, _ = model.infer(WORDS[:1].expand(n, -1), LENGTHS[:1].expand(n))
        noise = (z - mean) / log_variance.exp().sqrt()
        zero, identity = torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
        torch.testing.assert_close(noise.mean(0), zero, rtol=0, atol=5 / math.sqrt(n))
        torch.testing.assert_close(noise.T @ noise / n, identity, rtol=0, atol=5 * math.sqrt(2 / n))
        z, _ = model.eval().infer(WORDS, LENGTHS)
        assert_close(z, posterior(model, WORDS, LENGTHS)[0])


@compound_models
@pytest.mark.parametrize("training", [True, False])
def test_compound_likelihood_is_that_given_z_minus_the_divergence(name, settings, training):
    """log p(w|z) - KL(q(z|w) || p(z)), with its gradient through z and through the divergence."""
    model = tiny(name, settings, spread=2.0).train(training)
    mean, log_variance = posterior(model, WORDS, LENGTHS)
    z = mean
    if training:
        generator = torch.Generator().manual_seed(7)
        noise = torch.randn(mean.shape, generator=generator, dtype=torch.float64)
        z = mean + log_variance.exp().sqrt() * noise
    expected = naive.inside(model.rules_given(WORDS, z).dense(), LENGTHS) - closed_form_KL(mean, log_variance)
    model.generator = torch.Generator().manual_seed(7)
    ours = model.log_likelihood(WORDS, LENGTHS)
    assert_close(ours, expected)
    inference = list(model.inference.parameters())
    weights = torch.tensor([1.0, -2.0], dtype=torch.float64)
    assert_close(*(torch.autograd.grad(value, inference, weights) for value in (ours, expected)))


def latent(model):
    """The z of each sentence in evaluation; empty without an inference network."""
    return posterior(model, WORDS, LENGTHS)[0] if model.inference else torch.zeros(len(WORDS), 0, dtype=torch.float64)


# ---------------------------------------------------------------- N-PCFG, C-PCFG, TN-PCFG


@pytest.mark.parametrize(("name", "settings"), [("npcfg", {}), ("cpcfg", LATENT)])
def test_networks_of_the_npcfg_and_the_cpcfg(name, settings):
    """p(A|S) and p(w|T) by residual networks, p(B, C|A) by one linear layer; z is beside every input."""
    model = tiny(name, settings, spread=2.0).eval()
    z = latent(model)
    expected = {
        "logp_A_S": stack(residual_softmax(model.p_A_S, model.u_S[0], z_b) for z_b in z),
        "logp_BC_A": stack(
            stack(joined(model.p_BC_A, u_A, z_b).log_softmax(0).view(S, S) for u_A in model.u_A) for z_b in z
        ),
        "logp_w_T": stack(
            at(sentence, stack(residual_softmax(model.p_w_T, u_T, z_b) for u_T in model.u_T))
            for sentence, z_b in zip(WORDS, z, strict=True)
        ),
    }
    assert_rules(model.rules(WORDS, LENGTHS), expected)


def test_networks_of_the_tnpcfg():
    """Each factor of the rules is Linear, ReLU, Linear on one table; p(R|A) sums over R, the others over symbols."""
    model = tiny("tnpcfg", {"rank": 4})

    def scores(network, symbols):
        return stack(linear(network[2], linear(network[0], u).relu()) for u in symbols)

    expected = {
        "logp_A_S": residual_softmax(model.p_A_S, model.u_S[0])[None],
        "logp_R_A": scores(model.p_R_A, model.u_X[:NT]).log_softmax(1),
        "logp_B_R": scores(model.p_B_R, model.u_X).log_softmax(0).T,
        "logp_C_R": scores(model.p_C_R, model.u_X).log_softmax(0).T,
        "logp_w_T": at(WORDS, stack(residual_softmax(model.p_w_T, u_T) for u_T in model.u_T)),
    }
    assert_rules(model.rules(WORDS), expected)


# ---------------------------------------------------------------- NL-PCFG


@pytest.mark.parametrize("compound", [False, True])
def test_networks_of_the_nlpcfg(compound):
    """p(B, D|A, w) by one residual block, p(C|A, B, D, w) by one linear layer for each D; z is beside every input."""
    model = tiny("nlpcfg", {"compound": compound, **LATENT}, spread=2.0).eval()
    z = latent(model)

    def logp_BD(w, u_A, z_b):
        p = model.p_BD_Aw
        (block,) = p.query.g
        return linear(p.output, g(block, joined(p.query.W, w, u_A, z_b))).log_softmax(0).view(2, S)

    def logp_C(w, u_A, z_b):
        return stack(joined(of_D, w, u_A, z_b).view(S, S).log_softmax(1) for of_D in (model.C_left, model.C_right))

    def for_each(logp):
        """[b, p, A, ...]"""
        return stack(
            stack(stack(logp(model.w_w[w], u_A, z_b) for u_A in model.u_A) for w in sentence)
            for sentence, z_b in zip(WORDS, z, strict=True)
        )

    expected = {
        "logp_A_S": stack(residual_softmax(model.p_A_S, model.u_S[0], z_b) for z_b in z),
        "logp_w_X": stack(
            at(sentence, stack(residual_softmax(model.p_w_X, u_X, z_b) for u_X in model.u_X))
            for sentence, z_b in zip(WORDS, z, strict=True)
        ),
        "logp_BD_Aw": for_each(logp_BD),
        "logp_BCD_Aw": for_each(logp_BD)[..., None] + for_each(logp_C),
    }
    assert_rules(model.rules(WORDS, LENGTHS), expected)


# ---------------------------------------------------------------- NBL-PCFG


def bilexical(binding, parameterisation):
    settings = {"d_H": 4, "binding": binding, "parameterisation": parameterisation}
    return tiny("nblpcfg", settings, spread=2.0)


def bound(binding, logits_B, logits_C, logits_w, logits_D):
    """The factors given H from their logits, [H, D x outcome]: D is in the softmax of what it is bound to.

    D alone is a factor of p(C, D|H) = p(C|H) p(D|H).
    """
    D_B, D_C, D_w = (2 if binding == factor else 1 for factor in ("D-B", "D-C", "D-wq"))
    logp_B, logp_C, logp_w = (
        logits.log_softmax(1).view(len(logits), D, size)
        for logits, D, size in ((logits_B, D_B, S), (logits_C, D_C, S), (logits_w, D_w, V))
    )
    if binding == "D-alone":
        logp_C = logp_C + logits_D.log_softmax(1)[:, :, None]
    return {
        "logp_B_H": logp_B.transpose(0, 1),  # [D, H, B]
        "logp_C_H": logp_C.transpose(0, 1),
        "logp_w_H": logp_w[:, :, WORDS].permute(2, 3, 1, 0),  # [b, q, D, H]
    }


def for_each_parent(logp_H):
    """log p(H|A, w) for each word and each A, [b, p, A, H]."""
    return stack(stack(stack(logp_H(A, w) for A in range(NT)) for w in sentence) for sentence in WORDS)


@each_binding
def test_released_networks_of_the_nblpcfg(binding):
    """Networks see what is conditioned on; u_A is also what p(H|A, w) sees of A, through one residual block."""
    model = bilexical(binding, "released")

    def logp_H(A, w):
        f = model.p_H_Aw.query
        x = joined(f.W, model.u_A[A], model.w_w[w]).relu() + model.w_w[w]
        return linear(model.p_H_Aw.output, g(f.h, x)).log_softmax(0)

    logits_D = None
    if binding == "D-alone":
        logits_D = stack(linear(model.p_D_H.output, u_H) for u_H in model.u_HD)
    given_H = bound(
        binding,
        stack(linear(model.p_B_H.output, u_H) for u_H in model.u_HB),
        stack(linear(model.p_C_H.output, u_H) for u_H in model.u_HC),
        stack(linear(model.p_w_H.output, h(model.p_w_H.query, u_H)) for u_H in model.u_Hw),
        logits_D,
    )
    expected = {
        "logp_A_S": residual_softmax(model.p_A_S, model.u_S[0]),
        "logp_w_A": at(WORDS, stack(residual_softmax(model.p_w_A, u_A) for u_A in model.u_A)),
        "logp_H_Aw": for_each_parent(logp_H),
    }
    assert_rules(model.rules(WORDS), expected | given_H)


@each_binding
def test_networks_of_the_nblpcfg_in_the_appendix(binding):
    """Networks see what is generated, f([x; y]) = h(ReLU(W [x; y]) + y), and there is one u_H.

    With D bound to w_q there is one vector for each pair of a word and a direction.
    """
    model = bilexical(binding, "paper")
    u_H = model.u_HB

    def logp_H(A, w):
        f = model.p_H_Aw.query
        x = joined(f.W, model.w_A[A], model.w_w[w]).relu() + model.w_w[w]
        return (u_H @ h(f.h, x)).log_softmax(0)

    def scores(u, p, generated):
        """u^T h(w_y) for every u and every y that can be generated."""
        return u @ stack(h(p.key, w_y) for w_y in generated).T

    w_w = model.p_w_H.output.weight if binding == "D-wq" else model.w_w
    given_H = bound(
        binding,
        u_H @ model.p_B_H.output.weight.T,
        u_H @ model.p_C_H.output.weight.T,
        scores(u_H, model.p_w_H, w_w),
        u_H @ model.p_D_H.output.weight.T if binding == "D-alone" else None,
    )
    expected = {
        "logp_A_S": scores(model.u_S, model.p_A_S, model.w_A).log_softmax(1)[0],
        "logp_w_A": at(WORDS, scores(model.u_A, model.p_w_A, model.w_w).log_softmax(1)),
        "logp_H_Aw": for_each_parent(logp_H),
    }
    assert_rules(model.rules(WORDS), expected | given_H)


@pytest.mark.parametrize(("binding", "parameterisation"), BILEXICAL)
def test_which_tables_are_shared(binding, parameterisation):
    """Released: each factor has a u_H of its own, and w_A is u_A. Appendix: there is one u_H, and w_A is not u_A."""
    model = bilexical(binding, parameterisation)
    released = parameterisation == "released"
    u_H = [model.u_HB, model.u_HC, model.u_Hw] + ([model.u_HD] if binding == "D-alone" else [])
    shared = [x is y for x, y in itertools.combinations(u_H, 2)]
    assert not any(shared) if released else all(shared)
    assert (model.u_A is model.w_A) == released
    assert all(table.shape == (4, TINY["dim"]) for table in u_H)
