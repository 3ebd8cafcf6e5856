"""The benchmark itself: it times in turns, refuses what is wrong, and adds up what it says."""

import csv
import itertools
import json
import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tiny_runs import call
from torch.utils.flop_counter import FlopCounterMode

from nbl import families, native
from nbl.bench import against, decode, floor, inside, measure, step, summary
from nbl.bench.inside import IMPLEMENTATIONS, Case, Implementation, check, chosen, feasible, measure_case
from nbl.bench.measure import PRODUCTS, interleaved, peak_memory
from nbl.commands.bench import MEASUREMENTS, _cases, _csv
from nbl.errors import UserError
from nbl.families import decode as right_decode
from nbl.families import inside as right_inside
from nbl.models import build


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda implementation: implementation.name)
def test_every_implementation_passes_the_check(implementation):
    check(implementation)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rules, lengths: right_inside(rules, lengths) + 1e-6,
        lambda rules, lengths: right_inside(rules, lengths) + _twist(rules),
        lambda rules, lengths: right_inside(rules, lengths) + 1e-6 * (lengths > 5),
        lambda rules, lengths: right_inside(rules, lengths) + 0.1 * (lengths > 7),
    ],
    ids=["value", "gradient", "of more words", "of many words"],
)
def test_what_differs_from_the_definition_is_not_timed(wrong, monkeypatch):
    implementation = Implementation("wrong", "D-C", wrong)
    monkeypatch.setattr(inside, "IMPLEMENTATIONS", (*IMPLEMENTATIONS, implementation))
    with pytest.raises(UserError, match="wrong differs from the naive inside algorithm"):
        chosen(["wrong"])


def test_without_a_kernel_nothing_is_called_native(monkeypatch):
    monkeypatch.setattr(inside.native, "load", lambda name, dtype: None)
    assert [implementation.name for implementation in chosen(["N", "NL, native", "NBL, native"])] == ["N"]


def test_single_precision_is_checked_too():
    def wrong(rules, lengths):
        log_p = right_inside(rules, lengths)
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
    rows = [row for l in (4, 12) for row in measure_case(implementations, Case(1, l, 2), rounds=2)]
    assert [row["implementation"] for row in rows] == ["naive", "NBL, torch", "N"] * 2
    assert not feasible(IMPLEMENTATIONS[0], Case(1, 12, 2))
    assert not feasible(IMPLEMENTATIONS[0], Case(8, 10, 2))  # a batch takes minutes, and nothing is learnt from it
    assert "median" not in rows[3]
    assert all(row["median"] > 0 for row in rows if row is not rows[3])
    assert list(csv.DictReader(_csv(rows).splitlines()))[3]["median"] == ""


SMALL_STEPS = {
    "NBL-PCFG": ("nblpcfg", {"NT": 2, "d_H": 4, "dim": 8}),
    "C-PCFG": ("cpcfg", {"NT": 2, "dim": 8, "z_dim": 3, "h_dim": 4, "w_dim": 5}),
    "N-PCFG": ("npcfg", {"NT": 3, "dim": 8}),
    "TN-PCFG": ("tnpcfg", {"NT": 3, "dim": 8, "rank": 5}),
    "NL-PCFG": ("nlpcfg", {"NT": 3, "dim": 8}),
    "NL-PCFG, compound": ("nlpcfg", {"NT": 2, "dim": 8, "compound": True, "z_dim": 3, "h_dim": 4, "w_dim": 5}),
}


@pytest.fixture
def small_steps(monkeypatch):
    monkeypatch.setattr(step, "VOCABULARY", 50)
    monkeypatch.setattr(step, "LENGTHS", (3, 5))
    monkeypatch.setattr(step, "MODELS", SMALL_STEPS)


@pytest.mark.usefixtures("small_steps")
def test_a_comparison_of_steps():
    rows = step.measure_steps(list(SMALL_STEPS), threads=1, rounds=2)
    facts = summary.summarise({"step": rows})
    assert facts["NBL step over its floor, 1 threads"] == pytest.approx(rows[0]["ms"] / rows[0]["floor_ms"])
    assert facts["C-PCFG step over NBL's, 1 threads"] == pytest.approx(rows[1]["ms"] / rows[0]["ms"])
    assert facts["GFLOP/s by blas, 1 threads"] == rows[0]["blas_gflops"]
    for row, name in zip(rows, ["NBL", *list(SMALL_STEPS)[1:]], strict=True):
        assert facts[f"{name} step over its floor, 1 threads"] == row["floor_ratio"] == row["ms"] / row["floor_ms"]
        assert row["floor_ms"] > 1000 * row["gflop"] / max(row[f"{product}_gflops"] or 0 for product in PRODUCTS)
        assert all(row[f"ms_{part}"] > 0 for part in step.PARTS)
        assert row["peak_mb"] is None or row["peak_mb"] >= 0


@pytest.mark.parametrize("name", SMALL_STEPS)
@pytest.mark.usefixtures("small_steps")
def test_a_step_is_its_parts(name, monkeypatch):
    clock = itertools.accumulate(itertools.count())  # 0, 1, 3, 6, ...: the k-th pause is k seconds long
    monkeypatch.setattr(step, "time", SimpleNamespace(perf_counter=clock.__next__))
    kind, settings = SMALL_STEPS[name]
    timed = step.Step(build(kind, step.VOCABULARY, **settings))
    for _ in range(3):
        timed(step.sentences(4, seed=0))
    # Four parts and the pause between two steps: the k-th part takes k, k + 5 and k + 10 seconds. The first is dropped.
    assert timed.milliseconds() == {part: 1000 * (k + 7.5) for k, part in enumerate(step.PARTS, start=1)}


def test_the_memory_of_a_step_counts_its_gradients():
    timed, words = step.Step(build("npcfg", 100_000, NT=2, dim=128)), torch.zeros(2, 3, dtype=torch.long)
    timed(words)
    megabytes = timed.peak_mb(words)
    assert megabytes is None or megabytes > 45  # 100,000 x 128 floats are 49 MB


@pytest.mark.parametrize("name", step.MODELS)
def test_every_step_passes_the_check(name):
    step.check(name)


def _without_KL(self, words, lengths, inside=step.inside):
    return inside(self.model.rules(words, lengths), lengths)


def _without_root(self, words, lengths, inside=step.inside):
    """The right value, but the rule of the root has no gradient."""
    rules = self.model.rules(words, lengths)
    return inside(rules._replace(logp_A_S=rules.logp_A_S.detach()), lengths)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("name", "wrong"), [("C-PCFG", _without_KL), ("NBL-PCFG", _without_root)])
def test_a_step_that_is_not_that_of_training_is_not_timed(name, wrong, monkeypatch):
    monkeypatch.setattr(step.Step, "log_likelihood", wrong)
    with pytest.raises(UserError, match=f"the step of {name} differs from the naive inside algorithm"):
        next(MEASUREMENTS["step"](True, 1, 1))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-6), (torch.float32, 0.1)])
def test_a_step_with_a_wrong_inside_algorithm_is_not_timed(dtype, error, monkeypatch):
    right = families.log_Z

    def wrong(implementation, rules, lengths):
        log_p = right(implementation, rules, lengths)
        return log_p + error if log_p.dtype == dtype else log_p

    monkeypatch.setattr(families, "log_Z", wrong)
    with pytest.raises(UserError, match="NBL-PCFG differs from the naive inside algorithm"):
        next(MEASUREMENTS["step"](True, 1, 1))


def test_the_rate_of_the_machine_is_that_of_the_best_product_at_hand(monkeypatch):
    def missing(*arguments):
        raise RuntimeError("built without oneDNN")

    assert set(measure.products(8)) <= set(PRODUCTS)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", missing, raising=False)
    monkeypatch.setattr(native, "load", lambda name, dtype: None)
    assert list(measure.products(8)) == ["blas"]


@pytest.mark.parametrize("name", SMALL_STEPS)
def test_the_floor_counts_the_products_of_the_networks(name, monkeypatch):
    monkeypatch.setattr(native, "load", lambda name, dtype: None)  # torch counts only its own operators
    kind, settings = SMALL_STEPS[name]
    model = build(kind, 50, **settings).double().requires_grad_(False)  # in float32 it does not count an LSTM
    words = torch.arange(12).view(2, 6)
    with FlopCounterMode(display=False) as counter:
        rules = model.rules(words)
        _ = rules.logsum_C if kind == "nlpcfg" else None  # computed where it is needed
    # what could be left out: the logits of the words, which are among those of the vocabulary, ...
    outcomes = {"nblpcfg": lambda: len(model.u_A) + len(model.u_Hw), "nlpcfg": lambda: model.S}
    avoidable = words.numel() * 8 * outcomes.get(kind, lambda: len(model.u_T))()
    if getattr(model, "inference", None):
        avoidable += 2 * 2 * 4 * 4 * 4  # ... and the product of each LSTM with its first state, which is 0
    assert 2 * (floor.networks(model, words) + avoidable) == counter.get_total_flops()
    assert rules[-1].shape[:2] == words.shape


@pytest.mark.parametrize("name", ["NBL-PCFG", "NL-PCFG", "NL-PCFG, compound", "C-PCFG"])
def test_the_floor_counts_a_repeated_word_once(name):
    kind, settings = SMALL_STEPS[name]
    model, words = build(kind, 50, **settings), torch.arange(12).view(2, 6)
    in_both = torch.arange(6).expand(2, -1)
    assert floor.networks(model, in_both) < floor.networks(model, words)
    assert floor.networks(model, torch.zeros_like(words)) < floor.networks(model, in_both)


@pytest.mark.parametrize("l", [2, 3, 4, 7])
def test_the_floor_counts_the_products_of_the_charts(l):
    splits = [(i, k, j) for i, j in itertools.combinations(range(l + 1), 2) for k in range(i + 1, j)]
    for name, count in {"N-PCFG": _pcfg_products, "TN-PCFG": _rank_products, "NL-PCFG": _lexical_products}.items():
        kind, settings = SMALL_STEPS[name]
        assert floor.chart(build(kind, 50, **settings), l) == count(splits, NT=3, PT=6), name
    for binding, D in {"D-B": (2, 1, 1), "D-C": (1, 2, 1), "D-wq": (1, 1, 2), "D-alone": (1, 1, 1)}.items():
        model = build("nblpcfg", 50, NT=2, d_H=4, dim=8, binding=binding)
        assert floor.chart(model, l) == _bilexical_products(splits, 2, 4, *D), binding


def _pcfg_products(splits, NT, PT):
    products, first, last, pairs, summed = 0, set(), set(), set(), set()
    for i, k, j in splits:
        if j - i == 2:
            products += NT * PT
            pairs.add(i)
        elif k - i == 1 or j - k == 1:
            products += NT**2
            (first if k - i == 1 else last).add(k)
        else:
            products += NT**2
            summed.add((i, j))
    return products + NT * PT**2 * len(pairs) + NT**2 * PT * (len(first) + len(last)) + NT**3 * len(summed)


def _rank_products(splits, NT, PT, R=5):
    left, right = {(i, k) for i, k, _ in splits}, {(k, j) for _, k, j in splits}
    parts = sum(PT if end - start == 1 else NT for start, end in [*left, *right])
    return R * (len(splits) + NT * len({(i, j) for i, _, j in splits}) + parts)


def _headed(splits):
    """Span, head, direction, head child and other child."""
    for i, k, j in splits:
        for p in range(i, j):
            yield (i, j), p, p < k, *((i, k), (k, j))[:: 1 if p < k else -1]


def _lexical_products(splits, NT, PT):
    products, closed, summed, words = 0, set(), set(), set()
    for span, p, D, head, child in _headed(splits):
        closed.add((span, p))
        one_word = [end - start == 1 for start, end in (head, child)]
        products += NT * PT if all(one_word) else NT**2
        if one_word == [False, False]:
            summed.add((span, p, D))
        if one_word == [False, True]:
            words.add((p, child))
    return products + NT * len(closed) + NT**3 * len(summed) + NT**2 * PT * len(words)


def _bilexical_products(splits, NT, H, D_B, D_C, D_w):
    s, I, T, K, products = set(), set(), set(), set(), 0
    for span, p, D, head, child in _headed(splits):
        products += 1
        s.add((span, p))
        if head[1] - head[0] > 1:
            I.add((head, p, D_B == 2 and D))
        if child[1] - child[0] > 1:
            T |= {(child, q, D_w == 2 and D) for q in range(*child)}
            K.add((child, 2 in (D_C, D_w) and D))
    return H * (products + NT * (len(s) + len(I) + len(T) + len(K)))


def test_the_floor_is_products_and_passes_over_the_parameters():
    model = build("npcfg", 1000, NT=2, dim=8)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    words = torch.arange(6).view(2, 3)
    products = floor.networks(model, words) + 2 * floor.chart(model, 3)
    assert floor.gigaflop(model, [words, words]) == pytest.approx(6e-9 * products)
    assert floor.floor(model, 3.0, gflops=60.0, gigabytes=8.0) == pytest.approx(50 + 1000 * 8 * 4 * numbers / 8e9)


def _stand_in(folder, step_code):
    """A checkout of which the worker can import what it needs, with a step of its own."""
    files = {"__init__": "", "bench/__init__": "", "models/__init__": "build = print"}
    for name, code in (files | {"bench/step": step_code}).items():
        path = folder / "nbl" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return folder


@pytest.mark.usefixtures("small_steps")
def test_two_checkouts_are_compared_in_turns(tmp_path, monkeypatch):
    other, out = tmp_path / "other", tmp_path / "out"
    shutil.copytree(against.HERE / "nbl", other / "nbl", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(decode, "GRAMMARS", {"tiny": {"grammar": "D-C", "NT": 2, "PT": 2, "H": 3}})
    _, printed, err = call("bench", "--out", out, "--quick", "--rounds", 1, "--against", other, "--json")
    rows = json.loads(printed)["against"]
    assert err.endswith("measured: decoders of both checkouts, 30 words\n")
    steps = [("step", name, threads) for threads in (1, 2) for name in SMALL_STEPS]
    expected = [*steps, ("mbr", "tiny", 1), ("cyk", "tiny", 1)]
    assert [(row["work"], row["model"], row["threads"]) for row in rows] == expected
    assert all(row["ratio"] == row["ms_here"] / row["ms_there"] > 0 for row in rows)
    assert {row["commit_there"] for row in rows} == {"unknown"}
    assert [path.name for path in out.iterdir()] == ["against.csv"]  # a summary beside it is one of other parts
    assert len((out / "against.csv").read_text().splitlines()) == 1 + len(rows)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os._exit(7)", "cannot be timed: its process ended with exit code 7"),
        ("print('hello'); raise ValueError('too old\\nfor this')", "cannot be timed: ValueError: too old$"),
        ("__file__ = '/elsewhere/step.py'", "cannot be imported: /elsewhere/step.py is in its place"),
    ],
    ids=["dies", "fails", "is not imported"],
)
def test_a_checkout_that_does_not_start_is_named(code, message, tmp_path):
    with (
        pytest.raises(UserError, match=f"the code of {tmp_path} {message}"),
        against.Worker(_stand_in(tmp_path, code)) as worker,
    ):
        worker.start()
    assert worker.process.returncode is not None


def test_a_checkout_that_dies_at_work_is_named(tmp_path):
    """Also one that has died since."""
    code = "import os\nclass Step:\n def __init__(self, model): os._exit(7)"
    with against.Worker(_stand_in(tmp_path, code)) as worker:
        worker.start()
        for _ in range(2):
            with pytest.raises(UserError, match=f"{tmp_path} cannot be timed: its process ended with exit code 7"):
                worker.seconds(1, "step", ([[0]], "npcfg", 50, "{}"))


def test_an_interrupt_ends_the_other_process():
    with pytest.raises(KeyboardInterrupt), against.Worker(against.HERE) as worker:
        raise KeyboardInterrupt
    assert worker.process.returncode == -9


@pytest.mark.parametrize(
    ("options", "message"),
    [([], "{} is not a checkout of this project"), (["--part", "inside"], "leave out --part inside")],
)
def test_what_cannot_be_compared_is_refused(options, message, tmp_path):
    code, out, err = call("bench", "--against", tmp_path, *options)
    assert (code, out) == (2, "")
    assert message.format(tmp_path) in err


@pytest.mark.parametrize("name", decode.GRAMMARS)
def test_the_decoders_of_every_grammar_pass_the_check(name):
    decode.check(name)


def _without_root_word(rules, lengths, decoder):
    """CYK that forgets the emission of the root's word."""
    if decoder == "cyk":
        rules = rules._replace(logp_w_A=torch.zeros_like(rules.logp_w_A))
    return right_decode(rules, lengths, decoder)


def _legacy(rules, lengths, decoder):
    return right_decode(rules, lengths, f"{decoder}-legacy")


def _legacy_cyk(rules, lengths, decoder):
    """The same, but the log-probability is that of the tree it takes."""
    return right_decode(rules, lengths, "cyk-legacy" if decoder == "cyk" else decoder)


def _of_other_trees(wanted, rules, lengths, decoder):
    """A decoder with the right log-probabilities, but its trees come from other rules."""
    parses = right_decode(rules, lengths, decoder)
    if decoder != wanted:
        return parses
    others = right_decode(type(rules)(*(factor.flip(-1) for factor in rules)), lengths, decoder)
    return [replace(other, log_prob=parse.log_prob) for parse, other in zip(parses, others, strict=True)]


def _imprecise(rules, lengths, decoder):
    """CYK that is wrong in float32 alone, and only where there are many symbols."""
    wrong = rules.logp_A_S.dtype == torch.float32 and rules.logp_A_S.shape[-1] > 16
    return right_decode(rules, lengths, "mbr" if wrong else decoder)


def _wrong_for_more_words(rules, lengths, decoder):
    parses = right_decode(rules, lengths, decoder)
    return [replace(parse, log_prob=parse.log_prob - 1e-6 * (len(parse.spans) > 4)) for parse in parses]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (_wrong_for_more_words, "MBR of TN-PCFG 250/500 differs from the naive recursion"),
        (_without_root_word, "CYK of NBL-PCFG 15/30 differs from the best of all trees"),
        (_legacy_cyk, "CYK of NL-PCFG 10/20 differs from the best of all trees"),
        (
            lambda r, n, decoder: right_decode(r, n, f"{decoder}-legacy"),
            "MBR of NL-PCFG 10/20 differs from the best of all trees",
        ),
        (partial(_of_other_trees, "mbr"), "MBR of N-PCFG 30/60 differs from the best of all trees"),
        (partial(_of_other_trees, "cyk"), "CYK of N-PCFG 30/60 differs from the best of all trees"),
        (_imprecise, "CYK of NBL-PCFG 15/30 differs from itself in float64"),
    ],
    ids=["more words", "CYK, log p", "CYK, root", "MBR, heads", "MBR, spans", "CYK, tree", "float32"],
)
def test_a_wrong_decoder_is_not_timed(wrong, message, monkeypatch):
    name = message[7 : message.index(" differs")]
    monkeypatch.setattr(decode, "decode", wrong)
    monkeypatch.setattr(decode, "GRAMMARS", {name: decode.GRAMMARS[name]})
    with pytest.raises(UserError, match=f"{message} and is not timed"):
        next(MEASUREMENTS["decode"](True, 1, 1))


def test_a_comparison_of_decoders(monkeypatch):
    monkeypatch.setattr(decode, "GRAMMARS", {"tiny": {"grammar": "D-C", "NT": 2, "PT": 2, "H": 3}})
    rows = [row for l in (3, 5) for row in decode.measure_decoders(["tiny"], l, rounds=1)]
    assert [(row["decoder"], row["l"]) for row in rows] == [("mbr", 3), ("cyk", 3), ("mbr", 5), ("cyk", 5)]
    assert summary.summarise({"decode": rows}) == {
        "tiny: CYK over MBR, l = 3": rows[1]["median"] / rows[0]["median"],
        "tiny: CYK over MBR, l = 5": rows[3]["median"] / rows[2]["median"],
    }


def _measured(name, case, seconds, rate=90.0):
    return {"implementation": name, **case._asdict(), "median": seconds, "sgemm_gflops": rate, "peak_mb": 9.0}


def test_growth_and_normalised_times():
    rows = [
        _measured("NBL, native", Case(8, l, 15), l**3 / 1e6 * 45.0 / rate, rate)
        for l, rate in ((10, 45.0), (20, 90.0), (30, 60.0), (40, 30.0))  # the machine's rate drifts
    ]
    facts = summary.summarise({"inside": rows})
    assert facts["NBL, native: exponent in l, batch 8, m = 15"] == pytest.approx(3)
    assert facts["NBL, native, batch 8, l = 20, m = 15: ms at 90 GFLOP/s"] == pytest.approx(4)


@pytest.mark.parametrize(("b", "l"), [(1, 30), (8, 20)])
def test_growth_in_the_number_of_nonterminals(b, l):
    """The cases that are measured give its exponent for both batch sizes."""
    cases = [case for case in _cases(quick=False) if (case.b, case.l) == (b, l)]
    assert {case.m for case in cases} >= {5, 10, 15, 20, 30}
    rows = [_measured("N", case, case.m**1.5 / rate, rate) for rate, case in enumerate(cases, start=30)]
    rows.append(_measured("N", Case(b, 10, 15), 1.0))  # of another length
    assert summary.summarise({"inside": rows}) == {f"N: exponent in m, batch {b}, l = {l}": pytest.approx(1.5)}


def test_times_are_told_as_multiples_of_those_of_nbl():
    cases = [Case(1, 10, 10), Case(1, 30, 10), Case(8, 20, 5), Case(8, 20, 30)]
    native = [_measured("NBL, native", case, 1.0) for case in cases]
    others = [_measured("NBL, torch", case, 2.0 + number) for number, case in enumerate(cases)]
    others += [_measured("naive", cases[0], 7.0), {"implementation": "naive", **cases[1]._asdict()}]

    def multiples(rows):
        return {name: value for name, value in summary.summarise({"inside": rows}).items() if " over " in name}

    assert multiples(native + others) == {
        "NBL, torch over NBL, native, batch 1, l = 30, m = 10": 3.0,
        "NBL, torch over NBL, native, batch 8, l = 20, m = 30": 5.0,
        "naive over NBL, native, batch 1, l = 10, m = 10": 7.0,
    }
    assert multiples(others) == {"naive over NBL, torch, batch 1, l = 10, m = 10": 3.5}  # without a compiler
