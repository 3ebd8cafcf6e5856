"""`nbl show`: what a grammar has learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from nbl.commands.common import (
    AsJson,
    RunPath,
    Split,
    SplitName,
    counting,
    plain_table,
    print_json,
    split_of,
)
from nbl.grammar import TrainedGrammar, open_grammar
from nbl.predict import predict
from nbl.predictions import predictions_path, read_predictions
from nbl.show import describe, usage

GOLD_LABELS = 4  # of each symbol are printed


def show(
    run: RunPath,
    corpus_dir: Annotated[
        Path | None,
        typer.Option(help="Also count the symbols in CYK's trees of the corpus.", file_okay=False),
    ] = None,
    split: SplitName = Split.test,
    top: Annotated[int, typer.Option(min=1, help="How many rules and words of each symbol.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show a grammar: the most probable rules of each nonterminal, and the most probable words.

    A star marks the head child. In a lexicalised grammar the rules depend on the head word; they are
    averaged over the words that the nonterminal itself would have as its root. Words are those of each
    preterminal (npcfg, cpcfg, tnpcfg), of each symbol (nlpcfg), of each nonterminal as root and of the
    values of H (nblpcfg). A compound model is shown at z = 0.

    With --corpus-dir: how often each nonterminal occurs in the trees of CYK, and which gold constituents
    it stands for. The trees are those of `nbl evaluate --decoder cyk` if it was run, else made here.
    """
    with open_grammar(run, "cpu", corpus_dir) as grammar:
        document: dict[str, Any] = {"model": grammar.run.model}
        document |= describe(grammar.model, grammar.vocabulary, top)
        if corpus_dir is not None:
            document["usage"] = _usage(grammar, corpus_dir, split, as_json)
    if as_json:
        print_json(document)
    else:
        _print(document, top)


def _usage(grammar: TrainedGrammar, corpus_dir: Path, split: Split, quiet: bool) -> dict[str, Any]:
    sentences = split_of(corpus_dir, split, grammar.run)
    path = predictions_path(grammar.run.path, "cyk", split)
    if path.exists():
        return usage(sentences, read_predictions(path, sentences))
    with counting("parsing by cyk", len(sentences), quiet) as advance:
        return usage(sentences, predict(grammar, sentences, "cyk", advance=advance))


def _print(document: dict[str, Any], top: int) -> None:
    console = Console(highlight=False, markup=False)
    if "usage" in document:
        table = plain_table("symbol", "spans", "%", "words", title="use in the trees of CYK")
        table.add_column("gold constituents (-: none)")
        for name, used in document["usage"].items():
            labels = [f"{label} {100 * share:.0f}%" for label, share in used["gold"].items()][:GOLD_LABELS]
            numbers = f"{used['spans']:,}", f"{100 * used['share']:.1f}", f"{used['mean_width']:.1f}"
            table.add_row(name, *numbers, ", ".join(labels))
        console.print(table)
    table = plain_table("symbol", "as root", title=f"{document['model']}: rules")
    table.add_column("rules, * the head child")
    for name, symbol in document["symbols"].items():
        rules = [f"{_rule(rule)} {rule['p']:.3f}" for rule in symbol["rules"]]
        table.add_row(name, f"{symbol['root']:.3f}", ", ".join(rules))
    console.print(table)
    table = plain_table("symbol", title="words")
    table.add_column("")
    for name, words in document["words"].items():
        table.add_row(name, _listed(words))
    console.print(table)
    if "latent" in document:
        shown = list(document["latent"].items())[:top]
        table = plain_table("", "mean p", title=f"the {len(shown)} most probable values of H")
        for column in ("words", "head children", "other children"):
            table.add_column(column)
        for name, H in shown:
            table.add_row(
                name,
                f"{H['mean']:.3f}",
                _listed(H["words"]),
                _listed(H["head_children"]),
                _listed(H["children"]),
            )
        console.print(table)


def _rule(rule: dict[str, Any]) -> str:
    star = {rule["head"]: "*"}
    return f"{rule['left']}{star.get('left', '')} {rule['right']}{star.get('right', '')}"


def _listed(items: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {p:.3f}" for name, p in items)
