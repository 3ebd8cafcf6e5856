"""Plain text, one sentence a line, as the words that cleaning a treebank would have left.

Without tags, tokens are judged by their form: those with a letter or a digit stay, and so do `%` and
`&`, which the treebank tags as words; all other punctuation, currency signs and brackets go.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from nbl.corpus.clean import normalise
from nbl.corpus.folder import UNKNOWN
from nbl.errors import UserError

MAX_LINE = 100_000  # characters; what is longer is no sentence
WORD_SIGNS = {"%", "&"}
BRACKET = re.compile(r"-[LR][RCS]B-")
CURRENCY = re.compile(r"[A-Za-z]*\$")
INITIALS = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")  # U.S at the end of a line, where the tokeniser takes the full stop
NUMBER_SIGN = re.compile(r"(?<![A-Za-z])N(?=s?(?![A-Za-z]))")  # an N that stands for a number already
# What the tokeniser would tear apart, each with a sign for it from Unicode's private use area.
PROTECTED = {re.compile(rf"(?<!\w){UNKNOWN}(?!\w)"): "\ue000", re.compile(r"(?<=\w)&(?=\w)"): "\ue001"}
SIGNS = {"\ue000": UNKNOWN, "\ue001": "&"}


class Token(NamedTuple):
    form: str  # normalised
    is_word: bool
    written: str  # as in the text


def tokenise(line: str) -> list[Token]:
    """Split a line as the treebank does: clitics, punctuation and currency signs apart from words.

    Text that is tokenised already stays as it is, but for `cannot`, which the treebank splits.

    >>> [token.form for token in tokenise("AT&T doesn't sell 30% of the U.S. <unk>, N-year notes.") if token.is_word]
    ['at&t', 'does', "n't", 'sell', 'N', '%', 'of', 'the', 'u.s.', '<unk>', 'N-year', 'notes']
    """
    if len(line) > MAX_LINE:
        raise UserError(f"a line of {len(line)} characters (at most {MAX_LINE}): one sentence a line is expected")
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
    from nltk.tokenize import TreebankWordTokenizer  # a second's start-up that only this function needs

    return TreebankWordTokenizer()
