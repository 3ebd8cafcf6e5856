# Helpers of the rules: where things lie.
from pathlib import Path

CORPORA = "|".join(config["corpora"])


def corpus_files(corpus):
    """What `nbl prepare` writes."""
    names = ["train.jsonl", "dev.jsonl", "test.jsonl", "vocab.txt", "stats.json"]
    return [f"results/{corpus}/corpus/{name}" for name in names]


def modules(*patterns):
    """The source files of the package a rule depends on, so that a change of code is a change of input."""
    return sorted(
        str(path) for pattern in patterns for path in Path("nbl").glob(pattern)
    )


def option(name, value):
    """A command-line option with its value, or nothing where the value is null."""
    return [] if value is None else [name, str(value)]
