"""Corpora of made-up sentences and small runs trained on them, for tests of what comes after training."""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path
from unittest import mock

from nbl.cli import main
from nbl.corpus.folder import Corpus, Raw, Source, read_corpus, write_corpus
from nbl.run_folder import make_config
from nbl.sentence import Sentence, Span
from nbl.train import train

NOUNS, VERBS = ["dog", "cat", "bird", "fox"], ["sees", "hears", "likes"]
SIZES = {
    "npcfg": ["NT=2", "dim=6"],
    "cpcfg": ["NT=2", "dim=4", "z_dim=2", "h_dim=3", "w_dim=3"],
    "tnpcfg": ["NT=2", "rank=3", "dim=4"],
    "nlpcfg": ["NT=2", "dim=4"],
    "nblpcfg": ["NT=2", "d_H=4", "dim=6"],
    "structformer": ["dim=4", "layers=2", "heads=2", "convolutions=1"],
}


def made_up(folder: Path, name: str = "made-up", gold: bool = True) -> Corpus:
    """Sentences such as `the dog sees a cat`, with trees and two schemes of heads, or with neither."""
    choose = random.Random(0).choice

    def raw(id: str) -> Raw:
        words = [choose(["the", "a"]), choose(NOUNS), choose(VERBS), choose(["the", "a"]), choose(NOUNS)]
        sentence = Sentence(id, words)
        if gold:
            sentence.spans = [Span(0, 5, "S"), Span(0, 2, "NP-SBJ"), Span(2, 5, "VP"), Span(3, 5, "NP")]
            sentence.heads = {"content": [2, 3, 0, 5, 3], "first": [0, 1, 1, 3, 4]}
        if choose([True, False]):  # intransitive
            sentence.words = words[:3]
            if gold:
                sentence.spans = [Span(0, 3, "S"), Span(0, 2, "NP-SBJ")]
                sentence.heads = {"content": [2, 3, 0], "first": [0, 1, 1]}
        return Raw(sentence, [])

    counts = {"train": 24, "dev": 6, "test": 8}
    splits = {split: [raw(f"{split}.{k}") for k in range(n)] for split, n in counts.items()}
    write_corpus(Source(name, splits, "0"), folder)
    return read_corpus(folder)


def tiny_run(corpus: Corpus, out: Path, model: str, seed: int = 0) -> Path:
    """A run of one epoch."""
    assignments = [*SIZES[model], "epochs=1"]
    train(make_config(model, assignments, corpus, seed=seed, threads=1, device="cpu"), corpus, out, device="cpu")
    return out


def call(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
    """Call the command line: its exit code, and what it wrote to standard output and standard error."""
    streams = {
        name: io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", write_through=True)
        for name, data in {"stdin": stdin, "stdout": b"", "stderr": b""}.items()
    }
    unchanged = mock.patch("nbl.cli.keep_freed_memory")  # for good: it would hide memory from tests that measure it
    with unchanged, mock.patch.multiple(sys, argv=["nbl", *map(str, arguments)], **streams):
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code
    out, err = (streams[name].buffer.getvalue().decode(errors="replace") for name in ("stdout", "stderr"))
    return code, out, err
