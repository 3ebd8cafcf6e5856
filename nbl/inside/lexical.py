"""Inside algorithm and posteriors of the NL-PCFG (Eq. inside_zhu).

The chart holds each sentence and its mirror image (`nbl.inside.spans`), so that only LEFT-headed rules
are written down. With span [i, j) and head p,

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

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nbl.inside import Marginals, lexical_native
from nbl.inside.lexical_rules import ChartRules, chart_rules
from nbl.inside.spans import finite, joined, mirrored, normalised
from nbl.native import load
from nbl.rules import LexicalRules

CACHES = ("split-sum", "C1-1", "C1-2")


def inside(rules: LexicalRules, lengths: Tensor, cache: str = "split-sum", allow_native: bool = True) -> Tensor:
    """log p(w) of each sentence, [b]; `cache`, one of CACHES, changes the cost, not the result.

    On the CPU "split-sum" is done by a native kernel (`nbl.inside.lexical_native`).
    """
    if cache not in CACHES:
        raise ValueError(f"cache is {cache!r}; it must be one of {CACHES}")
    if cache == "split-sum" and allow_native and _is_native(rules):
        return _NativeLogProb.apply(lengths, *lexical_native.tables(rules))
    return _LogProb.apply(cache, lengths, *chart_rules(rules, lengths))


@torch.no_grad()
def marginals(rules: LexicalRules, lengths: Tensor, legacy: bool = False, allow_native: bool = True) -> Marginals:
    """Posteriors of spans and arcs.

    `legacy` repeats two errors of the released code in the arcs from a head child of two or more words: those to a
    child of one word are missing, and those to a longer child are given to the neighbour of the head word on
    the child's side.
    """
    if allow_native and _is_native(rules):
        solution = lexical_native.solve(lexical_native.tables(rules), lengths, posteriors=True, legacy=legacy)
        assert solution.spans is not None
        return Marginals(solution.log_Z, solution.spans, solution.arcs)
    chart = _Chart("split-sum", lengths, chart_rules(rules, lengths))
    outside = _Outside(chart, torch.ones_like(chart.log_prob), arcs="legacy" if legacy else "all")
    return Marginals(chart.log_prob, outside.span_mass, outside.arcs())


def _is_native(rules: LexicalRules) -> bool:
    """Whether the native kernel can do these."""
    return rules.word_C.device.type == "cpu" and load("lexical", rules.word_C.dtype) is not None


class _LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cache: str, lengths: Tensor, *rules: Tensor) -> Tensor:
        ctx.chart = _Chart(cache, lengths, ChartRules(*rules))
        return ctx.chart.log_prob.clone()  # its own output in ctx would never be freed

    @staticmethod
    @once_differentiable
    def backward(ctx, d_log_prob: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_Outside(ctx.chart, d_log_prob).gradients()


class _NativeLogProb(torch.autograd.Function):
    """The forward call runs the outside pass as well where a gradient is needed, and keeps the gradient of every
    sentence: backward is a weighted sum."""

    @staticmethod
    def forward(ctx, lengths: Tensor, *rules: Tensor) -> Tensor:
        ctx.shared = [len(factor) < len(lengths) for factor in rules]
        solution = lexical_native.solve(LexicalRules(*rules), lengths, gradients=any(ctx.needs_input_grad))
        if solution.gradients is not None:
            ctx.save_for_backward(*solution.gradients)
        return solution.log_Z

    @staticmethod
    @once_differentiable
    def backward(ctx, weight: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(
            torch.tensordot(weight[None], d, 1) if shared else weight.view(-1, *[1] * (d.dim() - 1)) * d
            for shared, d in zip(ctx.shared, ctx.saved_tensors, strict=True)
        )


class _Chart:
    """Inside values of all spans, in dictionaries by width."""

    def __init__(self, cache: str, lengths: Tensor, rules: ChartRules):
        self.cache, self.lengths, self.rules = cache, lengths, rules
        self.l, self.N, self.NT, _ = rules.R.shape
        self.b = self.N // 2
        self.log_word = rules.logp_w_C.amax(2)
        self.word = (rules.logp_w_C - finite(self.log_word)[..., None]).exp()
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
        child = self.closed[w - 1][:, 1:] * weight[:, :, 1, 0, None]
        total[:, :, 0] = (_T_of_child(self.rules.T, w - 1, self.NT) @ child[..., None]).squeeze(3)
        for v in self.attached(w):
            head = self.s[v][:, :n] * weight[:, :, v, :v, None]
            total[:, :, :v] += (_of_spans(self.term_C12[w - v], n, v) @ head[..., None]).squeeze(4)
        for widths in self.split_sums(w):
            _, _, Q = self.split_sum(w, widths, weight)
            x, H = Q.shape[1], widths[-1]
            product = Q.new_empty(self.N, x, n * H, self.NT)
            for p, rows in _rows_of_heads(n, H):
                of_head = Q[:, :, rows].flatten(1, 2) @ self.rules.R[p].mT
                product[:, :, rows] = of_head.unflatten(1, (x, -1))
            total[:, :, :H] += product.sum(1).view(self.N, n, H, self.NT)
        total = mirrored(joined(total), 2)
        self.s[w], self.log_s[w], self.norm[w] = normalised(total, log_scale)

    def _close(self, w: int) -> None:
        log_part = self.log_s[w] + self.log_word.unfold(1, w, 1)
        log_scale = finite(log_part.amax(2))
        self.word_weight[w] = (log_part - log_scale[..., None]).exp_()
        self.closed[w], self.log_closed[w], norm = normalised(self.parts(w).sum(2), log_scale)
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
        log_scale = finite(mirrored(torch.maximum(left, right.flip(1, 2)), 2))
        return log_weight.sub_(log_scale[:, :, None]).exp_(), log_scale

    def attached(self, w: int) -> range:
        """Widths of the nonterminal head children that meet term C1-2 of their child."""
        return range(2 if self.cache == "C1-2" else max(2, w - 1), w)

    def split_sums(self, w: int) -> list[range]:
        """Widths of the other nonterminal head children, in portions that bound the memory of long sentences."""
        return [] if self.cache == "C1-2" else [range(v, min(v + 64, w - 1)) for v in range(2, w - 1, 64)]

    def split_sum(self, w: int, widths: range, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Head children of these widths v, [2b, x, i, y, (h, B)], their children, [2b, x, i, y, C], and
        Q = sum_y head child * child, [2b, x, (i, h), (B, C)], where v = (x, y): all y, or ("C1-1") all x."""
        n, H = self.l - w + 1, widths[-1]
        x, y = (len(widths), 1) if self.cache == "C1-1" else (1, len(widths))
        head = weight.new_zeros(self.N, x, n, y, H, self.NT)
        child = weight.new_empty(self.N, x, n, y, self.NT)
        for v, head_v, child_v in zip(widths, _splits(head), _splits(child), strict=True):
            torch.mul(self.s[v][:, :n], weight[:, :, v, :v, None], out=head_v[:, :, :v])
            child_v.copy_(self.closed[w - v][:, v : v + n])
        head = head.flatten(4)
        return head, child, (head.mT @ child).view(self.N, x, n * H, self.NT * self.NT)

    def closing(self, w: int) -> Tensor:
        """p(w_q | C) with the scales of s and closed, [2b, i, h, C]."""
        return self.word.unfold(1, w, 1).mT * self.word_weight[w][..., None]

    def parts(self, w: int) -> Tensor:
        """s[i, j, q, C] p(w_q | C), which closed sums over q, [2b, i, h, C]."""
        return self.s[w] * self.closing(w)

    def log_root(self, w: int) -> Tensor:
        """log p(A | S) with the scale of closed[0, w], [b, A]."""
        return self.rules.logp_A_S + self.log_closed[w][: self.b, :1]


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

    def gradients(self) -> tuple[Tensor | None, ...]:
        """In the order of ChartRules; log_leaf, a scale, has none."""
        l, d_word = self.chart.l, torch.zeros_like(self.chart.word)
        for i in range(l):
            d_word[:, i:] += self.word_mass[:, i, : l - i]
        return self.root_mass, d_word, self.d_closed[1], None, self.d_R, self.d_term_C12[1], self.d_T

    def arcs(self) -> Tensor:
        """Posteriors of arcs, [b, 1 + p, q]."""
        l, arcs = self.chart.l, torch.zeros_like(self.arc_mass[:, 0])
        for i in range(l):
            arcs[:, i:, i:] += self.arc_mass[:, i, : l - i, : l - i]
        return torch.cat([self.root_arc_mass, joined(arcs)], 1)

    def _close(self, w: int) -> None:
        """From the gradients of closed to those of s."""
        chart, d_closed = self.chart, self.d_closed.pop(w)
        d_root = self.d_log_prob[:, None] * (chart.log_root(w) - finite(chart.log_prob)[:, None]).exp()
        is_root = (chart.lengths == w) & chart.log_prob.isfinite()  # an impossible sentence has no gradient
        d_root = torch.where(is_root[:, None], _bounded(d_root), 0)
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
        d_s = _bounded(joined(self.d_s.pop(w)))
        self.span_mass.diagonal(w, 1, 2).copy_((d_s * chart.s[w][: chart.b]).sum((2, 3)))
        d_total = _bounded(mirrored(d_s, 2) / chart.norm[w][..., None])
        weight, _ = chart.weights(w)
        self._preterminal_head(w, d_total[:, :, 0] * weight[:, :, 1, 0, None])
        for v in chart.attached(w):
            head = chart.s[v][:, :n] * weight[:, :, v, :v, None]
            d_head = (_of_spans(chart.term_C12[w - v], n, v).mT @ d_total[:, :, :v, :, None]).squeeze(4)
            if not self.arc_kind:
                d_term = _of_spans(self.d_term_C12[w - v], n, v)
                d_term.addcmul_(d_total[:, :, :v, :, None], head[..., None, :])
            elif self.arc_kind == "all":
                self.arc_mass[:, :n, :v, v] += (d_head * head).sum(3)
            self.d_s[v][:, :n].addcmul_(d_head, weight[:, :, v, :v, None])
        for widths in chart.split_sums(w):
            self._split_sum(w, widths, weight, d_total[:, :, : widths[-1]])

    def _preterminal_head(self, w: int, d_total: Tensor) -> None:
        chart = self.chart
        d_child = (_T_of_child(chart.rules.T, w - 1, chart.NT).mT @ d_total[..., None]).squeeze(3)
        self.d_closed[w - 1][:, 1:] += d_child
        if self.arc_kind:
            self._add_arcs(w, 1, d_child[:, :, None])
        else:
            d_T = _T_of_child(self.d_T, w - 1, chart.NT)
            d_T.addcmul_(d_total[..., None], chart.closed[w - 1][:, 1:, None])

    def _split_sum(self, w: int, widths: range, weight: Tensor, d_total: Tensor) -> None:
        chart, N, NT, n, H = self.chart, self.chart.N, self.chart.NT, self.chart.l - w + 1, widths[-1]
        head, child, Q = chart.split_sum(w, widths, weight)
        x = Q.shape[1]
        d_total = d_total.reshape(N, 1, n * H, NT).expand(-1, x, -1, -1)
        d_Q = torch.empty_like(Q)
        for p, rows in _rows_of_heads(n, H):
            d_product = d_total[:, :, rows].flatten(1, 2)
            d_Q[:, :, rows] = (d_product @ chart.rules.R[p]).unflatten(1, (x, -1))
            if not self.arc_kind:
                self.d_R[p].baddbmm_(d_product.mT, Q[:, :, rows].flatten(1, 2))
        d_Q = d_Q.view(N, x, n, H * NT, NT)
        d_head = (child @ d_Q.mT).unflatten(4, (H, NT))
        d_child = head @ d_Q
        for v, d_head_v, d_child_v in zip(widths, _splits(d_head), _splits(d_child), strict=True):
            self.d_s[v][:, :n].addcmul_(d_head_v[:, :, :v], weight[:, :, v, :v, None])
            self.d_closed[w - v][:, v : v + n] += d_child_v
        if self.arc_kind:
            head = head.view(N, n, -1, H, NT).transpose(2, 3)
            d_child = head @ d_Q.view(N, n, H, NT, NT)  # now of each head, [2b, i, h, v, C]
            for v, d_child_v in zip(widths, d_child.unbind(3), strict=True):
                self._add_arcs(w, v, d_child_v[:, :, :v], shift=1 if self.arc_kind == "legacy" else 0)

    def _add_arcs(self, w: int, v: int, d_child: Tensor, shift: int = 0) -> None:
        """Arcs from the heads of the first v words of a span of width w to those of the others; d_child is the
        gradient of closed from each head, [2b, i, h, C]. They are given to the word `shift` after the head."""
        n = d_child.shape[1]
        self.arc_mass[:, :n, shift : v + shift, v:w] += d_child @ self.parts[w - v][:, v : v + n].mT


def _bounded(gradient: Tensor) -> Tensor:
    """Large but finite: such gradients belong to values that are 0 or nearly so, and 0 * inf would not be 0.

    Sums of 2^16 of them are finite, too, in single precision.
    """
    bound = torch.finfo(gradient.dtype).max ** (112 / 128)
    return gradient.clamp(-bound, bound)


def _T_of_child(T: Tensor, width: int, NT: int) -> Tensor:
    """Of T [p, 2b, A, C] what a child of this width right of p can meet, as a view [2b, p, A, C]."""
    C = slice(NT, None) if width == 1 else slice(NT)
    return T[: len(T) - width, :, :, C].transpose(0, 1)


def _splits(x: Tensor) -> list[Tensor]:
    """[2b, x, i, y, ...] by (x, y)."""
    return [of_y for of_x in x.unbind(1) for of_y in of_x.unbind(2)]


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
