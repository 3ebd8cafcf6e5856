"""Checksums of a finished step's files, as `sha256sum` writes them, to find what was damaged later."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

SUFFIX = ".sha256"


def damaged(folder: Path) -> dict[Path, list[str]]:
    """For each checksum file in the folder that does not fit: the files that are gone or have other bytes."""
    result = {}
    for sums in sorted(folder.glob(f"*{SUFFIX}")):
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
    told = []
    for sums, names in damaged(folder).items():
        for name in names:
            path = folder / name
            if path == sums or not path.exists():
                told.append(f"{path} is {'damaged' if path == sums else 'missing'}: it will be made again")
            else:
                path.replace(path.with_name(f"{name}.damaged"))
                told.append(f"{path} is damaged: it will be made again, what was there is {name}.damaged now")
        sums.unlink()
    return told


def _sha256(path: Path) -> str:
    """The checksum of a file; "" if there is none."""
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
