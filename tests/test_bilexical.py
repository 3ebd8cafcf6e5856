"""The NBL-PCFG's inside algorithm: both implementations against the definition, every binding."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nbl.inside import bilexical, bilexical_torch, naive, native
from nbl.rules import BilexicalRules
from tests.random_rules import BINDINGS, count_rules, detached, random_rules

IMPLEMENTATIONS = ("torch", "native")


@pytest.fixture(params=IMPLEMENTATIONS, autouse=True)
def implementation(request, monkeypatch):
    """Every test runs with both implementations; an unwritten chart cell or result is NaN."""
    if request.param == "torch":
        monkeypatch.setattr(native, "available", lambda: False)
    elif not native.available():
        pytest.skip("no C++ compiler")
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns
    yield request.param
    torch.use_deterministic_algorithms(False)


def rules_and_lengths(binding, sizes, seed, scale=2.0):
    """Random rules of a batch with the given lengths, padded with large finite numbers."""
    lengths, NT, PT, H = sizes
    l = max(lengths)
    rules = random_rules(binding, len(lengths), l, NT, PT, H, seed, scale)
    lengths = torch.tensor(lengths)
    padding = torch.arange(l) >= lengths[:, None]
    padded = {
        "logp_w_A": rules.logp_w_A.masked_fill(padding[..., None], 1e4),
        "logp_H_Aw": rules.logp_H_Aw.masked_fill(padding[..., None, None], 1e4),
        "logp_w_H": rules.logp_w_H.masked_fill(padding[..., None, None], 1e4),
    }
    return rules._replace(**padded), lengths


def value_and_gradients(inside, rules, lengths, weights):
    rules = detached(rules)
    log_Z = inside(rules, lengths)
    return log_Z.detach(), torch.autograd.grad((log_Z * weights).sum(), rules)


SIZES = st.tuples(
    st.lists(st.integers(2, 6), min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4)
)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(BINDINGS), SIZES, st.integers(0, 2**31))
def test_values_and_gradients_are_those_of_the_definition(binding, sizes, seed):
    rules, lengths = rules_and_lengths(binding, sizes, seed)
    weights = torch.randn(len(lengths), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    log_Z, gradients = value_and_gradients(bilexical.inside, rules, lengths, weights)
    expected, expected_gradients = value_and_gradients(
        lambda rules, lengths: naive.inside(rules.dense(), lengths), rules, lengths, weights
    )
    torch.testing.assert_close(log_Z, expected, rtol=1e-9, atol=1e-9)
    for name, gradient, expected in zip(rules._fields, gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


