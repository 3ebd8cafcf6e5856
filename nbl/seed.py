"""One seed a run, and independent streams of random numbers from it."""

from __future__ import annotations

from hashlib import sha256

import torch


def stream(seed: int, purpose: str) -> int:
    """The seed of one stream: streams of other purposes or other runs have nothing to do with it.

    >>> stream(0, "order") != stream(0, "z") != stream(1, "z")
    True
    """
    return int.from_bytes(sha256(f"{seed} {purpose}".encode()).digest()[:8], "big") >> 1


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator at the beginning of a stream."""
    return torch.Generator(device).manual_seed(stream(seed, purpose))
