"""`nbl evaluate` and `nbl compare`: predictions for a part of a corpus. Only new ones need torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbl.compare
from nbl.commands.common import counting, number, print_json, print_table, split_of
from nbl.errors import UserError
from nbl.evaluate import write_metrics
from nbl.predictions import predictions_path, write_predictions
from nbl.run_folder import RunFolder
from nbl.settings import LEGACY, described

LABELS = 8  # the most frequent ones are printed
HEAD_SCORES = ("udas", "uuas", "udas_without_root", "uuas_without_root")


def evaluate(
    run: Path, corpus_dir: Path, decoders: list[str], from_predictions: bool, split: str, device: str, as_json: bool
) -> None:
    if from_predictions and decoders:
        raise UserError("--from-predictions scores all existing predictions: leave out --decoder")
    folder = RunFolder(run)
    folder.refuse_unfinished()
    decoders = list(dict.fromkeys(decoders or ["mbr"]))
    if not described(folder.config.model).legacy and (legacy := [name for name in decoders if name.endswith(LEGACY)]):
        raise UserError(f"{legacy[0]} is for nlpcfg, not for {folder.config.model}: leave it out")
    if not described(folder.config.model).grammar and decoders != ["mbr"]:
        raise UserError(f"{folder.config.model} has one way to parse, stored as mbr: leave out --decoder")
    sentences = split_of(corpus_dir, split, folder)
    if not from_predictions:
        from nbl.predict import open_run, predict  # torch, which scoring does not need

        with open_run(run, device, corpus_dir) as trained:
            for name in decoders:
                with counting(f"parsing ({name})", len(sentences), quiet=as_json) as advance:
                    predictions = predict(trained, sentences, name, advance)
                write_predictions(predictions_path(run, name, split), predictions)
    metrics = write_metrics(folder, sentences, split)
    if as_json:
        print_json(metrics)
    else:
        _print_metrics(metrics)


def _print_metrics(metrics: dict[str, Any]) -> None:
    trees, heads, recall = [], [], []
    labels: list[str] = []
    for decoder, scores in metrics["decoders"].items():
        kim, branching = scores.get("trees", {}).get("kim", {}), scores.get("branching", {})
        values = kim.get("sentence_f1"), kim.get("corpus_f1"), branching.get("left"), branching.get("right")
        exact = "" if scores["perplexity_is_exact"] else "about "
        trees.append([decoder, *map(number, values), exact + number(scores["perplexity"])])
        for scheme, found in scores.get("heads", {}).items():
            heads.append([decoder, scheme, *(number(found[key]) for key in HEAD_SCORES)])
        if kim:
            labels = labels or list(kim["label_recall"])[:LABELS]
            recall.append([decoder, *(number(kim["label_recall"][label]["recall"]) for label in labels)])
    title = f"{metrics['model']} on {metrics['corpus']} {metrics['split']}: {metrics['sentences']:,} sentences"
    print_table(("decoder", ">F1", ">corpus F1", ">left branching", ">right", ">perplexity"), trees, title)
    if heads:
        print_table(("decoder", "gold heads", ">UDAS", ">UUAS", ">UDAS, no root", ">UUAS, no root"), heads)
    if recall:
        print_table(("recall", *(f">{label}" for label in labels)), recall)


def compare(runs: list[Path], corpus_dir: Path, decoder: str, split: str, seed: int, top: int, as_json: bool) -> None:
    if len(set(runs)) < 2:
        raise UserError(f"two or more different runs are needed, not {', '.join(map(str, runs))}")
    folders = {str(run): RunFolder(run) for run in runs}
    sentences = split_of(corpus_dir, split, *folders.values())
    predictions = {name: folder.predictions(decoder, sentences, split) for name, folder in folders.items()}
    found = nbl.compare.compare_predictions(sentences, predictions, seed=seed, top=top)
    if as_json:
        print_json(found)
    else:
        _print_comparison(found)


def _print_comparison(found: dict[str, Any]) -> None:
    names = dict.fromkeys(run for pair in found["pairs"] for run in pair["runs"])
    numbers = {run: str(k) for k, run in enumerate(names, start=1)}
    runs = [(number_, run, number(found["f1"].get(run))) for run, number_ in numbers.items()]
    print_table(("", "run", ">F1"), runs, title=f"{found['sentences']:,} sentences")
    pairs, differences = [], []
    for pair in found["pairs"]:
        a, b = (numbers[run] for run in pair["runs"])
        row = [f"{b} - {a}", number(pair["self_f1"])]
        if "interval" in pair:
            low, high = pair["interval"]
            row += [f"{pair['f1_difference']:+.2f}", f"[{low:+.2f}, {high:+.2f}]"]
            row += [f"{pair['sentences_that_differ']:,}"]
        pairs.append(row)
        if pair.get("sentences"):
            rows = [(sentence["id"], *(f"{f1:.1f}" for f1 in sentence["f1"])) for sentence in pair["sentences"]]
            differences.append((("sentence", f">F1 of {a}", f">F1 of {b}"), rows))
    print_table(("pair", ">self-F1", ">difference of F1", ">95% interval", ">sentences that differ"), pairs)
    for columns, rows in differences:
        print_table(columns, rows)
