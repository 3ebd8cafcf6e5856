"""The paper's speed comparison: one forward and backward pass of every inside algorithm.

An implementation whose values or gradients differ from the naive recursion is not timed: it is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nbl import native
from nbl.bench.measure import interleaved, peak_memory, require_agreement, sgemm, sgemm_rate
from nbl.families import inside
from nbl.inside import eisner_satta, log_Z, naive
from nbl.inside.lexical import caches
from nbl.settings import MODELS
from nbl.testing import detached, random_rules, single

D_H = MODELS["nblpcfg"].settings["d_H"]
MAX_DENSE = 2**27  # numbers; without factorisation the rules of a grammar soon fill any memory
MAX_NAIVE_LENGTH = 10
SHORT, LONG = (7, 4), (13, 8)  # lengths that are checked: beyond the first widths, which kernels treat separately


class Implementation(NamedTuple):
    """An inside algorithm and the kind of random grammar it is for."""

    name: str
    grammar: str
    inside: Callable[[Any, Tensor], Tensor]
    dense: bool = False  # takes the grammar without factorisation
    kernel: str | None = None  # the native kernel it needs


def _torch(rules: Any, lengths: Tensor) -> Tensor:
    return inside(rules, lengths, allow_native=False)


IMPLEMENTATIONS = (
    Implementation("naive", "D-C", naive.inside, dense=True),
    Implementation("Eisner-Satta", "D-C", eisner_satta.inside, dense=True),
    Implementation("NL, C1-1 cached", "lexical", partial(log_Z, caches.C11)),
    Implementation("NL, C1-2 cached", "lexical", partial(log_Z, caches.C12)),
    Implementation("NL, splits first", "lexical", _torch),
    Implementation("NL, native", "lexical", inside, kernel="lexical"),
    Implementation("NBL, torch", "D-C", _torch),
    Implementation("NBL, native", "D-C", inside, kernel="bilexical"),
    Implementation("N", "pcfg", _torch),
    Implementation("N, native", "pcfg", inside, kernel="pcfg"),
    Implementation("TN", "rank", _torch),
    Implementation("TN, native", "rank", inside, kernel="rank"),
)


class Case(NamedTuple):
    """One point of a comparison: b sentences of l words, m nonterminals and 2 m preterminals."""

    b: int
    l: int
    m: int


def feasible(implementation: Implementation, case: Case) -> bool:
    """Whether a case fits in memory and ends in reasonable time."""
    if not implementation.dense:
        return True
    size = case.b * case.l**2 * case.m * 2 * (3 * case.m) ** 2
    return size <= MAX_DENSE and (implementation.name != "naive" or (case.l <= MAX_NAIVE_LENGTH and case.b == 1))


def check(implementation: Implementation) -> None:
    """Compare values and gradients, for sentences of mixed lengths, with a reference.

    In float64 it is the naive recursion. In float32, which is timed and may be other code, it is
    torch in float64, with more words and symbols.
    """
    grammar = implementation.grammar
    short = random_rules(grammar, b=2, l=SHORT[0], NT=2, PT=3, H=3, seed=0)
    naively = Implementation("naive", grammar, naive.inside, dense=True)
    if implementation.dense:
        torch_based, lengths, sizes = implementation, SHORT, {"NT": 4, "PT": 5, "H": 6}
    else:
        torch_based = next(i for i in IMPLEMENTATIONS if i.grammar == grammar and not i.dense and not i.kernel)
        lengths, sizes = LONG, {"NT": 17, "PT": 18, "H": 120}
    many = random_rules(grammar, b=2, l=lengths[0], seed=0, **sizes)
    for reference, rules, timed, words, tolerance in (
        (naively, short, short, SHORT, 1e-9),
        (torch_based, many, single(many), lengths, 1e-3),
    ):
        expected, found = _results(reference, rules, words), _results(implementation, timed, words)
        require_agreement(implementation.name, "the naive inside algorithm", expected, found, tolerance)


def _results(implementation: Implementation, rules: Any, lengths: Sequence[int]) -> list[Tensor]:
    """log p of two sentences, and the gradients of a weighted sum of them."""
    rules = detached(rules)
    value = implementation.inside(rules.dense() if implementation.dense else rules, torch.tensor(lengths))
    return [value, *torch.autograd.grad(value @ value.new_tensor([1.0, -2.5]), rules, allow_unused=True)]


def task(implementation: Implementation, case: Case, seed: int = 0) -> Callable[[], None]:
    """A forward and backward pass over random rules, ready to be timed."""
    b, l, m = case
    H = 1 if implementation.dense else D_H  # summed out of dense rules
    rules = random_rules(implementation.grammar, b, l, NT=m, PT=2 * m, H=H, seed=seed, scale=1.0)
    rules = detached(single(rules.dense() if implementation.dense else rules))
    lengths = torch.full((b,), l)

    def run() -> None:
        torch.autograd.grad(implementation.inside(rules, lengths).sum(), rules, allow_unused=True)

    return run


def chosen(names: Iterable[str]) -> list[Implementation]:
    """The implementations of these names that this machine can run, each checked."""
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


def measure_case(implementations: Sequence[Implementation], case: Case, rounds: int) -> list[dict[str, Any]]:
    """One row per implementation: processor seconds (one thread), peak memory, the machine's matrix rate."""
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
