"""Decoders: from the posteriors or the rules of sentences to their trees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parse:
    """One sentence's analysis.

    `spans`: (i, j, label) of every constituent of two or more words, half-open, label None where the
    decoder gives none. `heads`: 1-based head of each word, 0 = root; None for grammars without heads.
    `log_prob`: CYK: log p of the returned tree; MBR: log p of the sentence.
    """

    spans: list[tuple[int, int, int | None]]
    heads: list[int] | None
    log_prob: float
