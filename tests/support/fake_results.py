"""A results folder as the pipeline leaves it, made in a second: invented scores, real file formats."""

import csv
import json
import math
import random
from pathlib import Path

import yaml

from nbl import metrics
from nbl.corpus.folder import Raw, Source, read_sentences, write_corpus
from nbl.evaluate import write_metrics
from nbl.predictions import Prediction, predictions_path, write_predictions
from nbl.run_folder import RunFolder
from nbl.sentence import Sentence, Span

SEEDS = (0, 1, 2, 3)
COMPOUND = "nlpcfg-NT=4-compound=true"
MODELS = ("npcfg", "cpcfg", "tnpcfg", "nlpcfg", "nblpcfg")
SIZES = {"NT": 6, "PT": 12, "dim": 8}
BLEXICAL = SIZES | {"d_H": 30, "binding": "D-C", "compound": False}
# run -> model, hyper-parameters, share of right trees, share of right heads (None: no heads), perplexity
RUNS = {
    "npcfg": ("npcfg", SIZES, 0.45, None, 25.0),
    "cpcfg": ("cpcfg", SIZES, 0.50, None, 20.0),
    "tnpcfg": ("tnpcfg", SIZES | {"rank": 20}, 0.55, None, 21.0),
    "nlpcfg": ("nlpcfg", SIZES | {"compound": False}, 0.55, 0.25, 18.0),
    COMPOUND: ("nlpcfg", SIZES | {"NT": 4, "PT": 8, "compound": True}, 0.57, 0.40, 19.0),
    "nblpcfg": ("nblpcfg", BLEXICAL, 0.75, 0.39, 16.0),
    "nblpcfg-binding=D-alone": ("nblpcfg", BLEXICAL | {"binding": "D-alone"}, 0.60, 0.33, 16.5),
    "nblpcfg-binding=D-wq": ("nblpcfg", BLEXICAL | {"binding": "D-wq"}, 0.48, 0.60, 17.7),
    "nblpcfg-binding=D-B": ("nblpcfg", BLEXICAL | {"binding": "D-B"}, 0.48, 0.36, 17.0),
}
RUNS |= {
    "nblpcfg-NT=4" if d_H == BLEXICAL["d_H"] else f"nblpcfg-NT=4-d_H={d_H}": (
        "nblpcfg",
        BLEXICAL | {"NT": 4, "PT": 8, "d_H": d_H},
        0.7 - 2 / d_H,
        0.4 - 1 / d_H,
        16 + 600 / d_H**2,
    )
    for d_H in (5, 10, 20, 30, 40, 50)
}
RUNS |= {f"nblpcfg-NT={NT}": ("nblpcfg", BLEXICAL | {"NT": NT, "PT": 2 * NT}, 0.7, 0.39, 16.1) for NT in (2, 8, 10)}
RUNS |= {
    f"nlpcfg-NT={NT}": (
        "nlpcfg",
        SIZES | {"NT": NT, "PT": 2 * NT, "compound": False},
        0.3 + 0.04 * NT,
        0.1 + 0.025 * NT,
        22 - 0.6 * NT,
    )
    for NT in (2, 4, 8, 10)
}
WORDS = (("blick", "gorp"), ("wug", "toma"), ("daxed", "pilked"), ("modi", "kiki"), ("blap", "fep"))
IMPLEMENTATIONS = {  # name -> seconds for l words and m nonterminals, in milliseconds
    "naive": lambda l, m: l**5 * m**3 / 4e6 if l <= 10 else None,
    "NL, C1-1 cached": lambda l, m: 3 + l**4 * m**3 / 4e7,
    "NL, C1-2 cached": lambda l, m: 3 + l**4 * m**2 / 3e6 + l**3 * m**3 / 2e6,
    "NL, splits first": lambda l, m: 3 + l**4 * m**2 / 4e6 + l**3 * m**3 / 4e6,
    "NL, native": lambda l, m: 1 + l**4 * m**2 / 4e7 + l**3 * m**3 / 4e7,
    "NBL, torch": lambda l, m: 4 + l**4 / 4e4 + l**3 * m / 9e3,
    "NBL, native": lambda l, m: 2 + l**4 / 8e4 + l**3 * m / 2e4,
    "Eisner-Satta": lambda l, m: 3 + l**4 * m**2 / 3e5,
    "N": lambda l, m: 3 + l**3 * m**3 / 4e6,
    "N, native": lambda l, m: 1 + l**3 * m**3 / 2e7,
    "TN": lambda l, m: 3 + l**3 * m / 4e4,
    "TN, native": lambda l, m: 1 + l**3 * m / 2e5,
}


def invented_sentences(n: int, split: str) -> list[Sentence]:
    """Sentences of one shape with a few words: (S (NP DT JJ NN) (VP VBD (NP DT NN) (PP IN (NP DT NN))))."""
    generator = random.Random(split)
    sentences = []
    for number in range(n):
        words = "zo {} {} {} zo {} vel zo {}".format(*(generator.choice(pair) for pair in WORDS))
        sentences.append(
            Sentence(
                f"{split}.{number}",
                words.split(),
                tags="DT JJ NN VBD DT NN IN DT NN".split(),
                spans=[
                    Span(*span)
                    for span in ((0, 9, "S"), (0, 3, "NP-SBJ"), (3, 9, "VP"), (4, 6, "NP"), (6, 9, "PP"), (7, 9, "NP"))
                ],
                heads={"stanford": [3, 3, 4, 0, 6, 4, 4, 9, 7]},
            )
        )
    return sentences


def write_invented_corpus(folder: Path, n: int = 20) -> None:
    splits = {split: [Raw(s, []) for s in invented_sentences(n, split)] for split in ("train", "dev", "test")}
    write_corpus(Source("invented", splits, "0" * 64), folder)


def predict(sentences, generator, trees, heads, perplexity, decoder):
    """Oracle trees and gold heads with given probabilities, random ones else; MBR is right a bit more often."""
    better = 0.03 if decoder.startswith("mbr") else -0.03 if decoder.endswith("legacy") else 0.0
    result = []
    for sentence in sentences:
        l = len(sentence)
        good = generator.random() < trees + better
        spans = metrics.oracle(sentence.spans) if good else metrics.random_branching(l, generator)
        gold = sentence.heads["stanford"]
        guess = [
            h if generator.random() < (heads or 0) + better else (k if generator.random() < 0.5 else min(l, k + 2))
            for k, h in enumerate(gold)
        ]
        log_prob = -(l + 1) * math.log(perplexity) * generator.uniform(0.98, 1.02)
        result.append(
            Prediction(sentence.id, l, [(i, j, 0) for i, j in spans], guess if heads else None, log_prob, None)
        )
    return result


def write_run(folder: Path, run: str, seed: int, sentences, corpus: str, spread: float = 0.01) -> None:
    """One seed of a run: its config, predictions and metrics."""
    model, hyperparameters, trees, heads, perplexity = RUNS[run]
    path = folder / "runs" / run / f"seed{seed}"
    path.mkdir(parents=True)
    config = {"model": model, "vocab_size": 30, "hyperparameters": hyperparameters}
    config["training"] = {"lr": 0.001, "max_length": 40}
    config |= {"seed": seed, "threads": 1, "device": "cpu", "corpus": {"name": corpus}, "environments": []}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    generator = random.Random(f"{run} {seed}")
    shift, perplexity = generator.gauss(0, spread), perplexity * (1 + generator.gauss(0, spread))
    for decoder in ("cyk", "mbr", "cyk-legacy", "mbr-legacy"):
        if not decoder.endswith("legacy") or run == "nlpcfg":
            predictions = predict(sentences, generator, trees + shift, heads, perplexity, decoder)
            write_predictions(predictions_path(path, decoder), predictions)
    write_metrics(RunFolder(path), sentences)


def write_bench(folder: Path) -> None:
    """Times of the inside algorithms at the paper's sizes."""
    folder.mkdir(parents=True)
    cases = [(1, l, 10) for l in (10, 20, 30, 40)] + [(1, 30, m) for m in (5, 15, 20, 25, 30)] + [(8, 20, 15)]
    with (folder / "inside.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow("implementation b l m median low high rounds peak_mb sgemm_gflops".split())
        for b, l, m in cases:
            for name, milliseconds in IMPLEMENTATIONS.items():
                ms = milliseconds(l, m)
                times = ["", "", "", ""] if ms is None else [ms / 1000, ms / 1050, ms / 950, 5]
                writer.writerow([name, b, l, m, *times, *(["", ""] if ms is None else [100.0, 90.0])])


def write_results(results: Path, corpus: str = "toy", seeds=SEEDS, runs=tuple(RUNS), spread: float = 0.01) -> Path:
    """A complete results folder for one corpus; returns the corpus' folder."""
    folder = results / corpus
    if not (folder / "corpus" / "stats.json").exists():
        write_invented_corpus(folder / "corpus")
    sentences = read_sentences(folder / "corpus" / "test.jsonl")
    for run in runs:
        for seed in seeds:
            write_run(folder, run, seed, sentences, corpus, spread)
    write_bench(folder / "bench")
    return folder


def fake_params(corpus: str = "toy", seeds=SEEDS) -> dict:
    """The project's parameters, but asking for all `RUNS` on one corpus."""
    models = {model: {k: v for k, v in RUNS[model][1].items() if k != "PT"} for model in MODELS}
    experiments = {
        run: {"model": model} | {k: v for k, v in sizes.items() if k != "PT" and v != models[model][k]}
        for run, (model, sizes, *_) in RUNS.items()
    }
    params = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text())
    tier = params["corpora"]["toy"] | {"training": {"lr": 0.001}, "models": models, "experiments": experiments}
    tier["tables"] = {"main": list(RUNS), "decoders": ["nlpcfg"]}
    decoders = {"main": ["cyk", "mbr"], "decoders": ["cyk-legacy", "mbr-legacy"]}
    chosen = {"corpus": corpus, "seeds": list(seeds), "tables": None, "experiments": None, "decoders": decoders}
    return params | chosen | {"corpora": {corpus: tier}}


def change_metrics(path: Path, **scores: float) -> None:
    """Overwrite scores of all decoders in a run's metrics.json, e.g. f1=50.0, udas=30.0, perplexity=20.0."""
    document = json.loads(path.read_text())
    for values in document["decoders"].values():
        for key, value in scores.items():
            if key == "perplexity":
                values[key] = value
            elif key == "f1":
                values["trees"]["kim"]["sentence_f1"] = value
            else:
                values["heads"]["stanford"][key] = value
    path.write_text(json.dumps(document))
