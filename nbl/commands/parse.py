"""`nbl parse`: trees for one's own text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nbl.commands.common import Decoder, DeviceName, RunPath, TextPath, VocabularyDir, counting, note
from nbl.drawing import draw, png, svg
from nbl.errors import UserError
from nbl.files import read_text, replacing
from nbl.formats import Tree
from nbl.grammar import open_grammar
from nbl.sentence import Sentence

STDIN = "standard input"


class Format(StrEnum):
    brackets = "brackets"
    conllx = "conllx"
    json = "json"
    svg = "svg"
    png = "png"


def parse(
    run: RunPath,
    text: TextPath = Path("-"),
    decoder: Annotated[Decoder, typer.Option(help="mbr: better trees; cyk: labels too.")] = Decoder.mbr,
    format: Annotated[Format, typer.Option(help="What to print or draw.")] = Format.brackets,
    out: Annotated[Path | None, typer.Option(help="A file to write.", dir_okay=False)] = None,
    corpus_dir: VocabularyDir = None,
    device: DeviceName = "auto",
    print_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
) -> None:
    """Parse text, one sentence a line.

    Text is split into words as the treebank does. Punctuation is left out, as in training. Words the
    grammar does not know are parsed as `<unk>`, and printed as they are.

    brackets: a line a sentence, `(NT3[dog] (T the) (T dog))`, where NT3 is the nonterminal (X with mbr,
    which has no labels), dog the head word, if the constituent has one, and T any preterminal.
    conllx: words and heads. json: an object a line, with log p. svg, png: a picture with the constituents
    above the words and the heads' arcs below.
    """
    if print_json:
        format = Format.json
    if format == Format.png and out is None and sys.stdout.isatty():
        raise UserError("a PNG picture is not for the terminal: name a file with --out")
    with open_grammar(run, device, corpus_dir) as grammar:
        if format == Format.conllx and not grammar.run.has_heads:
            raise UserError(f"conllx is for heads, which {grammar.run.model} does not have: choose brackets")
        sentences = grammar.sentences(read_lines(text), name_of(text))
        total = sum(len(sentence) >= 2 for sentence in sentences)
        with counting("parsing", total, quiet=not sys.stderr.isatty()) as advance:
            trees = grammar.trees(sentences, decoder, advance)
    for remark in remarks(sentences, "a tree by itself"):
        note(remark)
    _write(_rendered(trees, format), out)


def _rendered(trees: Sequence[Tree], format: Format) -> bytes:
    if format == Format.png:
        return png(draw(trees))
    if format == Format.svg:
        return svg(draw(trees)).encode()
    return "".join(getattr(tree, format) + "\n" for tree in trees).encode()


def _write(data: bytes, out: Path | None) -> None:
    if out is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        with replacing(out) as temporary:
            temporary.write_bytes(data)


def read_lines(source: Path) -> list[str]:
    """The lines of a file, `-` for standard input; an empty one is refused."""
    lines = (_read_stdin() if name_of(source) == STDIN else read_text(source)).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise UserError(f"{name_of(source)} is empty: one sentence per line is expected")
    return lines


def name_of(source: Path) -> str:
    """The name of a source of text in messages."""
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
    """Notes on lines of fewer than two words, which no grammar here derives.

    `fate` says what becomes of single words.

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
