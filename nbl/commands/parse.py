"""`nbl parse`: trees for one's own text."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nbl.commands.common import Decoder, DeviceName, RunPath, TextPath, VocabularyDir, counting, note
from nbl.drawing import draw, png, svg
from nbl.errors import UserError
from nbl.files import replacing
from nbl.formats import Analysis, as_json, brackets, conllx
from nbl.input_text import read_input, remarks
from nbl.predict import open_run, predict
from nbl.predictions import Prediction
from nbl.sentence import Sentence


class Format(StrEnum):
    brackets = "brackets"
    conllx = "conllx"
    json = "json"
    svg = "svg"
    png = "png"


LINES = {Format.brackets: brackets, Format.conllx: conllx, Format.json: as_json}


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
    with open_run(run, device, corpus_dir) as trained:
        has_heads = trained.run.has_heads
        if format == Format.conllx and not has_heads:
            raise UserError(f"conllx is for heads, which {trained.run.model} does not have: choose brackets")
        sentences = read_input(text, trained.vocabulary)
        long_enough = [sentence for sentence in sentences if len(sentence) >= 2]
        with counting("parsing", len(long_enough), quiet=not sys.stderr.isatty()) as advance:
            found = {p.id: p for p in predict(trained, long_enough, decoder, advance=advance)}
    for remark in remarks(sentences, "a tree by itself"):
        note(remark)
    _write(_rendered([_analysis(sentence, found, has_heads) for sentence in sentences], format), out)


def _analysis(sentence: Sentence, found: Mapping[str, Prediction], has_heads: bool) -> Analysis:
    """What was predicted for a sentence, or the one tree it can have."""
    if sentence.id not in found:
        return Analysis(sentence.words, [], [0] * len(sentence) if has_heads else None)
    prediction = found[sentence.id]
    return Analysis(sentence.words, prediction.spans, prediction.heads, prediction.log_prob)


def _rendered(analyses: Sequence[Analysis], format: Format) -> bytes:
    if format == Format.png:
        return png(draw(analyses))
    text = svg(draw(analyses)) if format == Format.svg else "".join(map(LINES[format], analyses))
    return text.encode()


def _write(data: bytes, out: Path | None) -> None:
    if out is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        with replacing(out) as temporary:
            temporary.write_bytes(data)
