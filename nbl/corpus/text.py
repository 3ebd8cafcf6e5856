"""Plain text, one sentence a line, as the words that cleaning a treebank would have left.

Without tags, tokens are judged by their form: those with a letter or a digit stay, and so do `%` and
`&`, which the treebank tags as words; all other punctuation, currency signs and brackets go.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from nbl.corpus.clean import normalise
from nbl.corpus.vocab import UNKNOWN
from nbl.errors import UserError

MAX_LINE = 100_000  # characters; what is longer is no sentence
WORD_SIGNS = {"%", "&"}
BRACKET = re.compile(r"-[LR][RCS]B-")
STAND_IN = "Nblunknownword"  # survives tokenisation in one piece, as `<unk>` would not


class Token(NamedTuple):
    form: str  # normalised
    is_word: bool


def tokenise(line: str) -> list[Token]:
    """Split a line as the treebank does (clitics and punctuation apart); tokenised text stays as it is.

    >>> [token.form for token in tokenise("We don't sell 30% of it, <unk>.") if token.is_word]
    ['we', 'do', "n't", 'sell', 'N', '%', 'of', 'it', '<unk>']
    """
    if len(line) > MAX_LINE:
        raise UserError(
            f"a line of {len(line)} characters (at most {MAX_LINE}): one sentence a line is expected"
        )
    tokens = _tokeniser().tokenize(line.replace(UNKNOWN, STAND_IN))
    return [_token(token) for token in tokens]


def _token(token: str) -> Token:
    if token == STAND_IN:
        return Token(UNKNOWN, True)
    is_word = any(map(str.isalnum, token)) and not BRACKET.fullmatch(token)
    return Token(normalise(token), is_word or token in WORD_SIGNS)


@cache
def _tokeniser():
    from nltk.tokenize import TreebankWordTokenizer  # a second's start-up that only this function needs

    return TreebankWordTokenizer()
