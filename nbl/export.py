"""The small, wordless part of a corpus' results, for git: what others need to check and compare our numbers.

The copy has the layout of `results/`, so every tool that reads results reads it as well (`--results`): of each run
its config.yaml, history.csv, metrics.json and compressed predictions; of the corpus its statistics and,
if asked for, the gold trees of three sentences over their tags, to draw; the benchmark, if it was run. What was
exported before and is not here any more stays as it is.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from nbl.corpus.folder import read_sentences
from nbl.errors import UserError
from nbl.files import replacing, write_text
from nbl.matrix import Experiment
from nbl.predictions import predictions_path
from nbl.run_folder import DONE, RunFolder
from nbl.sentence import Sentence, bare_label

SMALL = ("config.yaml", "history.csv", "metrics.json")
DRAWN, DRAWN_LENGTHS = 3, range(8, 13)


def export(
    results: Path, corpus: str, experiments: Sequence[Experiment], seeds: Sequence[int], out: Path, trees: bool = False
) -> list[str]:
    """Copy the runs that are done, each whole; returns a line for each that is not."""
    if not (results / corpus / "corpus" / "stats.json").exists():
        raise UserError(f"there are no results for {corpus!r}: {results / corpus / 'corpus'} holds no prepared corpus")
    left_out = []
    for experiment in experiments:
        for seed in seeds:
            source, target = (RunFolder.of(root, corpus, experiment, seed).path for root in (results, out))
            found = RunFolder(source).status(experiment, seed)
            if found != DONE:
                left_out.append(f"{source}: {found}")
                continue
            paths = [predictions_path(source, decoder) for decoder in experiment.decoders]
            if missing := [path.name for path in paths if not path.exists()]:
                left_out.append(f"{source}: {', '.join(missing)} missing")
                continue
            shutil.rmtree(target, ignore_errors=True)
            for path in paths:
                with replacing(target / f"{path.name}.gz") as temporary:
                    temporary.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            for name in SMALL:  # metrics.json last: without it, nobody takes the folder for a run's
                _copy(source / name, target / name)
    source, target = (root / corpus / "corpus" for root in (results, out))
    _copy(source / "stats.json", target / "stats.json")
    for path in sorted((results / corpus / "bench").glob("*.*")):
        _copy(path, out / corpus / "bench" / path.name)
    if trees:
        golds = [_wordless(sentence) for sentence in read_sentences(source / "test.jsonl") if _can_be_drawn(sentence)]
        write_text(target / "trees.json", json.dumps(golds[:DRAWN], indent=1) + "\n")
    return left_out


def _can_be_drawn(sentence: Sentence) -> bool:
    has_gold = sentence.tags is not None and sentence.spans is not None and "stanford" in sentence.heads
    return has_gold and len(sentence) in DRAWN_LENGTHS


def _wordless(sentence: Sentence) -> dict[str, object]:
    spans = [(i, j, bare_label(label)) for i, j, label in sentence.spans or []]
    return {"id": sentence.id, "tags": sentence.tags, "spans": spans, "heads": sentence.heads["stanford"]}


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)
