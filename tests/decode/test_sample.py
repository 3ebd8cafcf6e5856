"""What is drawn from a grammar, and what is said of it, against its trees one by one."""

import itertools
from collections import Counter

import pytest
import torch
from tiny_models import COMPOUND, LATENT, SIMPLE, tiny

from nbl import sampler
from nbl.corpus.folder import Vocabulary
from nbl.errors import UserError
from nbl.inside import naive
from nbl.rules import BilexicalRules, LexicalRules
from nbl.sampler import Derivation, grow, sample
from nbl.show import any_rules, describe, grammar_at, mean_rules, of_all_words, pieces

V = 2
WORDS = [str(number) for number in range(6)]
MODELS = [(name, given) for name, given in SIMPLE if given.get("parameterisation") != "paper"] + COMPOUND


def probabilities(rules_of, longest):
    """p of each (words, labelled spans, heads) of at most so many words, given that there are no more."""
    total = Counter()
    for l in range(2, longest + 1):
        for words in itertools.product(range(V), repeat=l):
            rules = rules_of(torch.tensor([words]))
            lexicalised = isinstance(rules, LexicalRules | BilexicalRules)
            dense = rules.dense()
            NT, PT = dense.logp_root.shape[2], dense.logp_leaf.shape[2]
            for tree in naive.trees(l, NT, PT):
                p = naive.tree_log_prob(tree, dense).exp().item()
                spans = tuple((n.i, n.j, f"NT{n.symbol}") for n in tree.subtrees() if n.child is not None)
                if p > 0:
                    total[words, tuple(sorted(spans)), tuple(tree.heads()) if lexicalised else None] += p
    mass = sum(total.values())
    return {tree: p / mass for tree, p in total.items()}


@pytest.mark.parametrize(("name", "settings"), MODELS)
def test_samples_have_the_frequencies_of_the_inside_algorithm(name, settings):
    n = 1500
    model = tiny(name, settings | {"NT": 1, "PT": 2}, vocab_size=V, spread=1.3)
    z = torch.tensor([[1.0, -1.0, 0.5]], dtype=torch.float64)
    rules_of = grammar_at(model, z if "z_dim" in settings else None)
    with torch.no_grad():
        expected = probabilities(rules_of, longest=3)
        choices = Derivation(rules_of, WORDS[:V], torch.Generator().manual_seed(1))
        drawn = iter(lambda: grow(choices, 3), 0)
        kept = itertools.islice((tree for tree in drawn if tree is not None), n)
        found = Counter(
            (tuple(map(int, tree.words)), tuple(sorted(tree.spans)), tree.heads and tuple(tree.heads)) for tree in kept
        )
    assert set(found) <= set(expected)
    # Pearson's statistic: of mean k and variance 2 k for k + 1 cells; the rare trees share one
    rare = {tree for tree, p in expected.items() if n * p < 5}
    cells = [(found[tree], n * p) for tree, p in expected.items() if tree not in rare]
    cells.append((sum(found[tree] for tree in rare), n * sum(expected[tree] for tree in rare)))
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells if mean > 0)
    assert len(cells) > 5
    assert statistic < len(cells) + 4 * (2 * len(cells)) ** 0.5


def test_prior_of_a_compound_model_is_drawn_from():
    model = tiny("cpcfg", LATENT, spread=3.0).eval()
    seen = []

    def rules_given(words, z):
        seen.append(z)
        return type(model).rules_given(model, words, z)

    model.rules_given = rules_given
    _, rejected = sample(model, WORDS, n=60, max_length=40)
    distinct = torch.cat(seen).unique(dim=0)
    assert len(distinct) >= 60 + rejected
    assert distinct.mean().abs() < 0.3
    assert 0.7 < distinct.std() < 1.3


@pytest.mark.parametrize(("name", "settings"), [*SIMPLE, *COMPOUND])
def test_samples_are_trees_of_the_length_allowed_and_the_same_for_a_seed(name, settings):
    model = tiny(name, settings)
    found, rejected = sample(model, WORDS, n=20, max_length=6, seed=3)
    assert sample(model, WORDS, n=20, max_length=6, seed=3) == (found, rejected)
    assert sample(model, WORDS, n=20, max_length=6, seed=4) != (found, rejected)
    assert rejected > 0
    for tree in found:
        l, spans, heads = len(tree.words), tree.spans, tree.heads
        assert 2 <= l <= 6
        assert len(spans) == l - 1
        assert spans[0][:2] == (0, l)
        assert (heads is not None) == (name in ("nlpcfg", "nblpcfg"))
        if heads is not None:
            assert heads.count(0) == 1
            for i, j, _ in spans:  # one word of each constituent has its head outside
                assert sum(not i < heads[p] <= j for p in range(i, j)) == 1


def test_endless_grammar_is_given_up(monkeypatch):
    monkeypatch.setattr(sampler, "MAX_REJECTED", 5)
    monkeypatch.setattr(sampler, "grow", lambda choices, max_length: None)
    with pytest.raises(UserError, match="only 0 of 2 sentences were drawn, and 11 trees of more than 9 words"):
        sample(tiny("npcfg", {}), WORDS, n=2, max_length=9)


# --- a grammar as a whole


@pytest.mark.parametrize(("name", "settings"), [*SIMPLE, *COMPOUND])
@torch.no_grad()
def test_mean_rules_are_the_rules_of_all_words_in_proportion(name, settings, monkeypatch):
    monkeypatch.setattr("nbl.show.PIECE", 4)  # of 6 words
    rules_of = grammar_at(tiny(name, settings, spread=2.0))
    rules = rules_of(torch.arange(6)[None])
    p_rule = rules.dense().logp_rule[0].exp()  # p q A D B C
    if isinstance(rules, LexicalRules | BilexicalRules):
        NT = rules.logp_A_S.shape[-1]
        p_w = (rules.logp_w_X[0, :, :NT] if isinstance(rules, LexicalRules) else rules.logp_w_A[0]).exp()
        expected = torch.einsum("pa,pqadbc->adbc", p_w, p_rule)
    else:
        expected = p_rule[0, 0, :, :1]  # all words have the same rules, and D is LEFT
    found = torch.stack(list(mean_rules(rules_of, 6)))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum((1, 2, 3)), torch.ones(len(found), dtype=torch.float64))


def test_description_has_the_most_probable_first():
    model = tiny("nblpcfg", {"d_H": 3, "binding": "D-wq"}, spread=3.0)
    vocabulary = Vocabulary(["ant", "bee", "cow", "doe", "eel"])
    found = describe(model, vocabulary, top=5)
    rules_of = grammar_at(model)
    with torch.no_grad():
        p_w_A, p_w_H = of_all_words(rules_of, 6, "logp_w_A", "logp_w_H")
        p = list(mean_rules(rules_of, 6))
        root = any_rules(rules_of).logp_A_S.exp()
    order = p_w_A[:, 1].argsort(descending=True)[:5].tolist()
    assert [word for word, _ in found["words"]["NT1"]] == [vocabulary.words[k] for k in order]
    assert found["symbols"]["NT1"]["root"] == pytest.approx(root[1].item(), abs=1e-6)
    rules = describe(model, vocabulary, top=50)["symbols"]["NT0"]["rules"]  # all of them
    assert rules[:5] == found["symbols"]["NT0"]["rules"]
    assert [rule["p"] for rule in rules] == sorted((rule["p"] for rule in rules), reverse=True)
    assert len(rules) == 50
    number = {"NT0": 0, "NT1": 1, "T0": 2, "T1": 3, "T2": 4}
    for rule in rules:
        head, child = ("left", "right") if rule["head"] == "left" else ("right", "left")
        D = 0 if head == "left" else 1
        assert rule["p"] == pytest.approx(p[0][D, number[rule[head]], number[rule[child]]].item(), abs=1e-6)
    means = [H["mean"] for H in found["latent"].values()]
    assert means == sorted(means, reverse=True)
    assert sum(means) == pytest.approx(1, abs=1e-5)
    first = next(iter(found["latent"]))
    expected = p_w_H[:, :, int(first[1:])].sum(1)
    assert found["latent"][first]["words"][0][1] == pytest.approx(expected.max().item(), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "symbols"), [("npcfg", ["T0", "T1", "T2"]), ("nlpcfg", ["NT0", "NT1", "T0", "T1", "T2"])]
)
def test_words_are_those_of_the_symbols_that_emit_them(name, symbols):
    found = describe(tiny(name, {}), Vocabulary("abcde"), top=6)
    assert list(found["words"]) == symbols
    for words in found["words"].values():
        assert sum(p for _, p in words) == pytest.approx(1, abs=1e-5)
    assert all(rule["head"] is None for rule in found["symbols"]["NT0"]["rules"]) == (name == "npcfg")


def test_pieces_cover_the_vocabulary(monkeypatch):
    monkeypatch.setattr("nbl.show.PIECE", 4)
    seen = []
    list(pieces(lambda words: seen.append(words), 9))
    assert torch.cat(seen, 1).tolist() == [list(range(9))]
