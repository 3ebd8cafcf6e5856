"""Heads from a CoNLL-X file, such as CoreNLP writes for a treebank, instead of our own conversion.

The file has one token per line in ten tab-separated columns, of which 1 (number), 2 (form) and 7 (head)
are read, and an empty line after each sentence. Tokens are matched with the words of a tree by
position, not by form: CoreNLP writes `(` for `-LRB-`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nbl.corpus.clean import WORD_TAGS, normalise
from nbl.corpus.heads import CURRENCY_TAGS, keep_words
from nbl.errors import UserError, shorten
from nbl.files import read_text

COLUMNS = 10
INTEGER = re.compile(r"[0-9]{1,9}")
NOT_A_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # the multi-word tokens and empty nodes of CoNLL-U


class ConllError(UserError):
    """A file that is not CoNLL-X, or that does not fit its treebank."""


class ConllToken(NamedTuple):
    """A token with its head (0 = root), and the sentence and line it is in; all counted from 1."""

    id: int
    form: str
    head: int
    sentence: int
    line: int


def read_conllx(path: str | Path) -> list[list[ConllToken]]:
    """The sentences of a file, each a tree with one root; comments (#) and non-words are skipped."""
    path = Path(path)
    sentences: list[list[ConllToken]] = []
    tokens: list[ConllToken] = []
    for number, line in enumerate([*read_text(path).split("\n"), ""], start=1):
        if line.strip():
            token = _parse_line(path, line.rstrip("\r"), len(sentences) + 1, number)
            if token is not None:
                tokens.append(token)
        elif tokens:
            _check_tree(path, tokens)
            sentences.append(tokens)
            tokens = []
    return sentences


def _parse_line(path: Path, line: str, sentence: int, number: int) -> ConllToken | None:
    """The token of a line; None for a comment or a non-word."""
    where = f"{path}, line {number}, sentence {sentence}"
    if line.startswith("#"):
        return None
    columns = line.split("\t")
    if len(columns) != COLUMNS:
        raise ConllError(f"{where}: {len(columns)} tab-separated columns, not {COLUMNS}; write CoNLL-X")
    id, form, head = columns[0], columns[1], columns[6]
    if NOT_A_WORD.fullmatch(id):
        return None
    for name, value in (("number", id), ("head", head)):
        if not INTEGER.fullmatch(value):
            raise ConllError(f"{where}: the token's {name} is {shorten(value)!r}, not an integer from 0 on")
    return ConllToken(int(id), form, int(head), sentence, number)


def _check_tree(path: Path, tokens: Sequence[ConllToken]) -> None:
    """Refuse tokens out of order, and heads that do not form a tree with one root."""

    def error(token: ConllToken, message: str) -> ConllError:
        return ConllError(f"{path}, line {token.line}, sentence {token.sentence}: {message}")

    for i, token in enumerate(tokens, start=1):
        if token.id != i:
            raise error(token, f"token {token.id} stands where token {i} is expected")
        if token.head > len(tokens):
            raise error(token, f"the head of token {i} is {token.head}, but there are {len(tokens)} tokens")
    roots = [token for token in tokens if token.head == 0]
    if len(roots) != 1:
        culprit = roots[1] if roots else tokens[0]
        raise error(culprit, f"{len(roots)} tokens with head 0, not one (CoreNLP: use -keepPunct)")
    below_root = {0}
    for token in tokens:
        chain = [token]
        while chain[-1].head not in below_root:
            chain.append(tokens[chain[-1].head - 1])
            if len(chain) > len(tokens):
                raise error(token, f"token {token.id} is its own ancestor, or below one that is: a cycle")
        below_root.update(link.id for link in chain)


def aligned_heads(tokens: Sequence[ConllToken], leaves: Sequence[tuple[str, str]]) -> list[int]:
    """The heads of the words that cleaning keeps, numbered from 1 over them, 0 = root.

    `leaves` are the (tag, word) leaves of the tree without its traces. The tokens are either all of
    them, or all but those tagged `$` and `#`, or only the words that cleaning keeps. Tools change some
    words, so a few may differ; if most do, the files do not belong together, which is an error.
    """
    readings = (
        list(leaves),
        [(tag, word) for tag, word in leaves if tag not in CURRENCY_TAGS],
        [(tag, word) for tag, word in leaves if tag in WORD_TAGS],
    )
    sentence = f"sentence {tokens[0].sentence}" if tokens else "an empty sentence"
    for reading in readings:
        if len(reading) == len(tokens):
            kept = [tag in WORD_TAGS for tag, _ in reading]
            pairs = [(token, word) for token, (tag, word) in zip(tokens, reading, strict=True) if tag in WORD_TAGS]
            other = [(token, word) for token, word in pairs if _plain(token.form) != _plain(word)]
            if 2 * len(other) > len(pairs):
                token, word = other[0]
                raise ConllError(
                    f"line {token.line}, {sentence}: {shorten(token.form)!r} stands where the tree has "
                    f"{shorten(word)!r}, and most other words differ too; convert the same trees in the same order"
                )
            return keep_words([token.head for token in tokens], kept)
    raise ConllError(
        f"{sentence} of the CoNLL-X file has {len(tokens)} tokens, its tree {len(leaves)} "
        f"({len(readings[-1])} words without punctuation); convert the same trees in the same order"
    )


def _plain(word: str) -> str:
    """A word without the treebank's escapes, normalised."""
    return normalise(word.replace("\\/", "/").replace("\\*", "*"))
