"""`nbl score`: how probable one's own text is."""

from __future__ import annotations

from pathlib import Path

from nbl import metrics
from nbl.commands.common import AsJson, DeviceName, RunPath, TextPath, VocabularyDir, note, print_json
from nbl.commands.parse import name_of, read_lines, remarks
from nbl.errors import UserError
from nbl.grammar import open_grammar


def score(
    run: RunPath,
    text: TextPath = Path("-"),
    corpus_dir: VocabularyDir = None,
    device: DeviceName = "auto",
    as_json: AsJson = False,
) -> None:
    """Print log p of each sentence of a text, one a line, and its perplexity.

    Text is split into words as the treebank does, without punctuation; unknown words are `<unk>`. Logarithms
    are natural. Perplexity is exp(-sum log p / sum (words + 1)). Lines of fewer than two words, which no
    grammar here derives, are not scored. For compound models log p is log p(w|z) - KL, z the mean.
    """
    with open_grammar(run, device, corpus_dir) as grammar:
        sentences = grammar.sentences(read_lines(text), name_of(text))
        scored = [sentence for sentence in sentences if len(sentence) >= 2]
        if not scored:
            raise UserError(f"{name_of(text)} has no sentence of two or more words to score")
        of_line = grammar.log_probs(scored)
    values = list(of_line.values())
    for remark in remarks(sentences, "not scored"):
        note(remark)
    perplexity = metrics.perplexity(values, [len(sentence) for sentence in scored])
    words = sum(map(len, scored))
    unknown = sum(sentence.ids.count(0) for sentence in scored)
    if as_json:
        lines = [{"words": sentence.words, "log_prob": of_line.get(sentence.id)} for sentence in sentences]
        totals = {"words": words, "unknown": unknown, "perplexity": round(perplexity, 6)}
        print_json({"sentences": lines, "log_prob": round(sum(values), 6)} | totals)
        return
    for sentence in sentences:
        value = f"{of_line[sentence.id]:.3f}" if sentence.id in of_line else "-"
        print(f"{value:>10}  {' '.join(sentence.words)}")
    print(f"perplexity {perplexity:.2f}: {len(scored)} sentences, {words} words, {unknown} unknown")
