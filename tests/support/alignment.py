"""Finding the treebank sample in the open text, and what of it recurs later: how the constants of
`nbl.corpus.sources` were found, and how they are checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from nbl.corpus.folder import UNKNOWN

Words = list[str]


class Alignment(NamedTuple):
    """Where the sample's sentences are in the text; every number is a sentence's index, from 0."""

    pairs: list[tuple[int, int]]  # (text, sample), both ascending
    missing: list[int]  # sample sentences that the text lacks
    unmatched: list[int]  # text sentences before `boundary` that the sample lacks
    boundary: int  # the first text sentence after the last one found in the sample


class _Run(NamedTuple):
    """Sample sentences start .. end - 1 are found side by side on this diagonal, after those of `past`."""

    diagonal: int
    start: int
    end: int
    past: _Run | None


_Frontier = dict[int, tuple[int, _Run | None]]  # diagonal -> the sample sentence reached, and how


def align(text: Sequence[Words], sample: Sequence[Words]) -> Alignment:
    """Find the sample at the head of the text: in order, leaving out as few sentences as possible.

    Left out are sample sentences that the text lacks and text sentences that the sample lacks; text
    after the sample's end is free. A pair must be equal, but that `<unk>` in the text hides any word.

    For each count of sentences left out, the furthest point is kept on every diagonal (text index
    minus sample index): the algorithm of Myers (1986), as in diff. The work beyond reading both once
    grows with the square of that count. It is an error if half the sample's number must be left out.
    """
    frontier: _Frontier = {0: (0, None)}
    for _ in range((len(sample) + 1) // 2):
        for diagonal, (start, past) in frontier.items():
            i = start
            while i < len(sample) and i + diagonal < len(text) and _hides(text[i + diagonal], sample[i]):
                i += 1
            if i > start:
                frontier[diagonal] = i, _Run(diagonal, start, i, past)
        ends = [diagonal for diagonal, (i, _) in frontier.items() if i == len(sample)]
        if ends:  # if several leave out as few, take the one that finds most of the sample
            return _alignment(frontier[max(ends)][1], len(sample))
        frontier = _leave_one_out(frontier)
    raise ValueError(
        f"the treebank sample ({len(sample)} sentences) is not at the head of the text "
        f"({len(text)} sentences); give the trees of wsj_0001 to wsj_0199, in order"
    )


def _hides(text_words: Words, words: Words) -> bool:
    """Can the text's sentence be this one, some of its words hidden by `<unk>`?"""
    if len(text_words) != len(words):
        return False
    return all(t in (w, UNKNOWN) for t, w in zip(text_words, words, strict=True))


def _leave_one_out(frontier: _Frontier) -> _Frontier:
    """The furthest points after one more sentence of the sample, or of the text, is left out."""
    further: _Frontier = {}
    for diagonal, (i, past) in frontier.items():
        for new_diagonal, new_i in ((diagonal - 1, i + 1), (diagonal + 1, i)):
            if new_diagonal not in further or further[new_diagonal][0] < new_i:
                further[new_diagonal] = new_i, past
    return further


def _alignment(run: _Run | None, sample_length: int) -> Alignment:
    pairs: list[tuple[int, int]] = []
    while run is not None:
        pairs.extend((i + run.diagonal, i) for i in reversed(range(run.start, run.end)))
        run = run.past
    pairs.reverse()
    boundary = pairs[-1][0] + 1
    in_text, in_sample = ({pair[side] for pair in pairs} for side in (0, 1))
    return Alignment(
        pairs,
        missing=[i for i in range(sample_length) if i not in in_sample],
        unmatched=[j for j in range(boundary) if j not in in_text],
        boundary=boundary,
    )


def leaks(
    train: Sequence[Sequence[Hashable]], test: Sequence[Sequence[Hashable]], min_length: int = 5
) -> dict[int, list[int]]:
    """Test sentences of `min_length` or more words that are in `train`: their indices, and where.

    Give the word numbers that a model sees. What is left once the held-out head is gone are sentences
    that the newspaper printed again; numbers and unknown words, which all look alike, add to them.
    """
    places: defaultdict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    for index, sentence in enumerate(train):
        places[tuple(sentence)].append(index)
    keys = (tuple(sentence) for sentence in test)
    return {index: places[key] for index, key in enumerate(keys) if len(key) >= min_length and key in places}
