"""A prepared corpus on disk: what `nbl prepare` writes and every later step reads.

`train.jsonl`, `dev.jsonl` and `test.jsonl` hold one `Sentence` per line, `vocab.txt` one word per line.
`stats.json` is written last; it describes the other files and holds their checksums.
A folder without it, or with files that do not match it, is refused.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from nbl import metrics
from nbl.corpus.clean import WORD_TAGS
from nbl.errors import UserError, shorten
from nbl.files import replacing_files, write_text
from nbl.sentence import MAX_LENGTH, MAX_WORDS, SPLITS, Sentence, Span, bare_label

UNKNOWN = "<unk>"


class Vocabulary:
    """Words and their numbers; number 0 is `<unk>`."""

    def __init__(self, words: Iterable[str]):
        self.words = [UNKNOWN, *words]
        self.number = {word: number for number, word in enumerate(self.words)}
        if len(self.number) != len(self.words):
            raise ValueError("a word occurs twice in the vocabulary")

    @classmethod
    def of(
        cls,
        sentences: Iterable[list[str]],
        max_words: int = MAX_WORDS,
        min_count: int = 1,
        lexicon: Iterable[str] = (),
    ) -> Vocabulary:
        """The `max_words` most frequent words of the sentences, ties in the order of first occurrence.

        Words with fewer than `min_count` occurrences are left out. In a small corpus, whose vocabulary
        reaches no limit, only this makes `<unk>` occur in training. Words of `lexicon` that the
        sentences lack come last.

        >>> Vocabulary.of([["a", "b"], ["b", "c"]], max_words=2).words
        ['<unk>', 'b', 'a']
        """
        counts = Counter(word for sentence in sentences for word in sentence if word != UNKNOWN)
        words = [word for word, count in counts.most_common() if count >= min_count]
        words += [word for word in lexicon if word not in counts]
        return cls(words[:max_words])

    def __len__(self) -> int:
        return len(self.words)

    def ids(self, words: Iterable[str]) -> list[int]:
        """The numbers of words, 0 for those outside the vocabulary."""
        return [self.number.get(word, 0) for word in words]

    def __str__(self) -> str:
        return "".join(word + "\n" for word in self.words)

    @property
    def digest(self) -> str:
        """A checksum; equal checksums mean equal numbers."""
        return sha256(str(self).encode()).hexdigest()

    def write(self, path: str | Path) -> None:
        """Write one word per line, in the order of the numbers."""
        write_text(path, str(self))

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        """Read what `write` wrote."""
        try:
            words = Path(path).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the vocabulary {path} ({error}); run `nbl prepare` again") from error
        if words[0] != UNKNOWN or words[-1] != "" or len(set(words)) != len(words):
            raise UserError(f"{path} is not a vocabulary written by `nbl prepare`; run it again")
        return cls(words[1:-1])


def write_sentences(path: Path, sentences: Iterable[Sentence]) -> None:
    """Write one JSON object per line, all or nothing."""
    lines = (json.dumps(asdict(sentence), ensure_ascii=False, separators=(",", ":")) for sentence in sentences)
    write_text(path, "".join(line + "\n" for line in lines))


def read_sentences(path: str | Path) -> list[Sentence]:
    """Read what `write_sentences` wrote; the error names a damaged line."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the corpus file {path} ({error}); run `nbl prepare` again") from error
    sentences = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            sentences.append(_from_json(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{path}, line {number} is damaged ({shorten(str(error), 100)}); run `nbl prepare` again"
            ) from error
    if text and not text.endswith("\n"):
        raise UserError(f"{path} ends in the middle of line {len(sentences) + 1}; run `nbl prepare` again")
    return sentences


def _from_json(record: dict) -> Sentence:
    sentence = Sentence(**record)
    if sentence.spans is not None:
        sentence.spans = [Span(*span) for span in sentence.spans]
    lists: list[list] = [sentence.ids, *sentence.heads.values()]
    if sentence.tags is not None:
        lists.append(sentence.tags)
    if any(len(values) != len(sentence) for values in lists):
        raise ValueError("word numbers, tags or heads differ in length from the words")
    return sentence


class Raw(NamedTuple):
    """A cleaned sentence without word numbers, and the (tag, word) pairs it came from, without traces."""

    sentence: Sentence
    leaves: list[tuple[str, str]]


Splits = dict[str, list[Sentence]]


@dataclass
class Source:
    """The sentences of a source, including those of one word or none.

    name:      of the corpus
    splits:    its sentences
    checksum:  sha256 of the source's contents
    facts:     further entries of stats.json, computed from the numbered sentences
    lexicon:   all words that exist, where that is known
    """

    name: str
    splits: dict[str, list[Raw]]
    checksum: str
    facts: Callable[[Splits], dict[str, Any]] = lambda _: {}
    lexicon: list[str] = field(default_factory=list)


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
        """The name, and checksums of the files and the vocabulary."""
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
        kept[split] = [_numbered(raw.sentence, vocabulary) for raw in raws if len(raw.sentence) >= 2]
        stats["splits"][split] = _losses(raws) | describe(kept[split])
    if not kept["train"]:
        raise UserError(f"the corpus {source.name!r} has no training sentence of two or more words")
    stats |= source.facts(kept)

    with replacing_files(Path(folder), last="stats.json") as new:
        for split in SPLITS:
            write_sentences(new / f"{split}.jsonl", kept[split])
        vocabulary.write(new / "vocab.txt")
        stats["files"] = {path.name: _digest(path) for path in _files(new)}
        write_text(new / "stats.json", json.dumps(stats, indent=1, ensure_ascii=False) + "\n")
    return stats


def _numbered(sentence: Sentence, vocabulary: Vocabulary) -> Sentence:
    if len(sentence) > MAX_LENGTH:
        raise UserError(f"{sentence.id}: {len(sentence)} words in a sentence (at most {MAX_LENGTH}); divide it")
    return replace(sentence, ids=vocabulary.ids(sentence.words))


def read_corpus(folder: str | Path) -> Corpus:
    """Read a prepared corpus; the error names a missing or changed file."""
    folder = Path(folder)
    stats = read_stats(folder)
    for path in damaged(folder):
        raise UserError(f"{path} is missing or not what `nbl prepare` wrote; run `nbl prepare` again")
    train, dev, test = (read_sentences(folder / f"{split}.jsonl") for split in SPLITS)
    return Corpus(train, dev, test, Vocabulary.read(folder / "vocab.txt"), stats)


def damaged(folder: str | Path) -> list[Path]:
    """The files of a prepared corpus that are missing or have changed since."""
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


def _files(folder: Path) -> list[Path]:
    return [*(folder / f"{split}.jsonl" for split in SPLITS), folder / "vocab.txt"]


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _losses(raws: list[Raw]) -> dict[str, Any]:
    """What cleaning removed: whole sentences, and tokens by tag."""
    words = [len(raw.sentence) for raw in raws]
    removed = Counter(tag for raw in raws for tag, _ in raw.leaves if tag not in WORD_TAGS)
    return {
        "one_word_dropped": words.count(1),
        "without_words_dropped": words.count(0),
        "tokens_dropped_by_tag": _by_frequency(removed),
    }


def _by_frequency(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def describe(sentences: list[Sentence]) -> dict[str, Any]:
    """The counts of one split; `trees` only if there are any."""
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
        below = Counter(
            bare_label(span.label)
            for sentence in bracketed
            for span in sentence.spans or []
            if span[:2] != (0, len(sentence))
        )
        counts["trees"] = {
            "sentences": len(bracketed),
            "constituents": below.total(),
            "constituents_by_label": _by_frequency(below),
            "sentence_f1": branching_f1(bracketed),
        }
    return counts


def branching_f1(sentences: list[Sentence]) -> dict[str, float]:
    """Sentence F1 (Kim's convention, in per cent) of left, right and random branching and of the oracle."""
    golds = [sentence.spans or [] for sentence in sentences]
    generator = random.Random(0)
    trees = {
        "left": [metrics.left_branching(len(sentence)) for sentence in sentences],
        "right": [metrics.right_branching(len(sentence)) for sentence in sentences],
        "random": [metrics.random_branching(len(sentence), generator) for sentence in sentences],
        "oracle": [metrics.oracle(gold) for gold in golds],
    }
    return {name: round(100 * metrics.mean_sentence_f1(golds, spans).value, 4) for name, spans in trees.items()}
