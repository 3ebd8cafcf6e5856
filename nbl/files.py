"""Writing files so that a reader sees the old contents or the new, never half of them."""

from __future__ import annotations

import fcntl
import gzip
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nbl.errors import UserError

MAX_BYTES = 2**30  # of a text file


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it takes the place of `path`, else it goes.

    An operating-system error (disk full, no permission) becomes a `UserError`; `path` is untouched.
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        os.close(handle)
        temporary.chmod(0o666 & ~_umask())
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; its old contents are untouched") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing_files(folder: str | Path, last: str) -> Iterator[Path]:
    """Give a temporary folder; on success its files take the place of those in `folder`, else it goes.

    Nothing moves before everything is written. The files then move one by one, that called `last` at the end:
    it must tell whether the others belong together.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
            yield Path(name)
            new = sorted(Path(name).iterdir(), key=lambda path: path.name == last)
            for path in new:
                if (folder / path.name).is_dir():
                    raise UserError(f"cannot write {folder / path.name}: it is a folder; nothing was changed")
            for path in new:
                path.replace(folder / path.name)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error


@contextmanager
def alone_in(folder: str | Path, notice: Callable[[str], None], poll_seconds: float = 1.0) -> Iterator[None]:
    """Wait until no other process is in such a block with this folder.

    The lock is one on the folder itself, which the system releases however a process ends. Where the file system
    has no such locks, nobody waits.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    try:
        told = False
        while not _lock(handle):
            if not told:
                notice(f"another process is at work in {folder}: waiting for its end")
                told = True
            time.sleep(poll_seconds)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    """Whether the lock is ours now, or there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def read_text(path: str | Path) -> str:
    """A whole UTF-8 text file, which may be compressed (.gz); what is not one is named and refused."""
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_BYTES:
        raise UserError(f"{path} has more than {MAX_BYTES:,} bytes; divide it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x}"
        raise UserError(f"{path}, line {line}: {found} is not UTF-8; convert the file to UTF-8") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}, line {line}: a NUL byte; this is not a text file")
    return text


def write_text(path: str | Path, text: str) -> None:
    """Write a whole text file, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
