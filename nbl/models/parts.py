"""What the grammars' networks are made of: tables, residual networks, softmaxes over large outcomes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

BLOCK = 2**19  # logits of a block of outcomes: 2 MB


def table(rows: int, dim: int) -> nn.Parameter:
    """One embedding a row, N(0, 1)."""
    return nn.Parameter(torch.randn(rows, dim))


class JoinedLinear(nn.Module):
    """A linear layer of the concatenation [x; y; ...], computed as a sum of one product per part.

    The parts are broadcast against each other after the products: for 120 words and 15 nonterminals
    135 rows go through the matrix, not 1,800. The matrix is [inputs, out], so that each part's share
    of it, and of its gradient, is one block. Values begin as in `nn.Linear`.
    """

    def __init__(self, widths: tuple[int, ...], out: int):
        super().__init__()
        self.widths = widths
        bound = sum(widths) ** -0.5
        self.weight = nn.Parameter(torch.empty(sum(widths), out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out).uniform_(-bound, bound))

    def terms(self, *parts: Tensor) -> list[Tensor]:
        """The product of each part, without the bias."""
        return [x @ weight for x, weight in zip(parts, self.weight.split(self.widths), strict=True)]

    def forward(self, *parts: Tensor) -> Tensor:
        total: Tensor = self.bias
        for term in self.terms(*parts):
            total = total + term
        return total


class Residual(nn.Module):
    """g(x) = ReLU(V ReLU(U x)) + x: the second ReLU is inside the branch."""

    def __init__(self, dim: int):
        super().__init__()
        self.U, self.V = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.V(self.U(x).relu_()).relu_() + x


class Network(nn.Module):
    """h(x) = g_1(g_2(W x)), the paper's residual network; several inputs are concatenated."""

    def __init__(self, *widths: int, dim: int, blocks: int = 2):
        super().__init__()
        self.W = JoinedLinear(widths, dim)
        self.g = nn.Sequential(*(Residual(dim) for _ in range(blocks)))

    def forward(self, *parts: Tensor) -> Tensor:
        return self.g(self.W(*parts))


class Softmax(nn.Module):
    """p(y | x) = softmax over y of query(x) . key(v_y) + b_y.

    The released code has its networks in the query: they see what is conditioned on. The paper's
    appendix has them in the key: they see what is generated. `output` holds the v_y and, if it has
    a bias, the b_y.
    """

    def __init__(self, query: nn.Module, output: nn.Linear, key: nn.Module | None = None):
        super().__init__()
        self.query, self.output, self.key = query, output, key or nn.Identity()

    def forward(self, *x: Tensor) -> Tensor:
        """log p(y | x) for every y, [..., y]."""
        return F.linear(self.query(*x), self.key(self.output.weight), self.output.bias).log_softmax(-1)

    def at(self, y: Tensor, *x: Tensor) -> Tensor:
        """log p(y | x) for the given outcomes y [b, ...] and every x, [b, ..., x].

        query(x) is [x, dim], or [1, x, dim], or [b, x, dim] with an x of its own for each sentence.
        """
        query = self.query(*x)
        query = query.reshape(-1, *query.shape[-2:])
        logp = log_softmax_at(query, self.key(self.output.weight), self.output.bias, y.reshape(len(query), -1))
        return logp.view(*y.shape, -1)


def tied(weight: nn.Parameter) -> nn.Linear:
    """An output layer whose v_y are the rows of a table, without a bias."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = weight
    return layer


def log_softmax_at(x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor) -> Tensor:
    """log_softmax(x weight^T + bias), only at the outcomes y.

    x [g, r, dim] in g groups of r rows, weight [V, dim], bias [V], y [g, n] -> [g, n, r].
    The gradient of the logits is -P scaled row by row, plus n columns: it is never written out.
    """
    if bias is None:
        bias = weight.new_zeros(len(weight))
    if not torch.is_grad_enabled():  # inside a Function, a parameter would still seem to need one
        x, weight, bias = x.detach(), weight.detach(), bias.detach()
    return _LogSoftmaxAt.apply(x, weight, bias, y).mT


class _LogSoftmaxAt(torch.autograd.Function):
    """Outcomes are taken block by block, each while it is in the cache, and exp(logits) stay divided by their
    block's peak: P is a block of them times its `share`, [row, block]. The expected weight under P, which the
    gradient of x needs, is summed up on the way.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, y: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        size = max(BLOCK // len(rows) // 16 * 16, 16)  # rows of a block start at multiples of 64 bytes
        needs_grad = any(ctx.needs_input_grad)
        blocks, peaks, sums, expected = [], [], [], []
        for block_weight, block_bias in zip(weight.split(size), bias.split(size), strict=True):
            block = torch.addmm(block_bias, rows, block_weight.T)
            peaks.append(block.amax(1, keepdim=True))
            block.sub_(peaks[-1]).exp_()
            sums.append(block.sum(1, keepdim=True))
            if needs_grad:
                blocks.append(block)
                expected.append(block @ block_weight)
        peak = torch.cat(peaks, 1)
        log_sum = (peak + torch.cat(sums, 1).log()).logsumexp(1, keepdim=True)
        weight_y = F.embedding(y, weight)  # which has no negative numbers
        logits = torch.baddbmm(bias[y][:, None], x, weight_y.mT)
        if needs_grad:
            share = (peak - log_sum).exp()
            mean = (share[:, None] @ torch.stack(expected, 1)).view_as(x)
            ctx.save_for_backward(x, y, weight_y, mean, share, *blocks)
        return logits - log_sum.view(*x.shape[:2], 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, y, weight_y, mean, share, *blocks = ctx.saved_tensors  # grad is [g, r, n]
        scale = -grad.sum(2, keepdim=True)
        grad_x = torch.baddbmm(scale * mean, grad, weight_y)
        sizes = [block.shape[1] for block in blocks]
        grad_weight, grad_bias = x.new_empty(sum(sizes), x.shape[2]), x.new_empty(sum(sizes))
        scaled, scale = (scale * x).flatten(0, 1), scale.view(-1, 1) * share
        outputs = zip(grad_weight.split(sizes), grad_bias.split(sizes), strict=True)
        for k, (block, (block_weight, block_bias)) in enumerate(zip(blocks, outputs, strict=True)):
            torch.mm(block.T, scaled * share[:, k, None], out=block_weight)
            torch.mv(block.T, scale[:, k], out=block_bias)
        grad_weight.index_add_(0, y.flatten(), (grad.mT @ x).flatten(0, 1))
        grad_bias.index_add_(0, y.flatten(), grad.sum(1).flatten())
        return grad_x, grad_weight, grad_bias, None
