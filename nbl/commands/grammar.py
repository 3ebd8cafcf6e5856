"""`nbl parse`, `score`, `show` and `sample`: a trained grammar at work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbl.sampler
from nbl.commands.common import counting, note, print_json, print_table, split_of
from nbl.drawing import draw, png, svg
from nbl.errors import UserError
from nbl.files import read_text, replacing
from nbl.formats import Tree
from nbl.grammar import TrainedGrammar, open_grammar
from nbl.metrics import perplexity
from nbl.predict import predict
from nbl.predictions import predictions_path, read_predictions
from nbl.sentence import Sentence
from nbl.show import describe, usage

GOLD_LABELS = 4  # per symbol are printed


def parse(
    run: Path, text: Path, decoder: str, format: str, out: Path | None, corpus_dir: Path | None, device: str
) -> None:
    if format == "png" and out is None and sys.stdout.isatty():
        raise UserError("a PNG picture is not for the terminal: name a file with --out")
    with open_grammar(run, device, corpus_dir) as grammar:
        if format == "conllx" and not grammar.run.has_heads:
            raise UserError(f"conllx is for heads, which {grammar.run.config.model} does not have: choose brackets")
        sentences = _read_sentences(text, grammar)
        total = sum(len(sentence) >= 2 for sentence in sentences)
        with counting("parsing", total, quiet=not sys.stderr.isatty()) as advance:
            trees = grammar.trees(sentences, decoder, advance)
    _note_short(sentences, "a tree by itself")
    data = _rendered(trees, format)
    if out is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        with replacing(out) as temporary:
            temporary.write_bytes(data)


def _rendered(trees: Sequence[Tree], format: str) -> bytes:
    if format == "png":
        return png(draw(trees))
    if format == "svg":
        return svg(draw(trees)).encode()
    return "".join(getattr(tree, format) + "\n" for tree in trees).encode()


def score(run: Path, text: Path, corpus_dir: Path | None, device: str, as_json: bool) -> None:
    with open_grammar(run, device, corpus_dir) as grammar:
        sentences = _read_sentences(text, grammar)
        scored = [sentence for sentence in sentences if len(sentence) >= 2]
        if not scored:
            raise UserError(f"{_name(text)} has no sentence of two or more words to score")
        log_prob = grammar.log_probs(scored)  # by line
    _note_short(sentences, "not scored")
    values = list(log_prob.values())
    total = perplexity(values, [len(sentence) for sentence in scored])
    words = sum(map(len, scored))
    unknown = sum(sentence.ids.count(0) for sentence in scored)
    if as_json:
        lines = [{"words": sentence.words, "log_prob": log_prob.get(sentence.id)} for sentence in sentences]
        totals = {"words": words, "unknown": unknown, "perplexity": round(total, 6)}
        return print_json({"sentences": lines, "log_prob": round(sum(values), 6)} | totals)
    for sentence in sentences:
        value = f"{log_prob[sentence.id]:.3f}" if sentence.id in log_prob else "-"
        print(f"{value:>10}  {' '.join(sentence.words)}")
    print(f"perplexity {total:.2f}: {len(scored)} sentences, {words} words, {unknown} unknown")


def _read_sentences(source: Path, grammar: TrainedGrammar) -> list[Sentence]:
    """The sentences of a text, one per line; an empty text is refused."""
    text = _read_stdin() if str(source) == "-" else read_text(source)
    if not text:
        raise UserError(f"{_name(source)} is empty: one sentence per line is expected")
    return grammar.sentences(text.removesuffix("\n").split("\n"), _name(source))


def _read_stdin() -> str:
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError("standard input is not UTF-8; convert it to UTF-8") from error
    if "\0" in text:
        raise UserError("standard input has a NUL byte; this is not a text")
    return text


def _name(source: Path) -> str:
    return "standard input" if str(source) == "-" else str(source)


def _note_short(sentences: Sequence[Sentence], fate: str) -> None:
    """Note lines of fewer than two words, which no grammar here derives; `fate` is what becomes of single words."""
    for length, what in enumerate(("without words ({})", f"of one word ({{}}), {fate}")):
        if found := [sentence.id for sentence in sentences if len(sentence) == length]:
            numbers = ", ".join(found[:5] + ["..."] * (len(found) > 5))
            note(f"{len(found)} line{'s' if len(found) > 1 else ''} {what.format(numbers)}")


def show(run: Path, corpus_dir: Path | None, split: str, top: int, as_json: bool) -> None:
    with open_grammar(run, "cpu", corpus_dir) as grammar:
        document: dict[str, Any] = {"model": grammar.run.config.model}
        document |= describe(grammar.model, grammar.vocabulary, top)
        if corpus_dir is not None:
            document["usage"] = _usage(grammar, corpus_dir, split, as_json)
    if as_json:
        print_json(document)
    else:
        _print_grammar(document, top)


def _usage(grammar: TrainedGrammar, corpus_dir: Path, split: str, quiet: bool) -> dict[str, Any]:
    sentences = split_of(corpus_dir, split, grammar.run)
    path = predictions_path(grammar.run.path, "cyk", split)
    if path.exists():
        return usage(sentences, read_predictions(path, sentences))
    with counting("parsing (cyk)", len(sentences), quiet) as advance:
        return usage(sentences, predict(grammar, sentences, "cyk", advance=advance))


def _print_grammar(document: dict[str, Any], top: int) -> None:
    if "usage" in document:
        rows = []
        for name, used in document["usage"].items():
            labels = [f"{label} {100 * share:.0f}%" for label, share in used["gold"].items()][:GOLD_LABELS]
            numbers = f"{used['spans']:,}", f"{100 * used['share']:.1f}", f"{used['mean_width']:.1f}"
            rows.append((name, *numbers, ", ".join(labels)))
        columns = ("symbol", ">spans", ">%", ">words", "gold constituents (-: none)")
        print_table(columns, rows, title="use in the CYK trees")
    rules = [
        (name, f"{symbol['root']:.3f}", ", ".join(f"{_rule(rule)} {rule['p']:.3f}" for rule in symbol["rules"]))
        for name, symbol in document["symbols"].items()
    ]
    print_table(("symbol", ">as root", "rules, * the head child"), rules, title=f"{document['model']}: rules")
    print_table(("symbol", ""), [(name, _listed(words)) for name, words in document["words"].items()], title="words")
    if "latent" in document:
        shown = [
            (name, f"{H['mean']:.3f}", *(_listed(H[key]) for key in ("words", "head_children", "children")))
            for name, H in list(document["latent"].items())[:top]
        ]
        columns = ("", ">mean p", "words", "head children", "other children")
        print_table(columns, shown, title=f"the {len(shown)} most probable values of H")


def _rule(rule: dict[str, Any]) -> str:
    star = {rule["head"]: "*"}
    return f"{rule['left']}{star.get('left', '')} {rule['right']}{star.get('right', '')}"


def _listed(items: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {p:.3f}" for name, p in items)


def sample(run: Path, n: int, seed: int, max_length: int, corpus_dir: Path | None, as_json: bool) -> None:
    with open_grammar(run, "cpu", corpus_dir) as grammar:
        trees, rejected = nbl.sampler.sample(grammar.model, grammar.vocabulary.words, n, max_length, seed)
    for tree in trees:
        print(tree.json if as_json else tree.brackets)
    if rejected:
        note(f"{rejected} trees of more than {max_length} words were rejected")
