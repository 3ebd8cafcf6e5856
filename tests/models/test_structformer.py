"""StructFormer against its definition, written with loops over positions."""

import itertools
import math

import pytest
import torch

from nbl import models
from nbl.models import structformer
from nbl.models.structformer import StructFormer

TINY = {"dim": 8, "layers": 2, "heads": 2, "convolutions": 2}


def tiny(seed: int = 0, vocab_size: int = 7) -> StructFormer:
    torch.manual_seed(seed)
    model = StructFormer(vocab_size, **TINY).double()
    with torch.no_grad():  # heights and distances that differ
        model.parser.height_out.weight.mul_(4)
        model.parser.distance_out.weight.mul_(4)
        model.parser.scale.copy_(torch.tensor([0.3, -0.2]))
    return model.eval()


def random_scores(l: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Distances, FAR after the last word, and heights."""
    draws = torch.Generator().manual_seed(seed)
    tau, delta = (2 * torch.randn(l, generator=draws, dtype=torch.float64) for _ in range(2))
    tau[-1] = structformer.FAR
    return tau.requires_grad_(), delta.requires_grad_()


# ---------------------------------------------------------------- definitions


def naive_margin(tau, delta):
    l, margin = len(tau), torch.zeros((), dtype=torch.float64)
    for i, j in itertools.combinations_with_replacement(range(l), 2):
        if (i, j) != (0, l - 1):
            highest = delta[i : j + 1].max()
            before = tau[i - 1] if i else torch.tensor(structformer.FAR, dtype=torch.float64)
            margin = torch.maximum(margin, torch.minimum((before - highest).relu(), (tau[j] - highest).relu()))
    return margin


def naive_edges(tau, delta, scale, i):
    """P(left edge | i) and P(right edge | i) as lists."""
    l = len(tau)

    def crosses(k):
        return torch.sigmoid((delta[i] - tau[k]) * scale)

    def least(gaps):
        return torch.stack([torch.ones((), dtype=torch.float64), *map(crosses, gaps)]).min()

    zero = torch.zeros((), dtype=torch.float64)
    left = [least(range(a, i)) - (least(range(a - 1, i)) if a else zero) if a <= i else zero for a in range(l)]
    right = [least(range(i, c)) - (least(range(i, c + 1)) if c < l - 1 else zero) if c >= i else zero for c in range(l)]
    return left, right


def naive_parents(tau, delta, scales):
    l, rows = len(tau), []
    for i in range(l):
        left, right = naive_edges(tau, delta, scales[0], i)
        row = [torch.zeros((), dtype=torch.float64) for _ in range(l)]
        for a in range(i + 1):
            for c in range(i, l):
                heads = (delta[a : c + 1] * scales[1]).softmax(0)
                for h in range(a, c + 1):
                    if h != i:
                        row[h] = row[h] + left[a] * right[c] * heads[h - a]
        rows.append(torch.stack(row))
    return torch.stack(rows)


def naive_encoder(model, words, hidden):
    """log p of the hidden words of one sentence, a word and a head at a time."""
    symbols = [model.mask if hide else word for word, hide in zip(words, hidden, strict=True)]
    D = model.parser(model.w_w[symbols][None]).D[0]
    x = model.w_w[symbols] + model.position[: len(words)]
    for layer in model.layers:
        width = x.shape[1] // layer.heads
        q, k, v = layer.qkv(layer.norm_attention(x)).chunk(3, -1)
        joined = []
        for i in range(len(words)):
            parts = []
            for m in range(layer.heads):
                one = slice(m * width, (m + 1) * width)
                up, down = layer.direction[m].softmax(0)
                total = torch.zeros(width, dtype=torch.float64)
                for j in range(len(words)):
                    weight = torch.sigmoid(q[i, one] @ k[j, one] / math.sqrt(width)) * (up * D[i, j] + down * D[j, i])
                    total = total + weight * v[j, one]
                parts.append(total)
            joined.append(torch.cat(parts))
        x = x + layer.out(torch.stack(joined))
        x = x + layer.down(torch.nn.functional.leaky_relu(layer.up(layer.norm_forward(x))))
    log_p = (model.norm(x) @ model.w_w[:-1].T + model.bias).log_softmax(-1)
    return sum(log_p[i, words[i]] for i in range(len(words)) if hidden[i])


# ---------------------------------------------------------------- values and gradients


def same_gradients(value, expected, inputs):
    """Equal values, and equal gradients of one random projection of them."""
    torch.testing.assert_close(value, expected)
    weights = torch.randn(value.shape, generator=torch.Generator().manual_seed(5), dtype=value.dtype)
    found, wanted = (torch.autograd.grad((x * weights).sum(), inputs, retain_graph=True) for x in (value, expected))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("l", [2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
def test_soft_structure_is_that_of_the_definition(l, seed):
    tau, delta = random_scores(l, seed)
    scales = torch.tensor([1.4, 0.7], dtype=torch.float64, requires_grad=True)
    calibrated = structformer.calibrate(tau[None], delta[None])
    expected = tau - naive_margin(tau, delta)
    torch.testing.assert_close(calibrated[0], expected)
    left, right = structformer.edges(calibrated, delta[None], scales[0])
    for i in range(l):
        one, other = naive_edges(expected, delta, scales[0], i)
        torch.testing.assert_close(left[0, i], torch.stack(one))
        torch.testing.assert_close(right[0, i], torch.stack(other))
    D = structformer.parents(left, right, delta[None] * scales[1])
    same_gradients(D[0], naive_parents(expected, delta, scales), (tau, delta, scales))


def test_edges_are_distributions_and_parents_are_at_most():
    tau, delta = random_scores(9, 4)
    left, right = structformer.edges(tau[None], delta[None], torch.tensor(1.0))
    D = structformer.parents(left, right, delta[None])
    for edge in (left, right):
        torch.testing.assert_close(edge.sum(2), torch.ones_like(edge[..., 0]))
        assert edge.min() >= 0
    assert D.min() >= 0
    assert D.sum(2).max() <= 1 + 1e-12


def test_far_apart_heights_stay_finite():
    """In single precision, far outside what exp can hold."""
    delta = torch.tensor([[0.0, 500.0, -500.0, 90.0]], requires_grad=True)
    tau = torch.tensor([[10.0, -300.0, 400.0, structformer.FAR]], requires_grad=True)
    left, right = structformer.edges(structformer.calibrate(tau, delta), delta, torch.tensor(1.0))
    D = structformer.parents(left, right, delta)
    D.square().sum().backward()
    assert D.isfinite().all()
    assert delta.grad.isfinite().all()
    assert tau.grad.isfinite().all()


def test_calibration_leaves_one_edge_below_each_constituents_highest_word():
    tau, delta = random_scores(6, 1)
    torch.testing.assert_close(
        naive_margin(tau - naive_margin(tau, delta), delta), torch.zeros((), dtype=torch.float64)
    )


def test_encoder_is_that_of_the_definition():
    model = tiny()
    words, hidden = [3, 1, 4, 1, 5], [True, False, False, True, False]
    value = model.log_p(torch.tensor([words]), torch.tensor([hidden]))[0]
    expected = naive_encoder(model, words, hidden)
    same_gradients(value, expected, tuple(model.parameters()))


# ---------------------------------------------------------------- the model


def test_size_is_the_published_one():
    """38,474,645 parameters are reported; the released output layer has a bias for the mask, too."""
    with torch.device("meta"):
        model = models.build("structformer", 10_000)
    assert sum(p.numel() for p in model.parameters()) == 38_474_644


def test_objective_predicts_each_word_once():
    model = tiny()
    words = torch.tensor([[3, 1, 4, 1, 5]])
    folds = [[i % 3 == k for i in range(5)] for k in range(3)]
    expected = sum(naive_encoder(model, words[0].tolist(), fold) for fold in folds)
    torch.testing.assert_close(model.objective(words, torch.tensor([5]))[0], expected)


def test_padding_and_batches_change_nothing():
    model = tiny()
    sentences = [[3, 1, 4, 1, 5], [2, 6], [0, 1, 2], [5, 5, 3, 2, 1]]
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    for padding in (0, 6):
        words = torch.tensor([sentence + [padding] * (7 - len(sentence)) for sentence in sentences])
        values, parses = model.objective(words, lengths), model.parse(words, lengths)
        for sentence, value, parse in zip(sentences, values, parses, strict=True):
            alone = torch.tensor([sentence]), torch.tensor([len(sentence)])
            torch.testing.assert_close(value, model.objective(*alone)[0])
            assert parse == model.parse(*alone)[0]


def test_training_estimate_is_unbiased_and_deterministic():
    model = tiny().train()
    model.drop = lambda x: x
    words, lengths = torch.tensor([[3, 1, 4]]).expand(400, 3), torch.full((400,), 3)
    model.generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        first = model.objective(words, lengths)
        expected = torch.zeros(())
        for hidden in itertools.product([True, False], repeat=3):
            share = math.prod(structformer.MASKED if hide else 1 - structformer.MASKED for hide in hidden)
            expected = expected + share * model.log_p(words[:1], torch.tensor([hidden]))[0] / structformer.MASKED
        model.generator.manual_seed(0)
        torch.testing.assert_close(model.objective(words, lengths), first, rtol=0, atol=0)
    assert abs(first.mean() - expected) < 4 * first.std() / 20


def test_hidden_words_are_words_of_the_sentence(monkeypatch):
    """No mask ever lies on padding, and about three words in ten are hidden."""
    model = tiny().train()
    model.generator = torch.Generator().manual_seed(0)
    seen = []
    monkeypatch.setattr(model, "log_p", lambda words, hidden: seen.append(hidden) or torch.zeros(len(words)).double())
    lengths = torch.arange(2, 42).repeat(10)
    model.objective(torch.zeros(400, 50, dtype=torch.long), lengths)
    assert sum(hidden.numel() for hidden in seen) == lengths.sum()
    assert sum(hidden.sum() for hidden in seen) / lengths.sum() == pytest.approx(0.3, abs=0.02)


def test_dropout_keeps_the_mean_and_follows_the_generator():
    model = tiny().train()
    model.generator = torch.Generator().manual_seed(3)
    x = torch.ones(101, 103, dtype=torch.float64)
    first = model.drop(x)
    assert (first == 0).double().mean() == pytest.approx(0.1, abs=0.01)
    assert first.mean() == pytest.approx(1, abs=0.01)
    model.generator.manual_seed(3)
    assert torch.equal(model.drop(x), first)
    assert model.eval().drop(x) is x


def test_every_parameter_has_a_gradient():
    model = tiny().train()
    model.generator = torch.Generator().manual_seed(0)
    words = torch.arange(28).view(4, 7) % 7
    model.objective(words, torch.full((4,), 7)).sum().backward()
    without = [key for key, parameter in model.named_parameters() if not parameter.grad.any()]
    assert without == []


def test_a_sentence_without_a_hidden_word_has_objective_zero():
    model = tiny()
    value = model.log_p(torch.tensor([[1, 2]]), torch.tensor([[False, False]]))
    value.sum().backward()
    assert value.tolist() == [0.0]


def test_tree_splits_at_the_largest_distance_and_the_root_is_the_highest_word():
    model = tiny(seed=2)
    words = torch.tensor([[3, 1, 4, 1, 5, 2]])
    parse = model.parse(words, torch.tensor([6]))[0]
    found = model.parser(model.w_w[words])
    tau, delta, D = (x[0] for x in found)

    def split(i, j):
        if j - i < 2:
            return []
        k = i + int(tau[i : j - 1].argmax()) + 1
        return [(i, j, None), *split(i, k), *split(k, j)]

    assert parse.spans == split(0, 6)
    assert parse.heads is not None
    assert parse.heads.index(0) == delta.argmax()
    assert parse.heads.count(0) == 1
    for i, head in enumerate(parse.heads):
        assert head in (0, int(D[i].argmax()) + 1)
        assert head != i + 1
