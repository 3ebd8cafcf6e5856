"""What a commit did to the paper: cells, verdicts, settings, code and figures of two states of the project.

A state is a revision of the repository or the files on disk. Nothing is checked out.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from nbl.errors import UserError

CHECK = "paper_tables/{}/check.json"
FIGURES = ("paper_tables/*.png", "docs/*.png")
CODE = ("nbl", "workflow")
SMALL = 0.05  # differences of scores below it are not printed: they would all read 0.0


@dataclass(frozen=True)
class Change:
    """One line of the comparison. `what` and `where` name it; `note` puts its size into words."""

    kind: str
    where: str
    what: str
    old: str
    new: str
    note: str = ""


class State:
    """The files of a revision, or those on disk if `revision` is None."""

    def __init__(self, root: Path, revision: str | None):
        self.root, self.revision = root, revision
        if revision is not None:
            git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", refused=revision)

    def text(self, path: str) -> str | None:
        """The contents of a file, or None where there is none."""
        if self.revision is None:
            file = self.root / path
            return file.read_text(encoding="utf-8") if file.is_file() else None
        shown = subprocess.run(["git", "show", f"{self.revision}:{path}"], cwd=self.root, capture_output=True)
        return shown.stdout.decode() if shown.returncode == 0 else None

    def corpora(self) -> set[str]:
        """The corpora that have tables."""
        if self.revision is None:
            return {path.parent.name for path in self.root.glob(CHECK.format("*"))}
        listed = git(self.root, "ls-tree", "-r", "--name-only", self.revision, "paper_tables")
        return {Path(name).parent.name for name in listed.splitlines() if Path(name).name == "check.json"}

    def json(self, path: str) -> dict[str, Any]:
        try:
            return json.loads(self.text(path) or "{}")
        except ValueError as error:
            raise UserError(f"{path} of {self.revision or 'the working tree'} is damaged ({error})") from error


def git(root: Path, *arguments: str, refused: str = "") -> str:
    """What git prints. UserError if it fails: `refused` is the revision that was asked for."""
    try:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        raise UserError("git is not installed: nbl diff reads revisions with it") from error
    except subprocess.CalledProcessError as error:
        if refused:
            raise UserError(f"{refused!r} is not a revision of this repository: see git log") from error
        raise UserError(f"git {arguments[0]} failed: {error.stderr.strip()}") from error


def changes(root: Path, old: str = "HEAD", new: str | None = None) -> Iterator[Change]:
    """All changes from one state to another.

    Arguments: `root` is a checkout, `old` a revision, `new` another one or None for the files on disk.
    """
    before, after = State(root, old), State(root, new)
    for corpus in sorted(before.corpora() | after.corpora()):
        left, right = (state.json(CHECK.format(corpus)) for state in (before, after))
        yield from _cells(corpus, left, right)
        yield from _verdicts(corpus, left, right)
    yield from _settings(before, after)
    names = git(root, "diff", "--name-only", old, *([new] if new else []), "--", *CODE, *FIGURES).splitlines()
    if code := [name for name in names if name.startswith(CODE)]:
        yield Change("code", "", f"{len(code)} files", "", "", ", ".join(code[:3]) + ", ..." * (len(code) > 3))
    for name in names:
        if name.endswith(".png"):
            yield Change("figure", "", name, "", "", "changed")


def _cells(corpus: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Cells of the paper's tables whose mean, spread or number of seeds differs."""
    left, right = (
        {(cell["table"], cell["run"], cell["decoder"], cell["metric"]): cell for cell in check.get("cells", [])}
        for check in (old, new)
    )
    for key in left | right:
        a, b = left.get(key, {}), right.get(key, {})
        x, y = a.get("ours"), b.get("ours")
        if a.get("n", 0) == b.get("n", 0) and (x == y or (x is not None and y is not None and abs(y - x) < SMALL)):
            continue
        table, run, decoder, metric = key
        note = ""
        if x is not None and y is not None:
            spread = max(a["ours_std"] or 0, b["ours_std"] or 0)
            size = "within" if abs(y - x) <= spread else "beyond"
            note = f"{y - x:+.1f}, {size} one standard deviation" if spread else f"{y - x:+.1f}"
        yield Change("cell", f"{corpus} {table}", f"{run} {decoder} {metric}", _score(a), _score(b), note)


def _score(cell: Mapping[str, Any]) -> str:
    if cell.get("ours") is None:
        return "not run"
    spread = "" if cell["ours_std"] is None else f" ± {cell['ours_std']:.1f}"
    return f"{cell['ours']:.1f}{spread} (n={cell['n']})"


def _verdicts(corpus: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    left, right = ({claim["key"]: claim["verdict"] for claim in check.get("claims", [])} for check in (old, new))
    for key in left | right:
        if left.get(key) != right.get(key):
            yield Change("claim", corpus, key, left.get(key, "no such claim"), right.get(key, "no such claim"))


def _settings(old: State, new: State) -> Iterator[Change]:
    left, right = (dict(_flat(yaml.safe_load(state.text("params.yaml") or "{}"))) for state in (old, new))
    for key in left | right:
        if left.get(key) != right.get(key):
            yield Change("setting", "", key, str(left.get(key, "not set")), str(right.get(key, "not set")))


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested keys joined by dots.

    >>> dict(_flat({"seeds": [0, 1], "training": {"lr": 0.01}}))
    {'seeds': [0, 1], 'training.lr': 0.01}
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def as_text(found: list[Change]) -> str:
    """One line per change, each kind in columns of its own.

    >>> print(as_text([Change("claim", "toy", "nbl-best-f1", "open", "shown")]))
    claim  toy  nbl-best-f1  open -> shown
    """
    lines = []
    for kind, group in groupby(found, key=lambda change: change.kind):
        rows = [(kind, c.where, c.what, f"{c.old} -> {c.new}" if c.old or c.new else "", c.note) for c in group]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            lines.append("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True) if w).rstrip())
    return "\n".join(lines)


def as_markdown(found: list[Change]) -> str:
    """A table for a pull request."""
    lines = ["| | where | what | before | after | |", "|---|---|---|---|---|---|"]
    for change in found:
        cells = (change.kind, change.where, change.what, change.old, change.new, change.note)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
