"""Native CPU kernels: the C++ sources of this folder, compiled at first use and run on as many threads as torch uses.

A library is kept in the user's cache folder under a name that changes with its source, the compiler and
the processor. Where it cannot be compiled, torch does the work.

A C++ function gets one argument, a pointer to a struct of sizes and of pointers to tensors. Python describes the same
struct with `structure`; its size is compared with that of the C++ struct when the library is loaded.
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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import torch
from torch import Tensor

FOLDER = Path(__file__).parent
TYPES = {torch.float32: "float", torch.float64: "double"}
HOST = torch.device("cpu")
MAX_KEPT = 2**27  # bytes of a scratch memory that is kept: enough for training sentences, not for every sentence

# Scratch memory that no thread is using: new memory would be cleared by the system, page by page, at every call.
free_scratch: list[Tensor] = []
_warned = threading.Lock()  # taken by the one warning
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]


@functools.cache
def library(source: Path, *headers: Path, define: str = "") -> ctypes.CDLL | None:
    """The compiled source, with a macro NAME=value defined.

    None, with one warning for all, if it cannot be compiled; None if NBL_NATIVE=0 asks for torch.
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
        if _warned.acquire(blocking=False):  # once, however many kernels there are
            reasons = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            reason = reasons[0] if reasons else error
            warnings.warn(f"no native kernels ({reason}): slower torch code is used", stacklevel=2)
        return None


def _build(source: Path, headers: Sequence[Path], define: str) -> Path:
    """The path of the compiled library, which is compiled now unless it is in the cache."""
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
    """What the code for this processor depends on: several machines may share a cache folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


STRUCTURES: dict[str, list[type[ctypes.Structure]]] = {}  # by library


def structure(library: str, name: str, numbers: Sequence[str], pointers: Sequence[str]) -> type[ctypes.Structure]:
    """The struct of this name in <library>.cpp or its headers: int64_t numbers, then pointers."""
    fields = [*((field, ctypes.c_int64) for field in numbers), *((field, ctypes.c_void_p) for field in pointers)]
    found = type(name, (ctypes.Structure,), {"_fields_": fields})
    STRUCTURES.setdefault(library, []).append(found)
    return found


@functools.cache
def load(name: str, dtype: torch.dtype) -> ctypes.CDLL | None:
    """<name>.cpp for numbers of this type, compiled at the first call; None if it cannot be compiled."""
    if dtype not in TYPES:
        return None
    found = library(FOLDER / f"{name}.cpp", *sorted(FOLDER.glob("*.h")), define=f"NBL_FLOAT={TYPES[dtype]}")
    for struct in STRUCTURES.get(name, ()) if found is not None else ():
        size = getattr(found, f"sizeof_{struct.__name__}")()
        assert size == ctypes.sizeof(struct), f"{name}.cpp: {struct.__name__} has {size} bytes, in Python it differs"
    return found


def kernel(name: str, dtype: torch.dtype) -> ctypes.CDLL:
    """The same, where it is known to be there."""
    found = load(name, dtype)
    assert found is not None
    return found


def count(function: Callable[..., int], problem: ctypes.Structure) -> int:
    """What a native function of type int64_t says of a problem, such as the bytes of scratch memory it needs."""
    function.restype = ctypes.c_int64  # type: ignore[attr-defined]
    return function(ctypes.byref(problem))


def pointers(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Where the numbers of each tensor are."""
    return {name: tensor.data_ptr() for name, tensor in tensors.items()}


def description(device: torch.device) -> str:
    """What computes on a device, for the record: it decides how results are rounded."""
    kernel = load("networks", torch.float32) if device.type == "cpu" else None
    return "torch" if kernel is None else f"native, vectors of {8 * kernel.vector_bytes()} bits"


def solve_all(name: str, dtype: torch.dtype, problems: Sequence[ctypes.Structure]) -> None:
    """Call `solve` of a kernel on problems, which have a `length` in words and a pointer `scratch`.

    Each is solved by one thread, so results do not depend on the number of threads.
    """
    solver = kernel(name, dtype)
    problems = sorted(problems, key=lambda it: -it.length)  # so that no thread is left with a long one at the end
    run_all(solver.solve, problems, count(solver.scratch_bytes, problems[0]))


def run_all(function: Callable[[object], object], problems: Sequence[ctypes.Structure], scratch_bytes: int) -> None:
    """Call a native function on each problem, with that many bytes of `scratch`; each is done by one thread."""
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


@functools.cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: starting them costs a millisecond."""
    return ThreadPoolExecutor(threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # a child process has none of them


class Scratch:
    """At least `size` bytes, taken from the free memory if it has enough; returned to it in the end."""

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
