"""Measuring: times taken in turns, peak memory, the machine's own rates, and agreement with a reference.

Everything measured runs on the CPU. Machines are shared and noisy. So whatever is to be compared
runs in one call, in rounds with every candidate in each, and results are read as ratios, also to the
machine's matrix and memory rates, which are measured in the same rounds.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from nbl import native
from nbl.errors import UserError
from nbl.native.networks import multiply

Key = TypeVar("Key", bound=Hashable)
SGEMM_SIZE = 1024
PRODUCTS = ("blas", "onednn", "native")  # implementations of a product of two matrices
STREAM_FLOATS = 32 * 2**20  # 128 MB, far beyond any cache
BUDGET = 30.0  # seconds per candidate; a slow one skips the last rounds


class Times(NamedTuple):
    """Seconds of one call: median and quartiles over the rounds."""

    median: float
    low: float
    high: float
    rounds: int


def interleaved(
    candidates: Mapping[Key, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Key, Times]:
    """Time every candidate `in_turns`.

    `clock` is `time.process_time` for work on one thread: processor time ignores other processes.
    """
    return in_turns({key: partial(_seconds, call, clock) for key, call in candidates.items()}, rounds)


def _seconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def in_turns(candidates: Mapping[Key, Callable[[], float]], rounds: int) -> dict[Key, Times]:
    """Call every candidate, which returns its seconds, once per round, after one round that does not count."""
    seconds: dict[Key, list[float]] = {key: [] for key in candidates}
    for number in range(rounds + 1):
        for key, call in candidates.items():
            if number > 1 and sum(seconds[key]) > BUDGET:
                continue
            seconds[key].append(call())
    return {key: _times(values[1:]) for key, values in seconds.items()}


def _times(seconds: Sequence[float]) -> Times:
    low, _, high = quantiles(seconds, n=4) if len(seconds) > 1 else (seconds[0],) * 3
    return Times(median(seconds), low, high, len(seconds))


def require_agreement(
    name: str, reference: str, expected: Sequence[Tensor], found: Sequence[Tensor], tolerance: float
) -> None:
    """Refuse to time what differs from its definition by more than a relative and absolute tolerance."""
    for right, value in zip(expected, found, strict=True):
        if not torch.allclose(right, value.to(right.dtype), rtol=tolerance, atol=tolerance):
            raise UserError(f"{name} differs from {reference} and is not timed")


def sgemm(size: int = SGEMM_SIZE) -> Callable[[], object]:
    """A product of two square float32 matrices: 2 size^3 operations."""
    left, right = torch.rand(size, size), torch.rand(size, size)
    return lambda: left @ right


def products(size: int = SGEMM_SIZE) -> dict[str, Callable[[], object]]:
    """The same product by each of PRODUCTS that is available: torch's BLAS, oneDNN, our native code."""
    left, right, out = (torch.rand(size, size) for _ in range(3))
    found = {"blas": sgemm(size)}
    try:  # a private operator, but every public one needs a setting of the whole process to use oneDNN
        onednn = partial(torch.ops.mkldnn._linear_pointwise, left, right, None, "none", [], "")
        onednn()
        found["onednn"] = onednn
    except (AttributeError, RuntimeError):
        pass
    if native.load("networks", out.dtype) is not None:
        found["native"] = partial(multiply, left, right, out)
    return found


def stream(floats: int = STREAM_FLOATS) -> Callable[[], object]:
    """A pass over memory that reads and writes 4 bytes per float."""
    values = torch.rand(floats)
    return lambda: values.mul_(1.0)


def sgemm_rate(seconds: float) -> float:
    """GFLOP/s of a machine that takes this long for `sgemm()`."""
    return 2 * SGEMM_SIZE**3 / seconds / 1e9


def memory_rate(seconds: float) -> float:
    """GB/s of a machine that takes this long for `stream()`."""
    return 8 * STREAM_FLOATS / seconds / 1e9


def peak_memory(call: Callable[[], object]) -> float | None:
    """Megabytes by which a call raises the process's memory at its peak; None where the system does not report it."""
    gc.collect()
    native.free_scratch.clear()  # what a kernel keeps between calls counts too
    status = Path("/proc/self/status")
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # return freed memory, so that its reuse is seen
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        before = _kilobytes(status, "VmRSS")
        call()
        return max(0, _kilobytes(status, "VmHWM") - before) / 1024
    except OSError:
        return None


def _kilobytes(status: Path, field: str) -> int:
    return int(next(line for line in status.read_text().splitlines() if line.startswith(field)).split()[1])
