"""The native CPU kernel (bilexical.cpp): compiling it at first use, loading it, calling it.

The library is kept in the user's cache folder under a name that changes with the source, the compiler and the
processor. Where it cannot be compiled, `available()` says so and torch does the work.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import subprocess
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from nbl.inside.bilexical_torch import SHARED, Solution, Tables

SOURCE = Path(__file__).with_name("bilexical.cpp")
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
SUFFIX = {torch.float32: "f32", torch.float64: "f64"}


@functools.cache
def available() -> bool:
    """Whether the kernel can be used. Compiles it where it is not in the cache; NBL_NATIVE=0 switches it off."""
    if os.environ.get("NBL_NATIVE") == "0":
        return False
    try:
        _library()
    except (OSError, subprocess.SubprocessError) as error:
        warnings.warn(f"no native kernel ({error}): the slower torch implementation is used", stacklevel=2)
        return False
    return True


def solve(tables: Tables, lengths: Tensor, gradients: bool = False, posteriors: bool = False) -> Solution:
    """As `bilexical_torch.solve`: one sentence a call, on as many threads as torch uses."""
    tables = Tables(*(table.detach().contiguous() for table in tables))
    b, l = tables.root.shape[:2]
    zeros = tables.root.new_zeros
    log_Z = zeros(b)
    derivatives, spans, arcs = None, None, None
    if gradients:
        shapes = [(b, *t.shape) if name in SHARED else t.shape for name, t in tables._asdict().items()]
        derivatives = Tables(*map(zeros, shapes))
    if posteriors:
        spans, arcs = zeros(b, l + 1, l + 1), zeros(b, l + 1, l)

    def problem(k: int, length: int) -> _Problem:
        sentence = [t if name in SHARED else t[k] for name, t in tables._asdict().items()]
        results = [None if t is None else t[k] for t in (log_Z, *(derivatives or [None] * 7), spans, arcs)]
        pointers = [None if t is None else t.data_ptr() for t in (*sentence, *results)]
        D_sizes = tables.B_H.shape[1], tables.C_H.shape[1], tables.w_H.shape[2]
        return _Problem(length, *tables.H_Aw.shape[1:], *D_sizes, *pointers, None)

    # the longest first, so that no thread is left with a long one at the end
    problems = sorted((problem(*item) for item in enumerate(lengths.tolist())), key=lambda it: -it.length)
    _solve_all(problems, tables.root)
    return Solution(log_Z, derivatives, spans, arcs)


def _solve_all(problems: list[_Problem], like: Tensor) -> None:
    """Solve the problems, the longest of which is the first, by several workers with a scratch memory each."""
    suffix = SUFFIX[like.dtype]
    run = getattr(_library(), f"nbl_bilexical_{suffix}")
    size = getattr(_library(), f"nbl_bilexical_scratch_{suffix}")(ctypes.byref(problems[0]))
    queue = iter(problems)

    def work() -> None:
        scratch = torch.empty(size, dtype=torch.uint8)
        for problem in queue:
            problem.scratch = scratch.data_ptr()
            run(ctypes.byref(problem))

    workers = min(torch.get_num_threads(), len(problems))
    if workers == 1:
        return work()
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()


class _Problem(ctypes.Structure):
    """struct Problem of bilexical.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "l", "A", "H", "D_B", "D_C", "D_w")),
        *((name, ctypes.c_void_p) for name in Tables._fields),
        ("log_Z", ctypes.c_void_p),
        *((f"d_{name}", ctypes.c_void_p) for name in Tables._fields),
        *((name, ctypes.c_void_p) for name in ("spans", "arcs", "scratch")),
    ]


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_build()))
    for suffix in SUFFIX.values():
        getattr(library, f"nbl_bilexical_{suffix}").restype = None
        getattr(library, f"nbl_bilexical_scratch_{suffix}").restype = ctypes.c_int64
    return library


def _build() -> Path:
    """The compiled library, from the cache or made now."""
    compiler = os.environ.get("CXX", "g++")
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout
    key = hashlib.sha256("\n".join([SOURCE.read_text(), version, *FLAGS, _processor()]).encode()).hexdigest()
    path = _cache_folder() / f"bilexical-{key[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # under a name of its own first: another process may be doing the same
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            command = [compiler, *FLAGS, str(SOURCE), "-o", str(temporary)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            temporary.replace(path)
    return path


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nbl"


def _processor() -> str:
    """What the code for this machine's processor depends on: caches may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
