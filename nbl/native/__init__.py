"""Native CPU kernels: the C++ sources of this folder, compiled at first use and run on as many threads as torch uses.

A library is kept in the user's cache folder under a name that changes with its source, the compiler and
the processor. Where it cannot be compiled, torch does the work.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import torch
from torch import Tensor

FOLDER = Path(__file__).parent
TYPES = {torch.float32: "float", torch.float64: "double"}
HOST = torch.device("cpu")
MAX_KEPT = 2**27  # bytes of a scratch memory that is kept: enough for a training sentence, not for any

# Scratch memory that no thread is using: new memory would be cleared by the system, page by page, at every call.
free_scratch: list[Tensor] = []
_told = threading.Lock()  # taken by the one warning
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]


@functools.cache
def library(source: Path, *headers: Path, define: str = "") -> ctypes.CDLL | None:
    """The compiled source, with a macro NAME=value defined.

    None, with one warning for all, if it cannot be had; None if NBL_NATIVE=0 asks for torch.
    """
    if os.environ.get("NBL_NATIVE") == "0":
        return None
    try:
        path = _build(source, headers, define)
        try:
            return ctypes.CDLL(str(path))
        except OSError:  # damaged
            path.unlink()
            return ctypes.CDLL(str(_build(source, headers, define)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: there is no home folder
        if _told.acquire(blocking=False):  # once, however many kernels there are
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            warnings.warn(f"no native kernels ({said[0] if said else error}): slower torch code is used", stacklevel=2)
        return None


def _build(source: Path, headers: Sequence[Path], define: str) -> Path:
    """The compiled library, from the cache or made now."""
    compiler = shlex.split(os.environ.get("CXX") or "g++")
    version = subprocess.run([*compiler, "--version"], check=True, capture_output=True, text=True).stdout
    flags = [*FLAGS, f"-D{define}"] if define else FLAGS
    texts = [file.read_text() for file in (source, *headers)]
    key = hashlib.sha256("\n".join([*texts, version, *compiler, *flags, _processor()]).encode()).hexdigest()
    path = _cache_folder() / f"{source.stem}-{key[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # under a name of its own first: another process may be doing the same
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            command = [*compiler, *flags, str(source), "-o", str(temporary)]
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


@functools.cache
def load(name: str, dtype: torch.dtype) -> ctypes.CDLL | None:
    """<name>.cpp for numbers of this type, compiled at the first call; None if it cannot be had."""
    if dtype not in TYPES:
        return None
    return library(FOLDER / f"{name}.cpp", *sorted(FOLDER.glob("*.h")), define=f"NBL_FLOAT={TYPES[dtype]}")


def description(device: torch.device) -> str:
    """What computes on a device, for the record: it decides how results are rounded."""
    kernel = load("networks", torch.float32) if device.type == "cpu" else None
    return "torch" if kernel is None else f"native, vectors of {8 * kernel.vector_bytes()} bits"


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
    kernel.scratch_bytes.restype = ctypes.c_int64
    run_all(kernel.solve, problems, kernel.scratch_bytes(ctypes.byref(problems[0])))


def run_all(function: Callable[[object], object], problems: Sequence[ctypes.Structure], scratch_bytes: int) -> None:
    """Call a native function on each problem, which gets as many bytes of `scratch`; each is done by one thread."""
    queue = iter(problems)  # shared by the threads; its next() is atomic

    def work() -> None:
        scratch = Scratch(scratch_bytes)
        for problem in queue:
            problem.scratch = scratch.pointer
            function(ctypes.byref(problem))  # without Python's lock

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


def shares(n: int, step: int = 96) -> list[tuple[int, int]]:
    """Start and size of each thread's share of n things; shares begin at multiples of the step."""
    size = -(-n // torch.get_num_threads() // step) * step
    return [(start, min(size, n - start)) for start in range(0, n, size)]


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


class Scratch:
    """At least so many bytes: free ones, unless there are none or they are too few. In the end they are free again."""

    def __init__(self, size: int) -> None:
        try:
            self._memory = free_scratch.pop()
        except IndexError:
            self._memory = torch.empty(0, dtype=torch.uint8, device=HOST)
        if self._memory.numel() < size:
            self._memory = torch.empty(size, dtype=torch.uint8, device=HOST)
        self.pointer = self._memory.data_ptr()

    def __del__(self) -> None:
        # no more than a pass over a batch has in use: one for each thread, and two for the whole
        if self._memory.numel() <= MAX_KEPT and len(free_scratch) < torch.get_num_threads() + 2:
            free_scratch.append(self._memory)
