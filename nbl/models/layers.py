"""What the grammars' networks are made of: tables, linear layers, residual networks, softmaxes, an LSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nbl.native.networks import has_native_lstm, linear, log_softmax_at, lstm_states, matmul


def table(rows: int, dim: int) -> nn.Parameter:
    """One embedding a row, N(0, 1)."""
    return nn.Parameter(torch.randn(rows, dim))


class Linear(nn.Linear):
    """torch's linear layer, by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


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
        return linear(self.query(*x), self.key(self.output.weight), self.output.bias).log_softmax(-1)

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


class LSTM(nn.LSTM):
    """torch's LSTM of one layer and one direction: x [b, l, in] to its states [b, l, h]."""

    def __init__(self, width: int, h: int):
        super().__init__(width, h, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        if has_native_lstm(x):
            return lstm_states(x, *self.all_weights[0])
        states: Tensor = super().forward(x)[0]
        return states
