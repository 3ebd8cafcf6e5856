"""Where a run computes: the CPU, or one of the GPUs, shared out among the processes of this user."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from nbl.errors import UserError

NAMES = "auto, cpu, cuda or cuda:N"


def device_type(name: str) -> str:
    """ "cpu" or "cuda" for a device's name: `auto` is a GPU where there is one."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", name):
        raise UserError(f"unknown device {name!r}: choose {NAMES}")
    devices = torch.cuda.device_count()
    if name == "auto":
        return "cuda" if devices else "cpu"
    if name.startswith("cuda") and int(name[5:] or 0) >= devices:
        raise UserError(f"there is no device {name!r}, torch sees {devices} GPUs: choose {NAMES}")
    return name[:4].rstrip(":")


@contextmanager
def use_device(name: str, notice: Callable[[str], None] = lambda text: None) -> Iterator[torch.device]:
    """The device of that name. `auto` takes a GPU that no other `auto` has, and waits for one."""
    if device_type(name) == "cpu":
        yield torch.device("cpu")
        return
    # The same bytes from the same seed: torch takes the deterministic kernel wherever it has one.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if name != "auto":
        yield torch.device("cuda", int(name[5:] or 0))
        return
    ids = [str(torch.cuda.get_device_properties(n).uuid) for n in range(torch.cuda.device_count())]
    with first_free(ids, notice=notice) as n:
        yield torch.device("cuda", n)


@contextmanager
def first_free(
    ids: Sequence[str],
    folder: Path | None = None,
    poll_seconds: float = 1.0,
    notice: Callable[[str], None] = lambda text: None,
) -> Iterator[int]:
    """The position of the first device whose lock is free, ours until the end; waits if all are taken.

    The lock is one on a file, which the system releases however a process ends. The ids must be the
    same in every process, even if each sees other devices.
    """
    folder = folder or Path(tempfile.gettempdir()) / f"nbl-devices-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    told = False
    while True:
        for position, id in enumerate(ids):
            with (folder / f"{id}.lock").open("w") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield position
                return
        if not told:
            notice(f"waiting for one of {len(ids)} GPUs, all in use by other runs")
            told = True
        time.sleep(poll_seconds)
