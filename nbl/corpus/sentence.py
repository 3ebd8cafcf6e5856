"""One sentence of a prepared corpus, and the files they live in.

A corpus folder holds `train.jsonl`, `dev.jsonl`, `test.jsonl` (one `Sentence` a line), `vocab.txt`
and `stats.json`. A sentence without a gold tree has `spans` None; heads are kept per scheme.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nbl.corpus.clean import Span
from nbl.errors import UserError, shorten
from nbl.files import write_text

SPLITS = ("train", "dev", "test")
CONLLX_SCHEME = "conllx"  # the name of heads that come from a file
MAX_LENGTH = 250  # words; the longest sentence of the Wall Street Journal has as many, and charts grow with the cube


@dataclass
class Sentence:
    """words[i] has vocabulary number ids[i]; heads are 1-based, 0 = root."""

    id: str
    words: list[str]
    ids: list[int] = field(default_factory=list)
    tags: list[str] | None = None
    spans: list[Span] | None = None
    heads: dict[str, list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.words)


def best_scheme(schemes: Iterable[str]) -> str | None:
    """Of the schemes of gold heads that there are, the one to go by: a user's own, else Stanford's; None for neither.

    >>> best_scheme(["stanford", "function", "conllx"]), best_scheme(["function"])
    ('conllx', None)
    """
    there = set(schemes)
    return next((scheme for scheme in (CONLLX_SCHEME, "stanford") if scheme in there), None)


def write_sentences(path: Path, sentences: Iterable[Sentence]) -> None:
    """Write one JSON object a line, all or nothing."""
    lines = (json.dumps(asdict(sentence), ensure_ascii=False, separators=(",", ":")) for sentence in sentences)
    write_text(path, "".join(line + "\n" for line in lines))


def read_sentences(path: str | Path) -> list[Sentence]:
    """Read what `write_sentences` wrote; a damaged line is named and refused."""
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
