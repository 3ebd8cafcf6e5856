"""Native CPU kernels: C++ sources of the package, compiled at first use.

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
from collections.abc import Sequence
from pathlib import Path

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
