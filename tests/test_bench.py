"""The benchmark itself: it times in turns, refuses what is wrong, and adds up what it says."""

import csv

import pytest
import torch

from nbl.bench import decode, inside, step, summary
from nbl.bench.inside import IMPLEMENTATIONS, Case, Implementation, check, chosen, compare, feasible
from nbl.bench.measure import interleaved, peak_memory
from nbl.commands.bench import _csv
from nbl.errors import UserError
from nbl.inside import bilexical
from nbl.models import build


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda implementation: implementation.name)
def test_every_implementation_passes_the_check(implementation):
    check(implementation)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rules, lengths: bilexical.inside(rules, lengths) + 1e-6,
        lambda rules, lengths: bilexical.inside(rules, lengths) + _twist(rules),
    ],
    ids=["value", "gradient"],
)
def test_what_differs_from_the_definition_is_not_timed(wrong, monkeypatch):
    implementation = Implementation("wrong", "D-C", wrong)
    monkeypatch.setattr(inside, "IMPLEMENTATIONS", (implementation,))
    with pytest.raises(UserError, match="wrong differs from the naive inside algorithm"):
        chosen(["wrong"])


def test_without_a_kernel_nothing_is_called_native(monkeypatch):
    monkeypatch.setattr(inside.kernel, "load", lambda name, dtype: None)
    assert [implementation.name for implementation in chosen(["N", "NL, native", "NBL, native"])] == ["N"]


def test_single_precision_is_checked_too():
    def wrong(rules, lengths):
        log_p = bilexical.inside(rules, lengths)
        return log_p if log_p.dtype == torch.float64 else log_p * 1.01

    with pytest.raises(UserError, match="wrong differs"):
        check(Implementation("wrong", "D-C", wrong))


def _twist(rules):
    """Zero, with a gradient that is not."""
    total = rules.logp_C_H.sum()
    return 1e-6 * (total - total.detach())


def test_candidates_take_turns_and_the_first_round_does_not_count():
    calls, seconds = [], iter(range(1000))
    times = interleaved({name: lambda name=name: calls.append(name) for name in "ab"}, 3, clock=lambda: next(seconds))
    assert calls == ["a", "b"] * 4
    assert times["a"].rounds == 3
    assert times["a"].median == 1


def test_a_slow_candidate_sits_out_the_last_rounds():
    calls, now = [], iter(range(0, 100_000, 20))
    interleaved({name: lambda name=name: calls.append(name) for name in "ab"}, 5, clock=lambda: next(now))
    assert calls == ["a", "b"] * 2  # 20 seconds each: one round to warm up, one that counts


def test_peak_memory_sees_what_is_freed_again():
    megabytes = peak_memory(lambda: torch.ones(50 * 2**18).sum().item())
    if megabytes is None:
        pytest.skip("this system does not tell")
    assert 45 < megabytes < 80


def test_a_comparison_of_inside_algorithms():
    implementations = chosen(iter(["naive", "N", "NBL, torch"]))
    rows = [row for l in (4, 12) for row in compare(implementations, Case(1, l, 2), rounds=2)]
    assert [row["implementation"] for row in rows] == ["naive", "NBL, torch", "N"] * 2
    assert not feasible(IMPLEMENTATIONS[0], Case(1, 12, 2))
    assert not feasible(IMPLEMENTATIONS[0], Case(8, 10, 2))  # a batch takes minutes, and nothing is learnt from it
    assert "median" not in rows[3]
    assert all(row["median"] > 0 for row in rows if row is not rows[3])
    assert list(csv.DictReader(_csv(rows).splitlines()))[3]["median"] == ""


def test_a_comparison_of_steps(monkeypatch):
    monkeypatch.setattr(step, "VOCABULARY", 50)
    monkeypatch.setattr(step, "LENGTHS", (3, 5))
    small = {"NBL-PCFG": ("nblpcfg", {"NT": 2, "d_H": 4, "dim": 8}), "N-PCFG": ("npcfg", {"NT": 2, "dim": 8})}
    monkeypatch.setattr(step, "MODELS", small)
    rows = step.compare(list(small), threads=1, rounds=2)
    facts = summary.summarise({"step": rows})
    assert facts["NBL step over its floor, 1 threads"] == pytest.approx(rows[0]["ms"] / rows[0]["floor_ms"])
    assert facts["N-PCFG step over NBL's, 1 threads"] == pytest.approx(rows[1]["ms"] / rows[0]["ms"])


def test_the_floor_counts_the_products_of_the_networks():
    model = build("nblpcfg", 10_001)
    words = step.sentences(20, seed=0)
    # 6 d_H dim V for p(w|H), the largest part, is 4.6 GFLOP; all of it is below 9
    assert 6 * 300 * 256 * 10_001 < step.neural_operations(model, words) < 9e9
    assert step.inside_operations(model, 8, 20) == pytest.approx(16 * step.inside_operations(model, 8, 10), rel=0.6)


def test_a_comparison_of_decoders(monkeypatch):
    monkeypatch.setattr(decode, "GRAMMARS", {"tiny": {"grammar": "D-C", "NT": 2, "PT": 2, "H": 3}})
    rows = [row for l in (3, 5) for row in decode.compare(["tiny"], l, rounds=1)]
    assert [(row["decoder"], row["l"]) for row in rows] == [("mbr", 3), ("cyk", 3), ("mbr", 5), ("cyk", 5)]


def test_growth_and_normalised_times():
    rows = [
        {
            "implementation": "NBL, native",
            "b": 8,
            "l": l,
            "m": 15,
            "median": l**3 / 1e6,
            "sgemm_gflops": 45.0,
            "peak_mb": 9.0,
        }
        for l in (10, 20, 40)
    ]
    facts = summary.summarise({"inside": rows})
    assert facts["NBL, native: exponent in l, batch 8, m = 15"] == pytest.approx(3)
    assert facts["NBL, native, batch 8, l = 20, m = 15: ms at 90 GFLOP/s"] == pytest.approx(4)
