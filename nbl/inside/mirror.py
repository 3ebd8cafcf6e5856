"""Charts that hold each sentence and its mirror image, in scaled probabilities.

A RIGHT-headed rule of a sentence is a LEFT-headed rule of its mirror image. A chart of 2b sentences, b as they are
and b mirrored, needs the LEFT case alone; the results of both halves are added with the second one turned back.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
