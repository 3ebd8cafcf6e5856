"""Tables of spans, and what charts in scaled probabilities share."""

from __future__ import annotations

import torch
from torch import Tensor


class SpanTable:
    """Values of all spans, kept twice so that all splits of all spans of a width are two slices.

    starting[i, b, k] and ending[j, b, l - k] both hold the value of the span of width k from i to j.
    """

    def __init__(self, like: Tensor, l: int, b: int, *size: int) -> None:
        self.l = l
        self.starting = like.new_zeros(l + 1, b, l + 1, *size)
        self.ending = like.new_zeros(l + 1, b, l + 1, *size)

    def __getitem__(self, width: int) -> Tensor:
        """[n, b, ...]: the spans of a width."""
        return self.starting[: self.l - width + 1, :, width]

    def __setitem__(self, width: int, value: Tensor) -> None:
        self.starting[: self.l - width + 1, :, width] = value
        self.ending[width:, :, self.l - width] = value

    def left(self, width: int, least: int = 1) -> Tensor:
        """[n, b, k, ...]: the left parts of the spans of a width, both parts of `least` words or more."""
        return self.starting[: self.l - width + 1, :, least : width - least + 1]

    def right(self, width: int, least: int = 1) -> Tensor:
        """[n, b, k, ...]: the right parts, in the order of `left`."""
        return self.ending[width:, :, self.l - width + least : self.l - least + 1]


def mirrored(x: Tensor, axes: int = 1) -> Tensor:
    """x [b, ...] and its mirror image, in which that many axes after b are turned: [2b, ...]."""
    return torch.cat([x, x.flip(tuple(range(1, 1 + axes)))])


def joined(x: Tensor) -> Tensor:
    """The sum of both halves of x [2b, i, h, ...], the second one turned back: [b, i, h, ...]."""
    left, right = x.chunk(2)
    return left + right.flip(1, 2)


def normalised(x: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x divided by its largest value along the last axis, its log-scale after that, and the divisor."""
    largest = x.detach().amax(-1)
    norm = torch.where(largest > torch.finfo(x.dtype).tiny, largest, 1)
    return x / norm[..., None], torch.where(largest > 0, log_scale + norm.log(), -torch.inf), norm


def finite(log_scale: Tensor) -> Tensor:
    """A scale that can be subtracted from -inf."""
    return log_scale.clamp(min=torch.finfo(log_scale.dtype).min)
