"""Decoding by brute force: every tree of a short sentence is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from functools import cache

import torch
from torch import Tensor

from nbl.decode import Parse
from nbl.inside import naive
from nbl.rules import DenseRules

_trees = cache(naive.trees)


class AllTrees:
    """All trees of sentence b, of l words, with their probabilities; what a parse is worth, and the most one can be."""

    def __init__(self, dense: DenseRules, b: int, l: int) -> None:
        self.trees = _trees(l, dense.logp_root.shape[2], dense.logp_leaf.shape[2])
        self.log_probs = torch.stack([naive.tree_log_prob(tree, dense, b) for tree in self.trees])

    def cyk(self, parse: Parse) -> tuple[Tensor, Tensor]:
        """The log-probability of the best tree, twice; that of the parse as the decoder has it, and as it is."""
        best = float(self.log_probs.max())
        own = [float(log_prob) for tree, log_prob in zip(self.trees, self.log_probs, strict=True) if _is(tree, parse)]
        return _numbers(best, best), _numbers(parse.log_prob, max(own, default=-torch.inf))

    def mbr(self, parse: Parse) -> tuple[Tensor, Tensor]:
        """log p of the sentence, the largest expected number of right spans and that of right heads (each dependency
        tree is that of some lexicalised tree); the same of the parse.
        """
        spans, arcs = Counter[Hashable](), Counter[Hashable]()  # their posterior probabilities
        for tree, posterior in zip(self.trees, self.log_probs.softmax(0).tolist(), strict=True):
            spans.update(dict.fromkeys(tree.spans(), posterior))
            arcs.update(dict.fromkeys(enumerate(tree.heads()), posterior))
        best = [float(self.log_probs.logsumexp(0)), max(_total(spans, tree.spans()) for tree in self.trees)]
        own = [parse.log_prob, _total(spans, (span[:2] for span in parse.spans))]
        if parse.heads is not None:
            best.append(max(_total(arcs, enumerate(tree.heads())) for tree in self.trees))
            own.append(_total(arcs, enumerate(parse.heads)))
        return _numbers(*best), _numbers(*own)


def _is(tree: naive.Node, parse: Parse) -> bool:
    """Is this the tree of the parse, whatever its preterminals?"""
    spans = {(node.i, node.j, node.symbol) for node in tree.subtrees() if node.child is not None}
    return spans == set(parse.spans) and parse.heads in (None, tree.heads())


def _total(posteriors: Counter[Hashable], parts: Iterable[Hashable]) -> float:
    return sum(posteriors[part] for part in parts)


def _numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
