"""What the grammars' networks are made of: tables, linear layers, residual networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nbl.products import Linear, matmul


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
        return [matmul(x, weight) for x, weight in zip(parts, self.weight.split(self.widths), strict=True)]

    def forward(self, *parts: Tensor) -> Tensor:
        total: Tensor = self.bias
        for term in self.terms(*parts):
            total = total + term
        return total


class Residual(nn.Module):
    """g(x) = ReLU(V ReLU(U x)) + x: the second ReLU is inside the branch."""

    def __init__(self, dim: int):
        super().__init__()
        self.U, self.V = Linear(dim, dim), Linear(dim, dim)

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
