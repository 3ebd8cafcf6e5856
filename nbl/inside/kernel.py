"""Native kernels that solve one sentence a call (native/*.cpp), on as many threads as torch uses."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import torch
from torch import Tensor

from nbl.native import library

FOLDER = Path(__file__).parent / "native"
TYPES = {torch.float32: "float", torch.float64: "double"}
HOST = torch.device("cpu")
MAX_KEPT = 2**27  # bytes of a scratch memory that is kept: enough for a training sentence, not for any

# Scratch memory that no thread is using: new memory would be cleared by the system, page by page, at every call.
free_scratch: list[Tensor] = []


@functools.cache
def load(name: str, dtype: torch.dtype) -> ctypes.CDLL | None:
    """native/<name>.cpp for numbers of this type, compiled at the first call; None if it cannot be had."""
    if dtype not in TYPES:
        return None
    kernel = library(FOLDER / f"{name}.cpp", *sorted(FOLDER.glob("*.h")), define=f"NBL_FLOAT={TYPES[dtype]}")
    if kernel is not None:
        kernel.solve.restype = None
        kernel.scratch_bytes.restype = ctypes.c_int64
    return kernel


def solve_all(name: str, dtype: torch.dtype, problems: Sequence[ctypes.Structure]) -> None:
    """Solve problems, which have a `length` of 2 to `l` words and a pointer `scratch`.

    Each is solved by one thread, so results do not depend on the number of threads.
    """
    for problem in problems:
        if not 2 <= problem.length <= problem.l:
            raise ValueError(
                f"a sentence has {problem.length} words; it must have 2 to {problem.l}, all that are given"
            )
    kernel = load(name, dtype)
    assert kernel is not None
    problems = sorted(problems, key=lambda it: -it.length)  # so that no thread is left with a long one at the end
    scratch_bytes = kernel.scratch_bytes(ctypes.byref(problems[0]))
    queue = iter(problems)  # shared by the threads; its next() is atomic

    def work() -> None:
        scratch = _scratch(scratch_bytes)
        for problem in queue:
            problem.scratch = scratch.data_ptr()
            kernel.solve(ctypes.byref(problem))  # without Python's lock
        if scratch.numel() <= MAX_KEPT:
            free_scratch.append(scratch)

    threads = min(torch.get_num_threads(), len(problems))
    if threads == 1:
        work()
        return
    running = [_helpers(threads - 1).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        _wait_for_all(running)
    for helper in running:
        helper.result()


def _wait_for_all(running: Sequence[Future[None]]) -> None:
    """Until no helper works in memory that the caller may free: an interrupt must wait, however often it comes."""
    interrupt = None
    while not all(helper.done() for helper in running):
        try:
            wait(running)
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def pointer(tensor: Tensor | None) -> int | None:
    """Where the numbers of a tensor are."""
    return None if tensor is None else tensor.data_ptr()


@functools.cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: to start them costs a millisecond."""
    return ThreadPoolExecutor(threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # a child process has none of them


def _scratch(size: int) -> Tensor:
    """At least so many bytes: kept ones, unless there are none or they are too few."""
    try:
        kept = free_scratch.pop()
    except IndexError:
        return torch.empty(size, dtype=torch.uint8, device=HOST)
    return kept if kept.numel() >= size else torch.empty(size, dtype=torch.uint8, device=HOST)
