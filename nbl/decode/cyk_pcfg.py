"""CYK for grammars without heads: the most probable tree under N-PCFG, C-PCFG and TN-PCFG.

    s[i, j, A] = max_k,B,C s[i, k, B] + s[k, j, C] + log p(A -> B C)

As in the inside algorithm, the splits come first, and words, which alone have preterminals, are joined
with the rules once per word: O(l^3 NT^2 + l^2 NT^3 + l NT PT (NT + PT)).

TN-PCFG's R is not part of a tree. It is summed out of each rule before anything is maximised: max in
place of the sum in the factorised recursion would maximise over R too. At NT 250 and PT 500 there are
140 million rules, so they are computed for one child symbol at a time, by one matrix product, and only
the 16 million rules among nonterminals are kept.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nbl.decode import Parse
from nbl.decode.maxplus import maxplus_
from nbl.inside.spans import SpanTable
from nbl.native.networks import matmul
from nbl.rules import PCFGRules, RankRules

# (B, C), of which one is a symbol and the other a slice -> log p(A -> B C), [symbols of the slice, A]
RuleSlice = Callable[[int | slice, int | slice], Tensor]


@torch.no_grad()
def cyk(rules: PCFGRules | RankRules, lengths: Tensor) -> list[Parse]:
    """The best tree of each sentence, its labelled spans from the top down, left to right.

    Of trees with the same probability, the one that splits further to the left wins, then lower symbols.
    """
    b, l, _ = rules.logp_w_T.shape
    padding = torch.arange(l, device=lengths.device) >= lengths[:, None]
    leaf = rules.logp_w_T.masked_fill(padding[..., None], 0.0).transpose(0, 1).contiguous()
    roots = rules.logp_A_S.expand(b, -1)
    if isinstance(rules, RankRules):
        charts = [_Chart(_rank_rules(rules), roots.shape[1], leaf)]
    else:
        groups = [leaf] if len(rules.logp_BC_A) == 1 else leaf.split(1, dim=1)
        charts = [
            _Chart(_dense_rules(logp_BC_A), roots.shape[1], words)
            for logp_BC_A, words in zip(rules.logp_BC_A, groups, strict=True)
        ]
    sentences = [(chart, column) for chart in charts for column in range(chart.first.shape[1])]
    return [
        chart.best_tree(column, length, root)
        for (chart, column), length, root in zip(sentences, lengths.tolist(), roots, strict=True)
    ]


def _dense_rules(logp_BC_A: Tensor) -> RuleSlice:
    return lambda B, C: logp_BC_A[:, B, C].t().contiguous()


def _rank_rules(rules: RankRules) -> RuleSlice:
    """p(A -> B C) = sum_R p(R|A) p(B|R) p(C|R); the largest factor of each symbol is kept apart."""
    R_A, most_A = _normalised(rules.logp_R_A.t())
    B_R, most_B = _normalised(rules.logp_B_R)
    C_R, most_C = _normalised(rules.logp_C_R)

    def rule(B: int | slice, C: int | slice) -> Tensor:
        children = B_R[:, B].reshape(len(R_A), -1) * C_R[:, C].reshape(len(R_A), -1)
        most = (most_B[B] + most_C[C])[:, None] + most_A
        return matmul(children.t(), R_A).log_().add_(most)

    return rule


def _normalised(logp: Tensor) -> tuple[Tensor, Tensor]:
    """[R, X] as probabilities divided by the largest of each X, and the logarithm of that, [X]."""
    most = logp.amax(0).clamp(min=torch.finfo(logp.dtype).min)  # -inf - -inf would be NaN
    return (logp - most).exp(), most


class _Chart:
    """The scores of the best subtrees, for sentences that share their rules.

    binary [C, B, A]: log p(A -> B C). first, last [l, b, X, A]: a word, its preterminal maximised out, to
    the left (right) of a cell X. cells[width]: [n, b, A].
    """

    def __init__(self, rule: RuleSlice, NT: int, leaf: Tensor) -> None:
        l, b, PT = leaf.shape
        nonterminals, preterminals = slice(0, NT), slice(NT, NT + PT)
        self.binary = leaf.new_empty(NT, NT, NT)
        self.first, self.last = leaf.new_full((2, l, b, NT, NT), -torch.inf)
        for X in range(NT):
            self.binary[X] = rule(nonterminals, X)
            maxplus_(self.first[:, :, X], leaf, rule(preterminals, X))
            maxplus_(self.last[:, :, X], leaf, rule(X, preterminals))
        pairs = leaf.new_full((l - 1, b, NT), -torch.inf)
        for T in range(PT):
            pair = torch.full_like(pairs, -torch.inf)
            maxplus_(pair, leaf[:-1], rule(preterminals, NT + T))
            torch.maximum(pairs, pair.add_(leaf[1:, :, T, None]), out=pairs)
        self.cells = SpanTable(leaf, l, b, NT)
        self.cells[2] = pairs
        for width in range(3, l + 1):
            self.cells[width] = self._cells(width)

    def _cells(self, width: int) -> Tensor:
        """The cells of a width from those of smaller widths."""
        shorter = self.cells[width - 1]
        n, b, NT = len(shorter) - 1, *shorter.shape[1:]
        best = shorter.new_full((n, b, NT), -torch.inf)
        maxplus_(best, shorter[1:], self.first[:n])
        maxplus_(best, shorter[:-1], self.last[width - 1 :])
        if width > 3:
            left, right = self.cells.left(width, 2).flatten(0, 1), self.cells.right(width, 2).flatten(0, 1)
            pairs = best.new_full((n * b, NT, NT), -torch.inf)
            maxplus_(pairs, right.mT, left[:, None])  # [n*b, C, B]: max_k s[i, k, B] + s[k, j, C]
            for C in range(NT):  # one at a time: their rules stay in the cache for all spans
                maxplus_(best.flatten(0, 1)[:, None], pairs[:, None, C], self.binary[C])
        return best

    def best_tree(self, b: int, length: int, root: Tensor) -> Parse:
        """The best tree of sentence b of the chart; root: log p(A|S), [A]."""
        whole = self.cells[length][0, b] + root
        spans: list[tuple[int, int, int | None]] = []
        agenda = [(0, length, int(whole.argmax()))]
        while agenda:
            i, j, A = agenda.pop()
            spans.append((i, j, A))
            agenda += reversed(self._children(b, i, j, A))
        return Parse(spans, None, float(whole.max()))

    def _children(self, b: int, i: int, j: int, A: int) -> list[tuple[int, int, int]]:
        """The children of two or more words of (i, j, A) in the best tree: found again, not remembered."""
        if j - i == 2:
            return []
        width, l, NT = j - i, self.cells.l, len(self.binary)
        starting, ending = self.cells.starting[:, b], self.cells.ending[:, b]
        after_first = starting[i + 1, width - 1] + self.first[i, b, :, A]
        before_last = starting[i, width - 1] + self.last[j - 1, b, :, A]
        left, right = starting[i, 2 : width - 1], ending[j, l - width + 2 : l - 1]
        between = left[:, :, None] + right[:, None, :] + self.binary[:, :, A].t()  # [k, B, C]
        scores = torch.cat([after_first, between.flatten(), before_last])
        best = int(scores.argmax())  # the first of equal ones
        if best < NT:
            return [(i + 1, j, best)]
        if best >= len(scores) - NT:
            return [(i, j - 1, best - len(scores) + NT)]
        split, B, C = (best - NT) // NT**2, (best - NT) // NT % NT, (best - NT) % NT
        return [(i, i + 2 + split, B), (i + 2 + split, j, C)]
