"""A user's text, one sentence a line, as the words a trained grammar knows."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from nbl.corpus.folder import Vocabulary
from nbl.corpus.text import tokenise
from nbl.errors import UserError
from nbl.files import read_text
from nbl.sentence import MAX_LENGTH, Sentence

STDIN = "standard input"


def read_input(source: Path, vocabulary: Vocabulary) -> list[Sentence]:
    """One sentence for each line of a file, `-` for standard input; its id is the line's number from 1.

    Words are kept as they were written, but numbered in their normalised form; punctuation is left out.
    A line without words is a sentence without words.
    """
    name = name_of(source)
    lines = (_read_stdin() if name == STDIN else read_text(source)).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise UserError(f"{name} is empty: one sentence a line is expected")
    sentences = []
    for number, line in enumerate(lines, start=1):
        try:
            tokens = [token for token in tokenise(line) if token.is_word]
            if len(tokens) > MAX_LENGTH:
                raise UserError(f"{len(tokens)} words (at most {MAX_LENGTH}): one sentence a line is expected")
        except UserError as error:
            raise UserError(f"{name}, line {number}: {error}") from error
        ids = vocabulary.ids(token.form for token in tokens)
        sentences.append(Sentence(str(number), [token.written for token in tokens], ids))
    return sentences


def name_of(source: Path) -> str:
    """What to call a source of text in messages."""
    return STDIN if str(source) == "-" else str(source)


def _read_stdin() -> str:
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{STDIN} is not UTF-8; convert it to UTF-8") from error
    if "\0" in text:
        raise UserError(f"{STDIN} has a NUL byte; this is not a text")
    return text


def remarks(sentences: Iterable[Sentence], fate: str) -> list[str]:
    """What a user should know of lines that no grammar here can derive: those of fewer than two words.

    `fate` is what becomes of words that are alone.

    >>> remarks([Sentence("1", []), Sentence("2", ["Hm"]), Sentence("3", [])], "not scored")
    ['2 lines without words (1, 3)', '1 line of one word (2), not scored']
    """
    empty = [sentence.id for sentence in sentences if len(sentence) == 0]
    single = [sentence.id for sentence in sentences if len(sentence) == 1]
    result = []
    if empty:
        result.append(f"{_lines(empty)} without words ({_some(empty)})")
    if single:
        result.append(f"{_lines(single)} of one word ({_some(single)}), {fate}")
    return result


def _lines(numbers: list[str]) -> str:
    return f"{len(numbers)} line{'s' if len(numbers) > 1 else ''}"


def _some(numbers: list[str]) -> str:
    return ", ".join(numbers[:5] + ["..."] * (len(numbers) > 5))
