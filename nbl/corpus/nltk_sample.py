"""Finding and reading NLTK's sample of the Penn Treebank (`treebank`, 199 files, 3,914 trees).

It is licensed for non-commercial use and is not part of this package.
"""

from __future__ import annotations

import socket
import zipfile
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from nbl.errors import UserError

STEMS = [f"wsj_{number:04d}" for number in range(1, 200)]
FIRST_DEV, FIRST_TEST = "wsj_0130", "wsj_0150"
MAX_FILE_BYTES = 1_000_000  # the largest file has 150 kB
DOWNLOAD_SECONDS = 20


def split_of(stem: str) -> str:
    """wsj_0001-0129 train, 0130-0149 dev, 0150-0199 test."""
    return "train" if stem < FIRST_DEV else "dev" if stem < FIRST_TEST else "test"


def read_files(path: str | Path | None = None) -> dict[str, str]:
    """The text of each file by its stem, in order.

    `path` is treebank.zip, the folder with the files, or a folder of NLTK's data with either in it;
    without it NLTK's data folders are searched (NLTK_DATA among them), and at last NLTK downloads it.
    """
    if path is not None:
        found = locate(Path(path))
        if found is None:
            raise UserError(f"no treebank.zip and no wsj_0001.mrg in --source {path}")
        return _read(found)
    if found := installed() or _download():
        return _read(found)
    raise UserError(
        "NLTK's treebank sample is in none of NLTK's data folders and could not be downloaded; "
        "fetch it elsewhere with `python -m nltk.downloader treebank` and set NLTK_DATA to the folder it is in"
    )


def installed() -> Path | None:
    """The sample in one of NLTK's data folders."""
    import nltk.data  # a second's start-up that only this function needs

    return next(filter(None, (locate(Path(folder)) for folder in nltk.data.path)), None)


def locate(path: Path) -> Path | None:
    """The zip file or the folder of .mrg files that `path` is or contains."""
    if path.is_file():
        return path
    for folder in (path, path / "combined", path / "treebank/combined", path / "corpora/treebank/combined"):
        if (folder / "wsj_0001.mrg").is_file():
            return folder
    return next((file for file in (path / "treebank.zip", path / "corpora/treebank.zip") if file.is_file()), None)


def _download() -> Path | None:
    """Let NLTK fetch the sample into its default folder; None where there is no network."""
    import nltk

    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_SECONDS)
    try:
        folder = nltk.downloader.Downloader().default_download_dir()
        with redirect_stderr(StringIO()):  # it says at length that there is no network
            done = nltk.download("treebank", download_dir=folder, quiet=True)
        return locate(Path(folder)) if done else None
    except (OSError, ValueError):
        return None
    finally:
        socket.setdefaulttimeout(timeout)


def _read(found: Path) -> dict[str, str]:
    try:
        if found.is_dir():
            return {stem: (found / f"{stem}.mrg").read_text(encoding="utf-8") for stem in STEMS}
        with zipfile.ZipFile(found) as archive:
            return {stem: _member(archive, f"treebank/combined/{stem}.mrg") for stem in STEMS}
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError, KeyError) as error:
        raise UserError(f"{found} is not NLTK's complete treebank sample: {error}") from error


def _member(archive: zipfile.ZipFile, name: str) -> str:
    """One file of the archive, refused unread if it would unpack to something far too large."""
    size = archive.getinfo(name).file_size
    if size > MAX_FILE_BYTES:
        raise UserError(f"{name} in {archive.filename} unpacks to {size} bytes: not NLTK's treebank sample")
    return archive.read(name).decode()
