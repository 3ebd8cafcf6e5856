"""Batches of sentences of equal length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from nbl.sentence import Sentence

MAX_BATCH = 64
# Charts grow with the cube of the length. No batch of `sorted_batches` needs more room than eight
# sentences of 40 words, the largest in training, unless one sentence alone does.
MAX_CHART = 8 * 40**3


def shuffled_batches(
    lengths: Sequence[int], batch_size: int, longest: int, generator: torch.Generator
) -> list[list[int]]:
    """The positions of all sentences of 2 to `longest` words, once each, in batches of equal length.

    Which sentences share a batch, and the order of the batches, are drawn from `generator`. The last
    batch of a length may be smaller.
    """
    positions = torch.randperm(len(lengths), generator=generator).tolist()
    batches = []
    for same in _by_length((k for k in positions if 2 <= lengths[k] <= longest), lengths):
        batches += _cut(same, batch_size)
    return [batches[k] for k in torch.randperm(len(batches), generator=generator).tolist()]


def sorted_batches(lengths: Sequence[int]) -> list[list[int]]:
    """The positions of all sentences, once each, in batches of equal length, the shortest first.

    Batches of longer sentences are smaller, so that they fit in memory.
    """
    batches = []
    for same in _by_length(sorted(range(len(lengths)), key=lengths.__getitem__), lengths):
        size = MAX_CHART // max(1, lengths[same[0]]) ** 3
        batches += _cut(same, min(MAX_BATCH, max(1, size)))
    return batches


def to_tensors(sentences: Sequence[Sentence], device: torch.device) -> tuple[Tensor, Tensor]:
    """Sentences of equal length l as a model takes them: words [b, l] and lengths [b].

    A GPU gets them from pinned memory, so that the host does not wait for the copy.
    """
    pinned = device.type == "cuda"
    words = torch.tensor([sentence.ids for sentence in sentences], pin_memory=pinned)
    lengths = torch.full(words.shape[:1], words.shape[1], pin_memory=pinned)
    return words.to(device, non_blocking=True), lengths.to(device, non_blocking=True)


def in_batches(sentences: Sequence[Sentence], device: torch.device) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """The batches of `sorted_batches`: positions of the sentences, words [b, l] and lengths [b]."""
    for batch in sorted_batches([len(sentence) for sentence in sentences]):
        yield batch, *to_tensors([sentences[k] for k in batch], device)


def _by_length(positions: Iterable[int], lengths: Sequence[int]) -> Iterable[list[int]]:
    groups = defaultdict(list)
    for position in positions:
        groups[lengths[position]].append(position)
    return groups.values()


def _cut(positions: list[int], size: int) -> list[list[int]]:
    return [positions[k : k + size] for k in range(0, len(positions), size)]
