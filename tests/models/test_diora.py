"""S-DIORA against its definition, written with loops over spans and splits, and against all trees."""

import itertools

import pytest
import torch

from nbl.models import diora
from nbl.models.diora import SDIORA, Spans


def tiny(seed: int = 0, beam: int = 3, dim: int = 6) -> SDIORA:
    torch.manual_seed(seed)
    model = SDIORA(7, dim=dim, beam=beam, soft_epochs=5).double()
    with torch.no_grad():  # scores that differ, and biases
        for composition in (model.inside, model.outside):
            composition.S.mul_(3)
            for bias in (composition.B, composition.C):
                bias.copy_(torch.randn(dim))
    return model.eval()


# ---------------------------------------------------------------- definitions


def compose(f, x, y):
    hidden = torch.relu(x @ f.W_x + y @ f.W_y + f.B)
    return torch.relu(hidden @ f.W + f.C)


def leaves(model, words):
    return [diora.unit(torch.tanh(model.w_w[word] @ model.leaf + model.inside.B)) for word in words]


def naive_average(f, pairs):
    """The vector and the score of a span from its pairs of (vector, score)."""
    e = torch.stack([x @ f.S @ y + s_x + s_y for (x, s_x), (y, s_y) in pairs])
    p = e.softmax(0)
    vectors = torch.stack([compose(f, x, y) for (x, _), (y, _) in pairs])
    return diora.unit((p[:, None] * vectors).sum(0)), (p * e).sum()


def naive_beam(f, pairs, K):
    """The best K entries (vector, score, what it is made of) of a span from pairs of beams."""
    found = []
    for number, (of_x, of_y) in enumerate(pairs):
        for (k, (x, s_x, *_)), (m, (y, s_y, *_)) in itertools.product(enumerate(of_x), enumerate(of_y)):
            found.append((x @ f.S @ y + s_x + s_y, number, k, m, x, y))
    found.sort(key=lambda one: -one[0].item())
    return [(diora.unit(compose(f, x, y)), e, (number, k, m)) for e, number, k, m, x, y in found[:K]]


def by_width(l, narrow_first):
    spans = sorted(itertools.combinations(range(l + 1), 2), key=lambda span: span[1] - span[0])
    return spans if narrow_first else spans[::-1]


def contexts(i, j, l):
    """(sibling, parent) of a span."""
    return [((j, m), (i, m)) for m in range(j + 1, l + 1)] + [((m, i), (m, j)) for m in range(i)]


def naive_soft(model, words):
    l, zero = len(words), torch.zeros((), dtype=torch.float64)
    inside = {(i, i + 1): (a, zero) for i, a in enumerate(leaves(model, words))}
    for i, j in by_width(l, narrow_first=True)[l:]:
        inside[i, j] = naive_average(model.inside, [(inside[i, k], inside[k, j]) for k in range(i + 1, j)])
    outside = {(0, l): (diora.unit(model.root), zero)}
    for i, j in by_width(l, narrow_first=False)[1:]:
        pairs = [(inside[sibling], outside[parent]) for sibling, parent in contexts(i, j, l)]
        outside[i, j] = naive_average(model.outside, pairs)
    return inside, outside


def naive_hard(model, words, K):
    l, zero = len(words), torch.zeros((), dtype=torch.float64)
    inside = {(i, i + 1): [(a, zero, None)] for i, a in enumerate(leaves(model, words))}
    for i, j in by_width(l, narrow_first=True)[l:]:
        inside[i, j] = naive_beam(model.inside, [(inside[i, k], inside[k, j]) for k in range(i + 1, j)], K)
    outside = {(0, l): [(diora.unit(model.root), zero, None)]}
    for i, j in by_width(l, narrow_first=False)[1:]:
        pairs = [(inside[sibling], outside[parent]) for sibling, parent in contexts(i, j, l)]
        outside[i, j] = naive_beam(model.outside, pairs, K)
    return inside, outside


def naive_tree(inside, i, j, entry=0):
    if j - i == 1:
        return []
    split, left, right = inside[i, j][entry][2]
    k = i + 1 + split
    return [(i, j, None), *naive_tree(inside, i, k, left), *naive_tree(inside, k, j, right)]


def log_p(model, vectors, words):
    return sum((model.p_w @ b).log_softmax(0)[word] for b, word in zip(vectors, words, strict=True))


def all_trees(model, words, i, j):
    """(vector, score, spans) of every binary tree of a span."""
    if j - i == 1:
        return [(leaves(model, words)[i], torch.zeros((), dtype=torch.float64), [])]
    found = []
    for k in range(i + 1, j):
        for (x, s_x, left), (y, s_y, right) in itertools.product(
            all_trees(model, words, i, k), all_trees(model, words, k, j)
        ):
            vector = diora.unit(compose(model.inside, x, y))
            found.append((vector, x @ model.inside.S @ y + s_x + s_y, [(i, j, None), *left, *right]))
    return found


def same_gradients(value, expected, model):
    torch.testing.assert_close(value, expected)
    names, parameters = zip(*model.named_parameters(), strict=True)
    found, wanted = (torch.autograd.grad(x, parameters, allow_unused=True) for x in (value, expected))
    for name, one, other in zip(names, found, wanted, strict=True):
        other = torch.zeros_like(one) if other is None else other
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


# ---------------------------------------------------------------- values and gradients


@pytest.mark.parametrize("words", [[3, 1], [3, 1, 4], [1, 5, 2, 6, 5], [0, 1, 2, 3, 4, 5, 6]])
def test_averaged_charts_are_those_of_the_definition(words):
    model = tiny()
    l, batch = len(words), torch.tensor([words, words[::-1]])
    a, s, _ = model.inside_chart(batch, 0)
    outside = model.outside_chart(a, s, batch, 0)
    for n, sentence in enumerate(batch.tolist()):
        naive_inside, naive_outside = naive_soft(model, sentence)
        for (i, j), (vector, score) in naive_inside.items():
            torch.testing.assert_close(a[Spans(l).number(i, j), n], vector)
            torch.testing.assert_close(s[Spans(l).number(i, j), n], score)
        for i in range(l):
            torch.testing.assert_close(outside[i, n], naive_outside[i, i + 1][0])


@pytest.mark.parametrize("words", [[3, 1], [3, 1, 4], [1, 5, 2, 6, 5]])
def test_averaged_objective_has_the_gradient_of_the_definition(words):
    model = tiny().train()
    model.begin_epoch(1)
    value = model.objective(torch.tensor([words]), torch.tensor([len(words)]))[0]
    _, outside = naive_soft(model, words)
    same_gradients(value, log_p(model, [outside[i, i + 1][0] for i in range(len(words))], words), model)


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("words", [[3, 1], [3, 1, 4], [1, 5, 2, 6, 5], [6, 5, 4, 0, 2, 1]])
def test_beam_objective_has_the_gradient_of_the_definition(words, K):
    model = tiny(beam=K).train()
    model.begin_epoch(model.soft_epochs + 1)
    l = len(words)
    value = model.objective(torch.tensor([words]), torch.tensor([l]))[0]
    inside, outside = naive_hard(model, words, K)
    expected = log_p(model, [outside[i, i + 1][0][0] for i in range(l)], words)
    if len(inside[0, l]) > 1:
        expected = expected - l * torch.relu(1 + inside[0, l][1][1] - inside[0, l][0][1])
    same_gradients(value, expected, model)


def test_evaluation_has_no_margin_and_the_published_beam():
    model, words = tiny(beam=3), [1, 5, 2, 6, 5]
    _, outside = naive_hard(model, words, diora.EVALUATION_BEAM)
    expected = log_p(model, [outside[i, i + 1][0][0] for i in range(5)], words)
    torch.testing.assert_close(model.objective(torch.tensor([words]), torch.tensor([5]))[0], expected)


# ---------------------------------------------------------------- trees


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("K", [1, 2])
def test_tree_is_that_of_the_best_entry(seed, K):
    model, words = tiny(seed, beam=K), [1, 5, 2, 6, 5, 3]
    inside, _ = naive_hard(model, words, K)
    assert model.parse(torch.tensor([words]), torch.tensor([6]))[0].spans == naive_tree(inside, 0, 6)


@pytest.mark.parametrize("seed", range(5))
def test_wide_beam_finds_the_best_of_all_trees(seed, monkeypatch):
    """42 trees of 6 words: a beam of 42 keeps them all."""
    monkeypatch.setattr(diora, "EVALUATION_BEAM", 42)
    model, words = tiny(seed, beam=42), [1, 5, 2, 6, 5, 3]
    trees = sorted(all_trees(model, words, 0, 6), key=lambda tree: -tree[1].item())
    assert len(trees) == 42
    assert model.parse(torch.tensor([words]), torch.tensor([6]))[0].spans == trees[0][2]
    _, s, _ = model.inside_chart(torch.tensor([words]), 42)
    torch.testing.assert_close(s[-42:], torch.stack([score for _, score, _ in trees]))


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize("soft", [True, False])
def test_padding_and_batches_change_nothing(soft):
    model = tiny().train()
    model.begin_epoch(1 if soft else 99)
    sentences = [[3, 1, 4, 1, 5], [2, 6], [0, 1, 2], [5, 5, 3, 2, 1]]
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    for padding in (0, 6):
        words = torch.tensor([sentence + [padding] * (7 - len(sentence)) for sentence in sentences])
        values, parses = model.objective(words, lengths), model.parse(words, lengths)
        for sentence, value, parse in zip(sentences, values, parses, strict=True):
            alone = torch.tensor([sentence]), torch.tensor([len(sentence)])
            torch.testing.assert_close(value, model.objective(*alone)[0])
            assert parse == model.parse(*alone)[0]


@pytest.mark.parametrize("soft", [True, False])
def test_every_parameter_has_a_gradient(soft):
    """But for the scores of the outside beam, which choose and are not otherwise used."""
    model = tiny(dim=32).train()
    model.begin_epoch(1 if soft else 99)
    words = torch.arange(28).view(4, 7) % 7
    model.objective(words, torch.full((4,), 7)).sum().backward()
    assert [key for key, parameter in model.named_parameters() if not parameter.grad.any()] == (
        [] if soft else ["outside.S"]
    )


def test_phases_follow_the_epochs():
    model = SDIORA(7, dim=4, beam=3, soft_epochs=2)
    phases = [(model.begin_epoch(epoch), model.soft) for epoch in (1, 2, 3, 4)]
    assert phases == [(False, True), (False, True), (True, False), (False, False)]


def test_word_vectors_are_those_of_the_neighbours():
    """Words that occur in the same places have the same vector; the decomposition is that of a dense matrix."""
    text = [[1, 2, 3], [1, 4, 3], [5, 2, 6], [5, 4, 6], [3, 1], [6, 5, 0]]
    torch.manual_seed(0)
    vectors = diora.word_vectors(text, 7, 9)
    assert vectors.shape == (7, 9)
    torch.testing.assert_close(vectors[2], vectors[4])
    torch.testing.assert_close(vectors.norm(dim=1), torch.full((7,), 3.0))
    counts = torch.zeros(7, 14)
    for sentence in text:
        for first, second in itertools.pairwise(sentence):
            counts[second, first] += 1
            counts[first, 7 + second] += 1
    expected = counts.sum(1, keepdim=True) * counts.sum(0, keepdim=True) / counts.sum()
    U, S, _ = torch.linalg.svd(torch.where(counts > 0, counts / expected, 1).log().relu(), full_matrices=False)
    wanted = 3 * torch.nn.functional.normalize(U * S.sqrt())
    torch.testing.assert_close(vectors @ vectors.T, wanted @ wanted.T, atol=1e-3, rtol=1e-3)


def test_word_vectors_come_from_the_text_and_stay_with_the_model():
    model = SDIORA(7, dim=4, beam=3, soft_epochs=2)
    before = model.w_w.clone()
    model.read_text([[1, 2, 3], [4, 5, 6, 0]])
    assert not torch.equal(model.w_w, before)
    assert torch.equal(model.state_dict()["w_w"], model.w_w)
    assert "w_w" not in dict(model.named_parameters())
