"""Verdicts: the tests behind them, the rule, and what they say of results made to show or refute a claim."""

import json
import math
from itertools import permutations, product
from pathlib import Path

import pytest
import yaml
from fake_results import BLEXICAL, IMPLEMENTATIONS, SIZES, fake_params, write_results
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_ind_from_stats
from tiny_runs import call

from nbl.bench.summary import exponent
from nbl.matrix import Experiment
from nbl.paper.claims import Comparison, Verdict, band, check, check_claims, judge
from nbl.paper.published import PUBLISHED, Cell, read_published
from nbl.paper.results import Results
from nbl.paper.roles import Plan
from nbl.paper.statistics import Summary, permutation_test, sign_flip_test

REPRODUCED, NOT_REPRODUCED, CANNOT_TELL, NOT_RUN = Verdict
VALUES = st.lists(st.integers(-20, 20), min_size=1, max_size=4)


@given(VALUES, VALUES)
@settings(max_examples=50, deadline=None)
def test_the_permutation_test_is_exact(larger, smaller):
    """Against all orders of the values, each of which deals two groups."""
    orders = list(permutations([*larger, *smaller]))
    extreme = sum(sum(order[: len(larger)]) >= sum(larger) for order in orders)
    assert permutation_test(larger, smaller) == pytest.approx(extreme / len(orders))


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_the_sign_flip_test_is_exact(differences):
    choices = list(product((1, -1), repeat=len(differences)))
    extreme = sum(sum(s * d for s, d in zip(signs, differences, strict=True)) >= sum(differences) for signs in choices)
    assert sign_flip_test(differences) == pytest.approx(extreme / len(choices))


def test_large_samples_are_drawn_and_repeatable():
    low, high = [float(k) for k in range(30)], [float(k) + 30 for k in range(30)]
    assert permutation_test(high, low) == permutation_test(high, low) < 0.001
    assert sign_flip_test(high) < 0.001
    assert permutation_test(low, low) > 0.4


def test_four_seeds_decide_if_they_all_agree():
    assert sign_flip_test([1, 2, 3, 4]) == 1 / 16
    assert judge([Comparison(2.5, 1 / 16)]) == REPRODUCED
    assert judge([Comparison(2.5, 1 / 15)]) == CANNOT_TELL
    assert judge([Comparison(2.5, 0.01), Comparison(-0.1, 0.6, 0.4)]) == CANNOT_TELL
    assert judge([Comparison(None), Comparison(-2.5, 1, 1 / 16)]) == NOT_REPRODUCED
    assert judge([Comparison(2.5, 0.01), Comparison(None)]) == NOT_RUN
    assert judge([]) == NOT_RUN


def test_one_of_many_parts_is_refuted_by_chance():
    assert judge([Comparison(2.5, 0.01), Comparison(-2.5, 1, 1 / 16)]) == CANNOT_TELL
    assert judge([Comparison(2.5, 0.01), Comparison(-2.5, 1, 1 / 32)]) == NOT_REPRODUCED


def test_exponents_have_an_error():
    slope, error = exponent([10, 20, 40, 80], [1.0, 9.0, 64.0, 512.0])
    assert slope == pytest.approx(3.0, abs=0.1)
    assert error > 0
    assert math.isnan(exponent([10, 20, 40], [1.0, 9.0, 64.0])[1])  # one degree of freedom tells nothing


def results_of(scores, corpus="toy", bench=None, NL=6):
    """Results from (run, decoder, metric) -> values of the seeds; runs are those named below. NL-PCFG has NL
    nonterminals; with 12 it is of the same share of its released size as NBL-PCFG."""
    runs = {
        "npcfg": ("npcfg", SIZES | {"NT": 12}),
        "cpcfg": ("cpcfg", SIZES | {"NT": 12}),
        "nlpcfg-compound": ("nlpcfg", SIZES | {"NT": 4, "compound": True}),
        "nlpcfg": ("nlpcfg", SIZES | {"NT": NL, "compound": False}),
        "nlpcfg-NT=10": ("nlpcfg", SIZES | {"NT": 10, "compound": False}),
        "nblpcfg": ("nblpcfg", BLEXICAL),
        "nblpcfg-NT=10": ("nblpcfg", BLEXICAL | {"NT": 10}),
        "nblpcfg-NT=30": ("nblpcfg", BLEXICAL | {"NT": 30}),
        "nblpcfg-d_H=5": ("nblpcfg", BLEXICAL | {"d_H": 5}),
        "nblpcfg-d_H=60": ("nblpcfg", BLEXICAL | {"d_H": 60}),
        **{f"nblpcfg-{b}": ("nblpcfg", BLEXICAL | {"binding": b}) for b in ("D-alone", "D-wq", "D-B")},
    }
    found: dict = {}
    for (run, decoder, metric), values in scores.items():
        found.setdefault((run, decoder), {})[metric] = dict(enumerate(values))
    named = {run for run, _, _ in scores}
    experiments = {run: Experiment(run, *runs[run], (0, 1, 2, 3), ("cyk", "mbr")) for run in runs if run in named}
    return Results(corpus, Path("nowhere"), Plan(experiments), found, {}, bench or [])


def verdicts(results) -> dict[str, str]:
    return {entry.key: entry.verdict for entry in check_claims(results)}


def speed_verdicts(bench=None) -> dict[str, str]:
    keys = ("nbl-fastest-m", "nbl-fastest-l", "c-two-faster-m", "growth-in-m")
    found = verdicts(results_of({}, bench=bench))
    return {key: found[key] for key in keys}


LOW, MIDDLE, HIGH = (10.0, 11.0, 12.0, 13.0), (11.5, 12.5, 12.0, 13.0), (20.0, 21.0, 22.0, 23.0)


@pytest.mark.parametrize(
    ("nbl", "nl", "expected"),
    [
        (HIGH, LOW, REPRODUCED),
        (LOW, HIGH, NOT_REPRODUCED),
        (MIDDLE, LOW, CANNOT_TELL),  # higher, but not clearly
        (LOW, MIDDLE, CANNOT_TELL),  # nor is lower
        (HIGH, (), NOT_RUN),
        (HIGH[:1], LOW[:1], CANNOT_TELL),  # one seed each decides nothing
        (LOW[:1], HIGH[:1], CANNOT_TELL),
    ],
)
def test_nbl_beats_nl(nbl, nl, expected):
    scores = {}
    for decoder in ("cyk", "mbr"):
        scores |= {("nblpcfg", decoder, "f1"): nbl, ("nlpcfg", decoder, "f1"): nl}
    found = verdicts(results_of(scores, NL=12))
    assert found["nbl-beats-nl-f1"] == expected
    assert found["nbl-best-f1"] == expected


def test_an_approximate_perplexity_neither_refutes_nor_is_ignored():
    for compound, expected in ((LOW, CANNOT_TELL), (HIGH, REPRODUCED)):
        scores = {("nblpcfg", "mbr", "perplexity"): MIDDLE, ("npcfg", "mbr", "perplexity"): HIGH}
        scores["cpcfg", "mbr", "perplexity"] = [value - 5 * (compound is LOW) for value in compound]
        (found,) = (entry for entry in check_claims(results_of(scores)) if entry.key == "nbl-best-perplexity")
        assert found.verdict == expected
        assert "C-PCFG (approximate)" in found.evidence


def test_compound_beats_nbl():
    for compound, expected in ((HIGH, REPRODUCED), (LOW, NOT_REPRODUCED)):
        scores = {("nlpcfg-compound", "cyk", "udas"): compound, ("nblpcfg", "cyk", "udas"): MIDDLE}
        if compound is LOW:
            scores["nblpcfg", "cyk", "udas"] = HIGH
        (found,) = (entry for entry in check_claims(results_of(scores)) if entry.key == "compound-beats-nbl-udas")
        assert (found.verdict, found.shown) == (expected, expected == REPRODUCED)


def test_lower_perplexity_is_better():
    scores = {("nblpcfg", "mbr", "perplexity"): LOW, ("nlpcfg", "mbr", "perplexity"): HIGH}
    assert verdicts(results_of(scores, NL=12))["nbl-beats-nl-perplexity"] == REPRODUCED


def test_decoders_are_compared_seed_by_seed():
    """A small gain of every seed counts, however much the seeds differ from each other."""
    spread = (10.0, 30.0, 50.0, 70.0)
    better = tuple(value + 0.5 for value in spread)
    scores = {("nblpcfg", "cyk", "f1"): spread, ("nblpcfg", "mbr", "f1"): better}
    assert verdicts(results_of(scores))["mbr-beats-cyk-f1"] == REPRODUCED
    scores = {("nblpcfg", "cyk", "f1"): better, ("nblpcfg", "mbr", "f1"): spread}
    assert verdicts(results_of(scores))["mbr-beats-cyk-f1"] == NOT_REPRODUCED


@pytest.mark.parametrize(
    ("small", "default", "large", "expected"),
    [
        (40.0, 20.0, 19.0, REPRODUCED),
        (40.0, 20.0, 12.0, NOT_REPRODUCED),  # goes on falling
        (40.0, 20.0, 80.0, NOT_REPRODUCED),  # rises again
        (20.0, 30.0, 30.0, NOT_REPRODUCED),
        (20.05, 20.0, 20.0, CANNOT_TELL),  # no clear gain before
    ],
)
def test_the_plateau_in_d_H(small, default, large, expected):
    runs = {"nblpcfg-d_H=5": small, "nblpcfg": default, "nblpcfg-d_H=60": large}
    noise = (-0.3, -0.1, 0.1, 0.3)
    scores = {(run, "mbr", "perplexity"): [value + n for n in noise] for run, value in runs.items()}
    assert verdicts(results_of(scores))["dh-plateau"] == expected


def test_nonterminals():
    scores = {
        ("nlpcfg", "mbr", "f1"): LOW,
        ("nlpcfg-NT=10", "mbr", "f1"): HIGH,
        ("nblpcfg", "mbr", "f1"): HIGH,
        ("nblpcfg-NT=10", "mbr", "f1"): HIGH,
    }
    found = verdicts(results_of(scores))
    assert found["nl-gains-f1"] == found["nbl-hardly-f1"] == REPRODUCED
    assert found["nl-gains-perplexity"] == found["nbl-hardly-perplexity"] == NOT_RUN
    scores["nblpcfg", "mbr", "f1"] = LOW
    assert verdicts(results_of(scores))["nbl-hardly-f1"] == NOT_REPRODUCED


def test_bindings():
    scores = {(f"nblpcfg-{b}", "mbr", m): LOW for b in ("D-alone", "D-wq", "D-B") for m in ("f1", "udas")}
    scores |= {("nblpcfg", "mbr", "f1"): HIGH, ("nblpcfg", "mbr", "udas"): HIGH}
    found = verdicts(results_of(scores))
    assert found["dc-best-f1"] == REPRODUCED
    assert found["dwq-best-udas"] == NOT_REPRODUCED
    assert found["db-lower-udas"] == CANNOT_TELL  # D-B and D-wq are equal
    assert found["dc-best-perplexity"] == NOT_RUN


def bench(times) -> list[dict]:
    """Rows with quartiles 5 % around the median, for l = 30 and growing m."""
    rows = [
        {"implementation": name, "b": 1, "l": 30, "m": m, "median": seconds(30, m), "sgemm_gflops": 90.0}
        for name, seconds in times.items()
        for m in (5, 10, 20, 30)
    ]
    return [row | {"low": row["median"] * 0.95, "high": row["median"] * 1.05} for row in rows]


def test_speed_claims():
    three = {name: IMPLEMENTATIONS[name] for name in ("NBL, torch", "NL, C1-1 cached", "NL, C1-2 cached")}
    found = speed_verdicts(bench(three))
    assert found["nbl-fastest-m"] == REPRODUCED
    assert found["growth-in-m"] == REPRODUCED
    assert found["c-two-faster-m"] == NOT_REPRODUCED
    swapped = three | {"NBL, torch": three["NL, C1-1 cached"], "NL, C1-1 cached": three["NBL, torch"]}
    found = speed_verdicts(bench(swapped))
    assert found["growth-in-m"] == found["nbl-fastest-m"] == NOT_REPRODUCED
    equal = dict.fromkeys(three, three["NBL, torch"])
    assert set(speed_verdicts(bench(equal)).values()) == {CANNOT_TELL}
    assert set(speed_verdicts().values()) == {NOT_RUN}
    small = [row for row in bench(three) if row["m"] <= 10]  # says nothing about many nonterminals
    assert speed_verdicts(small)["nbl-fastest-m"] == CANNOT_TELL


@pytest.mark.parametrize(
    ("corpus", "near", "far"),
    [
        ("wsj", REPRODUCED, NOT_REPRODUCED),
        ("open", "not comparable (within the band)", "not comparable (outside the band)"),
        ("toy", "not comparable", "not comparable"),
    ],
)
def test_cells(corpus, near, far):
    scores = {
        ("nblpcfg", "mbr", "f1"): (58.0, 60.0, 62.0, 60.0),  # 60.4 in the paper
        ("nblpcfg", "mbr", "udas"): (58.0, 60.0, 62.0, 60.0),  # 39.1
        ("nlpcfg", "cyk", "f1"): (53.3,),  # one seed: no spread, no verdict
    }
    results = results_of(scores, corpus)
    cells = check(results, read_published(PUBLISHED)).cells
    found = {(e.cell.table, e.cell.run, e.cell.decoder, e.cell.metric): e.verdict for e in cells}
    assert found["main_result", "nblpcfg", "mbr", "f1"] == near
    assert found["bindings", "nblpcfg", "mbr", "f1"] == near
    assert found["main_result", "nblpcfg", "mbr", "udas"] == far
    assert found["main_result", "nlpcfg", "cyk", "f1"] == CANNOT_TELL
    assert found["main_result", "nlpcfg", "mbr", "f1"] == NOT_RUN
    assert len(cells) == 70  # S-DIORA and StructFormer, four numbers, are no grammars of ours


def test_the_band():
    """Without the paper's rounding, a difference as large as the band has p = 0.05 by Welch's test."""
    ours = Summary((58.0, 62.0), 2)
    for std, theirs in ((2.0, 2.0), (None, ours.std)):  # where the paper has none, ours stands in for it
        width = band(ours, Cell("t", 1, "nblpcfg", "f1", 60.0, std=std), 4) - 0.05
        test = ttest_ind_from_stats(width, ours.std, ours.n, 0.0, theirs, 4, equal_var=False)
        assert test.pvalue == pytest.approx(0.05)
    assert band(Summary((60.0,), 4), Cell("t", 1, "nblpcfg", "f1", 60.0), 4) is None


def test_noise_reproduces_nothing():
    """The paper has 60.4 ± 1.6."""
    for values, expected in (
        ((60.0, 61.5, 58.0, 33.7), CANNOT_TELL),
        ((41.0, 80.0), CANNOT_TELL),
        ((59.0, 61.5, 58.0, 60.0), REPRODUCED),
        ((55.0, 54.0, 56.0, 55.5), NOT_REPRODUCED),
    ):
        results = results_of({("nblpcfg", "mbr", "f1"): values}, "wsj")
        cells = check(results, read_published(PUBLISHED)).cells
        wanted = ("main_result", "nblpcfg", "mbr", "f1")
        (found,) = (e for e in cells if (e.cell.table, e.cell.run, e.cell.decoder, e.cell.metric) == wanted)
        assert found.verdict == expected


def test_a_perplexity_on_open_is_of_another_text():
    results = results_of({("nblpcfg", "mbr", "perplexity"): (160.0, 161.0, 162.0, 163.0)}, "open")
    cells = check(results, read_published(PUBLISHED)).cells
    assert {e.verdict for e in cells if e.cell.metric == "perplexity" and e.ours.n} == {"not comparable"}


def test_a_smaller_rival_proves_nothing():
    """NBL-PCFG at its released size against an NL-PCFG below its own; the other way round it would."""
    runs = {"nlpcfg": SIZES | {"NT": 10, "compound": False}, "nblpcfg": BLEXICAL | {"NT": 15}}
    plan = Plan({run: Experiment(run, run, sizes, (0, 1, 2, 3), ("cyk", "mbr")) for run, sizes in runs.items()})
    for nbl, nl, expected in ((HIGH, LOW, CANNOT_TELL), (LOW, HIGH, NOT_REPRODUCED)):
        scores = {
            (run, decoder): {"f1": dict(enumerate(values))}
            for run, values in (("nblpcfg", nbl), ("nlpcfg", nl))
            for decoder in ("cyk", "mbr")
        }
        results = Results("sample", Path("nowhere"), plan, scores, {}, [])
        (found,) = (entry for entry in check_claims(results) if entry.key == "nbl-beats-nl-f1")
        assert found.verdict == expected
        assert "NL-PCFG has 10 nonterminals here, 30 in its release" in found.evidence


def test_grammars_are_compared_at_the_same_sizes():
    """More nonterminals than NL-PCFG has anywhere do not count for or against NBL-PCFG."""
    scores = {
        ("nlpcfg", "mbr", "f1"): LOW,
        ("nlpcfg-NT=10", "mbr", "f1"): HIGH,
        ("nblpcfg", "mbr", "f1"): LOW,
        ("nblpcfg-NT=10", "mbr", "f1"): LOW,
        ("nblpcfg-NT=30", "mbr", "f1"): HIGH,
    }
    assert verdicts(results_of(scores))["nbl-hardly-f1"] == REPRODUCED


def test_the_command_prints_and_writes_every_verdict(tmp_path):
    write_results(tmp_path / "results", seeds=(0, 1), runs=("npcfg", "nlpcfg", "nblpcfg"))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(fake_params()))
    arguments = ["check", "--corpus", "toy", "--results", tmp_path / "results", "--out", tmp_path / "out"]
    arguments += ["--params", tmp_path / "params.yaml", "--published", PUBLISHED]
    code, out, _ = call(*arguments)
    assert code == 0
    printed = " ".join(out.split())
    document = json.loads((tmp_path / "out" / "check.json").read_text())
    keys = [entry["key"] for entry in document["claims"]]
    assert len(keys) == len(set(keys)) > 30
    assert len(document["cells"]) == 70
    assert {entry["verdict"] for entry in document["claims"]} <= set(Verdict)
    counted = sum(entry["verdict"] == CANNOT_TELL for entry in document["claims"])
    assert f"{counted} cannot tell" in printed
    text = (tmp_path / "out" / "check.tex").read_text()
    assert text.count("cannot tell") >= counted
