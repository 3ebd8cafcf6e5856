"""`nbl sample`: sentences that a grammar makes up."""

from __future__ import annotations

from typing import Annotated

import typer

from nbl.commands.common import AsJson, RunPath, VocabularyDir, note
from nbl.grammar import open_grammar
from nbl.sampler import sample as draw_trees


def sample(
    run: RunPath,
    n: Annotated[int, typer.Option("-n", min=1, help="How many sentences.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Other seeds, other sentences.")] = 0,
    max_length: Annotated[int, typer.Option(min=2, help="Longer sentences are rejected, and told.")] = 40,
    corpus_dir: VocabularyDir = None,
    as_json: AsJson = False,
) -> None:
    """Draw sentences with their trees from a trained grammar.

    From the top down: root, rules, words. A tree that grows beyond --max-length words is thrown away and
    another begun. Trees are printed as by `nbl parse`:
    `(NT3[dog] (T the) (T dog))`, where dog is the head word of the nonterminal NT3.
    """
    with open_grammar(run, "cpu", corpus_dir) as grammar:
        trees, rejected = draw_trees(grammar.model, grammar.vocabulary.words, n, max_length, seed)
    for tree in trees:
        print(tree.json if as_json else tree.brackets)
    if rejected:
        note(f"{rejected} trees of more than {max_length} words were rejected on the way")
