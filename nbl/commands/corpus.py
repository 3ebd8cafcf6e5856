"""`nbl prepare`: from a treebank or a text to a corpus folder."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from nbl.commands.common import print_json, print_table
from nbl.corpus.clean import REMOVED_TAGS
from nbl.corpus.folder import write_corpus
from nbl.corpus.own import attach_heads, own_source
from nbl.corpus.sources import SOURCES
from nbl.errors import UserError

COLUMNS = ("part", ">sentences", ">words", ">types", ">unk %", ">length", ">spans", ">LB", ">RB", ">best")


def prepare(
    out: Path,
    corpus: str | None,
    source: Path | None,
    trees: list[str],
    text: list[str],
    heads: list[str],
    max_words: int,
    min_count: int,
    as_json: bool,
) -> None:
    if corpus is None and not (trees or text):
        raise UserError(f"name a corpus with --corpus {'|'.join(SOURCES)}, or your own files with --trees or --text")
    if corpus is not None and (trees or text):
        raise UserError(f"--corpus {corpus} excludes your own files (--trees, --text): leave out one of the two")
    if corpus is None and source is not None:
        raise UserError(f"--source {source} needs --corpus; your own files are named by --trees and --text")
    spinner = Console(stderr=True, quiet=as_json or not sys.stderr.isatty())
    with spinner.status("preparing the corpus"):
        found = SOURCES[corpus](source) if corpus else own_source(trees, text)
        attach_heads(found, heads)
        stats = write_corpus(found, out, max_words, min_count)
    if as_json:
        return print_json(stats)
    title = f"{stats['corpus']}: {stats['vocabulary']:,} words in the vocabulary"
    print_table(COLUMNS, [_row(split, counts) for split, counts in stats["splits"].items()], title, narrow=True)
    if any("trees" in counts for counts in stats["splits"].values()):
        print("LB, RB, best: sentence F1 of left branching, right branching, best binary trees")
    for note in _notes(stats):
        print(f"note: {note}")
    print(f"written to {out}")


def _row(split: str, counts: dict[str, Any]) -> list[str]:
    row = [split, *(f"{counts[key]:,}" for key in ("sentences", "tokens", "types"))]
    row += [f"{100 * counts['unknown_rate']:.2f}", f"{counts['length']['mean']:.1f}"]
    if trees := counts.get("trees"):
        row += [f"{trees['constituents']:,}"]
        row += [f"{trees['sentence_f1'][name]:.2f}" for name in ("left", "right", "oracle")]
    return row


def _notes(stats: dict[str, Any]) -> list[str]:
    """What may surprise the user of the corpus."""
    splits = stats["splits"]
    notes = [f"{split} is empty" for split, counts in splits.items() if not counts["sentences"]]
    if blank := sum(counts["without_words_dropped"] for counts in splits.values()):
        notes.append(f"{blank} sentences without a word were left out")
    odd = Counter[str]()
    for counts in splits.values():
        odd.update({tag: n for tag, n in counts["tokens_dropped_by_tag"].items() if tag not in REMOVED_TAGS})
    if odd:
        tags = ", ".join(f"{tag} {n}" for tag, n in odd.most_common(8))
        notes.append(f"words with tags unknown to the Penn Treebank were left out: {tags}")
    unknown = {split: counts["unknown_rate"] for split, counts in splits.items()}
    if unknown["train"] == 0 and max(unknown.values()) > 0.01:
        notes.append("no training word is unknown, so no model can learn <unk>; try --min-count 2")
    return notes
