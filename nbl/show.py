"""A trained grammar in numbers one can read: its most probable rules and words, its symbols in use.

A model gives the rules for the words of a sentence. Here the whole vocabulary, cut into pieces, is
given to the model as if it were sentences: every factor then has the values for every word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nbl.corpus.folder import Vocabulary
from nbl.models.base import CompoundGrammar, System
from nbl.predictions import Prediction
from nbl.rules import LEFT, BilexicalRules, LexicalRules, PCFGRules, RankRules, Rules
from nbl.sentence import Sentence, bare_label

RulesOf = Callable[[Tensor], Rules]  # words [1, l] -> their rules
PIECE = 512  # words
NO_CONSTITUENT = "-"  # in place of a gold label: the span is not in the gold tree


@torch.no_grad()
def describe(model: System, vocabulary: Vocabulary, top: int) -> dict[str, Any]:
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
    first, factor = NT, "logp_w_T"  # the first symbol that emits words, and by which factor
    if isinstance(rules, BilexicalRules):
        first, factor = 0, "logp_w_A"
        result["latent"] = _latent(rules, rules_of, vocabulary, top)
    elif isinstance(rules, LexicalRules):
        first, factor = 0, "logp_w_X"
    [p_w] = of_all_words(rules_of, V, factor)
    result["words"] = {_name(first + X, NT): _top_words(p, vocabulary, top) for X, p in enumerate(p_w.T)}
    return result


def _latent(rules: BilexicalRules, rules_of: RulesOf, vocabulary: Vocabulary, top: int) -> dict[str, Any]:
    """What each value of H entails, the most probable first."""
    p_H = mean_latent(rules_of, len(vocabulary)).mean(0)
    [p_wD_H] = of_all_words(rules_of, len(vocabulary), "logp_w_H")
    p_w_H, p_B_H, p_C_H = p_wD_H.sum(1), rules.logp_B_H.exp().sum(0), rules.logp_C_H.exp().sum(0)
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
        left, right = (B, C) if D == LEFT else (C, B)
        head = None if len(p) == 1 else "left" if D == LEFT else "right"
        result.append({"left": _name(left, NT), "right": _name(right, NT), "head": head, "p": value})
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
    """How often CYK's trees use each nonterminal, the mean width of its spans, and their gold labels.

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
    return {
        name: {
            "spans": count,
            "share": _round(count / spans.total()),
            "mean_width": round(words[name] / count, 3),
            "gold": {
                label: _round(found / golds[name].total()) for label, found in _by_frequency(golds.get(name, Counter()))
            },
        }
        for name, count in _by_frequency(spans)
    }


def _by_frequency(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def grammar_at(model: System, z: Tensor | None = None) -> RulesOf:
    """The rules of a model for any words; a compound one's at z [1, z_dim], or 0, the prior's mean."""
    if not isinstance(model, CompoundGrammar):
        return model.rules
    if z is None:
        z = next(model.parameters()).new_zeros(1, model.z_dim)
    return partial(model.rules_given, z=z)


def any_rules(rules_of: RulesOf) -> Rules:
    """The rules of one word: factors that do not depend on words are the same for all."""
    return rules_of(torch.zeros(1, 1, dtype=torch.long))


def pieces(rules_of: RulesOf, vocab_size: int) -> Iterator[Rules]:
    """The rules of all words, one piece of the vocabulary at a time."""
    for start in range(0, vocab_size, PIECE):
        yield rules_of(torch.arange(start, min(start + PIECE, vocab_size))[None])


def of_all_words(rules_of: RulesOf, vocab_size: int, *factors: str) -> list[Tensor]:
    """The probabilities of factors whose axis after the batch's is the word's: [V, ...]."""
    parts = [[getattr(rules, factor)[0].exp() for factor in factors] for rules in pieces(rules_of, vocab_size)]
    return [torch.cat(of_factor) for of_factor in zip(*parts, strict=True)]


def mean_rules(rules_of: RulesOf, vocab_size: int) -> Iterator[Tensor]:
    """For each nonterminal A, p(B, C, D | A), [1|2, B, C]; D has one value in a grammar without heads.

    In a lexicalised grammar the head word is drawn from p(w|A). So it is below the root and, in NL-PCFG,
    below every child; a head child has its parent's word, so that for it this is an average.
    """
    rules = any_rules(rules_of)
    if isinstance(rules, PCFGRules):
        yield from rules.logp_BC_A[0].exp()[:, None]
    elif isinstance(rules, RankRules):
        p_B_R, p_C_R = rules.logp_B_R.exp(), rules.logp_C_R.exp()
        for p_R in rules.logp_R_A.exp():
            yield ((p_R[:, None] * p_B_R).T @ p_C_R)[None]
    elif isinstance(rules, LexicalRules):
        yield from _mean_lexical(rules_of, vocab_size)
    else:
        p_BD_H, p_CD_H = rules.logp_B_H.exp(), rules.logp_C_H.exp()
        [p_w_H] = of_all_words(rules_of, vocab_size, "logp_w_H")
        p_wD_H = p_w_H.sum(0)  # 1 unless D is bound to the word
        for p_H in mean_latent(rules_of, vocab_size):
            head_children = (p_H * p_wD_H)[..., None] * p_BD_H
            yield head_children.mT @ p_CD_H  # sum over H; D is an axis of one of them


def _mean_lexical(rules_of: RulesOf, vocab_size: int) -> Tensor:
    """p(B, C, D | A) of NL-PCFG, [A, D, B, C]."""
    parts = []
    for rules in pieces(rules_of, vocab_size):
        assert isinstance(rules, LexicalRules)
        NT = rules.logp_A_S.shape[-1]
        # p(w|A) p(B, D|A, w) p(C|A, B, D, w); the last is a factor of w times one of A, over a sum
        top_w, top_A = rules.word_C[0].amax(-1), rules.parent_C[0].amax(-1)
        weight = rules.logp_w_X[0, :, :NT, None, None] + rules.logp_BD_Aw[0] - rules.logsum_C[0]
        weight = (weight + top_w[:, None] + top_A).exp()
        of_w, of_A = (rules.word_C[0] - top_w[..., None]).exp(), (rules.parent_C[0] - top_A[..., None]).exp()
        parts.append(torch.einsum("padb,pdbc->adbc", weight, of_w) * of_A)
    return torch.stack(parts).sum(0)


def mean_latent(rules_of: RulesOf, vocab_size: int) -> Tensor:
    """p(H | A) of NBL-PCFG, [A, H], the head word drawn from p(w|A)."""
    parts = []
    for rules in pieces(rules_of, vocab_size):
        assert isinstance(rules, BilexicalRules)
        parts.append(torch.einsum("pa,pah->ah", rules.logp_w_A[0].exp(), rules.logp_H_Aw[0].exp()))
    return torch.stack(parts).sum(0)
