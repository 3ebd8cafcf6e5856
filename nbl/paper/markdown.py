"""What the pages of results are written with."""

from __future__ import annotations

from collections.abc import Sequence

from nbl.paper.statistics import Summary


def mean(summary: Summary) -> str:
    """Mean, spread and number of seeds.

    >>> mean(Summary((58.0, 60.0), 4)), mean(Summary((58.0,), 4)), mean(Summary((), 4))
    ('59.0 ± 1.4 (2)', '58.0 (1)', '')
    """
    return f"{summary} ({summary.n})" if summary.n else ""


def decimal(value: float | None) -> str:
    """With one digit after the point; nothing for None."""
    return "" if value is None else f"{value:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of these cells."""
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
