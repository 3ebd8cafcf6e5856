"""The parts of the neural grammars against plain torch."""

from unittest import mock

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from nbl.models.layers import JoinedLinear
from nbl.native.networks import log_softmax_at
from nbl.rules import logsum_of_pairs


@settings(max_examples=30, deadline=None)
@given(
    *(st.integers(1, most) for most in (3, 4, 40, 6)),
    st.booleans(),
    st.sampled_from((1, 200, 2**19)),
    st.integers(0, 99),
)
def test_log_softmax_at_is_log_softmax_and_gather(g, r, V, n, with_bias, block, seed):
    generator = torch.Generator().manual_seed(seed)
    x, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((g, r, 3), (V, 3), (V,))
    )
    y = torch.randint(V, (g, n), generator=generator)  # with repetitions
    upstream = torch.randn(g, n, r, generator=generator, dtype=torch.float64)
    inputs = (x, weight, bias) if with_bias else (x, weight)
    with mock.patch("nbl.native.networks.BLOCK", block):  # one to three blocks
        ours = log_softmax_at(x, weight, bias if with_bias else None, y)
    logp = F.linear(x, weight, bias if with_bias else None).log_softmax(-1)
    expected = torch.stack([logp[k][:, y[k]].T for k in range(g)])
    torch.testing.assert_close(ours, expected)
    gradients = (torch.autograd.grad(value, inputs, upstream) for value in (ours, expected))
    torch.testing.assert_close(*gradients)


def test_log_softmax_at_passes_gradcheck_and_stands_large_logits():
    torch.manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, 4), (7, 4), (7,))
    )
    y = torch.tensor([[0, 6, 6], [2, 1, 0]])
    assert torch.autograd.gradcheck(log_softmax_at, (x, weight, bias, y))
    large = log_softmax_at(300 * x.float(), weight.float(), bias.float(), y)
    torch.testing.assert_close(large.double(), log_softmax_at(300 * x, weight, bias, y), rtol=1e-5, atol=1e-3)


def test_joined_linear_is_a_linear_layer_of_the_concatenation():
    torch.manual_seed(0)
    layer = JoinedLinear((4, 2, 0), 3)
    x, y, empty = torch.randn(5, 1, 4), torch.randn(6, 2), torch.randn(1, 0)
    joined = torch.cat([x.expand(5, 6, 4), y.expand(5, 6, 2)], -1)
    torch.testing.assert_close(layer(x, y, empty), joined @ layer.weight + layer.bias)


def test_logsum_of_the_nlpcfg_stands_large_logits():
    torch.manual_seed(0)
    word_C, parent_C = 15 * torch.randn(2, 3, 2, 5, 5), 15 * torch.randn(1, 4, 2, 5, 5)
    expected = (word_C[:, :, None] + parent_C[:, None]).double().logsumexp(-1)
    ours = logsum_of_pairs(word_C, parent_C).double()
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-4)
