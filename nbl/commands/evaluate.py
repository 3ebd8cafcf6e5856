"""`nbl evaluate`: parse a part of the corpus, and score what came out."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console

from nbl.commands.common import (
    AsJson,
    CorpusDir,
    DeviceName,
    RunPath,
    Split,
    SplitName,
    counting,
    plain_table,
    print_json,
    split_of,
)
from nbl.errors import UserError
from nbl.evaluate import write_metrics
from nbl.predictions import predictions_path, write_predictions
from nbl.run_folder import read_run
from nbl.settings import LEGACY

LABELS = 8  # the most frequent ones are printed


class AnyDecoder(StrEnum):
    """Those of `nbl.settings.DECODERS`."""

    cyk = "cyk"
    mbr = "mbr"
    cyk_legacy = "cyk-legacy"
    mbr_legacy = "mbr-legacy"


def evaluate(
    run: RunPath,
    corpus_dir: CorpusDir,
    decoder: Annotated[
        list[AnyDecoder] | None,
        typer.Option(metavar="DECODER...", help="Some of cyk, mbr, cyk-legacy and mbr-legacy.", show_default="mbr"),
    ] = None,
    from_predictions: Annotated[
        bool, typer.Option("--from-predictions", help="Only score the predictions that are there: seconds.")
    ] = False,
    split: SplitName = Split.test,
    device: DeviceName = "auto",
    as_json: AsJson = False,
) -> None:
    """Parse a part of the corpus with a trained grammar, and score the trees.

    Writes predictions.DECODER.jsonl (spans, heads and log p of each sentence, no words) into the run's
    folder, and metrics.json from all predictions there. cyk-legacy and mbr-legacy repeat the errors of the
    released NL-PCFG decoders. For another part than test the files are predictions.DECODER.PART.jsonl and
    metrics.PART.json. Without gold trees there is a perplexity.
    """
    if from_predictions and decoder:
        raise UserError("--from-predictions scores all predictions there are: leave --decoder out")
    facts = read_run(run)
    facts.refuse_unfinished()
    decoders = list(dict.fromkeys(decoder or [AnyDecoder.mbr]))
    if facts.model != "nlpcfg" and (legacy := [name for name in decoders if name.endswith(LEGACY)]):
        raise UserError(f"{legacy[0]} is for nlpcfg, not for {facts.model}: leave it out")
    sentences = split_of(corpus_dir, split, facts)
    if not from_predictions:
        from nbl.predict import open_run, predict  # torch, which scoring does not need

        with open_run(run, device, corpus_dir) as trained:
            for name in decoders:
                with counting(f"parsing by {name}", len(sentences), quiet=as_json) as advance:
                    predictions = predict(trained, sentences, name.removesuffix(LEGACY), LEGACY in name, advance)
                write_predictions(predictions_path(run, name, split), predictions)
    metrics = write_metrics(facts, sentences, split)
    if as_json:
        print_json(metrics)
    else:
        _print(metrics)


def _print(metrics: dict[str, Any]) -> None:
    title = f"{metrics['model']} on {metrics['corpus']} {metrics['split']}: {metrics['sentences']:,} sentences"
    table = plain_table("decoder", "F1", "corpus F1", "left branching", "right", "perplexity", title=title)
    for decoder, scores in metrics["decoders"].items():
        trees, branching = scores.get("trees", {}).get("kim", {}), scores.get("branching", {})
        values = [
            trees.get("sentence_f1"),
            trees.get("corpus_f1"),
            branching.get("left"),
            branching.get("right"),
        ]
        exact = "" if scores["perplexity_is_exact"] else "about "
        table.add_row(decoder, *map(_number, values), exact + _number(scores["perplexity"]))
    console = Console(highlight=False, markup=False)
    console.print(table)
    heads = plain_table("decoder", "gold heads", "UDAS", "UUAS", "UDAS, no root", "UUAS, no root")
    recall = None
    for decoder, scores in metrics["decoders"].items():
        for scheme, found in scores.get("heads", {}).items():
            values = [found[key] for key in ("udas", "uuas", "udas_without_root", "uuas_without_root")]
            heads.add_row(decoder, scheme, *map(_number, values))
        if "trees" in scores:
            labels = dict(list(scores["trees"]["kim"]["label_recall"].items())[:LABELS])
            recall = recall or plain_table("recall", *labels)
            recall.add_row(decoder, *(_number(found["recall"]) for found in labels.values()))
    if heads.row_count:
        console.print(heads)
    if recall is not None:
        console.print(recall)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
