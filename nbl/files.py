"""Files: written so that a reader never sees half of one, read with errors in one sentence, locked, and checked."""

from __future__ import annotations

import fcntl
import gzip
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from nbl.errors import UserError

MAX_BYTES = 2**30  # of a text file


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it replaces `path`, otherwise it is removed.

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
    """Yield a temporary folder; on success its files replace those in `folder`, otherwise it is removed.

    Nothing moves before everything is written. Then the files move one by one, the one called `last` at the end:
    it must show whether the others belong together.
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


def write_text(path: str | Path, text: str) -> None:
    """Write a whole text file, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_text(path: str | Path) -> str:
    """Read a whole UTF-8 text file, which may be compressed (.gz); anything else is named and refused."""
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


@contextmanager
def holding(
    paths: Sequence[Path], busy: str, notice: Callable[[str], None], poll_seconds: float = 1.0
) -> Iterator[int]:
    """Hold the lock on the first of these files or folders that no other process holds, and yield its position.

    While all are held, wait, after one notice of `busy`. The system releases a lock however its process ends. Where the
    file system has no locks, nobody waits.
    """
    noticed = False
    while True:
        for position, path in enumerate(paths):
            try:
                handle = os.open(path, os.O_RDONLY)
            except OSError as error:
                raise UserError(f"cannot lock {path}: {error.strerror}") from error
            try:
                if _lock(handle):
                    yield position
                    return
            finally:
                os.close(handle)
        if not noticed:
            notice(busy)
            noticed = True
        time.sleep(poll_seconds)


@contextmanager
def alone_in(folder: str | Path, notice: Callable[[str], None], poll_seconds: float = 1.0) -> Iterator[None]:
    """Wait until no other process is in such a block with this folder, which is made if there is none."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error
    busy = f"another process is at work in {folder}: waiting for its end"
    with holding([folder], busy, notice, poll_seconds):
        yield


def _lock(handle: int) -> bool:
    """Whether the lock is ours now, or there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def mismatches(folder: Path) -> dict[Path, list[str]]:
    """For each checksum file in the folder, as `sha256sum` writes it: names of files that are gone or have other bytes.

    A checksum file that all files match is left out; one that cannot be read is itself a mismatch.
    """
    result = {}
    for sums in sorted(folder.glob("*.sha256")):
        lines = [line.split(maxsplit=1) for line in sums.read_text(encoding="utf-8", errors="replace").splitlines()]
        if not lines or any(len(line) != 2 for line in lines):
            result[sums] = [sums.name]
        elif wrong := [name for checksum, name in lines if _sha256(folder / name) != checksum]:
            result[sums] = wrong
    return result


def set_aside(folder: Path) -> list[str]:
    """Rename damaged files to NAME.damaged and remove the checksums they fail, so that the step is done again.

    Returns a sentence for each.
    """
    sentences = []
    for sums, names in mismatches(folder).items():
        for name in names:
            path = folder / name
            if path == sums or not path.exists():
                sentences.append(f"{path} is {'damaged' if path == sums else 'missing'}: it will be made again")
            else:
                path.replace(path.with_name(f"{name}.damaged"))
                sentences.append(f"{path} is damaged: it will be made again, what was there is {name}.damaged now")
        sums.unlink()
    return sentences


def _sha256(path: Path) -> str:
    """The checksum of a file; "" if there is none."""
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
