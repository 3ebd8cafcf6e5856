# What the rules share: the matrix, where things lie, and the code each step depends on.
import json
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from nbl import checksums, matrix


def typed(value):
    """What a text of `--config` stands for: Snakemake hands over seeds=[0,1] as a list of texts."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    return yaml.safe_load(value) if isinstance(value, str) else value


for key in {"seeds", "tables", "experiments", "partial"} & config.keys():
    config[key] = typed(config[key])

if errors := matrix.errors(config):
    raise WorkflowError("params.yaml or --config is wrong:", *errors)

CORPUS = config["corpus"]
SETTINGS = config["corpora"][CORPUS]
RESULTS = f"results/{CORPUS}"
TABLES = f"paper_tables/{CORPUS}"
RUN = f"{RESULTS}/runs/{{run}}/seed{{seed}}"
LOGS = f"logs/{CORPUS}"
SELECTION = [
    f"{key}={json.dumps(config[key], separators=(',', ':'))}"
    for key in ("corpus", "seeds", "tables", "experiments")
]
EXPERIMENTS = {experiment.name: experiment for experiment in matrix.experiments(config)}


wildcard_constraints:
    run="[^/]+",
    seed="[0-9]+",


def run_files(*names):
    """Files of these names of all runs of the matrix."""
    return expand(f"{RUN}/{{name}}", run=EXPERIMENTS, seed=config["seeds"], name=names)


def modules(*patterns):
    """Source files of the package, so that a change of code is a change of input."""
    found = {path for pattern in patterns for path in Path("nbl").glob(pattern)}
    return sorted(str(path) for path in found if path.suffix in {".py", ".cpp", ".h"})


def evaluate_calls(decoders):
    """The options of the calls of `nbl evaluate` that parse with these decoders."""
    calls = {"": [], "--legacy ": []}
    for name in decoders:
        decoder = name.removesuffix(matrix.LEGACY)
        calls["" if decoder == name else "--legacy "].append(decoder)
    return [
        f"{legacy}--device {SETTINGS['device']} --decoder {' '.join(chosen)}"
        for legacy, chosen in calls.items()
        if chosen
    ]


CORPUS_FILES = expand(
    f"{RESULTS}/corpus/{{name}}",
    name=["train.jsonl", "dev.jsonl", "test.jsonl", "vocab.txt", "stats.json"],
)
# What a grammar is made of, and what both training and evaluation use of the corpus.
GRAMMAR_CODE = modules(
    *["models/*", "inside/*", "decode/*", "rules.py", "native.py", "device.py"],
    *["corpus/batches.py", "corpus/folder.py", "corpus/sentence.py", "metrics.py"],
)


def made(files):
    """All of these files, or with `--config partial=true` those that are there."""
    return [file for file in files if not config.get("partial") or Path(file).exists()]


# A file that was damaged since it was made, by a full disk or by hand, is found by its checksum and made again.
if workflow.is_main_process:
    for sums in run_files("train.sha256"):
        for sentence in checksums.set_aside(Path(sums).parent):
            logger.warning(sentence)
