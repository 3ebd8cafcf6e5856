"""Whole training steps at the paper's sizes, on eight random sentences with newspaper-like lengths and words.

A model whose log-likelihood differs from the naive recursion on its rules is not timed: it is an error.
Each step is compared with its floor (`nbl.bench.floor`), whose rates are measured in the same rounds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from nbl.bench import RELEASED as MODELS
from nbl.bench.floor import floor, gigaflop
from nbl.bench.measure import (
    PRODUCTS,
    interleaved,
    memory_rate,
    peak_memory,
    products,
    require_agreement,
    sgemm_rate,
    stream,
)
from nbl.families import inside
from nbl.inside import naive
from nbl.models import build
from nbl.models.base import CompoundGrammar, System
from nbl.optimiser import Adam, clipped_step
from nbl.rules import Rules
from nbl.settings import Training, hyperparameters

VOCABULARY = 10_001
BATCH = 8
WORDS, CHECKED = 6, (7, 4)  # of the small models that are checked: their vocabulary, and the lengths of two sentences
# Sentences of up to 40 words of the Wall Street Journal, cut into sixteen parts by length: the mean of each.
LENGTHS = (5, 8, 10, 12, 14, 16, 17, 19, 20, 22, 23, 25, 27, 29, 32, 37)
PARTS = ("rules", "inside", "backward", "optimiser")
Inside = Callable[[Any, Tensor], Tensor]  # rules, lengths -> log p


def sentences(l: int, seed: int) -> Tensor:
    """A batch of word numbers whose frequencies follow Zipf's law."""
    weights = 1 / (torch.arange(VOCABULARY) + 2.7)
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(weights.expand(BATCH, -1), l, replacement=True, generator=generator)


class Step:
    """A model in training; a call does one step on a batch and records the seconds of each part."""

    def __init__(self, model: System):
        self.model = model
        self.optimiser = Adam(model, Training().lr)
        self.seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)  # by part and length
        self.mark = 0.0

    def __call__(self, words: Tensor) -> None:
        """As in `nbl.train.train_epoch`."""
        self.mark = time.perf_counter()
        b, l = words.shape
        log_p = self.log_likelihood(words, torch.full((b,), l))
        self.optimiser.zero_grad()
        (-log_p.mean()).backward()
        self._end("backward", l)
        clipped_step(self.optimiser, Training().clip)
        self._end("optimiser", l)

    def log_likelihood(self, words: Tensor, lengths: Tensor, inside: Inside = inside) -> Tensor:
        """That of the model, z sampled and its KL subtracted where it has one, in two parts."""
        if isinstance(self.model, CompoundGrammar):
            z, KL = self.model.infer(words, lengths)
            rules = self.model.rules_given(words, z)
        else:
            rules, KL = self.model.rules(words, lengths), torch.zeros(())
        self._end("rules", words.shape[1])
        log_p = inside(rules, lengths) - KL
        self._end("inside", words.shape[1])
        return log_p

    def _end(self, part: str, l: int) -> None:
        """End one part of a step on sentences of l words, and begin the next."""
        now = time.perf_counter()
        self.seconds[part, l].append(now - self.mark)
        self.mark = now

    def milliseconds(self) -> dict[str, float]:
        """Of each part of a step: the mean over lengths of the median, without the first step of each length."""
        medians = {key: median(seconds[1:]) for key, seconds in self.seconds.items()}
        return {part: 1000 * fmean(medians[key] for key in medians if key[0] == part) for part in PARTS}

    def peak_mb(self, words: Tensor) -> float | None:
        """Megabytes that a step needs beside the parameters and Adam's moments."""
        self.optimiser.zero_grad()
        return peak_memory(partial(self, words))


def check(name: str) -> None:
    """Compare log p and its gradients, in small models of this kind, with two references.

    The naive recursion on the model's rules, for the model's own log-likelihood and for the step's,
    which is in parts, in float64 and in the float32 that is timed. With more symbols, where other
    code may be used, float32 with float64.
    """
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
        model = _small(name, NT=3, largest=5).to(dtype)
        step = Step(model)
        expected = _results(model, partial(step.log_likelihood, inside=_naive))
        for found in (_results(model, model.objective), _results(model, step.log_likelihood)):
            require_agreement(f"the step of {name}", "the naive inside algorithm", expected, found, tolerance)
    timed = _small(name, NT=17, largest=120).eval()  # no sample of z, which depends on the precision
    found = _results(timed, timed.objective)
    double = timed.double()
    require_agreement(f"the step of {name}", "itself in float64", _results(double, double.objective), found, 1e-3)


def _small(name: str, NT: int, largest: int) -> System:
    """A model of this kind in which no size exceeds the largest."""
    kind, given = MODELS[name]
    settings = hyperparameters(kind) | given
    settings |= {key: min(value, largest) for key, value in settings.items() if type(value) is int}
    torch.manual_seed(0)
    return build(kind, WORDS, **settings | {"NT": NT, "PT": NT + 1})


def _naive(rules: Rules, lengths: Tensor) -> Tensor:
    return naive.inside(rules.dense(), lengths)


def _results(model: System, log_likelihood: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
    """log p of two sentences, and the gradients of their sum."""
    torch.manual_seed(0)  # the same z each time
    words = torch.randint(WORDS, (len(CHECKED), max(CHECKED)))
    log_p = log_likelihood(words, torch.tensor(CHECKED))
    return [log_p, *torch.autograd.grad(log_p.sum(), list(model.parameters()), materialize_grads=True)]


def measure_steps(names: Sequence[str], threads: int, rounds: int, every: int = 1) -> list[dict[str, Any]]:
    """One row per model: milliseconds per step, their parts and floor, and peak memory on the longest sentences.

    `every` = n takes every n-th of the sixteen lengths. A round does, for each length in turn, one
    pass over memory, one matrix product of each kind and one step of each model, so that a
    disturbance affects the floors too.
    """
    batches = [sentences(l, seed) for seed, l in enumerate(LENGTHS[::every])]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        steps = {name: _step(name) for name in names}
        tasks: dict[tuple[str, int], Callable[[], object]] = {}
        machine = {"stream": stream(), **products()}
        for number, words in enumerate(batches):
            tasks |= {(name, number): call for name, call in machine.items()}
            tasks |= {(name, number): partial(step, words) for name, step in steps.items()}
        times = interleaved(tasks, rounds)
        parts = {name: step.milliseconds() for name, step in steps.items()}
        peaks = {name: step.peak_mb(batches[-1]) for name, step in steps.items()}
    finally:
        torch.set_num_threads(before)

    def mean(name: str) -> tuple[float, ...]:
        """Of the batches' medians and quartiles."""
        return tuple(fmean(field) for field in zip(*(times[name, n] for n in range(len(batches))), strict=True))

    rates = {name: sgemm_rate(mean(name)[0]) for name in PRODUCTS if name in machine}
    gflops, gigabytes = max(rates.values()), memory_rate(mean("stream")[0])
    rows = []
    for name, step in steps.items():
        ms, low, high = (1000 * seconds for seconds in mean(name)[:3])
        row: dict[str, Any] = {"model": name, "threads": threads, "ms": ms, "low": low, "high": high}
        done = min(times[name, n].rounds for n in range(len(batches)))
        row |= {"rounds": done, **{f"ms_{part}": ms for part, ms in parts[name].items()}}
        row |= {"peak_mb": peaks[name], "gflop": gigaflop(step.model, batches)}
        row["floor_ms"] = floor(step.model, row["gflop"], gflops, gigabytes)
        row["floor_ratio"] = ms / row["floor_ms"]
        row |= {f"{product}_gflops": rates.get(product) for product in PRODUCTS} | {"memory_gbs": gigabytes}
        rows.append(row)
    return rows


def _step(name: str) -> Step:
    kind, given = MODELS[name]
    torch.manual_seed(0)
    return Step(build(kind, VOCABULARY, **given))
