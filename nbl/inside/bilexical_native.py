"""The NBL-PCFG's recursions on the CPU by the native kernel (native/bilexical.cpp)."""

from __future__ import annotations

import ctypes
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from nbl.inside.bilexical_torch import SHARED, Solution, Tables
from nbl.native import library

FOLDER = Path(__file__).parent / "native"
SOURCES = {torch.float32: FOLDER / "bilexical.cpp", torch.float64: FOLDER / "bilexical_float64.cpp"}
HEADERS = (FOLDER / "bilexical.cpp", *sorted(FOLDER.glob("*.h")))  # what they include
MAX_KEPT = 2**27  # bytes of a scratch memory that is kept: enough for a training sentence, not for any

# Scratch memory that no thread is using: new memory would be cleared by the system, page by page, at every call.
_free_scratch: list[Tensor] = []


def available(dtype: torch.dtype) -> bool:
    """Whether the kernel can be used; compiles it at the first call."""
    return dtype in SOURCES and _library(dtype) is not None


def solve(tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """As `bilexical_torch.solve`, but gradients or posteriors; on as many threads as torch uses.

    Each sentence is solved by one thread, so results do not depend on the number of threads.
    """
    tables = Tables(*(table.detach().contiguous() for table in tables))
    b, l = tables.root.shape[:2]
    zeros = tables.root.new_zeros
    log_Z = zeros(b)
    derivatives, spans, arcs = None, None, None
    if gradients:
        shapes = [(b, *table.shape) if name in SHARED else table.shape for name, table in tables._asdict().items()]
        derivatives = Tables(*map(zeros, shapes))
    if posteriors:
        spans, arcs = zeros(b, l + 1, l + 1), zeros(b, l + 1, l)

    def problem(k: int, length: int) -> _Problem:
        inputs = [table if name in SHARED else table[k] for name, table in tables._asdict().items()]
        results = [None if t is None else t[k] for t in (log_Z, *(derivatives or [None] * len(tables)), spans, arcs)]
        D_sizes = tables.B_H.shape[1], tables.C_H.shape[1], tables.w_H.shape[2]
        pointers = [None if t is None else t.data_ptr() for t in (*inputs, *results)]
        return _Problem(length, *tables.H_Aw.shape[1:], *D_sizes, *pointers)

    # the longest first, so that no thread is left with a long one at the end
    problems = sorted((problem(*item) for item in enumerate(lengths.tolist())), key=lambda it: -it.length)
    _solve_all(problems, tables.root.dtype)
    return Solution(log_Z, derivatives, spans, arcs)


def _solve_all(problems: list[_Problem], dtype: torch.dtype) -> None:
    kernel = _library(dtype)
    assert kernel is not None
    scratch_bytes = kernel.nbl_bilexical_scratch(ctypes.byref(problems[0]))
    queue = iter(problems)  # shared by the threads; its next() is atomic

    def work() -> None:
        scratch = _scratch(scratch_bytes)
        for problem in queue:
            problem.scratch = scratch.data_ptr()
            kernel.nbl_bilexical(ctypes.byref(problem))  # without Python's lock
        if scratch.numel() <= MAX_KEPT:
            _free_scratch.append(scratch)

    threads = min(torch.get_num_threads(), len(problems))
    if threads == 1:
        work()
        return
    running = [_helpers(threads - 1).submit(work) for _ in range(threads - 1)]
    work()
    for helper in running:
        helper.result()


@functools.cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: to start them costs a millisecond."""
    return ThreadPoolExecutor(threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # a child process has none of them


def _scratch(size: int) -> Tensor:
    """At least so many bytes: kept ones, unless there are none or they are too few."""
    try:
        kept = _free_scratch.pop()
    except IndexError:
        return torch.empty(size, dtype=torch.uint8)
    return kept if kept.numel() >= size else torch.empty(size, dtype=torch.uint8)


class _Problem(ctypes.Structure):
    """struct Problem of native/chart.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "l", "A", "H", "D_B", "D_C", "D_w")),
        *((name, ctypes.c_void_p) for name in (*Tables._fields, "log_Z")),
        *((f"d_{name}", ctypes.c_void_p) for name in Tables._fields),
        *((name, ctypes.c_void_p) for name in ("spans", "arcs", "scratch")),
    ]


@functools.cache
def _library(dtype: torch.dtype) -> ctypes.CDLL | None:
    kernel = library(SOURCES[dtype], *HEADERS)
    if kernel is not None:
        kernel.nbl_bilexical.restype = None
        kernel.nbl_bilexical_scratch.restype = ctypes.c_int64
    return kernel
