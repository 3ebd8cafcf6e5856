"""Batches of equal length."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from nbl.corpus.batches import MAX_BATCH, MAX_CHART, shuffled_batches, sorted_batches, to_tensors
from nbl.sentence import Sentence

LENGTHS = st.lists(st.integers(1, 12), max_size=80)


def shuffled(lengths, batch_size=4, longest=40, seed=0):
    return shuffled_batches(lengths, batch_size, longest, torch.Generator().manual_seed(seed))


@given(LENGTHS, st.integers(1, 5), st.integers(2, 12), st.integers(0, 9))
def test_shuffled_batches_hold_every_sentence_of_a_fit_length_once(lengths, batch_size, longest, seed):
    batches = shuffled(lengths, batch_size, longest, seed)
    fit = [k for k, length in enumerate(lengths) if 2 <= length <= longest]
    assert sorted(k for batch in batches for k in batch) == fit
    for batch in batches:
        assert 1 <= len(batch) <= batch_size
        assert len({lengths[k] for k in batch}) == 1
    # No more batches than needed: at most one of each length is not full.
    for length in {lengths[k] for k in fit}:
        sizes = [len(batch) for batch in batches if lengths[batch[0]] == length]
        assert sum(size < batch_size for size in sizes) <= 1


def test_shuffled_batches_change_members_and_order_with_the_generator_only():
    lengths = [5] * 30 + [7] * 30
    first, second = shuffled(lengths, seed=0), shuffled(lengths, seed=1)
    assert first == shuffled(lengths, seed=0)
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    assert [lengths[batch[0]] for batch in first] != [lengths[batch[0]] for batch in second]
    # Lengths come mixed, not one after the other.
    of_batches = [lengths[batch[0]] for batch in first]
    assert of_batches not in (sorted(of_batches), sorted(of_batches, reverse=True))


@given(st.lists(st.integers(2, 200), max_size=200))
def test_sorted_batches_hold_every_sentence_once_and_fit_in_memory(lengths):
    batches = sorted_batches(lengths)
    assert sorted(k for batch in batches for k in batch) == list(range(len(lengths)))
    assert [lengths[batch[0]] for batch in batches] == sorted(lengths[batch[0]] for batch in batches)
    for batch in batches:
        assert len({lengths[k] for k in batch}) == 1
        assert len(batch) <= MAX_BATCH
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] ** 3 <= MAX_CHART


def test_sorted_batches_are_small_for_long_sentences_only():
    assert [len(batch) for batch in sorted_batches([10] * 70 + [40] * 9 + [100] * 2)] == [64, 6, 8, 1, 1, 1]


def test_to_tensors():
    sentences = [Sentence("a", ["x", "y"], [1, 2]), Sentence("b", ["y", "z"], [2, 3])]
    words, lengths = to_tensors(sentences, torch.device("cpu"))
    assert words.tolist() == [[1, 2], [2, 3]]
    assert lengths.tolist() == [2, 2]
    assert words.dtype == lengths.dtype == torch.int64
