"""What a GPU computes with, on a CPU: charts with O(l) launches, by torch's operators or Triton's interpreter."""

import json
import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec

os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nbl import families
from nbl.bench import selftest as selftest_module
from nbl.bench.launches import GRAMMARS, Launches, launches, with_kernels
from nbl.bench.selftest import selftest
from nbl.commands import bench as commands
from nbl.inside import log_Z, naive, posteriors
from nbl.inside.bilexical import gpu as bilexical_gpu
from nbl.inside.rank import gpu as rank_gpu
from nbl.models import build
from nbl.settings import BINDINGS
from nbl.testing import detached, random_rules, single

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed: pip install nbl[triton]"
)
EXACT = {"rtol": 1e-8, "atol": 1e-9}
with_torch = with_kernels(bilexical_gpu.TorchKernels)


@pytest.fixture(autouse=True)
def _unwritten_memory_is_nan():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def with_triton(monkeypatch):
    """In the interpreter, with tiles and blocks so small that small problems need several."""
    from triton.runtime import interpreter

    from nbl.inside.bilexical import triton as bilexical_triton

    options = interpreter.InterpreterOptions(sanitize_overflow=False)  # which takes most of the time
    monkeypatch.setattr(interpreter.interpreter_builder, "options", options)
    monkeypatch.setattr(bilexical_triton, "TILE", 2)
    monkeypatch.setattr(bilexical_triton, "BLOCK", 4)
    return with_kernels(bilexical_triton.TritonKernels)


def batch(binding, lengths, seed, scale=2.0, NT=3, PT=2, H=5):
    """Random rules with NaN beyond the end of each sentence, but for log-probabilities that must be numbers."""
    rules, lengths = random_rules(binding, len(lengths), max(lengths), NT, PT, H, seed, scale), torch.tensor(lengths)
    beyond = (torch.arange(max(lengths)) >= lengths[:, None])[..., None]
    return rules._replace(logp_w_A=rules.logp_w_A.masked_fill(beyond, 3.0)), lengths


def assert_is_the_definition(implementation, rules, lengths, **tolerance):
    """Values, gradients, posteriors of spans and arcs."""
    exact = detached(type(rules)(*(factor.double() for factor in rules)))
    own = detached(rules)
    found, wanted = log_Z(implementation, own, lengths), naive.inside(exact.dense(), lengths)
    torch.testing.assert_close(found.double(), wanted, **tolerance)
    weights = torch.linspace(1, -2, len(lengths), dtype=torch.float64)
    gradients = torch.autograd.grad((found * weights.to(found.dtype)).sum(), own)
    for name, gradient, right in zip(
        rules._fields, gradients, torch.autograd.grad((wanted * weights).sum(), exact), strict=True
    ):
        torch.testing.assert_close(gradient.double(), right, **tolerance, msg=lambda text, name=name: f"{name}: {text}")
    right = families.marginals(detached(exact), lengths, allow_native=False)
    for result, expected in zip(posteriors(implementation, rules, lengths), right, strict=True):
        torch.testing.assert_close(result.double(), expected, **tolerance)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(BINDINGS), st.lists(st.integers(2, 6), min_size=1, max_size=3), st.integers(1, 3),
    st.integers(1, 5), st.integers(0, 999), st.sampled_from([2.0, 20.0]),
)  # fmt: skip
def test_torch_kernels_are_the_definition(binding, lengths, NT, H, seed, scale):
    assert_is_the_definition(with_torch, *batch(binding, lengths, seed, scale, NT=NT, H=H), **EXACT)


@pytest.mark.parametrize(("l", "scale"), [(40, 2.0), (41, 20.0)])
def test_single_precision_and_long_sentences(l, scale):
    rules, lengths = batch("D-C", [l, 7], seed=3, scale=scale, NT=4, H=6)
    results = []
    for factors, algorithm in (
        (single(rules), partial(log_Z, with_torch)),
        (rules, partial(families.inside, allow_native=False)),
    ):
        factors = detached(factors)
        log_p = algorithm(factors, lengths)
        results.append((log_p.detach().double(), torch.autograd.grad(log_p.sum(), factors)))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-6, atol=0)
    for gradient, wanted in zip(results[0][1], results[1][1], strict=True):
        assert (gradient - wanted).abs().max() / wanted.abs().max() < 1e-4


def test_impossible_words_give_zeros():
    rules, lengths = batch("D-C", [4, 3], seed=13)
    never = torch.zeros(2, 4, 1, 5, dtype=torch.bool)
    never[1, :2] = True  # two words that can only be the root
    rules = detached(rules._replace(logp_w_H=rules.logp_w_H.masked_fill(never, -torch.inf)))
    log_p = log_Z(with_torch, rules, lengths)
    assert log_p[1] == -torch.inf
    gradients = torch.autograd.grad(log_p.sum(), rules)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_arcs_in_portions(monkeypatch):
    rules, lengths = batch("D-B", [6, 4], seed=5)
    whole = posteriors(with_torch, rules, lengths).arcs
    monkeypatch.setattr(bilexical_gpu, "PORTION", 1)
    torch.testing.assert_close(posteriors(with_torch, rules, lengths).arcs, whole, **EXACT)


def test_launches_grow_with_the_length_alone():
    ways = GRAMMARS["NBL-PCFG"][1]
    for l in (10, 20):
        assert launches(ways["GPU, torch"], "D-C", l).total <= 100 * (l - 1)
        if "GPU, Triton" in ways:
            assert launches(ways["GPU, Triton"], "D-C", l).total <= 25 * l


@needs_triton
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("binding", BINDINGS)
def test_triton_kernels_are_the_definition(with_triton, binding):
    assert_is_the_definition(with_triton, *batch(binding, [3, 2], seed=1, NT=3, H=3), **EXACT)


@needs_triton
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_triton_kernels_in_single_precision_with_sharp_rules(with_triton):
    rules, lengths = batch("D-C", [4], seed=2, scale=20.0, H=5)
    assert_is_the_definition(with_triton, single(rules), lengths, rtol=1e-4, atol=1e-4)


@needs_triton
def test_kernels_compile_for_real_gpus():
    """In a process of its own: here Triton interprets."""
    code = "import json; from nbl.bench.compiled import compile_all; print(json.dumps(compile_all()))"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    rows = json.loads(output.stdout)
    assert len({row["gpu"] for row in rows}) == 3
    assert all(row["spilled"] == 0 and row["shared"] <= 48 * 2**10 and row["occupancy"] >= 0.25 for row in rows), rows


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(2, 7), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 999), st.booleans())
def test_the_padded_chart_of_ranks_is_the_definition(lengths, NT, seed, sharp):
    rules = random_rules("rank", len(lengths), max(lengths), NT, 2, 5, seed, scale=20.0 if sharp else 2.0)
    lengths = torch.tensor(lengths)
    weights = torch.linspace(1, -2, len(lengths), dtype=torch.float64)
    results = []
    for algorithm in (
        lambda factors: log_Z(rank_gpu, factors, lengths),
        lambda factors: naive.inside(factors.dense(), lengths),
    ):
        factors = detached(rules)
        value = algorithm(factors)
        results.append([value, *torch.autograd.grad((value * weights).sum(), factors)])
    for found, right in zip(*results, strict=True):
        torch.testing.assert_close(found, right, **EXACT)
    found = posteriors(rank_gpu, rules, lengths)
    torch.testing.assert_close(found.spans, families.marginals(rules, lengths).spans, **EXACT)


def test_the_padded_chart_of_ranks_has_few_launches():
    assert launches(GRAMMARS["TN-PCFG"][1]["GPU, torch"], "rank", 20).total <= 40 * 19


# What torch.use_deterministic_algorithms documents for CUDA: operators it makes deterministic (`use_device` asks for
# that), and operators for which it has no deterministic kernel.
DETERMINISTIC_ON_REQUEST = {
    "index_add", "index_add_", "index_copy", "index_copy_", "index_put", "index_put_", "put_", "scatter", "scatter_",
    "scatter_add", "scatter_add_", "scatter_reduce", "repeat_interleave", "convolution", "cumsum",
}  # fmt: skip
NEVER_DETERMINISTIC = {
    "bincount", "histc", "kthvalue", "median", "grid_sampler_2d", "nll_loss2d_forward", "max_unpool2d",
    "adaptive_avg_pool2d", "_ctc_loss", "replication_pad1d", "reflection_pad1d", "upsample_linear1d", "resize_",
    "_embedding_bag_backward",
}  # fmt: skip
MODELS = {"npcfg": {}, "cpcfg": {}, "tnpcfg": {"rank": 6}, "nlpcfg": {}, "nblpcfg": {"d_H": 6}}


@pytest.mark.parametrize("name", MODELS)
def test_training_on_a_gpu_is_deterministic_and_never_waits(name):
    """The operators of a GPU's path, on torch's device without data: reading a value there would be an error."""
    model = build(name, 11, NT=3, PT=4, dim=8, **MODELS[name]).to("meta")
    words, lengths = torch.zeros(2, 5, dtype=torch.long, device="meta"), torch.zeros(2, dtype=torch.long, device="meta")
    with Launches() as counter:
        (-model.log_likelihood(words, lengths).mean()).backward()
    operators = set(counter.counts)
    assert not operators & NEVER_DETERMINISTIC
    assert operators & DETERMINISTIC_ON_REQUEST <= {"index_add_", "scatter_add"}


def test_the_selftest_passes_here():
    checks = list(selftest(torch.device("cpu")))
    assert all(check.passed for check in checks), [check for check in checks if not check.passed]
    assert {"values and gradients", "posteriors", "the same twice", "training twice"} <= {
        check.check for check in checks
    }


def test_a_wrong_result_fails_the_selftest(monkeypatch, capsys):
    monkeypatch.setattr(selftest_module, "inside", lambda rules, lengths: 1.01 * families.inside(rules, lengths))
    monkeypatch.setattr(selftest_module, "KINDS", ("pcfg",))
    monkeypatch.setattr(selftest_module, "TINY", {})
    with pytest.raises(SystemExit) as error:
        commands.selftest(device="cpu", as_json=True)
    assert error.value.code == 1
    assert not json.loads(capsys.readouterr().out)["checks"][0]["passed"]
