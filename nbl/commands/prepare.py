"""`nbl prepare`: from a treebank or a text to a corpus folder."""

from __future__ import annotations

import json
import sys
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from nbl.corpus.clean import REMOVED_TAGS
from nbl.corpus.folder import MAX_WORDS, write_corpus
from nbl.corpus.own import attach_heads, own_source
from nbl.corpus.sources import SOURCES
from nbl.errors import UserError


class CorpusName(StrEnum):
    """The keys of `SOURCES`."""

    toy = "toy"
    sample = "sample"
    open = "open"
    wsj = "wsj"


def prepare(
    out: Annotated[Path, typer.Option(help="The folder to write.", show_default=False)],
    corpus: Annotated[CorpusName | None, typer.Option(help="One of the corpora nbl knows.")] = None,
    source: Annotated[Path | None, typer.Option(help="Where that corpus lies, if not found by itself.")] = None,
    trees: Annotated[
        list[str] | None,
        typer.Option(metavar="[PART=]FILE...", help="Own bracketed trees instead of a corpus."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="[PART=]FILE...", help="Own plain text, one sentence a line."),
    ] = None,
    heads: Annotated[
        list[str] | None,
        typer.Option(metavar="[PART=]FILE...", help="Gold heads from CoNLL-X files, beside the converter's."),
    ] = None,
    max_words: Annotated[int, typer.Option(min=1, help="Size of the vocabulary; other words are unknown.")] = MAX_WORDS,
    min_count: Annotated[int, typer.Option(min=1, help="Rarer training words are unknown too.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")] = False,
) -> None:
    """Make a corpus: clean it, number its words, find gold heads, count everything.

    Writes train.jsonl, dev.jsonl, test.jsonl, vocab.txt and stats.json. PART is train, dev or test;
    without it one's own sentences are cut 80 : 10 : 10 in their order.
    """
    if corpus is None and not (trees or text):
        names = "|".join(SOURCES)
        raise UserError(f"name a corpus with --corpus {names}, or own files with --trees or --text")
    if corpus is not None and (trees or text):
        raise UserError(f"--corpus {corpus} and own files (--trees, --text) exclude each other")
    if corpus is None and source is not None:
        raise UserError(f"--source {source} goes with --corpus; own files are named by --trees and --text")
    spinner = Console(stderr=True, quiet=as_json or not sys.stderr.isatty())
    with spinner.status("preparing the corpus"):
        found = SOURCES[corpus](source) if corpus else own_source(trees or [], text or [])
        attach_heads(found, heads or [])
        stats = write_corpus(found, out, max_words, min_count)
    if as_json:
        print(json.dumps(stats, ensure_ascii=False))
    else:
        _print(stats, out)


def _print(stats: dict[str, Any], out: Path) -> None:
    table = Table(
        title=f"{stats['corpus']}: {stats['vocabulary']:,} words in the vocabulary",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in ("part", "sentences", "words", "types", "<unk> %", "length", "spans", "LB", "RB", "best"):
        table.add_column(column, justify="left" if column == "part" else "right")
    for split, counts in stats["splits"].items():
        trees = counts.get("trees")
        scores = trees["sentence_f1"] if trees else None
        table.add_row(
            split,
            f"{counts['sentences']:,}",
            f"{counts['tokens']:,}",
            f"{counts['types']:,}",
            f"{100 * counts['unknown_rate']:.2f}",
            f"{counts['length']['mean']:.1f}",
            f"{trees['constituents']:,}" if trees else "",
            *(f"{scores[name]:.2f}" if scores else "" for name in ("left", "right", "oracle")),
        )
    console = Console(highlight=False)
    console.print(table)
    if any("trees" in counts for counts in stats["splits"].values()):
        console.print("LB, RB, best: sentence F1 of left branching, right branching, the best binary trees")
    for note in _notes(stats):
        console.print(f"note: {note}", soft_wrap=True)
    console.print(f"written to {out}", soft_wrap=True)


def _notes(stats: dict[str, Any]) -> list[str]:
    """What one might not expect of the corpus."""
    splits = stats["splits"]
    notes = [f"{split} is empty" for split, counts in splits.items() if not counts["sentences"]]
    blank = sum(counts["without_words_dropped"] for counts in splits.values())
    if blank:
        notes.append(f"{blank} sentences without a word were left out")
    odd = Counter[str]()
    for counts in splits.values():
        odd.update({tag: n for tag, n in counts["tokens_dropped_by_tag"].items() if tag not in REMOVED_TAGS})
    if odd:
        tags = ", ".join(f"{tag} {n}" for tag, n in odd.most_common(8))
        notes.append(f"words with tags that are not the Penn Treebank's were left out: {tags}")
    unknown = {split: counts["unknown_rate"] for split, counts in splits.items()}
    if unknown["train"] == 0 and max(unknown.values()) > 0.01:
        notes.append("no training word is unknown, so no model can learn <unk>; try --min-count 2")
    return notes
