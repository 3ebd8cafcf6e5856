"""A trained grammar in numbers one can read: its most probable rules and words, its symbols in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nbl.corpus.clean import bare_label
from nbl.corpus.sentence import Sentence
from nbl.corpus.vocab import Vocabulary
from nbl.models.base import Grammar
from nbl.predictions import Prediction
from nbl.rules import LEFT, BilexicalRules, LexicalRules
from nbl.whole_grammar import any_rules, grammar_at, mean_latent, mean_rules, of_all_words

NO_CONSTITUENT = "-"  # in place of a gold label: the span is none of the gold tree


@torch.no_grad()
def describe(model: Grammar, vocabulary: Vocabulary, top: int) -> dict[str, Any]:
    """The `top` rules of each nonterminal and words of each symbol (or H), with their probabilities.

    Symbols are NT0, NT1, ... and T0, T1, ...; a compound model is described at z = 0, the prior's mean.
    See `mean_rules` for the rules of lexicalised grammars.
    """
    rules_of = grammar_at(model)
    rules = any_rules(rules_of)
    p_A_S = rules.logp_A_S.flatten().exp()
    NT, V = len(p_A_S), len(vocabulary)
    symbols = {
        f"NT{A}": {"root": _round(p_A_S[A]), "rules": _top_rules(p, NT, top)}
        for A, p in enumerate(mean_rules(rules_of, V))
    }
    result: dict[str, Any] = {"symbols": symbols}
    if isinstance(rules, BilexicalRules):
        p_w, p_wD_H = of_all_words(rules_of, V, "logp_w_A", "logp_w_H")
        words = {f"NT{A}": p_w[:, A] for A in range(NT)}
        result["latent"] = _latent(rules, mean_latent(rules_of, V), p_wD_H.sum(1), vocabulary, top)
    elif isinstance(rules, LexicalRules):
        [p_w] = of_all_words(rules_of, V, "logp_w_X")
        words = {_name(X, NT): p_w[:, X] for X in range(p_w.shape[1])}
    else:
        [p_w] = of_all_words(rules_of, V, "logp_w_T")
        words = {f"T{T}": p_w[:, T] for T in range(p_w.shape[1])}
    return result | {"words": {name: _top_words(p, vocabulary, top) for name, p in words.items()}}


def _latent(rules: BilexicalRules, p_H_A: Tensor, p_w_H: Tensor, vocabulary: Vocabulary, top: int) -> dict[str, Any]:
    """What each value of H brings about, the most probable first; p(H|A) is [A, H], p(w|H) [V, H]."""
    p_H = p_H_A.mean(0)
    p_B_H, p_C_H = rules.logp_B_H.exp().sum(0), rules.logp_C_H.exp().sum(0)
    NT = rules.logp_A_S.shape[-1]
    return {
        f"H{H}": {
            "mean": _round(p_H[H]),  # over A, and over head words drawn from p(w|A)
            "head_children": _top_symbols(p_B_H[H], NT, top),
            "children": _top_symbols(p_C_H[H], NT, top),
            "words": _top_words(p_w_H[:, H], vocabulary, top),
        }
        for H in p_H.argsort(descending=True, stable=True).tolist()
    }


def _name(X: int, NT: int) -> str:
    return f"NT{X}" if X < NT else f"T{X - NT}"


def _top_rules(p: Tensor, NT: int, top: int) -> list[dict[str, Any]]:
    """From p(B, C, D | A), [1|2, B, C]; children in the order of the sentence."""
    result = []
    for k, value in _top(p.flatten(), top):
        D, B, C = map(int, np.unravel_index(k, p.shape))
        children = [_name(B, NT), _name(C, NT)]
        result.append(
            {
                "left": children[D != LEFT],
                "right": children[D == LEFT],
                "head": None if len(p) == 1 else "left" if D == LEFT else "right",
                "p": value,
            }
        )
    return result


def _top_words(p: Tensor, vocabulary: Vocabulary, top: int) -> list[tuple[str, float]]:
    return [(vocabulary.words[k], value) for k, value in _top(p, top)]


def _top_symbols(p: Tensor, NT: int, top: int) -> list[tuple[str, float]]:
    return [(_name(k, NT), value) for k, value in _top(p, top)]


def _top(p: Tensor, top: int) -> list[tuple[int, float]]:
    values, positions = p.topk(min(top, len(p)))
    return [(k, _round(value)) for k, value in zip(positions.tolist(), values, strict=True)]


def _round(p: Tensor | float) -> float:
    return round(float(p), 6)


def usage(sentences: Sequence[Sentence], predictions: Sequence[Prediction]) -> dict[str, Any]:
    """How often the trees of CYK use each nonterminal, for spans how wide, and what they are in gold trees.

    Of a gold unary chain the outermost label counts; `gold` are shares of the symbol's spans in sentences
    with gold trees, most frequent first.
    """
    spans: Counter[str] = Counter()
    words: Counter[str] = Counter()
    golds: dict[str, Counter[str]] = {}
    for sentence, prediction in zip(sentences, predictions, strict=True):
        labels: dict[tuple[int, int], str] = {}
        for i, j, label in sentence.spans or []:
            labels.setdefault((i, j), bare_label(label))
        for i, j, symbol in prediction.spans:
            name = f"NT{symbol}"
            spans[name] += 1
            words[name] += j - i
            if sentence.spans is not None:
                golds.setdefault(name, Counter())[labels.get((i, j), NO_CONSTITUENT)] += 1
    total = sum(spans.values())
    return {
        name: {
            "spans": count,
            "share": _round(count / total),
            "mean_width": round(words[name] / count, 3),
            "gold": _shares(golds[name]) if name in golds else {},
        }
        for name, count in sorted(spans.items(), key=lambda item: (-item[1], item[0]))
    }


def _shares(counts: Counter[str]) -> dict[str, float]:
    by_frequency = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {label: _round(count / counts.total()) for label, count in by_frequency}
