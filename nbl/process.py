"""How this process uses the machine: to be settled before torch is imported."""

from __future__ import annotations

import ctypes
import os

# Of malloc.h. The first is as large as glibc allows.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD = -3, -1, -2
LARGE, ALL, STEP = 32 * 2**20, 2**31 - 1, 64 * 2**20  # bytes


def share_cores() -> None:
    """Let threads that wait for work fall asleep soon, but not at once.

    Where jobs share cores, and while the native kernels have threads of their own, spinning takes the time of those
    that work; but to wake a sleeping thread for each of a training step's many small products costs more.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "4000")


def keep_freed_memory() -> None:
    """Have malloc keep what is freed: else it hands large tensors back, and the system clears their pages each time.

    Only glibc can be told so; elsewhere nothing happens.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in ((M_MMAP_THRESHOLD, LARGE), (M_TRIM_THRESHOLD, ALL), (M_TOP_PAD, STEP)):
        mallopt(parameter, value)
