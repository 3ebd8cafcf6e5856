"""S-DIORA (Drozdov et al. 2020): a recursive autoencoder over all binary trees, then over a beam of them.

Every span has an inside vector, composed of those of its parts, and an outside vector, composed of those of its
parent and its sibling. A word's outside vector comes from all other words, and predicts it. DIORA
(Drozdov et al. 2019) averages over all splits of a span, weighted by their scores; S-DIORA keeps the best `beam`
derivations of each span. The model is trained as DIORA for `soft_epochs` epochs, then as S-DIORA. Evaluation is
always that of S-DIORA.

Four things differ from the published system. Word vectors are those of the training text, not ELMo's, and nothing
is pre-trained on NLI. Both phases predict by a softmax over the whole vocabulary. Sibling and parent keep their order
in both phases (the released code swaps them). Matrices start at N(0, 1/dim), not N(0, 1).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nbl.decode import Parse
from nbl.models.base import System, by_length
from nbl.models.layers import table
from nbl.native.networks import linear, matmul

EVALUATION_BEAM = 2  # as published, if the beam is not smaller
NEVER = -1e9  # the score of an entry of a beam that stands for no tree


class SDIORA(System):
    """The word vectors are those of `read_text`, and stay as they are.

    Args:
        vocab_size: number of words in the vocabulary.
        dim: size of all vectors.
        beam: derivations kept of each span.
        soft_epochs: epochs of training as DIORA; those after them are of S-DIORA.
    """

    betas = (0.9, 0.999)
    is_log_probability = False

    soft = False  # whether training averages over splits
    w_w: Tensor

    def __init__(self, vocab_size: int, *, dim: int, beam: int, soft_epochs: int):
        super().__init__()
        self.beam, self.soft_epochs = beam, soft_epochs
        self.register_buffer("w_w", torch.randn(vocab_size, dim))
        self.p_w, self.leaf = table(vocab_size, dim), matrix(dim)
        self.inside, self.outside = Composition(dim), Composition(dim)
        self.root = nn.Parameter(torch.randn(dim))

    def read_text(self, sentences: Iterable[list[int]]) -> None:
        """Take the word vectors from a training text, given as word numbers."""
        self.w_w.copy_(word_vectors(sentences, *self.w_w.shape))

    def begin_epoch(self, epoch: int) -> bool:
        """Choose the phase of training. A model of the first phase is never kept."""
        self.soft = epoch <= self.soft_epochs
        return epoch == self.soft_epochs + 1

    def objective(self, words: Tensor, lengths: Tensor) -> Tensor:
        """The pseudo-log-likelihood of each sentence, [b]: the sum of log p(word | its outside vector).

        When the beam is trained, the margin loss is subtracted once per word: the amount by which the score of the
        best tree fails to exceed that of the second best by 1.
        """
        total = self.w_w.new_zeros(len(words))
        for rows, l in by_length(lengths):
            group = words[rows, :l]
            K = 0 if self.soft and self.training else self.width
            a, s, _ = self.inside_chart(group, K)
            contexts = self.outside_chart(a, s, group, K)
            log_p = -F.cross_entropy(linear(contexts, self.p_w).flatten(0, 1), group.T.flatten(), reduction="none")
            value = log_p.view(l, -1).sum(0)
            if self.training and K > 1:
                best, second = s.view(-1, len(group), K)[-1, :, :2].unbind(1)
                value = value - l * (1 + second - best).relu()
            total = total.index_add(0, rows, value)
        return total

    @property
    def width(self) -> int:
        """Of the beam."""
        return self.beam if self.training else min(self.beam, EVALUATION_BEAM)

    def inside_chart(self, words: Tensor, K: int) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
        """The rows of `Chart` for inside vectors and for scores, and which rows each row is composed of."""
        a = unit((matmul(F.embedding(words.T, self.w_w), self.leaf) + self.inside.B).tanh())
        start = beam_of(a, torch.zeros_like(a[..., 0]), K)
        chart = Chart(self.inside, words, K, is_inside=True)
        *_, a, s = chart.fill((), self.inside.rows(*start))
        return a, s, chart.chosen

    def outside_chart(self, a: Tensor, s: Tensor, words: Tensor, K: int) -> Tensor:
        """The words' outside vectors [l, b, dim], those of the best entries, from the rows of the inside chart."""
        b, l = words.shape
        root = unit(self.root).expand(1, b, -1)
        start = self.outside.rows(*beam_of(root, torch.zeros_like(root[..., 0]), K))[2:]
        chart = Chart(self.outside, words, K, is_inside=False)
        _, vectors, _ = chart.fill((*self.outside.as_x(a), s), start)
        return vectors[: l * chart.size].view(l, b, -1, a.shape[-1])[:, :, 0]

    def parse(self, words: Tensor, lengths: Tensor, decoder: str = "mbr") -> list[Parse]:
        """The best tree of each sentence, whatever `decoder` is; there are no heads."""
        parses: dict[int, Parse] = {}
        K = self.width
        with torch.no_grad():
            for rows, l in by_length(lengths):
                _, s, chosen = self.inside_chart(words[rows, :l], K)
                parts = torch.stack([torch.cat(rows) for rows in zip(*chosen, strict=True)], 1).tolist()
                for n, row in enumerate(rows.tolist()):
                    best = len(s) - (len(rows) - n) * K
                    parses[row] = Parse(tree(best, parts, l, len(rows) * K), None, 0.0)
        return [parses[row] for row in range(len(words))]


class Composition(nn.Module):
    """Two vectors x and y into one, f(x, y) = relu(relu(x W_x + y W_y + B) W + C), with score x S y.

    Inside, x and y are the left and the right part; outside, the sibling's inside and the parent's outside vector.
    What depends on one of them is computed once per vector, not once per pair.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.W_x, self.W_y, self.W, self.S = (matrix(dim) for _ in range(4))
        self.B, self.C = (nn.Parameter(torch.zeros(dim)) for _ in range(2))

    def as_x(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """x W_x and x S of vectors a."""
        return matmul(a, self.W_x), matmul(a, self.S)

    def rows(self, a: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        """All that a chart keeps of vectors and their scores: x W_x, x S, y W_y, y, score."""
        return *self.as_x(a), matmul(a, self.W_y), a, s

    def forward(self, x: list[Tensor], y: list[Tensor]) -> tuple[Tensor, Tensor]:
        """f and the score of pairs: x W_x, x S, score of x; y W_y, y, score of y."""
        hidden = (x[0] + y[0] + self.B).relu_()
        return (matmul(hidden, self.W) + self.C).relu_(), (x[1] * y[1]).sum(-1) + x[2] + y[2]


def matrix(dim: int) -> nn.Parameter:
    """N(0, 1/dim)."""
    return nn.Parameter(torch.randn(dim, dim) * dim**-0.5)


def word_vectors(sentences: Iterable[list[int]], vocab_size: int, dim: int) -> Tensor:
    """Vectors [vocab_size, dim] of length √dim for words by their neighbours in a text.

    The positive pointwise mutual information with the word before and the word after is factored by a truncated
    singular value decomposition, which starts from torch's global generator.
    """
    pairs = [pair for sentence in sentences for pair in itertools.pairwise(sentence)]
    first, second = torch.tensor(pairs or [(0, 0)]).T
    sparse = partial(torch.sparse_coo_tensor, check_invariants=True)
    # a row per word, a column per word before it and per word after it
    places = torch.cat([torch.stack([second, first]), torch.stack([first, second + vocab_size])], 1)
    counts = sparse(places, torch.ones(places.shape[1]), (vocab_size, 2 * vocab_size)).coalesce()
    (row, column), n = counts.indices(), counts.values()
    of_row, of_column = (torch.zeros(2 * vocab_size).index_add(0, side, n) for side in (row, column))
    information = (n * n.sum() / (of_row[row] * of_column[column])).log().relu()
    U, S, _ = torch.svd_lowrank(sparse(counts.indices(), information, counts.shape), min(dim, vocab_size), niter=6)
    return F.pad(dim**0.5 * F.normalize(U * S.sqrt()), (0, dim - len(S)))


def unit(x: Tensor) -> Tensor:
    """Of length 1."""
    return F.normalize(x, dim=-1)


def beam_of(vectors: Tensor, scores: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """Rows whose beams have one entry each, from vectors [spans, b, dim] and scores [spans, b]."""
    if not K:
        return vectors, scores
    others = scores.new_full((*scores.shape, K - 1), NEVER)
    rows = vectors[:, :, None].expand(-1, -1, K, -1).flatten(0, 2)
    return rows, torch.cat([scores[:, :, None], others], 2).flatten()


class Spans:
    """The spans of l words in the order of a chart: by width, then from left to right."""

    def __init__(self, l: int):
        self.l = l
        self.first = [0, 0]  # for each width the number of its first span
        for width in range(1, l + 1):
            self.first.append(self.first[width] + l - width + 1)

    def __len__(self) -> int:
        return self.first[-1]

    def number(self, i: int, j: int) -> int:
        """
        >>> [Spans(3).number(*span) for span in ((0, 1), (2, 3), (0, 2), (1, 3), (0, 3))]
        [0, 2, 3, 4, 5]
        """
        return self.first[j - i] + i

    def parts(self, width: int) -> tuple[list[list[int]], list[list[int]]]:
        """The left and the right parts of each span of this width, [spans, splits]."""
        starts, lefts = range(self.l - width + 1), range(1, width)
        left = [[self.number(i, i + k) for k in lefts] for i in starts]
        return left, [[self.number(i + k, i + width) for k in lefts] for i in starts]

    def contexts(self, width: int) -> tuple[list[list[int]], list[list[int]]]:
        """The siblings and the parents of each span of this width, [spans, parents]."""
        siblings, parents = [], []
        for i in range(self.l - width + 1):
            j = i + width
            found = [((j, m), (i, m)) for m in range(j + 1, self.l + 1)] + [((m, i), (m, j)) for m in range(i)]
            siblings.append([self.number(*sibling) for sibling, _ in found])
            parents.append([self.number(*parent) for _, parent in found])
        return siblings, parents


class Chart:
    """The rows of all spans of b sentences of l words, one width after the other.

    Averaged (K = 0), a row belongs to a span and has all sentences. With a beam, it is one entry of one sentence:
    all pairs are scored, and only the best K of a span are composed.
    """

    def __init__(self, composition: Composition, words: Tensor, K: int, is_inside: bool):
        b, l = words.shape
        self.composition, self.b, self.K, self.is_inside = composition, b, K, is_inside
        spans = Spans(l)
        self.size = b * K if K else 1  # rows of a span
        self.rows = len(spans) * self.size
        widths = range(2, l + 1) if is_inside else range(l - 1, 0, -1)
        first = 1 if is_inside else l
        self.start = self._slice(spans, first)
        self.steps = [self._slice(spans, width) for width in widths]
        pairs = [spans.parts(width) if is_inside else spans.contexts(width) for width in widths]
        self.pairs = [
            tuple(torch.tensor(side, device=words.device) for side in pair) for pair in pairs
        ]  # x and y, [spans, pairs]
        self.chosen: list[tuple[Tensor, Tensor]] = []  # rows of x and y, for each step
        # which tensors have what `Composition.forward` needs of x and of y
        self.x, self.y = ((0, 1, 4), (2, 3, 4)) if is_inside else ((0, 1, 2), (3, 4, 5))

    def _slice(self, spans: Spans, width: int) -> slice:
        return slice(spans.first[width] * self.size, spans.first[width + 1] * self.size)

    def fill(self, fixed: tuple[Tensor, ...], start: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """All rows, from those of the start and from those that are fixed: the siblings', outside."""
        return _Fill.apply(self, len(fixed), len(start), *fixed, *start, *self.composition.parameters())

    def choose(self, step: int, tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The rows of x and y that make the rows of a step: all pairs, or the best."""
        x, y = self.pairs[step]
        if not self.K:
            return x.flatten(), y.flatten()
        b, K, n = self.b, self.K, x.shape[1]
        of_x, s_x, of_y, s_y = (
            tensors[k].view(-1, b * K, *tensors[k].shape[1:]).index_select(0, spans.flatten())
            for spans, of in ((x, self.x), (y, self.y))
            for k in of[1:]
        )
        # [spans, pairs, b, K of x, K of y]
        scores = of_x.view(-1, K, of_x.shape[-1]) @ of_y.view(-1, K, of_y.shape[-1]).transpose(1, 2)
        scores = scores + s_x.view(-1, K, 1) + s_y.view(-1, 1, K)
        best = scores.view(len(x), n, b, K * K).transpose(1, 2).flatten(2).topk(K).indices  # [spans, b, K]
        pair, entry = best // K**2, best % K**2
        sentence = torch.arange(b, device=best.device)[:, None]
        rows = []
        for side, of_side in ((x, entry // K), (y, entry % K)):
            spans = side.gather(1, pair.flatten(1)).view_as(pair)
            rows.append(((spans * b + sentence) * K + of_side).flatten())
        return rows[0], rows[1]

    def compute(self, x: list[Tensor], y: list[Tensor], spans: int) -> tuple[Tensor, ...]:
        """The rows of a step from the pairs it is made of."""
        f, e = self.composition(x, y)
        if self.K:
            s = torch.where(e < NEVER / 2, NEVER, e)
        else:
            e = e.view(spans, -1, self.b)  # [spans, pairs, b]
            p = e.softmax(1)
            f, s = (p[..., None] * f.view(*p.shape, -1)).sum(1), (p * e).sum(1)
        a = unit(f)
        return self.composition.rows(a, s) if self.is_inside else (matmul(a, self.composition.W_y), a, s)


class _Fill(torch.autograd.Function):
    """`Chart.fill`. The backward pass computes each step again, so that no step's pairs are kept."""

    @staticmethod
    def forward(ctx: Any, chart: Chart, fixed: int, growing: int, *inputs: Tensor) -> tuple[Tensor, ...]:
        tensors = list(inputs[:fixed])
        for start in inputs[fixed : fixed + growing]:
            tensors.append(start.new_empty(chart.rows, *start.shape[1:]))
            tensors[-1][chart.start] = start
        for step, place in enumerate(chart.steps):
            x, y = chart.choose(step, tensors)
            of_x, of_y = ([tensors[k].index_select(0, rows) for k in of] for rows, of in ((x, chart.x), (y, chart.y)))
            for tensor, rows in zip(tensors[fixed:], chart.compute(of_x, of_y, len(chart.pairs[step][0])), strict=True):
                tensor[place] = rows
            chart.chosen.append((x, y))
        ctx.chart, ctx.fixed = chart, fixed
        ctx.save_for_backward(*tensors)
        return tuple(tensors[fixed:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_rows: Tensor) -> tuple[Tensor | None, ...]:
        chart, fixed, tensors = ctx.chart, ctx.fixed, ctx.saved_tensors
        parameters = list(chart.composition.parameters())
        gradients = [torch.zeros_like(tensor) for tensor in tensors[:fixed]] + [d.clone() for d in d_rows]
        d_parameters = [torch.zeros_like(parameter) for parameter in parameters]
        for step in reversed(range(len(chart.steps))):
            x, y = chart.chosen[step]
            reads = [(k, x) for k in chart.x] + [(k, y) for k in chart.y]
            of_pairs = [tensors[k].index_select(0, rows).requires_grad_() for k, rows in reads]
            with torch.enable_grad():
                made = chart.compute(of_pairs[:3], of_pairs[3:], len(chart.pairs[step][0]))
            d_made = [gradient[chart.steps[step]] for gradient in gradients[fixed:]]
            found = torch.autograd.grad(made, of_pairs + parameters, d_made, allow_unused=True)
            for (k, rows), d in zip(reads, found, strict=False):
                gradients[k].index_add_(0, rows, d)
            for total, d in zip(d_parameters, found[len(reads) :], strict=True):
                if d is not None:
                    total += d
        d_start = [gradient[chart.start] for gradient in gradients[fixed:]]
        return None, None, None, *gradients[:fixed], *d_start, *d_parameters


def tree(row: int, parts: list[list[int]], l: int, size: int) -> list[tuple[int, int, int | None]]:
    """The spans of two or more words below a row of an inside chart, top down; `parts` begins after the words."""
    spans = Spans(l)
    found: list[tuple[int, int, int | None]] = []
    agenda = [row]
    while agenda:
        row = agenda.pop()
        if row >= l * size:
            number = row // size
            width = next(width for width in range(2, l + 1) if number < spans.first[width + 1])
            i = number - spans.first[width]
            found.append((i, i + width, None))
            x, y = parts[row - l * size]
            agenda += [y, x]
    return found
