"""A matrix of a thousand runs, as large as a study's: how long the tools take that look at all of it.

    python tests/support/load.py

The runs are invented (fake_results.py), at a real test set's size. Prints seconds; tests nothing.
"""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import yaml
from fake_results import BLEXICAL, RUNS, fake_params, write_invented_corpus, write_run
from small_project import PROJECT, environment, git

from nbl.corpus.folder import read_sentences

SENTENCES = 1000
SIZES = range(100, 330)  # of d_H: with the runs of the tests 250 experiments, each of four seeds


def make(folder: Path) -> int:
    """A copy of the project with invented results; gives the number of runs."""
    for part in ("nbl", "workflow"):
        source, target = PROJECT / part, folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    RUNS.update({f"nblpcfg-d_H={d}": ("nblpcfg", BLEXICAL | {"d_H": d}, 0.7, 0.4, 16.0) for d in SIZES})
    params = fake_params()
    params["decoders"] |= {"d_H": ["mbr"]}
    params["corpora"]["toy"]["tables"] |= {"d_H": [f"nblpcfg-d_H={d}" for d in SIZES]}
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    toy = folder / "results/toy"
    write_invented_corpus(toy / "corpus", SENTENCES)
    test = read_sentences(toy / "corpus/test.jsonl")
    for run in RUNS:
        first = toy / "runs" / run / "seed0"
        if run in params["corpora"]["toy"]["tables"]["d_H"]:
            _copy_run(toy / "runs/nblpcfg/seed0", first, hyperparameters=RUNS[run][1])
        else:
            write_run(toy, run, 0, test, "toy")
        for seed in range(1, 4):
            _copy_run(first, first.with_name(f"seed{seed}"), seed=seed)
    git(folder, "init", "-q")
    return 4 * len(RUNS)


def _copy_run(source: Path, target: Path, **changes: object) -> None:
    shutil.copytree(source, target)
    config = yaml.safe_load((source / "config.yaml").read_text()) | changes
    (target / "config.yaml").write_text(yaml.safe_dump(config))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{make(folder)} runs, {SENTENCES} test sentences")
        for command in (
            "snakemake --dry-run --quiet all -- all",
            "nbl runs",
            "nbl collect --config corpus=toy",
            "nbl check --corpus toy",
            "nbl tables --corpus toy",
        ):
            start = time.perf_counter()
            result = subprocess.run(
                command.split(), cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
            )
            print(f"{time.perf_counter() - start:6.1f} s  {command}  exit code {result.returncode}", flush=True)
            if result.returncode:
                print(result.stdout[-2000:], result.stderr[-2000:])


if __name__ == "__main__":
    main()
