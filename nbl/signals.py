"""Ctrl-C and SIGTERM, heard at moments that lose nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """A signal asked for an end; `exit_code` is the one that tells so."""

    def __init__(self, number: int):
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Listener:
    """`pending` is the number of the signal that came, 0 if none did."""

    pending = 0

    def check(self) -> None:
        """Raise `Interrupted` if a signal came: to be called where all is in a state to be saved."""
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
