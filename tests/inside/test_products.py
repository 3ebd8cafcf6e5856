"""Large products, the softmax over the vocabulary and the LSTM: the native code against torch's."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from nbl import native
from nbl.models.layers import LSTM
from nbl.native import networks
from nbl.native.networks import log_softmax_at

SIZES = st.sampled_from((1, 2, 5, 7, 17, 33, 64, 97, 130))
LARGE = st.sampled_from((1, 3, 31, 32, 256, 257, 300, 513, 530))  # beyond a panel, its depth, a block of columns
TOLERANCE = {torch.float64: {"rtol": 1e-11, "atol": 1e-11}, torch.float32: {"rtol": 2e-5, "atol": 2e-5}}


@pytest.fixture(autouse=True)
def _native_and_unwritten_memory_is_nan(monkeypatch):
    if native.load("networks", torch.float64) is None:
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(networks, "SMALL", 0)
    torch.use_deterministic_algorithms(True)
    native.free_scratch.clear()
    yield
    torch.use_deterministic_algorithms(False)


def randn(*shape, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def with_gradients(value, inputs):
    upstream = randn(*value.shape, seed=99, dtype=value.dtype).detach()
    return value, *torch.autograd.grad(value, inputs, upstream)


def assert_same(found, expected, tolerance):
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, **tolerance)


@settings(max_examples=60, deadline=None)
@given(SIZES, LARGE, LARGE, st.sampled_from((torch.float64, torch.float32)), st.booleans())
def test_a_linear_layer_is_torchs(rows, width, out, dtype, with_bias):
    x, weight, bias = (
        randn(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(((rows, 2, width), (out, width), (out,)))
    )
    inputs = (x, weight, bias) if with_bias else (x, weight)
    ours = with_gradients(networks.linear(*inputs), inputs)
    theirs = with_gradients(F.linear(*(tensor.double() for tensor in inputs)).to(dtype), inputs)
    assert_same(ours, theirs, {name: value * width for name, value in TOLERANCE[dtype].items()})


def test_any_strides_are_multiplied():
    x, weight = randn(40, 70, seed=0), randn(50, 90, seed=1)
    expected = x.T[::2, 3:] @ weight.T[:37, ::3]
    torch.testing.assert_close(networks.matmul(x.T[::2, 3:], weight.T[:37, ::3]), expected)
    inputs = (x, weight)
    ours = with_gradients(networks.matmul(x.T[:, :40].T[:, :50], weight), inputs)
    assert_same(ours, with_gradients(x[:, :50] @ weight, inputs), TOLERANCE[torch.float64])


def test_small_products_and_other_types_are_torchs(monkeypatch):
    x, weight = torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(4, 3, dtype=torch.bfloat16)
    torch.testing.assert_close(networks.linear(x, weight), F.linear(x, weight))
    monkeypatch.setattr(networks, "SMALL", 10**9)
    monkeypatch.setattr(networks, "multiply", None)  # would be an error
    torch.testing.assert_close(networks.matmul(x.float(), weight.T.float()), (x @ weight.T).float())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    SIZES,
    st.sampled_from((1, 3, 16, 257)),
    st.sampled_from((1, 5, 192, 193, 500)),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from((1.0, 20.0)),
)
def test_the_softmax_is_torchs(g, rows, dim, V, n, with_bias, scale):
    x, weight, bias = (randn(*shape, seed=k) for k, shape in enumerate(((g, rows, dim), (V, dim), (V,))))
    x = (x.detach() * scale * dim**-0.5).requires_grad_()
    y = torch.randint(V, (g, n), generator=torch.Generator().manual_seed(5))
    inputs = (x, weight, bias) if with_bias else (x, weight)
    ours = with_gradients(log_softmax_at(x, weight, bias if with_bias else None, y), inputs)
    logp = F.linear(x, weight, bias if with_bias else None).log_softmax(-1)
    theirs = with_gradients(torch.stack([logp[k][:, y[k]].T for k in range(g)]), inputs)
    assert_same(ours, theirs, {"rtol": 1e-9, "atol": 1e-9})
    single = [tensor.detach().float().requires_grad_() for tensor in inputs]
    in_float = with_gradients(log_softmax_at(*single[:2], single[2] if with_bias else None, y), single)
    assert_same([tensor.double() for tensor in in_float], ours, {"rtol": 1e-4 * scale, "atol": 1e-4 * scale})


def test_a_peak_that_comes_late_and_one_that_is_far_above_are_exact():
    """Blocks before the largest logit of a row are brought to its scale."""
    x, weight = torch.ones(1, 40, 1), torch.zeros(1000, 1)
    weight[700], weight[999] = 50.0, 300.0
    y = torch.tensor([[0, 700, 999]])
    found = log_softmax_at(x, weight, None, y)
    torch.testing.assert_close(found[0, :, 7], torch.tensor([-300.0, -250.0, 0.0]))


def test_a_nan_is_not_hidden():
    x, weight = torch.zeros(1, 3, 2), torch.zeros(400, 2)
    weight[3] = torch.nan
    assert log_softmax_at(x, weight, None, torch.tensor([[399]])).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_do_not_depend_on_the_number_of_threads(dtype):
    x, weight, bias = (randn(*s, seed=k, dtype=dtype) for k, s in enumerate(((1, 300, 40), (2000, 40), (2000,))))
    y = torch.randint(2000, (1, 30))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            logp = log_softmax_at(x, weight, bias, y)
            layer = networks.linear(x, weight, bias)
            results.append((logp, layer, *torch.autograd.grad(layer.sum(), (x, weight))))
    finally:
        torch.set_num_threads(before)
    for others in results[1:]:
        for found, expected in zip(others, results[0], strict=True):
            assert torch.equal(found, expected)


def test_without_a_gradient_no_probabilities_are_kept():
    with torch.no_grad():
        x, weight = randn(1, 33, 8, seed=0), randn(500, 8, seed=1)
        y = torch.tensor([[3, 499]])
        found = log_softmax_at(x, weight, None, y)
    torch.testing.assert_close(found, F.linear(x, weight).log_softmax(-1)[..., [3, 499]].mT)
    assert networks.NATIVE_BLOCK < 500


@pytest.mark.parametrize(("b", "l", "width", "h"), [(1, 1, 3, 1), (3, 4, 5, 7), (8, 3, 17, 33), (2, 9, 300, 270)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-5)])
def test_the_lstm_is_torchs(b, l, width, h, dtype, tolerance):
    torch.manual_seed(0)
    layer = LSTM(width, h).to(dtype)
    x = 3 * randn(b, l, width, seed=0, dtype=dtype)
    inputs = (x, *layer.parameters())
    ours = with_gradients(layer(x), inputs)
    theirs = with_gradients(torch.nn.LSTM.forward(layer, x)[0], inputs)
    assert_same(ours, theirs, {"rtol": tolerance, "atol": tolerance})


def test_the_lstm_stands_gates_that_are_wide_open_or_shut():
    torch.manual_seed(0)
    layer, x = LSTM(4, 5), 1e4 * randn(2, 6, 4, seed=0, dtype=torch.float32)
    inputs = (x, *layer.parameters())
    ours = with_gradients(layer(x), inputs)
    assert_same(ours, with_gradients(torch.nn.LSTM.forward(layer, x)[0], inputs), {"rtol": 1e-5, "atol": 1e-5})


def test_the_lstm_is_exact_for_small_states():
    torch.manual_seed(0)
    layer = LSTM(4, 5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(1e-3)
    x = randn(2, 6, 4, seed=0, dtype=torch.float32)
    torch.testing.assert_close(layer(x), torch.nn.LSTM.forward(layer, x)[0], rtol=1e-5, atol=0)


def test_many_improbable_outcomes_are_not_lost():
    """Each is below the precision of the sum; together they are not."""
    x, weight, bias = torch.zeros(1, 3, 2), torch.zeros(10_001, 2), torch.full((10_001,), -16.9)
    bias[0] = 0.0
    y = torch.tensor([[0, 5]])
    expected = log_softmax_at(x.double(), weight.double(), bias.double(), y)
    torch.testing.assert_close(log_softmax_at(x, weight, bias, y).double(), expected, rtol=0, atol=2e-5)
