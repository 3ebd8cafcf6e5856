"""What predictions say beyond scores: agreement between seeds, headedness, adjective-noun phrases."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from statistics import fmean

from nbl import metrics
from nbl.corpus.clean import bare_label
from nbl.corpus.own import SCHEMES
from nbl.corpus.sentence import Sentence
from nbl.predictions import Prediction
from nbl.report.frame import LABELS, Results
from nbl.report.plan import LEXICALISED, MODELS

ALL = "all predicted"
NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
SHAPES = ("right", "left", "neither")

Shares = dict[str, dict[int, float]]  # name -> seed -> per cent


def self_f1(results: Results) -> dict[str, dict[int, float]]:
    """Of each run, how far each seed's MBR trees agree with the other seeds', in per cent."""
    lengths = [len(sentence) for sentence in results.test]
    agreements = {}
    for run, experiment in results.plan.experiments.items():
        pairs: dict[int, list[float]] = defaultdict(list)
        with without_collection():
            for seeds, score in metrics.self_f1(results.spans(experiment, "mbr"), lengths).items():
                for seed in seeds:
                    pairs[seed].append(100 * score.value)
        agreements[run] = {seed: fmean(scores) for seed, scores in pairs.items()}
    return agreements


@contextmanager
def without_collection() -> Iterator[None]:
    """No search for cycles among the millions of small lists of predictions: it would take most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def gold_left_headed(sentences: Iterable[Sentence]) -> dict[str, float]:
    """Share of the gold constituents of each label that their first word heads, in per cent."""
    counts: dict[str, list[bool]] = defaultdict(list)
    for sentence in sentences:
        gold = gold_heads(sentence)
        for i, j, label in sentence.spans or []:
            if gold is not None and (head := head_word(gold, i, j)) is not None:
                counts[bare_label(label)].append(head == i)
    return {label: 100 * fmean(flags) for label, flags in counts.items() if label in LABELS}


def headedness(results: Results) -> dict[str, tuple[Shares, Shares]]:
    """Of each lexicalised grammar: left-headed and rightly headed shares of the gold constituents it found.

    From CYK trees, whose heads belong to their constituents. Under `ALL`: the left-headed share of all
    predicted constituents, right or wrong.
    """
    tables = {}
    for role in LEXICALISED:
        left: Shares = defaultdict(dict)
        right: Shares = defaultdict(dict)
        for seed, predictions in results.predictions(results.plan.find(role), "cyk").items():
            lefts, rights = _headed(results.test, predictions)
            for label, flags in lefts.items():
                left[label][seed] = 100 * fmean(flags)
            for label, flags in rights.items():
                right[label][seed] = 100 * fmean(flags)
        tables[role] = (left, right)
    return tables


def _headed(
    sentences: Sequence[Sentence], predictions: Sequence[Prediction]
) -> tuple[dict[str, list[bool]], dict[str, list[bool]]]:
    left: dict[str, list[bool]] = defaultdict(list)
    right: dict[str, list[bool]] = defaultdict(list)
    for sentence, prediction in zip(sentences, predictions, strict=True):
        gold, heads = gold_heads(sentence), prediction.heads
        if heads is None:
            continue
        found = {(i, j) for i, j, _ in prediction.spans}
        left[ALL] += [head == i for i, j in found if (head := head_word(heads, i, j)) is not None]
        for i, j, label in sentence.spans or []:
            if (i, j) not in found or (name := bare_label(label)) not in LABELS:
                continue
            head = head_word(heads, i, j)
            if head is not None and gold is not None:
                left[name].append(head == i)
                right[name].append(head == head_word(gold, i, j))
    return left, right


def gold_heads(sentence: Sentence) -> list[int] | None:
    """The gold heads by the best scheme a sentence has."""
    return next((sentence.heads[scheme] for scheme in SCHEMES if scheme in sentence.heads), None)


def head_word(heads: Sequence[int], i: int, j: int) -> int | None:
    """The one word of [i, j) whose head is outside; None where there are several.

    >>> head_word([2, 0, 2], 0, 3), head_word([2, 0, 2], 1, 3), head_word([3, 3, 0], 0, 2)
    (1, 1, None)
    """
    words = [word for word in range(i, j) if not i < heads[word] <= j]
    return words[0] if len(words) == 1 else None


def adjective_noun(results: Results) -> tuple[dict[str, Shares], int]:
    """How MBR trees bracket gold constituents of determiner, adjective, noun: shares per grammar, and their number.

    Shapes: right (a (rough market)), left ((a rough) market), or neither, where the phrase is not one.
    """
    places = [(number, i) for number, sentence in enumerate(results.test) for i in adjective_noun_places(sentence)]
    shares: dict[str, Shares] = {}
    for role in MODELS if places else ():
        of_role: Shares = {shape: {} for shape in SHAPES}
        for seed, predictions in results.predictions(results.plan.find(role), "mbr").items():
            trees = {number: {span[:2] for span in predictions[number].spans} for number, _ in places}
            shapes = [_shape(trees[number], i) for number, i in places]
            for shape in SHAPES:
                of_role[shape][seed] = 100 * shapes.count(shape) / len(shapes)
        shares[role] = of_role
    return shares, len(places)


def adjective_noun_places(sentence: Sentence) -> list[int]:
    """Where constituents of exactly determiner, adjective, noun begin."""
    tags = sentence.tags or []
    return [
        i
        for i, j in dict.fromkeys(span[:2] for span in sentence.spans or [])
        if j - i == 3 and tags[i : i + 2] == ["DT", "JJ"] and tags[i + 2] in NOUNS
    ]


def _shape(spans: set[tuple[int, int]], i: int) -> str:
    if (i, i + 3) not in spans:
        return "neither"
    return "right" if (i + 1, i + 3) in spans else "left"


class Analysis:
    """All of the above for one corpus, each part computed when it is first asked for."""

    def __init__(self, results: Results):
        self.results = results

    @cached_property
    def self_f1(self) -> dict[str, dict[int, float]]:
        return self_f1(self.results)

    @cached_property
    def gold_left_headed(self) -> dict[str, float]:
        return gold_left_headed(self.results.test)

    @cached_property
    def headedness(self) -> dict[str, tuple[Shares, Shares]]:
        return headedness(self.results)

    @cached_property
    def adjective_noun(self) -> tuple[dict[str, Shares], int]:
        return adjective_noun(self.results)

    @property
    def shapes(self) -> dict[str, Shares]:
        return self.adjective_noun[0]
