"""A user's own files: bracketed trees or plain text as a corpus, and gold heads from CoNLL-X files.

A file may be assigned to a part of the corpus, as `train=FILE`, `dev=FILE` or `test=FILE`. If none is,
the sentences are cut in their order: the first 80 % train, then 10 % dev, the last 10 % test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from nbl.corpus.conllx import aligned_heads, read_conllx
from nbl.corpus.folder import Raw, Source
from nbl.corpus.sources import clean_trees
from nbl.corpus.text import tokenise
from nbl.corpus.treebank import parse_trees
from nbl.errors import UserError
from nbl.files import read_text
from nbl.sentence import CONLLX_SCHEME, SPLITS, Sentence


def own_source(trees: Sequence[str], texts: Sequence[str]) -> Source:
    """The corpus in the files that --trees and --text name, each as [PART=]FILE."""
    named = [(*_part_and_path(argument), _tree_raws) for argument in trees]
    named += [(*_part_and_path(argument), _text_raws) for argument in texts]
    names = _names([path for _, path, _ in named])
    splits: dict[str, list[Raw]] = {}
    digest = sha256()
    for part, path, raws in named:
        text = read_text(path)
        splits.setdefault(part, []).extend(raws(text, path, names[path]))
        digest.update(f"{len(text)} {text}".encode())
    if "" in splits and len(splits) > 1:
        raise UserError("give every file its part (train=FILE, dev=FILE or test=FILE), or none of them")
    if "" in splits:
        splits = _cut(splits[""])
    if not splits.get("train"):
        raise UserError("no training sentences: name at least one file with sentences, as FILE or train=FILE")
    return Source("own", splits, digest.hexdigest())


def attach_heads(source: Source, arguments: Sequence[str]) -> None:
    """Give each sentence its heads in the CoNLL-X files [PART=]FILE, which have the same sentences in order.

    A file without a part holds all sentences: train, then dev, then test.
    """
    for argument in arguments:
        part, path = _part_and_path(argument)
        raws = [raw for split in ([part] if part else SPLITS) for raw in source.splits.get(split, [])]
        sentences = read_conllx(path)
        if len(sentences) != len(raws):
            where = part or "the corpus"
            raise UserError(f"{path} has {len(sentences)} sentences, but {where} has {len(raws)}: they must pair up")
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


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """What sentence ids begin with: the file's stem, or its path if files in several folders share the stem."""
    stems = Counter(path.stem for path in set(paths))
    return {path: path.stem if stems[path.stem] == 1 else path.as_posix() for path in paths}


def _tree_raws(text: str, path: Path, name: str) -> list[Raw]:
    return clean_trees(name, parse_trees(text, str(path)))


def _text_raws(text: str, path: Path, name: str) -> list[Raw]:
    """One sentence per line."""
    raws = []
    for number, line in enumerate(text.rstrip("\n").split("\n")):
        try:
            tokens = tokenise(line)
        except UserError as error:
            raise UserError(f"{path}, line {number + 1}: {error}") from error
        words = [token.form for token in tokens if token.is_word]
        leaves = [("NN" if token.is_word else ".", token.form) for token in tokens]
        raws.append(Raw(Sentence(f"{name}.{number}", words), leaves))
    return raws


def _cut(raws: list[Raw]) -> dict[str, list[Raw]]:
    tenth = len(raws) // 10
    train = len(raws) - 2 * tenth
    return {"train": raws[:train], "dev": raws[train : train + tenth], "test": raws[train + tenth :]}
