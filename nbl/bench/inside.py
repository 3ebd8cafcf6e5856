"""The paper's speed comparison: one forward and backward pass of every inside algorithm.

An implementation whose values or gradients differ from the naive recursion is not timed: it is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nbl import native
from nbl.bench.measure import interleaved, peak_memory, require_agreement, sgemm, sgemm_rate
from nbl.inside import bilexical, eisner_satta, lexical, naive, pcfg, rank
from nbl.testing import detached, random_rules, single

D_H = 300
MAX_DENSE = 2**27  # numbers; the rules of a grammar without factorisation soon fill any memory
MAX_NAIVE_LENGTH = 10
SHORT, LONG = (7, 4), (13, 8)  # what is checked: beyond the first widths, which kernels treat apart from the others


class Implementation(NamedTuple):
    """An inside algorithm and the kind of random grammar it is for."""

    name: str
    grammar: str
    inside: Callable[[Any, Tensor], Tensor]
    dense: bool = False  # takes the grammar without factorisation
    kernel: str | None = None  # the native kernel it needs


IMPLEMENTATIONS = (
    Implementation("naive", "D-C", naive.inside, dense=True),
    Implementation("Eisner-Satta", "D-C", eisner_satta.inside, dense=True),
    Implementation("NL, C1-1 cached", "lexical", lambda r, n: lexical.inside(r, n, cache="C1-1")),
    Implementation("NL, C1-2 cached", "lexical", lambda r, n: lexical.inside(r, n, cache="C1-2")),
    Implementation("NL, splits first", "lexical", lambda r, n: lexical.inside(r, n, allow_native=False)),
    Implementation("NL, native", "lexical", lambda r, n: lexical.inside(r, n), kernel="lexical"),
    Implementation("NBL, torch", "D-C", lambda r, n: bilexical.inside(r, n, allow_native=False)),
    Implementation("NBL, native", "D-C", lambda r, n: bilexical.inside(r, n), kernel="bilexical"),
    Implementation("N", "pcfg", lambda r, n: pcfg.inside(r, n, allow_native=False)),
    Implementation("N, native", "pcfg", lambda r, n: pcfg.inside(r, n), kernel="pcfg"),
    Implementation("TN", "rank", lambda r, n: rank.inside(r, n, allow_native=False)),
    Implementation("TN, native", "rank", lambda r, n: rank.inside(r, n), kernel="rank"),
)


class Case(NamedTuple):
    """One point of a comparison: m nonterminals and 2 m preterminals, b sentences of l words."""

    b: int
    l: int
    m: int


def feasible(implementation: Implementation, case: Case) -> bool:
    """Whether a case can be expected to fit in memory and to end."""
    if not implementation.dense:
        return True
    size = case.b * case.l**2 * case.m * 2 * (3 * case.m) ** 2
    return size <= MAX_DENSE and (implementation.name != "naive" or (case.l <= MAX_NAIVE_LENGTH and case.b == 1))


def check(implementation: Implementation) -> None:
    """Compare values and gradients with the naive recursion, in float64, for sentences of mixed lengths; and those in
    float32, which are timed and may be other code, where there are more words and symbols, with those of torch in
    float64."""
    grammar = implementation.grammar
    short = random_rules(grammar, b=2, l=SHORT[0], NT=2, PT=3, H=3, seed=0)
    naively = Implementation("naive", grammar, naive.inside, dense=True)
    _compare(_results(naively, short, SHORT), _results(implementation, short, SHORT), 1e-9, implementation)
    if implementation.dense:
        reference, lengths, sizes = implementation, SHORT, {"NT": 4, "PT": 5, "H": 6}
    else:
        reference = next(i for i in IMPLEMENTATIONS if i.grammar == grammar and not i.dense and not i.kernel)
        lengths, sizes = LONG, {"NT": 17, "PT": 18, "H": 120}
    rules = random_rules(grammar, b=2, l=lengths[0], seed=0, **sizes)
    right, found = _results(reference, rules, lengths), _results(implementation, single(rules), lengths)
    _compare(right, found, 1e-3, implementation)


def _results(implementation: Implementation, rules: Any, lengths: Sequence[int]) -> list[Tensor]:
    """log p of two sentences, and the gradients of a weighted sum of them."""
    rules = detached(rules)
    value = implementation.inside(rules.dense() if implementation.dense else rules, torch.tensor(lengths))
    return [value, *torch.autograd.grad(value @ value.new_tensor([1.0, -2.5]), rules, allow_unused=True)]


def _compare(right: list[Tensor], found: list[Tensor], tolerance: float, implementation: Implementation) -> None:
    require_agreement(implementation.name, "the naive inside algorithm", right, found, tolerance)


def task(implementation: Implementation, case: Case, seed: int = 0) -> Callable[[], None]:
    """A forward and backward pass over random rules, ready to be timed."""
    b, l, m = case
    H = 1 if implementation.dense else D_H  # summed out of rules that are not factorised
    rules = random_rules(implementation.grammar, b, l, NT=m, PT=2 * m, H=H, seed=seed, scale=1.0)
    if implementation.dense:
        rules = rules.dense()
    rules = detached(single(rules))
    lengths = torch.full((b,), l)

    def run() -> None:
        torch.autograd.grad(implementation.inside(rules, lengths).sum(), rules, allow_unused=True)

    return run


def chosen(names: Iterable[str]) -> list[Implementation]:
    """The implementations of these names that this machine has, each found right."""
    wanted = set(names)
    found = [
        implementation
        for implementation in IMPLEMENTATIONS
        if implementation.name in wanted
        and (implementation.kernel is None or native.load(implementation.kernel, torch.float32) is not None)
    ]
    for implementation in found:
        check(implementation)
    return found


def compare(implementations: Sequence[Implementation], case: Case, rounds: int) -> list[dict[str, Any]]:
    """Rows of one comparison: processor seconds (one thread), peak memory, the machine's rate beside them."""
    tasks: dict[str, Callable[[], object]] = {"sgemm": sgemm()}
    tasks |= {i.name: task(i, case) for i in implementations if feasible(i, case)}
    times = interleaved(tasks, rounds, clock=time.process_time)
    rate = sgemm_rate(times["sgemm"].median)
    rows = []
    for implementation in implementations:
        row: dict[str, Any] = {"implementation": implementation.name, **case._asdict()}
        if implementation.name in times:
            row |= times[implementation.name]._asdict()
            row |= {"peak_mb": peak_memory(tasks[implementation.name]), "sgemm_gflops": rate}
        rows.append(row)
    return rows
