"""A prepared corpus on disk: what `nbl prepare` writes and every later step reads.

`train.jsonl`, `dev.jsonl`, `test.jsonl`, `vocab.txt`, and last of all `stats.json`, which describes
the others and holds their checksums: a folder without it, or with other contents, is refused.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from nbl import baselines, metrics
from nbl.corpus.clean import WORD_TAGS, bare_label
from nbl.corpus.sentence import MAX_LENGTH, SPLITS, Sentence, read_sentences, write_sentences
from nbl.corpus.vocab import MAX_WORDS, Vocabulary
from nbl.errors import UserError
from nbl.files import replacing_files, write_text


class Raw(NamedTuple):
    """A cleaned sentence, not yet numbered, and the (tag, word) pairs it came from, traces left out."""

    sentence: Sentence
    leaves: list[tuple[str, str]]


Splits = dict[str, list[Sentence]]


@dataclass
class Source:
    """Sentences as they come from a source, those of one word or none included."""

    name: str
    splits: dict[str, list[Raw]]
    checksum: str  # sha256 of the source's contents
    # what only this source can tell of the numbered sentences, for stats.json
    facts: Callable[[Splits], dict[str, Any]] = lambda _: {}
    lexicon: list[str] = field(default_factory=list)  # all words there are, where that is known


@dataclass
class Corpus:
    """A prepared corpus in memory."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]
    vocabulary: Vocabulary
    stats: dict[str, Any]

    @property
    def identity(self) -> dict[str, str]:
        """Its name and the checksums of its files and its vocabulary."""
        files = json.dumps(self.stats["files"], sort_keys=True)
        return {
            "name": self.stats["corpus"],
            "sha256": sha256(files.encode()).hexdigest(),
            "vocabulary_sha256": self.vocabulary.digest,
        }


def write_corpus(source: Source, folder: str | Path, max_words: int = MAX_WORDS, min_count: int = 1) -> dict[str, Any]:
    """Number the words, drop sentences of fewer than two, write the folder; return the statistics.

    The vocabulary is counted on all training sentences, before any is dropped.
    """
    folder = Path(folder)
    train = [raw.sentence.words for raw in source.splits["train"]]
    vocabulary = Vocabulary.of(train, max_words, min_count, source.lexicon)
    stats: dict[str, Any] = {
        "corpus": source.name,
        "source_sha256": source.checksum,
        "max_words": max_words,
        "min_count": min_count,
        "vocabulary": len(vocabulary),
        "vocabulary_sha256": vocabulary.digest,
        "splits": {},
    }
    kept: Splits = {}
    for split in SPLITS:
        raws = source.splits.get(split, [])
        kept[split] = [raw.sentence for raw in raws if len(raw.sentence) >= 2]
        for sentence in kept[split]:
            if len(sentence) > MAX_LENGTH:
                raise UserError(f"{sentence.id}: {len(sentence)} words in a sentence (at most {MAX_LENGTH}); divide it")
            sentence.ids = vocabulary.ids(sentence.words)
        stats["splits"][split] = _losses(raws) | describe(kept[split])
    if not kept["train"]:
        raise UserError(f"the corpus {source.name!r} has no training sentence of two or more words")
    stats |= source.facts(kept)

    with replacing_files(folder, last="stats.json") as new:
        for split in SPLITS:
            write_sentences(new / f"{split}.jsonl", kept[split])
        vocabulary.write(new / "vocab.txt")
        stats["files"] = {path.name: _digest(path) for path in _files(new)}
        write_text(new / "stats.json", json.dumps(stats, indent=1, ensure_ascii=False) + "\n")
    return stats


def read_corpus(folder: str | Path) -> Corpus:
    """Read a prepared corpus; a missing or changed file is named and refused."""
    folder = Path(folder)
    stats = read_stats(folder)
    for path in damaged(folder):
        raise UserError(f"{path} is missing or not what `nbl prepare` wrote; run `nbl prepare` again")
    train, dev, test = (read_sentences(folder / f"{split}.jsonl") for split in SPLITS)
    return Corpus(train, dev, test, Vocabulary.read(folder / "vocab.txt"), stats)


def damaged(folder: str | Path) -> list[Path]:
    """The files of a prepared corpus that are gone or have other contents than it was prepared with."""
    try:
        digests = read_stats(folder)["files"]
    except UserError:
        return [Path(folder) / "stats.json"]
    return [path for path in _files(Path(folder)) if not path.is_file() or _digest(path) != digests.get(path.name)]


def read_stats(folder: str | Path) -> dict[str, Any]:
    """The contents of stats.json."""
    path = Path(folder) / "stats.json"
    try:
        stats = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stats["files"], dict):
            raise ValueError("no list of files")
    except FileNotFoundError as error:
        raise UserError(f"{folder} holds no prepared corpus (no stats.json); run `nbl prepare` first") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}); run `nbl prepare` again") from error
    return stats


def _losses(raws: list[Raw]) -> dict[str, Any]:
    """What cleaning took away: sentences by what was left of them, tokens by tag."""
    words = [len(raw.sentence) for raw in raws]
    removed = Counter(tag for raw in raws for tag, _ in raw.leaves if tag not in WORD_TAGS)
    return {
        "one_word_dropped": words.count(1),
        "without_words_dropped": words.count(0),
        "tokens_dropped_by_tag": dict(sorted(removed.items(), key=lambda item: (-item[1], item[0]))),
    }


def describe(sentences: list[Sentence]) -> dict[str, Any]:
    """Counts of one split; `trees` only where there are any."""
    lengths = Counter(len(sentence) for sentence in sentences)
    tokens = sum(length * count for length, count in lengths.items())
    unknown = sum(sentence.ids.count(0) for sentence in sentences)
    counts: dict[str, Any] = {
        "sentences": len(sentences),
        "tokens": tokens,
        "types": len({word for sentence in sentences for word in sentence.words}),
        "unknown_rate": round(unknown / tokens, 6) if tokens else 0.0,
        "length": {
            "mean": round(tokens / len(sentences), 3) if sentences else 0.0,
            "max": max(lengths, default=0),
        },
        "length_histogram": {str(length): lengths[length] for length in sorted(lengths)},
        "head_schemes": sorted({scheme for sentence in sentences for scheme in sentence.heads}),
    }
    bracketed = [sentence for sentence in sentences if sentence.spans is not None]
    if bracketed:
        counts["trees"] = _describe_trees(bracketed)
    return counts


def _describe_trees(sentences: list[Sentence]) -> dict[str, Any]:
    """Constituents of two or more words below the sentence, and what trees anyone can guess score."""
    golds = [sentence.spans or [] for sentence in sentences]
    below = [
        span
        for sentence, spans in zip(sentences, golds, strict=True)
        for span in spans
        if span[:2] != (0, len(sentence))
    ]
    labels = Counter(bare_label(span.label) for span in below)
    return {
        "sentences": len(sentences),
        "constituents": len(below),
        "constituents_by_label": dict(sorted(labels.items(), key=lambda item: (-item[1], item[0]))),
        "sentence_f1": branching_f1(sentences),
    }


def branching_f1(sentences: list[Sentence]) -> dict[str, float]:
    """Sentence F1 (Kim's convention, in per cent) of left, right and random branching and of the oracle."""
    golds = [sentence.spans or [] for sentence in sentences]
    generator = random.Random(0)
    trees = {
        "left": [baselines.left_branching(len(sentence)) for sentence in sentences],
        "right": [baselines.right_branching(len(sentence)) for sentence in sentences],
        "random": [baselines.random_branching(len(sentence), generator) for sentence in sentences],
        "oracle": [baselines.oracle(gold) for gold in golds],
    }
    return {name: round(100 * metrics.mean_sentence_f1(golds, spans).value, 4) for name, spans in trees.items()}


def _files(folder: Path) -> list[Path]:
    return [*(folder / f"{split}.jsonl" for split in SPLITS), folder / "vocab.txt"]


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
