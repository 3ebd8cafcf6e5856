"""StructFormer (Shen et al. 2021): a masked language model whose attention follows a latent dependency tree.

A network of convolutions gives each word a height Δ and each gap between two words a distance τ. The word i stands
for the constituent around it that no larger distance cuts, and its parent is the highest word of that constituent.
Both are soft, so the masked language model trains the parser: attention from word i reaches word h as far as
h is the parent or a child of i.

The released code takes one calibration margin per batch (`calibrate`); here each sentence has its own, so that no
result depends on the other sentences of a batch. All words are predicted, `<unk>` included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nbl.decode import Parse
from nbl.errors import UserError
from nbl.models.base import System, by_length
from nbl.models.layers import Linear
from nbl.native.networks import linear

MASKED = 0.3  # share of the words hidden in training
FOLDS = 3  # in evaluation every third word is hidden at a time, so that each is predicted once
DROPPED = 26 / 256  # the published dropout is 0.1; multiples of 1/256 need one random byte each
POSITIONS = 500
KERNEL = 9  # words that a convolution sees
FAR = 1e9  # the distance at the ends of a sentence

Drop = Callable[[Tensor], Tensor]


class Structure(NamedTuple):
    """What the parser finds in b sentences of l words."""

    tau: Tensor  # [b, l]: the distance after each word, FAR after the last
    delta: Tensor  # [b, l]: the height of each word
    D: Tensor  # [b, i, h]: probability that h is the parent of i, 0 for h = i


class StructFormer(System):
    """`generator` draws what is random in training: the hidden words and dropout.

    Args:
        vocab_size: number of words in the vocabulary.
        dim: size of all vectors, a multiple of `heads`.
        layers: of the encoder.
        heads: of the attention in each layer.
        convolutions: layers of the parser.
    """

    betas = (0.9, 0.999)
    is_log_probability = False
    halved_after = 2

    def __init__(self, vocab_size: int, *, dim: int, layers: int, heads: int, convolutions: int):
        if dim % heads:
            raise UserError(f"dim is {dim}, not a multiple of the {heads} heads")
        super().__init__()
        self.mask = vocab_size  # the number of the mask symbol
        self.w_w = nn.Parameter(torch.empty(vocab_size + 1, dim).uniform_(-0.1, 0.1))
        self.position = nn.Parameter(torch.empty(POSITIONS, dim).uniform_(-0.1, 0.1))
        self.parser = Parser(dim, convolutions)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def objective(self, words: Tensor, lengths: Tensor) -> Tensor:
        """The pseudo-log-likelihood of each sentence, [b]: the sum over its words of log p(word | rest).

        In training an unbiased estimate of it from randomly hidden words; in evaluation each word is hidden once,
        together with every third word.
        """
        total = self.w_w.new_zeros(len(words))
        for rows, l in by_length(lengths):
            group = words[rows, :l]
            if self.training:
                hidden = torch.rand(group.shape, generator=self.generator, device=words.device) < MASKED
                value = self.log_p(group, hidden) / MASKED
            else:
                fold = torch.arange(l, device=words.device).expand_as(group) % FOLDS
                value = torch.stack([self.log_p(group, fold == k) for k in range(FOLDS)]).sum(0)
            total = total.index_add(0, rows, value)
        return total

    def log_p(self, words: Tensor, hidden: Tensor) -> Tensor:
        """The sum of log p(word | words not hidden) over the hidden words [b, l] of each sentence of l words, [b]."""
        w = F.embedding(words.masked_fill(hidden, self.mask), self.w_w)
        D = self.parser(w).D
        position = torch.arange(words.shape[1], device=words.device).clamp(max=POSITIONS - 1)
        x = self.drop(w + self.position[position])
        arcs = torch.stack([D, D.transpose(1, 2)], 1)
        for layer in self.layers:
            x = layer(x, arcs, self.drop)
        sentence, place = hidden.nonzero(as_tuple=True)
        x = self.drop(self.norm(x[sentence, place]))
        log_p = -F.cross_entropy(linear(x, self.w_w[:-1], self.bias), words[sentence, place], reduction="none")
        return x.new_zeros(len(words)).index_add(0, sentence, log_p)

    def drop(self, x: Tensor) -> Tensor:
        """Dropout in training, drawn from `generator`, one random byte per element."""
        if not self.training:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.long, device=x.device)
        byte = words.random_(-(2**63), None, generator=self.generator).view(torch.uint8)[: x.numel()].view(x.shape)
        return x * (byte >= 256 * DROPPED).to(x.dtype).mul_(1 / (1 - DROPPED))

    def parse(self, words: Tensor, lengths: Tensor, decoder: str = "mbr") -> list[Parse]:
        """One tree per sentence, and a head for each word: the highest word is the root, any other takes its most
        probable parent. The arcs need not form a tree. There is one way to decode, whatever `decoder` is.
        """
        parses: dict[int, Parse] = {}
        with torch.no_grad():
            for rows, l in by_length(lengths):
                found = self.parser(F.embedding(words[rows, :l], self.w_w))
                heads = found.D.argmax(-1) + 1
                heads.scatter_(1, found.delta.argmax(-1, keepdim=True), 0)
                for row, tau, head in zip(rows.tolist(), found.tau.tolist(), heads.tolist(), strict=True):
                    parses[row] = Parse([(i, j, None) for i, j in spans(tau)], head, 0.0)
        return [parses[row] for row in range(len(words))]


class Parser(nn.Module):
    """Words in, soft structure out; it sees no positions and has no dropout."""

    def __init__(self, dim: int, convolutions: int):
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv1d(dim, dim, KERNEL, padding=KERNEL // 2) for _ in range(convolutions))
        self.height, self.height_out = Linear(dim, dim), nn.Linear(dim, 1)
        self.distance, self.distance_out = Linear(2 * dim, dim), nn.Linear(dim, 1)
        self.scale = nn.Parameter(torch.zeros(2))  # logarithms: of Δ - τ, of Δ

    def forward(self, w: Tensor) -> Structure:
        """The structure of sentences of l words each, w [b, l, dim]."""
        for convolution in self.convolutions:
            w = squash(convolution(w.transpose(1, 2)).transpose(1, 2))
        delta = self.height_out(squash(self.height(w))).squeeze(-1)
        pairs = torch.cat([w[:, :-1], w[:, 1:]], -1)
        tau = self.distance_out(squash(self.distance(pairs))).squeeze(-1)
        tau = calibrate(F.pad(tau, (0, 1), value=FAR), delta)
        scale = self.scale.exp()
        return Structure(tau, delta, parents(*edges(tau, delta, scale[0]), delta * scale[1]))


def squash(x: Tensor) -> Tensor:
    """tanh of a layer norm without parameters."""
    return F.layer_norm(x, x.shape[-1:]).tanh()


def calibrate(tau: Tensor, delta: Tensor) -> Tensor:
    """Lower a sentence's distances [b, l] until each constituent but the whole has an edge below its highest word.

    The constituent i..j is closed by min(τ_{i-1}, τ_j); the margin is the largest excess of that over its heights.
    """
    l = tau.shape[1]
    j_before_i = torch.ones(l, l, dtype=torch.bool, device=tau.device).tril(-1)
    # H[b, i, j] = max Δ of i..j
    H = delta[:, None].expand(-1, l, l).masked_fill(j_before_i, -FAR).cummax(2).values
    before = F.pad(tau[:, :-1], (1, 0), value=FAR)
    excess = (torch.minimum(before[:, :, None], tau[:, None]) - H).relu()
    whole = j_before_i.clone()
    whole[0, -1] = True
    return tau - excess.masked_fill(whole, 0).amax((1, 2))[:, None]


def edges(tau: Tensor, delta: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """P(left edge of i's constituent is l) and P(its right edge is r), [b, i, l] and [b, i, r], both inclusive.

    σ(Δ_i - τ_k) is the probability that the constituent of i reaches over the gap after k; the least one on the
    way decides.
    """
    crosses = ((delta[:, :, None] - tau[:, None]) * scale).sigmoid()  # [b, i, k]
    k_before_i = torch.ones(crosses.shape[1:], dtype=torch.bool, device=tau.device).tril(-1)
    # reaches[b, i, l] = min over l <= k < i, 1 for l >= i
    reaches = crosses.masked_fill(~k_before_i, 1).flip(2).cummin(2).values.flip(2)
    left = reaches.diff(dim=2, prepend=torch.zeros_like(reaches[:, :, :1]))
    # reaches[b, i, r] = min over i <= k <= r: it is past r; 1 for r < i and 0 for the last word
    reaches = crosses.masked_fill(k_before_i, 1).cummin(2).values
    right = -reaches.diff(dim=2, prepend=torch.ones_like(reaches[:, :, :1]))
    return left, right


def parents(left: Tensor, right: Tensor, delta: Tensor) -> Tensor:
    """D[b, i, h] = Σ_{l <= i, h <= r} P(l|i) P(r|i) exp(Δ_h) / Z_lr, Z_lr = Σ_{l <= h <= r} exp(Δ_h); 0 for h = i.

    The sum factors: for h <= i the right edge is free, and the left one runs up to h; for h >= i the other way round.
    That takes l³ operations instead of l⁴. Heights more than 80 below the sentence's highest count as 80 below,
    so that no exponential underflows.
    """
    l = delta.shape[1]
    above = torch.ones(l, l, dtype=torch.bool, device=delta.device).triu()
    delta = (delta - delta.amax(1, keepdim=True).detach()).clamp(min=-80)
    log_Z = delta[:, None].expand(-1, l, l).masked_fill(~above, -1e4).logcumsumexp(2)
    by_Z = (-log_Z).masked_fill(~above, -1e4).exp()  # 1 / Z[b, l, r], 0 for l > r
    # up_to[b, i, h] = Σ_{l <= h} P(l|i) Σ_r P(r|i) / Z_lr
    up_to = (left * (right @ by_Z.transpose(1, 2))).cumsum(2)
    # down_to[b, i, h] = Σ_{r >= h} P(r|i) Σ_l P(l|i) / Z_lr
    down_to = (right * (left @ by_Z)).flip(2).cumsum(2).flip(2)
    D = torch.where(above, down_to, up_to) * delta.exp()[:, None]
    return D.masked_fill(torch.eye(l, dtype=torch.bool, device=D.device), 0)


class Layer(nn.Module):
    """A layer of the encoder. Attention weights are sigmoids times the probability of an arc, upwards or downwards;
    each head mixes the two directions in its own way.
    """

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_forward = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = Linear(dim, 3 * dim), Linear(dim, dim)
        for matrix in (*self.qkv.weight.data.chunk(3), self.out.weight):
            nn.init.xavier_uniform_(matrix)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.out.bias)
        self.direction = nn.Parameter(0.1 * torch.randn(heads, 2))
        self.up, self.down = Linear(dim, 4 * dim), Linear(4 * dim, dim)

    def forward(self, x: Tensor, arcs: Tensor, drop: Drop) -> Tensor:
        """x [b, l, dim]; arcs [b, 2, i, h] from child to parent and from parent to child."""
        b, l, dim = x.shape
        # [3, b, heads, l, dim / heads]
        q, k, v = self.qkv(self.norm_attention(x)).view(b, l, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        allowed = (self.direction.softmax(1) @ arcs.flatten(2)).view(b, self.heads, l, l)
        weights = (q @ k.transpose(2, 3) * (self.heads / dim) ** 0.5).sigmoid() * allowed
        x = x + drop(self.out((weights @ v).transpose(1, 2).reshape(b, l, dim)))
        return x + drop(self.down(drop(F.leaky_relu(self.up(self.norm_forward(x))))))


def spans(tau: list[float]) -> list[tuple[int, int]]:
    """The binary tree of distances after each word: split at the largest, the first of equals; top down, left to right.

    >>> spans([1.0, 3.0, 2.0, 1e9])
    [(0, 4), (0, 2), (2, 4)]
    """
    found, agenda = [], [(0, len(tau))]
    while agenda:
        i, j = agenda.pop()
        if j - i > 1:
            k = max(range(i, j - 1), key=tau.__getitem__) + 1
            found.append((i, j))
            agenda += [(k, j), (i, k)]
    return found
