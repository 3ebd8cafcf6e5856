"""The verbs: for each its sentence, explanation, example and arguments; the code is in the modules here.

Nothing in this module needs torch, so that help and refusals are immediate.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from nbl.sentence import MAX_WORDS, SPLITS
from nbl.settings import CORPORA, DECODERS, LEGACY, MODELS, SETTINGS, TRAINING

FORMATS = ("brackets", "conllx", "json", "svg", "png")
PARTS = ("inside", "step", "decode", "launches")  # of the benchmark


class Argument(NamedTuple):
    """What `ArgumentParser.add_argument` takes."""

    names: tuple[str, ...]
    settings: dict[str, Any]


class Verb(NamedTuple):
    """The function of the same name in a module of `nbl.commands` gets the arguments as keywords."""

    module: str
    summary: str
    details: str
    example: str
    arguments: Sequence[Argument]


def _verb(module: str, summary: str, details: str, example: str, *arguments: Argument) -> Verb:
    return Verb(module, summary, details, example, arguments)


def _listed(words: Iterable[str]) -> str:
    return fill(", ".join(words), 78, initial_indent="  ", subsequent_indent="  ")


def suggestion(word: str, known: Sequence[str]) -> str:
    """The end of a refusal: the known word that the user may have meant.

    >>> suggestion("pase", ["parse", "train"]), suggestion("x", ["parse", "train"])
    ('; did you mean parse?', '')
    """
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _argument(*names: str, help: str, **settings: Any) -> Argument:
    if settings.get("default") not in (None, []):
        help += f" [default: {settings['default']}]"
    return Argument(names, {"help": help} | settings)


def _file(name: str, help: str, **settings: Any) -> Argument:
    def path(text: str) -> Path:
        if Path(text).is_dir():
            raise argparse.ArgumentTypeError(f"{text} is a folder; name a file")
        return Path(text)

    return _argument(name, help=help, type=path, metavar="FILE", **settings)


def _folder(name: str, help: str, metavar: str = "DIR", **settings: Any) -> Argument:
    def path(text: str) -> Path:
        if Path(text).is_file():
            raise argparse.ArgumentTypeError(f"{text} is a file; name a folder")
        return Path(text)

    return _argument(name, help=help, type=path, metavar=metavar, **settings)


def _count(name: str, least: int, default: int, help: str) -> Argument:
    def whole_number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return _argument(name, type=whole_number, metavar="N", default=default, help=help)


def _choice(name: str, known: Sequence[str], help: str, **settings: Any) -> Argument:
    metavar = name.removeprefix("--").upper()
    return _argument(name, type=_one_of(known), metavar=metavar, help=f"{help}: {', '.join(known)}", **settings)


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    def chosen(text: str) -> str:
        if text not in known:
            choices = ", ".join(known)
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {choices}{suggestion(text, known)}")
        return text

    return chosen


def _several(name: str, metavar: str, help: str, **settings: Any) -> Argument:
    """An option with one or more values, which may be repeated."""
    return _argument(name, nargs="+", action="extend", default=[], metavar=metavar, help=help, **settings)


def _switch(name: str, help: str, **settings: Any) -> Argument:
    return _argument(name, action="store_true", help=help, **settings)


RUN = _argument("run", type=Path, metavar="RUN", help="folder of a run")
TEXT = _argument(
    "text", type=Path, metavar="FILE", nargs="?", default=Path("-"), help="text, one sentence per line; - is stdin"
)
DECODERS_OF_ALL = [name for name in DECODERS if not name.endswith(LEGACY)]
CORPUS_OF_RUN = _folder("--corpus-dir", "corpus of the run or runs", required=True)
VOCABULARY_OF_RUN = _folder("--corpus-dir", "corpus of the run, if the run has no vocab.txt")
SPLIT = _choice("--split", SPLITS, "part of the corpus", default="test")
DEVICE = _argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
JSON = _switch("--json", "print JSON", dest="as_json")
PARAMS = _file("--params", "file of all parameters", default=Path("params.yaml"))
RESULTS = _folder("--results", "folder of all results", default=Path("results"))
NARROWED = _several("--config", "KEY=VALUE", "narrow the matrix as in Snakemake: corpus, seeds, tables, experiments")
PUBLISHED = _file("--published", "numbers of the paper [default: those in the package]")
REPORT = [
    _argument("--corpus", required=True, help="corpus whose results are read"),
    RESULTS,
    _folder("--out", "folder to write [default: paper_tables/CORPUS]"),
    PARAMS,
    PUBLISHED,
]

VERBS = {
    "prepare": _verb(
        "corpus",
        "Build a corpus: clean it, number its words, find gold heads, count everything.",
        """Writes train.jsonl, dev.jsonl, test.jsonl, vocab.txt and stats.json.
PART is train, dev or test; without it, your own sentences are split 80:10:10
in their order.""",
        "nbl prepare --corpus toy --out results/toy/corpus",
        _folder("--out", "folder to write", required=True),
        _choice("--corpus", CORPORA, "a corpus that nbl knows"),
        _argument("--source", type=Path, metavar="PATH", help="where that corpus is, if nbl does not find it"),
        _several("--trees", "[PART=]FILE", "your own bracketed trees instead of a known corpus"),
        _several("--text", "[PART=]FILE", "your own plain text, one sentence per line"),
        _several("--heads", "[PART=]FILE", "gold heads from CoNLL-X files, besides the converter's"),
        _count("--max-words", 1, MAX_WORDS, "size of the vocabulary; all other words are unknown"),
        _count("--min-count", 1, 1, "rarer training words are unknown, too"),
        JSON,
    ),
    "train": _verb(
        "training",
        "Train a grammar.",
        f"""Writes config.yaml, vocab.txt, history.csv (one row per epoch) and
checkpoint.pt (the model with the lowest dev perplexity).
The same command resumes an interrupted run.

Settings of the model, if it has them:
{_listed(key for key in SETTINGS if key not in TRAINING)}
Settings of the training:
{_listed(TRAINING)}""",
        "nbl train --corpus-dir results/toy/corpus --model nblpcfg --seed 0 --out runs/nblpcfg/seed0",
        _folder("--corpus-dir", "corpus built by `nbl prepare`", required=True),
        _choice("--model", list(MODELS), "grammar to train", required=True),
        _folder("--out", "folder of the run", required=True),
        _several("--set", "KEY=VALUE", "settings that differ from the model's defaults", dest="assignments"),
        _count("--seed", 0, 0, "seed of initial parameters, order and samples"),
        DEVICE,
        _count("--threads", 1, 1, "CPU threads; results depend slightly on their number"),
        _switch("--replace", "start over if the folder holds a run with other settings"),
        _switch("--keep-state", "keep finished.pt, from which lost results can be rewritten"),
        _switch("--json", "print JSON and no progress", dest="as_json"),
    ),
    "evaluate": _verb(
        "evaluation",
        "Parse part of a corpus with a trained grammar and score the trees.",
        """Writes predictions.DECODER.jsonl (spans, heads and log p of each sentence, no
words) to the folder of the run, and metrics.json from all predictions there.
For parts other than test: predictions.DECODER.PART.jsonl, metrics.PART.json.
cyk-legacy and mbr-legacy repeat the errors of the released NL-PCFG decoders.
Without gold trees, only perplexity is reported.""",
        "nbl evaluate runs/nblpcfg/seed0 --corpus-dir results/toy/corpus --decoder cyk mbr",
        RUN,
        CORPUS_OF_RUN,
        _several(
            "--decoder", "DECODER", f"{', '.join(DECODERS)} [default: mbr]", type=_one_of(DECODERS), dest="decoders"
        ),
        _switch("--from-predictions", "only score existing predictions, which takes seconds"),
        SPLIT,
        DEVICE,
        JSON,
    ),
    "parse": _verb(
        "grammar",
        "Parse text, one sentence per line.",
        """Text is split into words as in the treebank; punctuation is removed, as in
training. Unknown words are parsed as <unk> and printed as written.

brackets  one line per sentence, (NT3[dog] (T the) (T dog)): NT3 is the
          nonterminal (X with mbr, which has no labels), dog its head word
          if there is one, T any preterminal
conllx    words and heads
json      one object per line, with log p
svg, png  a picture: constituents above the words, arcs of the heads below""",
        "echo 'The dog barks.' | nbl parse runs/nblpcfg/seed0 --decoder cyk --format svg --out dog.svg",
        RUN,
        TEXT,
        _choice("--decoder", DECODERS_OF_ALL, "decoder; mbr finds better trees, cyk labels them", default="mbr"),
        _choice("--format", FORMATS, "what to print or draw", default="brackets"),
        _file("--out", "file to write"),
        VOCABULARY_OF_RUN,
        DEVICE,
        _argument("--json", action="store_const", const="json", dest="format", help="short for --format json"),
    ),
    "score": _verb(
        "grammar",
        "Print log p of each sentence of a text, and its perplexity.",
        """Text is split into words as in the treebank, without punctuation; unknown
words are <unk>. Logarithms are natural.
Perplexity is exp(-sum log p / sum (words + 1)).
Lines of fewer than two words are not scored: no grammar here derives them.
For compound models, log p is log p(w|z) - KL with z at its mean.""",
        "nbl score runs/nblpcfg/seed0 story.txt",
        RUN,
        TEXT,
        VOCABULARY_OF_RUN,
        DEVICE,
        JSON,
    ),
    "show": _verb(
        "grammar",
        "Show a grammar: the most probable rules of each nonterminal and words of each symbol.",
        """A star marks the head child. In a lexicalised grammar, rules depend on the
head word; they are averaged over the words that the nonterminal would have
as root. Words are those of each preterminal (npcfg, cpcfg, tnpcfg), of each
symbol (nlpcfg), of each nonterminal as root and of each value of H (nblpcfg).
A compound model is shown at z = 0.

With --corpus-dir: how often each nonterminal occurs in the CYK trees, and
which gold constituents it stands for. The trees are those of
`nbl evaluate --decoder cyk` if it has run; otherwise they are parsed now.""",
        "nbl show runs/nblpcfg/seed0 --corpus-dir results/toy/corpus --top 5",
        RUN,
        _folder("--corpus-dir", "also count the symbols in the CYK trees of this corpus"),
        SPLIT,
        _count("--top", 1, 10, "number of rules and words per symbol"),
        JSON,
    ),
    "sample": _verb(
        "grammar",
        "Draw sentences with their trees from a trained grammar.",
        """From the top down: root, rules, words. A tree that grows beyond --max-length
words is rejected and another one drawn. Trees are printed as by `nbl parse`.""",
        "nbl sample runs/nblpcfg/seed0 -n 10 --seed 0 --max-length 20",
        RUN,
        _count("-n", 1, 10, "number of sentences"),
        _count("--seed", 0, 0, "seed of the draws"),
        _count("--max-length", 2, 40, "longer sentences are rejected and counted"),
        VOCABULARY_OF_RUN,
        JSON,
    ),
    "compare": _verb(
        "evaluation",
        "Compare the predictions of runs for the same sentences, pair by pair.",
        """Self-F1 is the F1 of one run's trees against the other's. The difference in
F1 comes with a 95% bootstrap interval over sentences and with the sentences
that differ most. Needs the predictions of `nbl evaluate`, but no model.""",
        "nbl compare runs/nblpcfg/seed0 runs/nblpcfg/seed1 --corpus-dir results/toy/corpus",
        _argument("runs", type=Path, metavar="RUN", nargs="+", help="folders of two or more runs"),
        CORPUS_OF_RUN,
        _choice("--decoder", DECODERS_OF_ALL, "decoder whose predictions are compared", default="mbr"),
        SPLIT,
        _count("--seed", 0, 0, "seed of the bootstrap"),
        _count("--top", 0, 10, "number of sentences to list per pair"),
        JSON,
    ),
    "bench": _verb(
        "bench",
        "Measure speed and memory of all candidates in turns, and compare them.",
        """A candidate that differs from the naive inside algorithm, or from the best of
all trees, is not timed. Seconds of inside algorithms and decoders are
processor time on one thread. Read the ratios: machines differ and are seldom
idle.""",
        "nbl bench --quick --part inside",
        _folder("--out", "folder for the csv files"),
        _several("--part", "PART", f"only some of {', '.join(PARTS)}", dest="parts", type=_one_of(PARTS)),
        _switch("--quick", "small sizes and few rounds, for a first look"),
        _count("--rounds", 1, 5, "number of times each candidate is measured"),
        _count("--threads", 1, 2, "threads of a second measurement of the steps"),
        _folder(
            "--against",
            "time only steps and decoders, in turns with those of another checkout of this project",
            metavar="CHECKOUT",
        ),
        JSON,
    ),
    "selftest": _verb(
        "bench",
        "Check that this machine computes what the definition says.",
        """Compares values and gradients of every grammar with the naive recursion, and
posteriors with the CPU's in float64. Computes and trains twice to see the same
bytes, counts launches and times steps. Exit code 1 if a check fails.""",
        "nbl selftest --device cpu",
        DEVICE,
        JSON,
    ),
    "runs": _verb(
        "matrix",
        "List the runs that the tables need: settings, tables, and which are done.",
        "",
        "nbl runs --config corpus=sample tables=[main] seeds=[0]",
        NARROWED,
        PARAMS,
        RESULTS,
        JSON,
    ),
    "collect": _verb(
        "matrix",
        "Collect the scores and training curves of the runs that the tables need.",
        """Writes metrics.json (means over the seeds), seeds.csv (every seed),
history.csv (every epoch), d_H.csv and nonterminals.csv (the sweeps) to the
folder of the corpus. Runs that are missing, damaged or trained with other
settings are named and left out.""",
        "nbl collect --config corpus=toy",
        NARROWED,
        PARAMS,
        RESULTS,
    ),
    "export": _verb(
        "matrix",
        "Copy the small, wordless files of finished runs, which may be published.",
        """These are settings, curves, scores and predictions. Every verb reads the copy
with --results.""",
        "nbl export --config corpus=sample",
        NARROWED,
        PARAMS,
        RESULTS,
        _folder("--out", "folder to write", default=Path("results/reference")),
        _switch("--trees", "also three gold trees to draw, with tags instead of words"),
    ),
    "page": _verb(
        "paper",
        "Write results.md, its figures and the README's section of results.",
        "",
        "nbl page --reference results/reference",
        _folder("--reference", "runs copied by `nbl export`", default=Path("results/reference")),
        _folder("--docs", "folder to write", default=Path("docs")),
        _file("--readme", "file whose section is rewritten", default=Path("README.md")),
        PARAMS,
        PUBLISHED,
    ),
    "tables": _verb(
        "paper",
        "Write every table and figure of the paper from the results of a corpus.",
        """The files are LaTeX, PDF and PNG. A cell with missing runs shows its number of
seeds. paper.tex holds everything in one document, and is compiled if pdflatex
is installed.""",
        "nbl tables --corpus toy",
        *REPORT,
    ),
    "check": _verb(
        "paper",
        "Judge every number and every claim of the paper by the results of a corpus.",
        """Writes check.tex and check.json. A number is reproduced if chance explains
its difference, and not reproduced otherwise; it is undecided if our seeds
differ too much. A claim is reproduced if the means show it and an exact test
over the seeds gives p of at most 1/16, and not reproduced if they show the
opposite as clearly; it is undecided if a rival has fewer nonterminals than
in its release, which makes the claim easier. Not run: runs are missing.""",
        "nbl check --corpus toy",
        *REPORT,
    ),
    "diff": _verb(
        "history",
        "Show what commits did to the paper: cells, verdicts, settings, code, figures.",
        """Compares two revisions, or one with the files here. Nothing is checked out.""",
        "nbl diff HEAD~1",
        _argument("old", metavar="REV", nargs="?", default="HEAD", help="revision to compare with"),
        _argument("new", metavar="REV", nargs="?", help="another revision [default: the files here]"),
        _switch("--markdown", "print a Markdown table, as for a pull request"),
    ),
}
