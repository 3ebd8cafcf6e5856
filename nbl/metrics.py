"""Scores of trees and heads, perplexity, and the trivial trees to compare with: pure functions, no tensors.

Spans are half-open tuples (i, j) or (i, j, label). *Gold* spans are those of `clean.spans_of`: every
constituent of two or more words in pre-order, duplicates of unary chains included, the sentence
first; a one-word sentence has none and is never counted. *Predicted* spans come in any order; single
words and the sentence are ignored, as every tree has them. Heads are 1-based, 0 = root. All scores
are fractions of 1 and exact: other implementations add 1e-8 to denominators (a difference below 1e-7).

Two conventions are in use for the gold spans that count:

- `kim` (Kim et al. 2019): all but the one root constituent. If the root has a unary chain, the
  sentence's span stays among the gold spans and cannot be found.
- `release` (the code released with the paper): all but those of the whole sentence.

`kim`, the stricter, is the default; on NLTK's treebank sample it gives baselines 0.05 to 0.11 points less.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple, TypeVar

from nbl.errors import UserError
from nbl.sentence import bare_label

Bracket = tuple[int, int] | tuple[int, int, object]
AnyBracket = TypeVar("AnyBracket", bound=Bracket)
Run = TypeVar("Run", bound=Hashable)
Convention = Literal["kim", "release"]


class Counts(NamedTuple):
    """Spans in both sets, in the prediction only, in the gold only."""

    both: int
    predicted_only: int
    gold_only: int

    @property
    def precision(self) -> float:
        """Found share of the predicted spans; without any, 1 if there is nothing to find, else 0."""
        predicted = self.both + self.predicted_only
        return self.both / predicted if predicted else float(self.gold_only == 0)

    @property
    def recall(self) -> float:
        """Found share of the gold spans; 1 if there are none."""
        gold = self.both + self.gold_only
        return self.both / gold if gold else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 1 if both sets are empty.

        >>> Counts(2, 1, 3).f1, Counts(0, 0, 0).f1, Counts(0, 1, 0).f1
        (0.5, 1.0, 0.0)
        """
        total = 2 * self.both + self.predicted_only + self.gold_only
        return 2 * self.both / total if total else 1.0


class Mean(NamedTuple):
    """An average over the n sentences that were counted."""

    value: float
    n: int


class Recall(NamedTuple):
    """`found` of `total` gold constituents."""

    found: int
    total: int

    @property
    def value(self) -> float:
        return self.found / self.total


class Attachment(NamedTuple):
    """Unlabelled directed and undirected attachment score over `words` words."""

    udas: float
    uuas: float
    words: int


class Branching(NamedTuple):
    """Shares of `constituents` that branch to the left and to the right."""

    left: float
    right: float
    constituents: int


def compare(gold: Sequence[Bracket], predicted: Iterable[Bracket], convention: Convention = "kim") -> Counts:
    """Compare the spans of one sentence, as sets, under a convention.

    >>> chain = [(0, 3, "S"), (0, 3, "VP"), (1, 3, "NP")]
    >>> compare(chain, [(1, 3)], "kim"), compare(chain, [(1, 3)], "release")
    (Counts(both=1, predicted_only=0, gold_only=1), Counts(both=1, predicted_only=0, gold_only=0))
    """
    return _count({span[:2] for span in _counted(gold, convention)}, _nontrivial(predicted, _length(gold)))


def sentence_f1(gold: Sequence[Bracket], predicted: Iterable[Bracket], convention: Convention = "kim") -> float | None:
    """F1 of one sentence; None, i.e. not counted, for a one-word sentence.

    If no gold span counts, recall is 1 and precision 1 or 0: a two-word sentence scores 1 (unless its
    root has a chain, under `kim`), a longer flat one 0 as soon as anything is predicted.

    >>> sentence_f1([(0, 4, "S"), (1, 4, "VP")], [(0, 4), (1, 4), (2, 4)])
    0.6666666666666666
    >>> sentence_f1([(0, 2, "NP")], []), sentence_f1([(0, 3, "NP")], [(1, 3)]), sentence_f1([], [])
    (1.0, 0.0, None)
    """
    return compare(gold, predicted, convention).f1 if _length(gold) >= 2 else None


def mean_sentence_f1(
    golds: Sequence[Sequence[Bracket]],
    predictions: Sequence[Iterable[Bracket]],
    convention: Convention = "kim",
) -> Mean:
    """`sentence_f1` averaged over the sentences of two or more words: the F1 of the paper.

    >>> mean_sentence_f1([[(0, 3, "S"), (1, 3, "VP")], [(0, 2, "NP")], []], [[(0, 2)], [], []])
    Mean(value=0.5, n=2)
    """
    scores = [sentence_f1(gold, predicted, convention) for gold, predicted in zip(golds, predictions, strict=True)]
    return _mean([score for score in scores if score is not None])


def f1_by_length(
    golds: Sequence[Sequence[Bracket]],
    predictions: Sequence[Iterable[Bracket]],
    starts: Sequence[int],
    convention: Convention = "kim",
) -> dict[int, Mean]:
    """`mean_sentence_f1` per bucket of lengths, under the bucket's shortest length.

    `starts` are these lengths, ascending: a bucket ends where the next begins, the last is open.
    Sentences below the first start are left out, and so are empty buckets.

    >>> golds = [[(0, 2, "NP")], [(0, 5, "S"), (1, 5, "VP")], [(0, 4, "S"), (0, 2, "NP")]]
    >>> f1_by_length(golds, [[], [(1, 5)], [(1, 4)]], starts=[2, 4, 10])
    {2: Mean(value=1.0, n=1), 4: Mean(value=0.5, n=2)}
    """
    scores: dict[int, list[float]] = {start: [] for start in starts}
    for gold, predicted in zip(golds, predictions, strict=True):
        score = sentence_f1(gold, predicted, convention)
        bucket = bisect_right(starts, _length(gold)) - 1
        if score is not None and bucket >= 0:
            scores[starts[bucket]].append(score)
    return {start: _mean(values) for start, values in scores.items() if values}


def corpus_counts(
    golds: Sequence[Sequence[Bracket]],
    predictions: Sequence[Iterable[Bracket]],
    convention: Convention = "kim",
) -> Counts:
    """`compare` summed over all sentences; its `f1` is the corpus F1, each span of a chain once.

    >>> counts = corpus_counts([[(0, 3, "S"), (1, 3, "VP")], [(0, 2, "NP")]], [[(1, 3)], []])
    >>> counts, counts.f1
    (Counts(both=1, predicted_only=0, gold_only=0), 1.0)
    """
    both = predicted_only = gold_only = 0
    for gold, predicted in zip(golds, predictions, strict=True):
        counts = compare(gold, predicted, convention)
        both += counts.both
        predicted_only += counts.predicted_only
        gold_only += counts.gold_only
    return Counts(both, predicted_only, gold_only)


def label_recall(
    golds: Sequence[Sequence[tuple[int, int, str]]],
    predictions: Sequence[Iterable[Bracket]],
    convention: Convention = "kim",
) -> dict[str, Recall]:
    """Recall of the gold constituents per label without function tags, most frequent label first.

    Each member of a unary chain counts under its own label. A chain at the root leaves constituents
    that nothing can find: misses under `kim`, not counted under `release`. The script behind
    the paper's recalls is not public; other scripts of this kind follow `kim`.

    >>> gold = [(0, 4, "S"), (0, 2, "NP-SBJ"), (2, 4, "VP"), (2, 4, "NP")]
    >>> label_recall([gold], [[(2, 4), (1, 4)]])
    {'NP': Recall(found=1, total=2), 'VP': Recall(found=1, total=1)}
    """
    found: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for gold, predicted in zip(golds, predictions, strict=True):
        spans = _nontrivial(predicted, _length(gold))
        for i, j, label in _counted(gold, convention):
            total[bare_label(label)] += 1
            found[bare_label(label)] += (i, j) in spans
    by_frequency = sorted(total, key=lambda label: (-total[label], label))
    return {label: Recall(found[label], total[label]) for label in by_frequency}


def attachment(
    golds: Sequence[Sequence[int]],
    predictions: Sequence[Sequence[int]],
    *,
    with_root: bool = True,
    legacy: bool = False,
) -> Attachment:
    """UDAS and UUAS: the share of words with the correct head, over all sentences of two or more words.

    Directed: the predicted head is the gold head, 0 for the root. Undirected: or the gold head of the
    predicted head is the word. `with_root=False` leaves out the words whose gold head is 0.
    `legacy` repeats an error of the released code: for a predicted root, which has no head to look up,
    it takes the last word instead, so a wrong root that governs the last word counts as correct.

    >>> attachment([[2, 0, 1]], [[0, 3, 1]])
    Attachment(udas=0.3333333333333333, uuas=0.3333333333333333, words=3)
    >>> attachment([[2, 0, 1]], [[0, 3, 1]], legacy=True)
    Attachment(udas=0.3333333333333333, uuas=0.6666666666666666, words=3)
    """
    directed = undirected = words = 0
    for gold, predicted in zip(golds, predictions, strict=True):
        if len(gold) < 2:
            continue
        for word, (gold_head, head) in enumerate(zip(gold, predicted, strict=True), start=1):
            if gold_head == 0 and not with_root:
                continue
            words += 1
            directed += gold_head == head
            # gold[head - 1] is the last word's head for head = 0
            undirected += gold_head == head or ((head > 0 or legacy) and gold[head - 1] == word)
    if not words:
        raise UserError("there are no heads to score: no sentence has two or more words")
    return Attachment(directed / words, undirected / words, words)


def perplexity(log_probs: Sequence[float], lengths: Sequence[int]) -> float:
    """exp(-sum log p / sum (l + 1)): natural logarithms; each sentence's end counts as a word.

    It is an upper bound if the log p are lower bounds. Every sentence given is counted. Infinite if it
    exceeds the range of a float.

    >>> round(perplexity([-6 * math.log(10), -4 * math.log(10)], [5, 3]), 6)
    10.0
    """
    if len(log_probs) != len(lengths):
        raise ValueError(f"{len(log_probs)} log-probabilities for {len(lengths)} sentences")
    if not lengths:
        raise UserError("there is no sentence to compute the perplexity of")
    try:
        return math.exp(-math.fsum(log_probs) / sum(length + 1 for length in lengths))
    except OverflowError:
        return math.inf


def self_f1(
    predictions: Mapping[Run, Sequence[Iterable[Sequence[Any]]]], lengths: Sequence[int]
) -> dict[tuple[Run, Run], Mean]:
    """Mean sentence F1 between every two runs' trees of the same sentences: how far the runs agree.

    It is symmetric. One-word sentences are not counted; two-word sentences score 1.

    >>> self_f1({"a": [[(0, 2), (0, 3)]], "b": [[(1, 4), (0, 3)]]}, lengths=[4])
    {('a', 'b'): Mean(value=0.5, n=1)}
    """
    sets = {
        run: [_nontrivial(spans, n) for spans, n in zip(trees, lengths, strict=True) if n >= 2]
        for run, trees in predictions.items()
    }
    return {
        (a, b): _mean([_count(one, other).f1 for one, other in zip(sets[a], sets[b], strict=True)])
        for a, b in combinations(sets, 2)
    }


def branching(predictions: Sequence[Iterable[Bracket]], lengths: Sequence[int]) -> Branching:
    """How binary trees branch, over their constituents of three or more words.

    A constituent branches to the right if it is one word followed by a constituent, to the left if it
    is a constituent followed by one word; the rest consist of two constituents.

    >>> branching([[(1, 4), (2, 4)], [(0, 2)], [(0, 2), (2, 4)]], lengths=[4, 3, 4])
    Branching(left=0.25, right=0.5, constituents=4)
    """
    left = right = constituents = 0
    for predicted, n in zip(predictions, lengths, strict=True):
        spans = _nontrivial(predicted, n) | {(0, n)}
        for i, j in spans:
            if j - i >= 3:
                constituents += 1
                left += (i, j - 1) in spans
                right += (i + 1, j) in spans
    if not constituents:
        raise UserError("branching is undefined: no constituent has three or more words")
    return Branching(left / constituents, right / constituents, constituents)


# --- trivial trees: spans of two or more words in pre-order, the sentence first


def left_branching(n: int) -> list[tuple[int, int]]:
    """The tree (((1 2) 3) ... n).

    >>> left_branching(4)
    [(0, 4), (0, 3), (0, 2)]
    """
    return [(0, j) for j in range(n, 1, -1)]


def right_branching(n: int) -> list[tuple[int, int]]:
    """The tree (1 (2 ... (n-1 n))).

    >>> right_branching(4)
    [(0, 4), (1, 4), (2, 4)]
    """
    return [(i, n) for i in range(n - 1)]


def random_branching(n: int, generator: random.Random) -> list[tuple[int, int]]:
    """A random binary tree: from the top down, each span is split at a uniformly drawn fence post.

    That is not uniform over trees: of the five trees of four words, the balanced one has probability
    1/3 and each other 1/6. Only `generator.random()` is called, the one method whose sequence Python
    promises to keep: a seed gives the same trees on every machine and version.

    >>> random_branching(4, random.Random(1))
    [(0, 4), (1, 4), (1, 3)]
    """
    spans = []
    todo = [(0, n)]
    while todo:
        i, j = todo.pop()
        if j - i < 2:
            continue
        spans.append((i, j))
        k = i + 1 + int(generator.random() * (j - i - 1))
        todo += [(k, j), (i, k)]
    return spans


def oracle(gold: Iterable[Bracket]) -> list[tuple[int, int]]:
    """A binary tree with every gold constituent, so no binary tree has a better F1.

    `gold` holds the constituents of one tree, including the sentence. A constituent with more than
    two children is binarised to the right.

    >>> oracle([(0, 5, "S"), (0, 2, "NP"), (2, 5, "VP")])
    [(0, 5), (0, 2), (2, 5), (3, 5)]
    """
    constituents = {span[:2] for span in gold}
    ends = defaultdict(list)
    for i, j in constituents:
        ends[i].append(j)
    binary = set()
    for i, j in constituents:
        k = i  # steps over the children of (i, j); what remains of them, (k, j), is a span of the tree
        while j - k >= 2:
            binary.add((k, j))
            k = max((end for end in ends[k] if end < j), default=k + 1)
    return sorted(binary, key=lambda span: (span[0], -span[1]))


def _length(gold: Sequence[Bracket]) -> int:
    """The number of words of a sentence with these gold spans."""
    if not gold:
        return 1
    i, n = gold[0][:2]
    if i != 0 or any(span[1] > n for span in gold):
        raise UserError(f"gold spans must begin with the whole sentence's, not with {tuple(gold[0])}")
    return n


def _counted(gold: Sequence[AnyBracket], convention: Convention) -> list[AnyBracket]:
    """The gold constituents that count, duplicates included."""
    if convention == "kim":
        return list(gold[1:])
    if convention == "release":
        return [span for span in gold if span[:2] != gold[0][:2]]
    raise UserError(f"unknown convention {convention!r} for gold spans: choose 'kim' or 'release'")


def _nontrivial(spans: Iterable[Sequence[Any]], n: int) -> set[tuple[int, int]]:
    """The spans without labels, single words and the sentence."""
    pairs = {(span[0], span[1]) for span in spans}
    for i, j in pairs:
        if not 0 <= i < j <= n:
            raise UserError(
                f"the predicted span {(i, j)} is not in a sentence of {n} words: "
                "check that predictions and corpus belong together"
            )
    return {(i, j) for i, j in pairs if 2 <= j - i < n}


def _count(gold: set[tuple[int, int]], predicted: set[tuple[int, int]]) -> Counts:
    both = len(gold & predicted)
    return Counts(both, len(predicted) - both, len(gold) - both)


def _mean(scores: Sequence[float]) -> Mean:
    """The mean, summed exactly, so that the order of sentences does not matter."""
    if not scores:
        raise UserError("there is nothing to average: no sentence has two or more words")
    return Mean(math.fsum(scores) / len(scores), len(scores))
