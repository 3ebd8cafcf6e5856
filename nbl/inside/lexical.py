"""Inside algorithm and posteriors of the NL-PCFG (Eq. inside_zhu).

A RIGHT-headed rule of a sentence is a LEFT-headed rule of its mirror image. So the chart holds each
sentence twice, as it is and mirrored (2b sentences), only the LEFT case is written down, and the two
halves are added with the second one turned back (`_join`). With span [i, j) and head p,

    s[i, j, p, A] = sum_k sum_B,C  s[i, k, p, B]  p(B, C, LEFT | A, w_p)  closed[k, j, C]
    closed[k, j, C] = sum_q s[k, j, q, C] p(w_q | C)                                  (term C1-1)

Preterminals have one word, and T[w] -> w has probability one: of the rules with a preterminal head
child only the sum over B is needed, and of those with a preterminal child only the sum over C with
its word. The large rest, B and C nonterminals, can be organised in three ways:

    "split-sum"  Q[B, C] = sum_k s closed first, then Q times the rules of each head position:
                 O(l^4 m^2 + l^3 m^3), all in matrix products. The default, for training.
    "C1-1"       each split point through the rules by itself, O(l^4 m^3): the paper's re-impl-1.
    "C1-2"       sum_C p(B, C, LEFT | A, w_p) closed[k, j, C] (term C1-2) kept for every child and every head
                 outside it, O(l^4 m^2 + l^3 m^3) and O(l^3 m^2) memory: the paper's re-impl-2.

The chart of width w is s[w]: [2b, i, h, A], where h = p - i. It holds probabilities divided by
exp(log_s[w]), a scale for each [2b, i, h]; closed[w] has one for each [2b, i]. The scales are constants
for the gradient. The outside pass is written out and recomputes what is large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from nbl.inside.marginals import Marginals
from nbl.rules import LEFT, RIGHT, LexicalRules

CACHES = ("split-sum", "C1-1", "C1-2")


def inside(rules: LexicalRules, lengths: Tensor, cache: str = "split-sum") -> Tensor:
    """log p(w) of each sentence, [b]; `cache`, one of CACHES, changes the cost, not the result."""
    return _LogProb.apply(cache, lengths, *_chart_rules(rules, lengths))


def marginals(rules: LexicalRules, lengths: Tensor, legacy: bool = False) -> Marginals:
    """Posteriors of spans and arcs.

    `legacy`: arc posteriors as in the released code, which misses the arcs from a head child of two or
    more words to a child of one word.
    """
    with torch.no_grad():
        chart = _Chart("split-sum", lengths, _chart_rules(rules, lengths))
        outside = _Outside(chart, torch.ones_like(chart.log_prob), arcs="legacy" if legacy else "all")
    return Marginals(chart.log_prob, outside.span_mass, outside.arcs())


# ---------------------------------------------------------------- rules


class _ChartRules(NamedTuple):
    """Rules as the chart applies them, D = LEFT and the mirrored D = RIGHT on the axis 2b."""

    logp_A_S: Tensor  # [b, A]
    logp_w_C: Tensor  # [2b, q, C]   nonterminals C
    leaf: Tensor  # [2b, q, C]       p(w_q | C) / exp(log_leaf), preterminals C
    log_leaf: Tensor  # [2b, q]
    R: Tensor  # [p, 2b, A, B C]     p(B, C, D | A, w_p), nonterminals B and C
    E: Tensor  # [p, 2b, q, A, B]    sum_C p(B, C, D | A, w_p) leaf[q, C], nonterminals B, preterminals C
    T: Tensor  # [p, 2b, A, C]       sum_B p(B, C, D | A, w_p), preterminals B, all C


def _chart_rules(rules: LexicalRules, lengths: Tensor) -> _ChartRules:
    b, l, S = rules.logp_w_X.shape
    NT = rules.logp_A_S.shape[1]
    # Words and heads in the padding get probability 0, whatever the rules say there.
    padding = torch.arange(l, device=lengths.device) >= lengths[:, None]
    logp_w_X = rules.logp_w_X.masked_fill(padding[:, :, None], -torch.inf)
    logp_w_C, logp_w_T = _mirrored(logp_w_X).split([NT, S - NT], 2)
    log_leaf = logp_w_T.detach().amax(2)
    leaf = (logp_w_T - _finite(log_leaf)[..., None]).exp()
    head = (rules.logp_BD_Aw - rules.logsum_C).masked_fill(padding[:, :, None, None, None], -torch.inf)
    head = torch.cat([head[:, :, :, LEFT], head[:, :, :, RIGHT].flip(1)])
    word = torch.cat([rules.word_C[:, :, LEFT], rules.word_C[:, :, RIGHT].flip(1)])
    of_heads = _RulesOfHeads.apply(head, word, rules.parent_C, leaf)
    return _ChartRules(rules.logp_A_S.expand(b, NT), logp_w_C, leaf, log_leaf, *of_heads)


class _RulesOfHeads(torch.autograd.Function):
    """R, E and T of p(B, C, D | A, w_p) = exp(head[2b, p, A, B] + word[2b, p, B, C] + parent[1|b, A, D, B, C]).

    The rules of all heads of a batch together are large. Those of one head fit into a cache, and are cheaper
    to recompute than to keep.
    """

    @staticmethod
    def forward(ctx, head: Tensor, word: Tensor, parent: Tensor, leaf: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(head, word, parent, leaf)
        N, l, NT, S = head.shape
        R = head.new_empty(l, N, NT, NT, NT)
        E = head.new_zeros(l, N, l, NT * NT)
        T = head.new_empty(l, N, NT, S)
        for n in range(N):
            for p in range(l):
                rule = (word[n, p] + _parent_of(n, parent, N)).add_(head[n, p, :, :, None]).exp_()
                R[p, n] = rule[:, :NT, :NT]
                E[p, n, p + 1 :] = leaf[n, p + 1 :] @ rule[:, :NT, NT:].flatten(0, 1).t()
                T[p, n] = rule[:, NT:].sum(1)
        return R.flatten(3), E.view(l, N, l, NT, NT), T

    @staticmethod
    @once_differentiable
    def backward(ctx, d_R: Tensor, d_E: Tensor, d_T: Tensor) -> tuple[Tensor, ...]:
        head, word, parent, leaf = ctx.saved_tensors
        N, l, NT, S = head.shape
        d_R, d_E = d_R.view(l, N, NT, NT, NT), d_E.flatten(3)
        d_head, d_word, d_parent, d_leaf = map(torch.zeros_like, ctx.saved_tensors)
        d_logp = head.new_empty(NT, S, S)
        for n in range(N):
            for p in range(l):
                rule = (word[n, p] + _parent_of(n, parent, N)).add_(head[n, p, :, :, None]).exp_()
                d_logp[:, :NT, :NT] = d_R[p, n]
                d_logp[:, :NT, NT:] = (d_E[p, n, p + 1 :].t() @ leaf[n, p + 1 :]).view(NT, NT, S - NT)
                d_logp[:, NT:] = d_T[p, n, :, None]
                d_leaf[n, p + 1 :] += d_E[p, n, p + 1 :] @ rule[:, :NT, NT:].flatten(0, 1)
                d_logp *= rule
                d_head[n, p] = d_logp.sum(2)
                d_word[n, p] = d_logp.sum(0)
                _parent_of(n, d_parent, N).add_(d_logp)
        return d_head, d_word, d_parent, d_leaf


def _parent_of(n: int, parent: Tensor, N: int) -> Tensor:
    """parent[1|b, A, D, B, C] for sentence n of the 2b, [A, B, C]."""
    return parent[n % parent.shape[0], :, LEFT if n < N // 2 else RIGHT]


class _LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cache: str, lengths: Tensor, *rules: Tensor) -> Tensor:
        ctx.chart = _Chart(cache, lengths, _ChartRules(*rules))
        return ctx.chart.log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx, d_log_prob: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_Outside(ctx.chart, d_log_prob).gradients()


# ---------------------------------------------------------------- inside


class _Chart:
    """Inside values of all spans, in dictionaries by width."""

    def __init__(self, cache: str, lengths: Tensor, rules: _ChartRules):
        self.cache, self.lengths, self.rules = cache, lengths, rules
        self.l, self.N, self.NT, _ = rules.R.shape
        self.b = self.N // 2
        self.log_word = rules.logp_w_C.amax(2)
        self.word = (rules.logp_w_C - _finite(self.log_word)[..., None]).exp()
        self.s: dict[int, Tensor] = {}  # [2b, i, h, A]
        self.log_s = {1: self.word.new_zeros(self.N, self.l, 1)}  # [2b, i, h]
        self.norm: dict[int, Tensor] = {}  # [2b, i, h]   what s was divided by
        self.closed = {1: rules.leaf}  # [2b, i, C]
        self.log_closed = {1: rules.log_leaf}  # [2b, i]
        self.word_weight: dict[int, Tensor] = {}  # [2b, i, h]   of a head's s in closed
        self.term_C12 = {1: rules.E}  # [p, 2b, i, A, B]   of a child [i, i + width) and a head p left of it
        self.log_prob = rules.logp_A_S.new_full((self.b,), -torch.inf)
        for w in range(2, self.l + 1):
            self._fill(w)
            self._close(w)
            log_prob = (self.log_root(w) + self.closed[w][: self.b, 0].log()).logsumexp(1)
            self.log_prob = torch.where(lengths == w, log_prob, self.log_prob)

    def _fill(self, w: int) -> None:
        n = self.l - w + 1
        weight, log_scale = self.weights(w)
        total = weight.new_zeros(self.N, n, w, self.NT)
        total[:, :, 0] = (self.T(w) @ self.closed[w - 1][:, 1:, :, None]).squeeze(3) * weight[:, :, 1, 0, None]
        for v in self.attached(w):
            head = self.s[v][:, :n] * weight[:, :, v, :v, None]
            total[:, :, :v] += (_of_spans(self.term_C12[w - v], n, v) @ head[..., None]).squeeze(4)
        for widths in self.split_sums(w):
            _, _, Q = self.split_sum(w, widths, weight)
            product = Q.new_empty(self.N, Q.shape[1], self.NT)
            for p, rows in _rows_of_heads(n, widths[-1]):
                product[:, rows] = Q[:, rows] @ self.rules.R[p].mT
            total[:, :, : widths[-1]] += product.view(self.N, n, -1, self.NT)
        total = _mirrored(_join(total), 2)
        self.s[w], self.log_s[w], self.norm[w] = _normalised(total, log_scale)

    def _close(self, w: int) -> None:
        log_part = self.log_s[w] + self.log_word.unfold(1, w, 1)
        log_scale = _finite(log_part.amax(2))
        self.word_weight[w] = (log_part - log_scale[..., None]).exp_()
        self.closed[w], self.log_closed[w], norm = _normalised(self.parts(w).sum(2), log_scale)
        self.word_weight[w] /= norm[..., None]
        if self.cache == "C1-2":
            term = self.closed[w] @ self.rules.R.view(self.l, self.N, -1, self.NT).mT
            self.term_C12[w] = term.view(*term.shape[:3], self.NT, self.NT)

    def weights(self, w: int) -> tuple[Tensor, Tensor]:
        """What brings the splits of a span of width w to one scale, [2b, i, v, h] with v the width of the head
        child, and that scale, [2b, i, h]."""
        n = self.l - w + 1
        log_weight = self.word.new_full((self.N, n, w, w), -torch.inf)
        for v in range(1, w):
            log_weight[:, :, v, :v] = self.log_s[v][:, :n] + self.log_closed[w - v][:, v : v + n, None]
        left, right = log_weight.amax(2).chunk(2)
        log_scale = _finite(_mirrored(torch.maximum(left, right.flip(1, 2)), 2))
        return log_weight.sub_(log_scale[:, :, None]).exp_(), log_scale

    def T(self, w: int) -> Tensor:
        """Rules of a preterminal head child and a child of width w - 1, [2b, i, A, C]."""
        return _block_T(self.rules.T, w, self.NT)

    def attached(self, w: int) -> range:
        """Widths of the nonterminal head children that meet term C1-2 of their child."""
        return range(2 if self.cache == "C1-2" else max(2, w - 1), w)

    def split_sums(self, w: int) -> list[range]:
        """Widths of the other nonterminal head children, in groups that are summed before the rules are applied."""
        if self.cache == "C1-2":
            return []
        size = 1 if self.cache == "C1-1" else 64  # bounds the memory of long sentences
        return [range(v, min(v + size, w - 1)) for v in range(2, w - 1, size)]

    def split_sum(self, w: int, widths: range, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Head children of these widths v, [2b, i, v, (h, B)], their children, [2b, i, v, C], and
        Q = sum_v head child * child, [2b, (i, h), (B, C)]."""
        n, H = self.l - w + 1, widths[-1]
        head = weight.new_zeros(self.N, n, len(widths), H, self.NT)
        for x, v in enumerate(widths):
            torch.mul(self.s[v][:, :n], weight[:, :, v, :v, None], out=head[:, :, x, :v])
        head = head.flatten(3)
        child = torch.stack([self.closed[w - v][:, v : v + n] for v in widths], 2)
        return head, child, (head.mT @ child).view(self.N, n * H, self.NT * self.NT)

    def closing(self, w: int) -> Tensor:
        """p(w_q | C) with the scales of s and closed, [2b, i, h, C]."""
        return self.word.unfold(1, w, 1).mT * self.word_weight[w][..., None]

    def parts(self, w: int) -> Tensor:
        """s[i, j, q, C] p(w_q | C), which closed sums over q, [2b, i, h, C]."""
        return self.s[w] * self.closing(w)

    def log_root(self, w: int) -> Tensor:
        """log p(A | S) with the scale of closed[0, w], [b, A]."""
        return self.rules.logp_A_S + self.log_closed[w][: self.b, :1]


# ---------------------------------------------------------------- outside


class _Outside:
    """The chart from wide to narrow: gradients of sum_b d_log_prob[b] log p(w) w.r.t. the rules or, with `arcs`
    ("all" or "legacy") and d_log_prob = 1, posteriors of spans and arcs."""

    def __init__(self, chart: _Chart, d_log_prob: Tensor, arcs: str | None = None):
        l, zeros = chart.l, chart.word.new_zeros
        self.chart, self.d_log_prob, self.arc_kind = chart, d_log_prob, arcs
        self.d_s = {w: torch.zeros_like(s) for w, s in chart.s.items()}
        self.d_closed = {w: torch.zeros_like(closed) for w, closed in chart.closed.items()}
        self.root_mass = zeros(chart.b, chart.NT)
        self.word_mass = zeros(chart.N, l, l, chart.NT)  # [2b, i, q - i, C]
        self.span_mass = zeros(chart.b, l + 1, l + 1)
        if arcs:
            self.parts = {1: chart.closed[1][:, :, None]} | {w: chart.parts(w) for w in range(2, l + 1)}
            self.root_arc_mass = zeros(chart.b, 1, l)
            self.arc_mass = zeros(chart.N, l, l, l)  # [2b, i, p - i, q - i]
        else:
            self.d_R, self.d_T = torch.zeros_like(chart.rules.R), torch.zeros_like(chart.rules.T)
            self.d_term_C12 = {w: torch.zeros_like(term) for w, term in chart.term_C12.items()}
        for w in range(l, 1, -1):
            self._close(w)
            self._fill(w)

    def gradients(self) -> _ChartRules:
        """Gradients of the rules (log_leaf, a scale, has none)."""
        l = self.chart.l
        d_word = sum(pad(self.word_mass[:, i, : l - i], (0, 0, i, 0)) for i in range(l))
        return _ChartRules(self.root_mass, d_word, self.d_closed[1], None, self.d_R, self.d_term_C12[1], self.d_T)

    def arcs(self) -> Tensor:
        """Posteriors of arcs, [b, 1 + p, q]."""
        l = self.chart.l
        arcs = sum(pad(self.arc_mass[:, i, : l - i, : l - i], (i, 0, i, 0)) for i in range(l))
        return torch.cat([self.root_arc_mass, _join(arcs)], 1)

    def _close(self, w: int) -> None:
        """From the gradients of closed to those of s."""
        chart, d_closed = self.chart, self.d_closed.pop(w)
        d_root = self.d_log_prob[:, None] * (chart.log_root(w) - _finite(chart.log_prob)[:, None]).exp()
        d_root = torch.where((chart.lengths == w)[:, None], _bounded(d_root), 0)
        d_closed[: chart.b, 0] += d_root
        if chart.cache == "C1-2":
            d_term = self.d_term_C12.pop(w).flatten(3)
            d_closed += (d_term @ chart.rules.R.view(chart.l, chart.N, -1, chart.NT)).sum(0)
            self.d_R += (d_term.mT @ chart.closed[w]).view_as(self.d_R)
        parts = chart.parts(w)
        self.root_mass += d_root * chart.closed[w][: chart.b, 0]
        self.word_mass[:, : parts.shape[1], :w] += parts * d_closed[:, :, None]
        self.d_s[w].addcmul_(d_closed[:, :, None], chart.closing(w))
        if self.arc_kind:
            self.root_arc_mass[:, 0, :w] += (parts[: chart.b, 0] @ d_root[..., None]).squeeze(2)

    def _fill(self, w: int) -> None:
        """From the gradients of s to those of its parts."""
        chart, n = self.chart, self.chart.l - w + 1
        d_s = _bounded(_join(self.d_s.pop(w)))
        self.span_mass.diagonal(w, 1, 2).copy_((d_s * chart.s[w][: chart.b]).sum((2, 3)))
        d_total = _bounded(_mirrored(d_s, 2) / chart.norm[w][..., None])
        weight, _ = chart.weights(w)
        self._preterminal_head(w, d_total[:, :, 0] * weight[:, :, 1, 0, None])
        for v in chart.attached(w):
            head = chart.s[v][:, :n] * weight[:, :, v, :v, None]
            d_head = (_of_spans(chart.term_C12[w - v], n, v).mT @ d_total[:, :, :v, :, None]).squeeze(4)
            if not self.arc_kind:
                _of_spans(self.d_term_C12[w - v], n, v).addcmul_(d_total[:, :, :v, :, None], head[..., None, :])
            elif self.arc_kind == "all":
                self.arc_mass[:, :n, :v, v] += (d_head * head).sum(3)
            self.d_s[v][:, :n].addcmul_(d_head, weight[:, :, v, :v, None])
        for widths in chart.split_sums(w):
            self._split_sum(w, widths, weight, d_total[:, :, : widths[-1]])

    def _preterminal_head(self, w: int, d_total: Tensor) -> None:
        chart, n = self.chart, self.chart.l - w + 1
        d_child = (chart.T(w).mT @ d_total[..., None]).squeeze(3)
        self.d_closed[w - 1][:, 1:] += d_child
        if self.arc_kind:
            self._add_arcs(w, 1, d_child[:, :, None])
        else:
            _block_T(self.d_T, w, chart.NT).addcmul_(d_total[..., None], chart.closed[w - 1][:, 1:, None])

    def _split_sum(self, w: int, widths: range, weight: Tensor, d_total: Tensor) -> None:
        chart, N, NT, n, H = self.chart, self.chart.N, self.chart.NT, self.chart.l - w + 1, widths[-1]
        head, child, Q = chart.split_sum(w, widths, weight)
        d_total = d_total.reshape(N, n * H, NT)
        d_Q = torch.empty_like(Q)
        for p, rows in _rows_of_heads(n, H):
            d_Q[:, rows] = d_total[:, rows] @ chart.rules.R[p]
            if not self.arc_kind:
                self.d_R[p].baddbmm_(d_total[:, rows].mT, Q[:, rows])
        d_Q = d_Q.view(N, n, H * NT, NT)
        d_head = (child @ d_Q.mT).view(N, n, -1, H, NT)
        d_child = head @ d_Q
        for x, v in enumerate(widths):
            self.d_s[v][:, :n].addcmul_(d_head[:, :, x, :v], weight[:, :, v, :v, None])
            self.d_closed[w - v][:, v : v + n] += d_child[:, :, x]
        if self.arc_kind:
            d_child = head.view(N, n, -1, H, NT).transpose(2, 3) @ d_Q.view(N, n, H, NT, NT)  # now by h
            for x, v in enumerate(widths):
                self._add_arcs(w, v, d_child[:, :, :v, x])

    def _add_arcs(self, w: int, v: int, d_child: Tensor) -> None:
        """Arcs from the heads of the first v words of a span of width w to those of the others; d_child is the
        gradient of closed from each head, [2b, i, h, C]."""
        n = d_child.shape[1]
        self.arc_mass[:, :n, :v, v:w] += d_child @ self.parts[w - v][:, v : v + n].mT


# ---------------------------------------------------------------- helpers


def _mirrored(x: Tensor, axes: int = 1) -> Tensor:
    """[b, ...] and its mirror image, which turns that many axes after the first, [2b, ...]."""
    return torch.cat([x, x.flip(tuple(range(1, 1 + axes)))])


def _join(x: Tensor) -> Tensor:
    """The sum of both halves of [2b, i, h, ...], the second turned back."""
    return x[: len(x) // 2] + x[len(x) // 2 :].flip(1, 2)


def _finite(log: Tensor) -> Tensor:
    """A scale that may be subtracted from -inf."""
    return log.clamp(min=torch.finfo(log.dtype).min)


def _normalised(x: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x divided by its largest value along the last axis, the scale after that, and the divisor."""
    largest = x.amax(-1)
    norm = torch.where(largest > torch.finfo(x.dtype).tiny, largest, 1)
    return x / norm[..., None], torch.where(largest > 0, log_scale + norm.log(), -torch.inf), norm


def _bounded(gradient: Tensor) -> Tensor:
    """Large but finite: such gradients belong to values that are 0 or nearly so, and 0 * inf would not be 0."""
    bound = torch.finfo(gradient.dtype).max ** 0.75
    return gradient.clamp(-bound, bound)


def _block_T(T: Tensor, w: int, NT: int) -> Tensor:
    """Of T [p, 2b, A, C] what meets a child of width w - 1, a preterminal if that is 1: a view [2b, i, A, C]."""
    C = slice(NT, None) if w == 2 else slice(NT)
    return T[: len(T) - w + 1, :, :, C].transpose(0, 1)


def _of_spans(term: Tensor, n: int, v: int) -> Tensor:
    """Of [p, 2b, k, ...] the entries p = i + h, k = i + v as a view [2b, i, h, ...], i < n, h < v."""
    of_p, of_b, of_k, *others = term.stride()
    shape = (term.shape[1], n, v, *term.shape[3:])
    return term.as_strided(shape, (of_b, of_p + of_k, of_p, *others), term.storage_offset() + v * of_k)


def _rows_of_heads(n: int, H: int) -> Iterator[tuple[int, slice]]:
    """For each head p, of all rows (i, h) with i < n and h < H those with i + h = p: they are H - 1 apart."""
    for p in range(n + H - 1):
        first, last = max(0, p - H + 1), min(p, n - 1)
        yield p, slice(p + first * (H - 1), p + last * (H - 1) + 1, H - 1)
