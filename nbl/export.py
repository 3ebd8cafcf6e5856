"""The small, wordless part of a corpus' results, for git: what others need to check and compare our numbers.

The copy has the layout of `results/`, so every tool that reads results reads it as well (`--results`): of each run
its config.yaml, history.csv, metrics.json and compressed predictions; of the corpus its statistics.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path

from nbl.files import replacing
from nbl.matrix import Experiment
from nbl.run_status import DONE, run_folder, status

SMALL = ("config.yaml", "history.csv", "metrics.json")


def export(results: Path, corpus: str, experiments: Sequence[Experiment], seeds: Sequence[int], out: Path) -> list[str]:
    """Copy the runs that are done, each whole; returns a line for each that is not."""
    left_out = []
    for experiment in experiments:
        for seed in seeds:
            source, target = (run_folder(root, corpus, experiment, seed) for root in (results, out))
            found = status(source, experiment, seed)
            if found != DONE:
                left_out.append(f"{source}: {found}")
                continue
            for path in sorted(source.glob("predictions.*.jsonl")):
                with replacing(target / f"{path.name}.gz") as temporary:
                    temporary.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            for name in SMALL:  # metrics.json last: without it, nobody takes the folder for a run's
                _copy(source / name, target / name)
    _copy(results / corpus / "corpus" / "stats.json", out / corpus / "corpus" / "stats.json")
    return left_out


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)
