"""Both decoders, one sentence at a time, at the paper's sizes, on random rules.

A decoder that does not find the best of all trees of a short sentence is not timed: it is an error.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nbl.bench import RELEASED
from nbl.bench.measure import interleaved, peak_memory, require_agreement
from nbl.decode import Parse
from nbl.families import decode
from nbl.inside import naive
from nbl.rules import DenseRules
from nbl.settings import hyperparameters
from nbl.testing import random_rules, single

KINDS = {"npcfg": "pcfg", "tnpcfg": "rank", "nlpcfg": "lexical", "nblpcfg": "D-C"}  # of random rules


def _sizes(model: str, settings: dict[str, Any]) -> dict[str, Any]:
    sizes = hyperparameters(model, settings)
    H = sizes.get("d_H") or sizes.get("rank", 1)
    return {"grammar": KINDS[model], "NT": sizes["NT"], "PT": sizes["PT"], "H": H}


# A compound grammar is decoded like the one without z.
DECODERS = ("mbr", "cyk")  # that are timed
GRAMMARS = {
    name: _sizes(model, settings)
    for name, (model, settings) in RELEASED.items()
    if model in KINDS and "compound" not in settings
}


def check(name: str) -> None:
    """Compare a grammar's decoders, for sentences of mixed lengths, with three references.

    All trees of short sentences, in float64 and float32. In longer ones the log-probability of what
    the naive recursions find. With more symbols themselves in float64: float32, which is timed, may
    be other code.
    """
    grammar, lengths, longer = GRAMMARS[name]["grammar"], torch.tensor([4, 3]), torch.tensor([7, 4])
    few = random_rules(grammar, b=2, l=4, NT=2, PT=2, H=3, seed=0)
    long = random_rules(grammar, b=2, l=7, NT=2, PT=3, H=3, seed=0)
    many = random_rules(grammar, b=2, l=7, NT=17, PT=18, H=120, seed=0)
    sentences = [AllTrees(few.dense(), b, l) for b, l in enumerate(lengths.tolist())]
    naively = {"cyk": naive.best(long.dense(), longer), "mbr": naive.inside(long.dense(), longer)}
    for decoder in DECODERS:
        title = f"{decoder.upper()} of {name}"
        for rules, tolerance in ((few, 1e-9), (single(few), 1e-4)):
            for sentence, parse in zip(sentences, decode(rules, lengths, decoder), strict=True):
                expected, found = sentence.cyk(parse) if decoder == "cyk" else sentence.mbr(parse)
                require_agreement(title, "the best of all trees", [expected], [found], tolerance)
        found = _doubles(*(parse.log_prob for parse in decode(long, longer, decoder)))
        require_agreement(title, "the naive recursion", [naively[decoder]], [found], 1e-9)
        double, timed = (map(_numbers, decode(rules, longer, decoder)) for rules in (many, single(many)))
        require_agreement(title, "itself in float64", list(double), list(timed), 1e-4)


def _numbers(parse: Parse) -> Tensor:
    """A parse without its labels."""
    ends = [end for span in parse.spans for end in span[:2]]
    return _doubles(parse.log_prob, *ends, *(parse.heads or []))


def _doubles(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def task(name: str, decoder: str, l: int) -> Callable[[], object]:
    """Decode one random sentence, ready to be timed."""
    rules = single(random_rules(b=1, l=l, seed=0, scale=1.0, **GRAMMARS[name]))
    lengths = torch.tensor([l])
    return lambda: decode(rules, lengths, decoder=decoder)


def measure_decoders(names: Sequence[str], l: int, rounds: int) -> list[dict[str, Any]]:
    """One row per grammar and decoder: processor seconds for a sentence of l words, and peak memory."""
    tasks = {(name, decoder): task(name, decoder, l) for name in names for decoder in DECODERS}
    times = interleaved(tasks, rounds, clock=time.process_time)
    return [
        {"model": name, "decoder": decoder, "l": l} | seconds._asdict() | {"peak_mb": peak_memory(tasks[name, decoder])}
        for (name, decoder), seconds in times.items()
    ]


_trees = cache(naive.trees)


class AllTrees:
    """All trees of sentence b, of l words, with their probabilities: the best value a parse can have."""

    def __init__(self, dense: DenseRules, b: int, l: int) -> None:
        self.trees = _trees(l, dense.logp_root.shape[2], dense.logp_leaf.shape[2])
        self.log_probs = torch.stack([naive.tree_log_prob(tree, dense, b) for tree in self.trees])

    def cyk(self, parse: Parse) -> tuple[Tensor, Tensor]:
        """The log-probability of the best tree, twice; that of the parse as the decoder reports it, and as it is."""
        best = float(self.log_probs.max())
        own = [float(log_prob) for tree, log_prob in zip(self.trees, self.log_probs, strict=True) if _is(tree, parse)]
        return _doubles(best, best), _doubles(parse.log_prob, max(own, default=-torch.inf))

    def mbr(self, parse: Parse) -> tuple[Tensor, Tensor]:
        """log p of the sentence, and the largest expected numbers of correct spans and heads; the same of the parse.

        Every dependency tree is that of some lexicalised tree.
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
        return _doubles(*best), _doubles(*own)


def _is(tree: naive.Node, parse: Parse) -> bool:
    """Whether this is the tree of the parse, whatever its preterminals."""
    spans = {(node.i, node.j, node.symbol) for node in tree.subtrees() if node.child is not None}
    return spans == set(parse.spans) and parse.heads in (None, tree.heads())


def _total(posteriors: Counter[Hashable], parts: Iterable[Hashable]) -> float:
    return sum(posteriors[part] for part in parts)
