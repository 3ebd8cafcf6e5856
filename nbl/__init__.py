"""Neural bi-lexicalised PCFG induction: the grammars of Yang, Zhao and Tu (ACL 2021).

`build` makes a new grammar, `load` opens a trained one that parses text, `read_corpus` reads a
prepared corpus. Everything else is internal and may change. Importing nbl does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from nbl.corpus.folder import Corpus
    from nbl.grammar import TrainedGrammar
    from nbl.models.base import System

__all__ = ["build", "load", "read_corpus"]


def build(name: str, vocab_size: int, **settings: Any) -> System:
    """Make a new grammar with random parameters, drawn from torch's global generator.

    Arguments:
        name: a grammar, "npcfg", "cpcfg", "tnpcfg", "nlpcfg" or "nblpcfg"; or "structformer" or "sdiora".
        vocab_size: the number of words, `<unk>` included; words are numbered from 0.
        settings: hyper-parameters that differ from the released ones, such as NT (nonterminals; the
            number of preterminals PT is 2 NT unless given), dim, d_H (nblpcfg), rank (tnpcfg),
            binding (nblpcfg: what the head direction is bound to) and compound (nlpcfg).

    Returns:
        A torch module with `objective(words, lengths)`, `parse(words, lengths, decoder)` and, if it is a
        grammar, `rules(words)`; the objective of a grammar is log p. `words` is a LongTensor [b, l] of
        word numbers, padded on the right; `lengths` a LongTensor [b] of lengths from 2 to l.

    Raises:
        nbl.errors.UserError: for an unknown name or setting, or a value out of range.

    Example:
        >>> import torch, nbl
        >>> grammar = nbl.build("nblpcfg", vocab_size=100, NT=3, d_H=4, dim=8)
        >>> words, lengths = torch.randint(100, (2, 5)), torch.tensor([5, 3])
        >>> grammar.objective(words, lengths).shape
        torch.Size([2])
        >>> [len(parse.spans) for parse in grammar.parse(words, lengths)]
        [4, 2]
    """
    from nbl import models

    return models.build(name, vocab_size, **settings)


def load(run: str | Path, *, device: str = "cpu", corpus_dir: str | Path | None = None) -> TrainedGrammar:
    """Open a trained grammar.

    It computes with as many threads as it was trained with (`torch.set_num_threads`), because the
    last digits of a result depend on their number.

    Arguments:
        run: the run folder that `nbl train` wrote.
        device: "cpu", "cuda", "cuda:N", or "auto" for a GPU that no other run of nbl uses, if any.
        corpus_dir: the corpus of the run, needed only if the run folder has no `vocab.txt`.

    Returns:
        A grammar with `parse(text)`, `log_prob(text)` and `sample(n)`; its torch module is `model`.
        A parse is a `nbl.formats.Tree` with `words`, `spans`, `heads`, `log_prob` and `brackets`;
        notebooks draw it.

    Raises:
        nbl.errors.UserError: if the folder is not a run, or a file of it is missing or damaged.

    Example:
        ```python
        grammar = nbl.load("results/toy/runs/nblpcfg/seed0")
        tree = grammar.parse("The dog barks.")
        print(tree.brackets, tree.heads, tree.log_prob)
        grammar.log_prob(["The dog barks.", "The barks dog."])  # a list of two numbers
        ```
    """
    from nbl import grammar

    return grammar.load(run, device, corpus_dir)


def read_corpus(folder: str | Path) -> Corpus:
    """Read a prepared corpus.

    Arguments:
        folder: the folder that `nbl prepare` wrote.

    Returns:
        A corpus with the lists of sentences `train`, `dev` and `test`, a `vocabulary` and `stats`.
        A sentence has `words`, their numbers `ids`, and where the treebank has them `tags`, gold
        `spans` and `heads` by scheme.

    Raises:
        nbl.errors.UserError: if a file is missing or was changed.

    Example:
        ```python
        corpus = nbl.read_corpus("results/toy/corpus")
        print(len(corpus.train), corpus.test[0].words, corpus.vocabulary.words[:3])
        ```
    """
    from nbl.corpus import folder as folders

    return folders.read_corpus(folder)
