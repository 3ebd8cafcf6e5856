"""Whole training steps at the paper's sizes, on eight random sentences with lengths and words as in a newspaper.

For the NBL-PCFG the step is held against a floor: its matrix products at the machine's own rate, and eight
passes over the parameters (gradient: written, its norm read, read; parameter and Adam's two moments: read
or written) at the machine's memory rate, both measured in the same rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from nbl.bench.measure import interleaved, memory_rate, sgemm, sgemm_rate, stream
from nbl.config import Training
from nbl.inside import inside
from nbl.models import build
from nbl.models.nblpcfg import NBLPCFG
from nbl.run import Adam
from nbl.train import clipped_step

VOCABULARY = 10_001
BATCH = 8
# Sentences of up to 40 words of the Wall Street Journal, cut into sixteen parts by length: the mean of each.
LENGTHS = (5, 8, 10, 12, 14, 16, 17, 19, 20, 22, 23, 25, 27, 29, 32, 37)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "N-PCFG 30/60": ("npcfg", {}),
    "C-PCFG 30/60": ("cpcfg", {}),
    "TN-PCFG 250/500": ("tnpcfg", {}),
    "NL-PCFG 10/20": ("nlpcfg", {"NT": 10}),
    "NL-PCFG 30/60": ("nlpcfg", {}),
    "NBL-PCFG 15/30": ("nblpcfg", {}),
}
PARTS = ("rules", "inside", "backward", "optimiser")
PASSES = 8


def sentences(l: int, seed: int) -> Tensor:
    """A batch of word numbers whose frequencies follow Zipf's law."""
    weights = 1 / (torch.arange(VOCABULARY) + 2.7)
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(weights.expand(BATCH, -1), l, replacement=True, generator=generator)


class Step:
    """A model in training; a call does one step on a batch and adds up the seconds of each part."""

    def __init__(self, name: str):
        kind, hyperparameters = MODELS[name]
        torch.manual_seed(0)
        self.model = build(kind, VOCABULARY, **hyperparameters)
        self.optimiser = Adam(self.model, Training().lr)
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.calls = 0

    def __call__(self, words: Tensor) -> None:
        lengths = torch.full((len(words),), words.shape[1])
        self.optimiser.zero_grad()
        marks = [time.perf_counter()]
        rules = self.model.rules(words, lengths)
        marks.append(time.perf_counter())
        loss = -inside(rules, lengths).mean()
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        clipped_step(self.optimiser, Training().clip)
        marks.append(time.perf_counter())
        for part, start, end in zip(PARTS, marks, marks[1:], strict=False):
            self.seconds[part] += end - start
        self.calls += 1

    def milliseconds(self) -> dict[str, float]:
        """Mean milliseconds of each part of a step, the first round included."""
        return {part: 1000 * seconds / self.calls for part, seconds in self.seconds.items()}


def compare(names: Sequence[str], threads: int, rounds: int, every: int = 1) -> list[dict[str, Any]]:
    """Rows of milliseconds a step; `every` takes every so-many-th of the sixteen lengths.

    A round does, for each length in turn, one step of each model, NBL-PCFG's the last, and before that one pass over
    memory and one matrix product: what disturbs the machine for a second disturbs what its floor is made of as well.
    """
    batches = [sentences(l, seed) for seed, l in enumerate(LENGTHS[::every])]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        steps = {name: Step(name) for name in names}
        tasks: dict[tuple[str, int], Callable[[], object]] = {}
        product, memory = sgemm(), stream()
        for number, words in enumerate(batches):
            floored = [name for name, step in steps.items() if isinstance(step.model, NBLPCFG)]
            others = [name for name in steps if name not in floored]
            tasks |= {(name, number): partial(steps[name], words) for name in others}
            tasks |= {("stream", number): memory, ("sgemm", number): product}
            tasks |= {(name, number): partial(steps[name], words) for name in floored}
        times = interleaved(tasks, rounds)
    finally:
        torch.set_num_threads(before)

    def mean(name: str) -> tuple[float, ...]:
        """Of the batches' medians and quartiles."""
        return tuple(fmean(field) for field in zip(*(times[name, n] for n in range(len(batches))), strict=True))

    gflops, gigabytes = sgemm_rate(mean("sgemm")[0]), memory_rate(mean("stream")[0])
    rows = []
    for name, step in steps.items():
        ms, low, high = (1000 * seconds for seconds in mean(name)[:3])
        row: dict[str, Any] = {"model": name, "threads": threads, "ms": ms, "low": low, "high": high}
        done = min(times[name, n].rounds for n in range(len(batches)))
        row |= {"rounds": done, **{f"ms_{part}": ms for part, ms in step.milliseconds().items()}}
        row |= {"sgemm_gflops": gflops, "memory_gbs": gigabytes}
        if isinstance(step.model, NBLPCFG):
            row["floor_ms"] = floor(step.model, batches, gflops, gigabytes)
        rows.append(row)
    return rows


def floor(model: NBLPCFG, batches: Sequence[Tensor], gflops: float, gigabytes: float) -> float:
    """Mean milliseconds a step of the NBL-PCFG cannot fall below on this machine."""
    operations = sum(neural_operations(model, words) + inside_operations(model, *words.shape) for words in batches)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return operations / len(batches) / gflops / 1e6 + PASSES * 4 * parameters / gigabytes / 1e6


def neural_operations(model: NBLPCFG, words: Tensor) -> float:
    """Of the networks' matrix products, forwards and twice that backwards, for the distinct words."""
    (NT, dim), d_H, V, S = model.u_A.shape, len(model.u_Hw), model.vocab_size, model.S
    distinct = len(words.unique())
    products = (d_H + NT) * dim * V  # p(w|H), p(w|A)
    products += distinct * NT * dim * (2 * dim + d_H) + (distinct + NT) * dim * dim  # p(H|A,w)
    products += (d_H + NT + 1) * 5 * dim * dim + 3 * d_H * dim * S  # residual networks; p(B|H), p(C,D|H)
    return 3 * 2 * products


def inside_operations(model: NBLPCFG, b: int, l: int) -> float:
    """Of the inside and outside pass: O(l^4 d_H) for the splits, O(l^3 m d_H) for the contractions."""
    NT, d_H = len(model.u_A), len(model.u_Hw)
    spans = [(w, l - w + 1) for w in range(2, l + 1)]
    rows = sum(n * w for w, n in spans)  # (span, head)
    splits = sum(n * w * (w - 1) for w, n in spans)  # (span, head, split point)
    closed = sum(n * 2 * NT for _, n in spans)  # p(C, D | H) once the words are summed
    return 3 * 2 * b * d_H * (splits + 3 * NT * rows + closed)
