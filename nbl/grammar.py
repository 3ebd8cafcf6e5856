"""A trained grammar at work on text: sentences in, trees out."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nbl.corpus.folder import Vocabulary
from nbl.corpus.text import tokenise
from nbl.errors import UserError
from nbl.formats import Tree, named
from nbl.predict import Advance, Trained, log_probs, open_run, predict
from nbl.sampler import sample
from nbl.sentence import MAX_LENGTH, Sentence
from nbl.settings import MODELS


class TrainedGrammar(Trained):
    """A trained grammar that parses text. `nbl.load` opens one.

    Text is split into words as the Penn Treebank does. Punctuation is left out, as in training. Words
    that the grammar does not know are parsed as `<unk>` and kept as written.

    Attributes:
        model: the torch module, in evaluation mode, with `objective(words, lengths)`,
            `parse(words, lengths)` and `rules(words)`.
        vocabulary: the words it knows; `vocabulary.ids(words)` gives their numbers.
        run: the folder it was loaded from, and its settings.
        device: the torch device of the model.

    Example:
        ```python
        grammar = nbl.load("results/toy/runs/nblpcfg/seed0")
        tree = grammar.parse("The dog barks.")
        print(tree.brackets)  # (X[barks] (X[dog] (T The) (T dog)) (T barks))
        ```
    """

    def parse(self, text: str | Iterable[str], decoder: str = "mbr") -> Tree | list[Tree]:
        """Parse text.

        Arguments:
            text: one sentence; or several, one per line or item. A sentence has at most 250 words.
            decoder: "mbr" gives the tree with the highest expected number of correct spans and
                heads; "cyk" the most probable tree, with labels.

        Returns:
            A `nbl.formats.Tree` for one sentence; a list of them for several lines or for a list,
            with one tree per line. A sentence of one word is a tree of one leaf. One without words
            (empty, or punctuation only) is a tree without words.
        """
        trees = self.trees(self.sentences(_lines(text)), decoder)
        return trees[0] if _is_one(text) else trees

    def log_prob(self, text: str | Iterable[str]) -> float | list[float | None] | None:
        """The log-probability of text.

        Arguments:
            text: as in `parse`.

        Returns:
            The natural logarithm of p(sentence), or a list as in `parse`; None for a sentence of
            fewer than two words. For a compound grammar it is log p(w|z) - KL, z the posterior mean.
        """
        sentences = self.sentences(_lines(text))
        found = self.log_probs([sentence for sentence in sentences if len(sentence) >= 2])
        values = [found.get(sentence.id) for sentence in sentences]
        return values[0] if _is_one(text) else values

    def sample(self, n: int = 1, max_length: int = 40, seed: int = 0) -> list[Tree]:
        """Draw sentences with their trees.

        Arguments:
            n: the number of sentences.
            max_length: in words; longer sentences are rejected and drawn again.
            seed: of the random generator; the same seed draws the same sentences.

        Returns:
            n trees, whose words are those of the vocabulary.
        """
        return sample(self.model, self.vocabulary.words, n, max_length, seed)[0]

    def sentences(self, lines: Iterable[str], source: str = "the text") -> list[Sentence]:
        """One sentence per line, its id the line's number from 1; `source` names the text in errors.

        Words are kept as written, but numbered in their normalised form.
        """
        return [_sentence(line, number, self.vocabulary, source) for number, line in enumerate(lines, start=1)]

    def trees(
        self, sentences: Sequence[Sentence], decoder: str = "mbr", advance: Advance = lambda done: None
    ) -> list[Tree]:
        """The trees of sentences of any length; those of one word, or none, have only one."""
        long_enough = [sentence for sentence in sentences if len(sentence) >= 2]
        found = {p.id: p for p in predict(self, long_enough, decoder, advance=advance)}
        trees = []
        for sentence in sentences:
            if sentence.id in found:
                parsed = found[sentence.id]
                trees.append(Tree(sentence.words, named(parsed.spans), parsed.heads, parsed.log_prob))
            else:
                trees.append(Tree(sentence.words, [], [0] * len(sentence) if self.run.has_heads else None))
        return trees

    def log_probs(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        """log p of each sentence of two or more words, by its id."""
        values = log_probs(self, sentences)
        return {sentence.id: value for sentence, value in zip(sentences, values, strict=True)}

    def __repr__(self) -> str:
        title, corpus = MODELS[self.run.config.model].title, self.run.config.corpus["name"]
        return f"<{title} trained on {corpus}: {self.run.path}, {len(self.vocabulary):,} words, on {self.device}>"


@contextmanager
def open_grammar(
    run: str | Path, device: str = "auto", corpus_dir: str | Path | None = None
) -> Iterator[TrainedGrammar]:
    """The trained grammar of a run; see `nbl.load`. Holds the GPU lock, if any, until exit."""
    with open_run(Path(run), device, Path(corpus_dir) if corpus_dir else None) as trained:
        yield TrainedGrammar(trained.run, trained.model, trained.vocabulary, trained.device)


def load(run: str | Path, device: str = "cpu", corpus_dir: str | Path | None = None) -> TrainedGrammar:
    """See `nbl.load`. The GPU lock, if any, is held as long as the grammar lives."""
    opened = open_grammar(run, device, corpus_dir)
    grammar = opened.__enter__()
    weakref.finalize(grammar, opened.__exit__, None, None, None)
    return grammar


def _is_one(text: str | Iterable[str]) -> bool:
    return isinstance(text, str) and "\n" not in text.rstrip("\n")


def _lines(text: str | Iterable[str]) -> list[str]:
    return text.rstrip("\n").split("\n") if isinstance(text, str) else list(text)


def _sentence(line: str, number: int, vocabulary: Vocabulary, source: str) -> Sentence:
    try:
        tokens = [token for token in tokenise(line) if token.is_word]
        if len(tokens) > MAX_LENGTH:
            raise UserError(f"{len(tokens)} words (at most {MAX_LENGTH}): one sentence per line is expected")
    except UserError as error:
        raise UserError(f"{source}, line {number}: {error}") from error
    ids = vocabulary.ids(token.form for token in tokens)
    return Sentence(str(number), [token.written for token in tokens], ids)
