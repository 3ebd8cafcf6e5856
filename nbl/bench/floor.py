"""The time below which a training step of the NBL-PCFG cannot fall.

Its matrix products at the machine's own rate, and eight passes over the parameters at the machine's memory rate: the
gradient is written and read again, the parameter and Adam's two moments are each read and written.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from nbl.models.nblpcfg import NBLPCFG

PASSES = 8


def floor(model: NBLPCFG, batches: Sequence[Tensor], gflops: float, gigabytes: float) -> float:
    """Mean milliseconds a step of the NBL-PCFG cannot fall below on this machine."""
    operations = sum(neural_operations(model, words) + inside_operations(model, *words.shape) for words in batches)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return operations / len(batches) / gflops / 1e6 + PASSES * 4 * parameters / gigabytes / 1e6


def neural_operations(model: NBLPCFG, words: Tensor) -> float:
    """Of the networks' matrix products, forwards and twice that backwards, for the distinct words."""
    (NT, dim), d_H, V, S = model.u_A.shape, len(model.u_Hw), model.vocab_size, model.S
    distinct = len(words.unique())
    products = (d_H + NT) * dim * V  # p(w|H), p(w|A)
    products += distinct * NT * dim * (2 * dim + d_H) + (distinct + NT) * dim * dim  # p(H|A,w)
    products += (d_H + NT + 1) * 5 * dim * dim + 3 * d_H * dim * S  # residual networks; p(B|H), p(C,D|H)
    return 3 * 2 * products


def inside_operations(model: NBLPCFG, b: int, l: int) -> float:
    """Of the inside and outside pass: O(l^4 d_H) for the splits, O(l^3 m d_H) for the contractions."""
    NT, d_H = len(model.u_A), len(model.u_Hw)
    spans = [(w, l - w + 1) for w in range(2, l + 1)]
    rows = sum(n * w for w, n in spans)  # (span, head)
    splits = sum(n * w * (w - 1) for w, n in spans)  # (span, head, split point)
    closed = sum(n * 2 * NT for _, n in spans)  # p(C, D | H) once the words are summed
    return 3 * 2 * b * d_H * (splits + 3 * NT * rows + closed)
