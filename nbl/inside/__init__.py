"""Inside algorithms: one package per kind of rules."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Marginals(NamedTuple):
    """Posteriors given the sentence, for a batch right-padded to l words; padding holds 0."""

    log_prob: Tensor  # [b]   log p(w)
    spans: Tensor  # [b, i, j]   i, j fence posts 0..l; p(words[i:j] is a constituent), width >= 2
    arcs: Tensor | None  # [b, h, q]   h in 0..l, 0 the root: p(word h-1 governs word q); None: no heads
