# What the rules share: the matrix, where things lie, and the code each step depends on.
import json
import os
import shlex
import time
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from nbl import matrix
from nbl.closure import code_of
from nbl.corpus import folder
from nbl.files import set_aside
from nbl.settings import MODELS


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
PREPARE = shlex.join(
    matrix.source_options(CORPUS, SETTINGS)
    + ["--max-words", str(config["max_words"])]
    + ["--min-count", str(SETTINGS["min_count"])]
)
EXPERIMENTS = {experiment.name: experiment for experiment in matrix.experiments(config)}


wildcard_constraints:
    run="[^/]+",
    seed="[0-9]+",


def run_files(*names):
    """Files of these names of all runs of the matrix."""
    return expand(f"{RUN}/{{name}}", run=EXPERIMENTS, seed=config["seeds"], name=names)


CORPUS_FILES = expand(
    f"{RESULTS}/corpus/{{name}}",
    name=["train.jsonl", "dev.jsonl", "test.jsonl", "vocab.txt", "stats.json"],
)


def grammar_code(*modules):
    """What a run's step depends on: some modules and that of its own grammar. To add a grammar makes no run stale."""
    return lambda wildcards: code_of(
        *modules,
        f"nbl.models.{MODELS[EXPERIMENTS[wildcards.run].model].module}",
        without=["nbl.settings", "nbl.errors"],
    )


def made(files):
    """All of these files, or with `--config partial=true` those that are there."""
    return [file for file in files if not config.get("partial") or Path(file).exists()]


# A file that was damaged since it was made, by a full disk or by hand, is found by its checksum. A run's is made again.
# The corpus is not: every run would follow, though it comes out as it was. While another Snakemake is at work here,
# files may be half made: it is left alone.
if workflow.is_main_process and not list(Path(".snakemake/locks").glob("*")):
    if Path(RESULTS, "corpus/stats.json").exists() and (
        found := folder.damaged(f"{RESULTS}/corpus")
    ):
        raise WorkflowError(
            f"{', '.join(map(str, found))}: missing or damaged. To have the corpus again as it was, and keep the runs,"
            f" call: nbl prepare --out {RESULTS}/corpus {PREPARE}",
            f"To begin anew, delete the folder {RESULTS}/corpus.",
        )
    for sums in run_files("train.sha256"):
        for sentence in set_aside(Path(sums).parent):
            logger.warning(sentence)
    # Contents decide what is stale, yet Snakemake throws away what comes out older than what went in.
    inputs = (
        [*map(str, Path("nbl").rglob("*.*"))]
        + CORPUS_FILES
        + matrix.source_files(SETTINGS)
    )
    inputs += run_files(
        "config.yaml", "checkpoint.pt", "train.sha256", "evaluate.sha256"
    )
    for path in filter(os.path.exists, inputs):
        if os.path.getmtime(path) > time.time():
            logger.warning(f"{path} is dated in the future: its time is set to now.")
            try:
                os.utime(path)
            except OSError as error:
                logger.warning(f"{path} keeps its time: {error.strerror}.")
