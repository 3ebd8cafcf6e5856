"""`nbl diff`: what commits did to the paper."""

from __future__ import annotations

from pathlib import Path

from nbl.paper.diff import as_markdown, as_text, changes


def diff(old: str, new: str | None, markdown: bool) -> None:
    found = list(changes(Path.cwd(), old, new))
    if not found:
        print(f"no difference between {old} and {new or 'the files here'}")
    else:
        print(as_markdown(found) if markdown else as_text(found))
