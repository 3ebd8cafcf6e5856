"""What differs from its definition is not timed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nbl.errors import UserError


def require_agreement(
    name: str, reference: str, right: Sequence[Tensor], found: Sequence[Tensor], tolerance: float
) -> None:
    """An error unless each tensor is as in the reference, up to a relative and absolute tolerance."""
    for expected, value in zip(right, found, strict=True):
        if not torch.allclose(expected, value.to(expected.dtype), rtol=tolerance, atol=tolerance):
            raise UserError(f"{name} differs from {reference} and is not timed")
