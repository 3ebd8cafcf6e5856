"""This process and its machine: memory and threads, the device it computes on, signals, and what is recorded of them.

torch is imported only where a function needs it: memory and threads must be settled before.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from nbl.errors import UserError
from nbl.files import holding

if TYPE_CHECKING:
    import torch

# Of malloc.h. The first is as large as glibc allows.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD = -3, -1, -2
LARGE, ALL, STEP = 32 * 2**20, 2**31 - 1, 64 * 2**20  # bytes
DEVICES = "auto, cpu, cuda or cuda:N"


def share_cores() -> None:
    """Let threads that wait for work fall asleep soon, but not at once.

    Where jobs share cores, and while the native kernels have threads of their own, spinning takes the time of those
    that work; but to wake a sleeping thread for each of a training step's many small products costs more.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "4000")


def keep_freed_memory() -> None:
    """Have malloc keep what is freed: else it hands large tensors back, and the system clears their pages each time.

    Only glibc has this setting; elsewhere nothing happens.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in ((M_MMAP_THRESHOLD, LARGE), (M_TRIM_THRESHOLD, ALL), (M_TOP_PAD, STEP)):
        mallopt(parameter, value)


def device_type(name: str) -> str:
    """ "cpu" or "cuda" for a device's name: `auto` is a GPU where there is one."""
    import torch

    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", name):
        raise UserError(f"unknown device {name!r}: choose {DEVICES}")
    devices = torch.cuda.device_count()
    if name == "auto":
        return "cuda" if devices else "cpu"
    if name.startswith("cuda") and int(name[5:] or 0) >= devices:
        raise UserError(f"there is no device {name!r}, torch sees {devices} GPUs: choose {DEVICES}")
    return name[:4].rstrip(":")


@contextmanager
def use_device(name: str, notice: Callable[[str], None] = lambda text: None) -> Iterator[torch.device]:
    """The device of that name. `auto` takes a GPU that no other `auto` holds, and waits for one."""
    import torch

    if device_type(name) == "cpu":
        yield torch.device("cpu")
        return
    # The same bytes from the same seed: torch takes the deterministic kernel wherever it has one.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # Products in full single precision: TF32 keeps 10 bits of a factor, and torch has it on for LSTMs.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
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
    """Hold the first device whose lock is free, and yield its position; wait if all are taken.

    The ids must be the same in every process of this user, even if each sees other devices.
    """
    folder = folder or Path(tempfile.gettempdir()) / f"nbl-devices-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    locks = [folder / f"{id}.lock" for id in ids]
    for lock in locks:
        lock.touch()
    with holding(locks, f"waiting for one of {len(ids)} GPUs, all in use by other runs", notice, poll_seconds) as n:
        yield n


class Interrupted(Exception):
    """A signal asked for an end; `exit_code` is the one that stands for it."""

    def __init__(self, number: int):
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Listener:
    """`pending` is the number of the signal that came, 0 if none did."""

    pending = 0

    def check(self) -> None:
        """Raise `Interrupted` if a signal came. Call it where all is in a state to be saved."""
        if self.pending:
            raise Interrupted(self.pending)


@contextmanager
def listening() -> Iterator[Listener]:
    """Have the first SIGINT or SIGTERM wait for `check`; a second one takes effect at once."""
    listener = Listener()
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield listener
        return

    def note(number: int, frame: object) -> None:
        listener.pending = number
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield listener
    finally:
        restore()


def environment(device: torch.device) -> dict[str, str]:
    """Program versions and hardware. A run records them, and may be resumed where they differ."""
    import torch

    from nbl import native

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "nbl": _version(),
        "commit": commit_of(Path(__file__).parent.parent),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "device": name,
        "kernels": native.description(device),
    }


def commit_of(root: Path) -> str:
    """The commit of the code in a checkout, "-dirty" if changed since, "unknown" outside a repository."""
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _processor() -> str:
    """The name of its model, where the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _version() -> str:
    try:
        return version("nbl")
    except PackageNotFoundError:
        return "not installed"
