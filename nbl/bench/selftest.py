"""Does this machine compute what the definition says? What the owner of a GPU runs first.

Values and gradients on the device are compared with the naive recursion, posteriors with those of the CPU in float64;
determinism is the same computation, and the same training, twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nbl.bench.launches import Launches
from nbl.families import inside, marginals
from nbl.inside import naive
from nbl.models import build
from nbl.rules import Rules
from nbl.run import Adam
from nbl.settings import BINDINGS
from nbl.testing import detached, random_rules, single
from nbl.train import clipped_step

KINDS = ("pcfg", "compound-pcfg", "rank", "lexical", *BINDINGS)
SIZES = {"NT": 3, "PT": 4, "H": 5}
LENGTHS = (7, 4, 2)
WORDS = 20  # of the sentences whose launches and steps are counted and timed
TINY = {"npcfg": {}, "tnpcfg": {"rank": 6}, "nlpcfg": {}, "nblpcfg": {"d_H": 6}}
TOLERANCE = 1e-3  # of float32, relative to the largest value
STEPS = 3


class Check(NamedTuple):
    """The result of one check."""

    check: str
    of: str
    passed: bool
    result: str


def selftest(device: torch.device) -> Iterator[Check]:
    """All checks, one after the other."""
    for kind in KINDS:
        rules, lengths = random_rules(kind, len(LENGTHS), max(LENGTHS), seed=0, **SIZES), torch.tensor(LENGTHS)
        own = _moved(single(rules), device)
        error = _error(_solved(own, lengths.to(device)), _by_definition(rules, lengths))
        yield Check("values and gradients", kind, error < TOLERANCE, f"error {error:.1e}")
        found, right = (
            [factor for factor in marginals(*given) if factor is not None]
            for given in ((own, lengths.to(device)), (rules, lengths))
        )
        error = _error(found, right)
        yield Check("posteriors", kind, error < TOLERANCE, f"error {error:.1e}")
        runs = [_solved(own, lengths.to(device)) for _ in range(2)]
        same = all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
        yield Check("the same twice", kind, same, "equal bytes" if same else "different bytes")
    for name in TINY:
        runs = [_trained(name, device) for _ in range(2)]
        same = all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
        yield Check("training twice", name, same, "equal bytes" if same else "different bytes")
    for kind in KINDS:
        own = _moved(single(random_rules(kind, 2, WORDS, seed=0, **SIZES)), device)
        lengths = torch.full((2,), WORDS, device=device)
        _solved(own, lengths)
        with Launches() as counter:
            _solved(own, lengths)
        yield Check("launches, 20 words", kind, True, str(counter.total))
    for name in TINY:
        seconds = _seconds_of_step(name, device)
        yield Check("step, 20 words, tiny", name, True, f"{1000 * seconds:.1f} ms")
    if device.type == "cuda":
        yield _without_waiting(device)


def _moved(rules: Any, device: torch.device) -> Any:
    return type(rules)(*(factor.to(device) for factor in rules))


def _solved(rules: Rules, lengths: Tensor) -> list[Tensor]:
    """log p, and the gradients of its sum."""
    rules = detached(rules)
    log_p = inside(rules, lengths)
    return [log_p.detach(), *torch.autograd.grad(log_p.sum(), rules)]


def _by_definition(rules: Any, lengths: Tensor) -> list[Tensor]:
    rules = detached(rules)
    log_p = naive.inside(rules.dense(), lengths)
    return [log_p.detach(), *torch.autograd.grad(log_p.sum(), rules)]


def _error(found: list[Tensor], right: list[Tensor]) -> float:
    """The largest difference relative to the largest value; inf if there is a NaN."""
    errors = [
        float((one.cpu().double() - other).abs().max() / other.abs().max().clamp(min=1e-3))
        for one, other in zip(found, right, strict=True)
    ]
    return max(error if error == error else float("inf") for error in errors)


class _Training:
    """A tiny model in training."""

    def __init__(self, name: str, device: torch.device, l: int) -> None:
        torch.manual_seed(0)
        self.model = build(name, 11, NT=3, PT=4, dim=8, **TINY[name]).to(device)
        self.optimiser = Adam(self.model, 1e-2)
        self.words = torch.randint(11, (4, l)).to(device)
        self.lengths = torch.tensor([l, l, l - 1, 2]).to(device)

    def step(self) -> None:
        """As in `nbl.train.train_epoch`."""
        log_p = self.model.log_likelihood(self.words, self.lengths)
        self.optimiser.zero_grad()
        (-log_p.mean()).backward()
        clipped_step(self.optimiser, 3.0)


def _trained(name: str, device: torch.device) -> list[Tensor]:
    """The parameters after a few steps."""
    training = _Training(name, device, l=6)
    for _ in range(STEPS):
        training.step()
    return [parameter.detach() for parameter in training.model.parameters()]


def _seconds_of_step(name: str, device: torch.device) -> float:
    training, seconds = _Training(name, device, WORDS), []
    for _ in range(STEPS + 1):
        start = time.perf_counter()
        training.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return median(seconds[1:])


def _without_waiting(device: torch.device) -> Check:
    """Whether the host waits for the device within a training step, which torch can forbid."""
    training = _Training("nblpcfg", device, WORDS)
    training.step()
    waits = ""
    torch.cuda.set_sync_debug_mode("error")
    try:
        training.step()
    except RuntimeError as error:
        waits = str(error).partition("\n")[0]
    finally:
        with suppress(RuntimeError):
            torch.cuda.set_sync_debug_mode("default")
    return Check("the host never waits", "nblpcfg", not waits, waits or "no synchronisation")
