"""A user's own files: bracketed trees or plain text as a corpus, and gold heads from CoNLL-X files.

A file may be given to one part of the corpus, as `train=FILE`, `dev=FILE` or `test=FILE`. If none is,
the sentences are cut in their order: the first 80 % train, then 10 % dev, the last 10 % test.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from nbl.corpus.conllx import aligned_heads, read_conllx
from nbl.corpus.folder import Raw, Source
from nbl.corpus.sentence import SPLITS, Sentence
from nbl.corpus.sources import clean
from nbl.corpus.text import tokenise
from nbl.corpus.treebank import read_trees
from nbl.errors import UserError
from nbl.files import read_text

CONLLX_SCHEME = "conllx"  # the name of heads that come from a file


def own_source(trees: Sequence[str], texts: Sequence[str]) -> Source:
    """Read the files that --trees and --text name, each as [PART=]FILE."""
    named = [(*_part_and_path(argument), _read_trees) for argument in trees]
    named += [(*_part_and_path(argument), _read_text) for argument in texts]
    splits: dict[str, list[Raw]] = {}
    blank_lines = 0
    for part, path, read in named:
        found = read(path)
        splits.setdefault(part, []).extend(raw for raw in found if raw.sentence.words)
        blank_lines += sum(not raw.sentence.words for raw in found)
    if "" in splits and len(splits) > 1:
        raise UserError("give every file its part (train=FILE, dev=FILE or test=FILE), or none of them")
    if "" in splits:
        splits = _cut(splits[""])
    if not splits.get("train"):
        raise UserError("no training sentences: name at least one file with sentences, as FILE or train=FILE")
    checksum = sha256(b"".join(path.read_bytes() for _, path, _ in named)).hexdigest()
    return Source("own", splits, checksum, {"lines_without_words": blank_lines} if texts else {})


def attach_heads(source: Source, arguments: Sequence[str]) -> None:
    """Give each sentence the heads that the CoNLL-X files [PART=]FILE have for it, in the same order.

    A file without a part holds all sentences: train, then dev, then test.
    """
    for argument in arguments:
        part, path = _part_and_path(argument)
        raws = [raw for split in ([part] if part else SPLITS) for raw in source.splits.get(split, [])]
        sentences = read_conllx(path)
        if len(sentences) != len(raws):
            where = part or "the corpus"
            raise UserError(
                f"{path} has {len(sentences)} sentences, but {where} has {len(raws)}: they must pair up"
            )
        for number, (raw, tokens) in enumerate(zip(raws, sentences, strict=True), start=1):
            try:
                raw.sentence.heads[CONLLX_SCHEME] = aligned_heads(tokens, raw.leaves)
            except UserError as error:
                raise UserError(f"{path}, sentence {number} ({raw.sentence.id}): {error}") from error


def _part_and_path(argument: str) -> tuple[str, Path]:
    """`dev=x.txt` -> dev and the path; a path alone has the part "".

    >>> _part_and_path("dev=a/b.txt")[0], str(_part_and_path("a=b.txt")[1])
    ('dev', 'a=b.txt')
    """
    part, equals, path = argument.partition("=")
    return (part, Path(path)) if equals and part in SPLITS else ("", Path(argument))


def _read_trees(path: Path) -> list[Raw]:
    return clean(path.stem, read_trees(path))


def _read_text(path: Path) -> list[Raw]:
    """One sentence a line; a line without words gives a sentence without words."""
    raws = []
    for number, line in enumerate(read_text(path).splitlines()):
        try:
            tokens = tokenise(line)
        except UserError as error:
            raise UserError(f"{path}, line {number + 1}: {error}") from error
        words = [token.form for token in tokens if token.is_word]
        leaves = [("NN" if token.is_word else ".", token.form) for token in tokens]
        raws.append(Raw(Sentence(f"{path.stem}.{number}", words), leaves))
    return raws


def _cut(raws: list[Raw]) -> dict[str, list[Raw]]:
    tenth = len(raws) // 10
    train = len(raws) - 2 * tenth
    return {"train": raws[:train], "dev": raws[train : train + tenth], "test": raws[train + tenth :]}
