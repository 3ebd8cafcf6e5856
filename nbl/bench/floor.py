"""The time below which a training step cannot fall on this machine.

It is its matrix products at the best rate the machine shows, plus eight passes over the parameters
at its memory rate: the gradient is written and read; the parameter and Adam's two moments are each
read and written.

The products are those of the cheapest algorithms we know, whatever the models do: networks compute
each distinct word once, charts only what some tree can need. Each product of the forward pass needs
two more in the backward pass, for the gradients of its factors. Exponentials, sums and copies are not
counted, so that no step can beat its floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from torch import Tensor

from nbl.models.base import CompoundGrammar, System
from nbl.models.nblpcfg import NBLPCFG
from nbl.models.nlpcfg import NLPCFG
from nbl.models.pcfg import NeuralPCFG
from nbl.models.tnpcfg import TNPCFG

PASSES = 8


def gigaflop(model: System, batches: Sequence[Tensor]) -> float:
    """Of a training step, mean over the batches [b, l]: a multiplication and an addition, three times."""
    products = sum(networks(model, words) + len(words) * chart(model, words.shape[1]) for words in batches)
    return 3 * 2 * products / len(batches) / 1e9


def floor(model: System, gigaflop: float, gflops: float, gigabytes: float) -> float:
    """Milliseconds of a step with that many operations, given the machine's rates per second."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return 1000 * gigaflop / gflops + PASSES * 4 * parameters / gigabytes / 1e6


@singledispatch
def networks(model: System, words: Tensor) -> int:
    """Multiplications with which the networks make the rules for words [b, l]."""
    raise NotImplementedError(f"the networks of {type(model).__name__}")


@singledispatch
def chart(model: System, l: int) -> int:
    """Multiplications of the inside algorithm for one sentence of l words."""
    raise NotImplementedError(f"the chart of {type(model).__name__}")


@networks.register
def _(model: NeuralPCFG, words: Tensor) -> int:
    (NT, dim), PT, V = model.u_A.shape, len(model.u_T), len(model.p_w_T.output.weight)
    n, z = _sets_of_rules(model, words), model.z_dim
    products = _network(dim, n, (1, dim), (n, z)) + n * dim * NT  # p(A|S)
    products += (NT * dim + n * z) * model.S**2  # p(B,C|A)
    products += _network(dim, n * PT, (PT, dim), (n, z)) + n * PT * dim * V  # p(w|T)
    return products + _inference(model, words)


@chart.register
def _(model: NeuralPCFG, l: int) -> int:
    NT, PT = len(model.u_A), len(model.u_T)
    products = (l - 1) * (NT * PT**2 + NT * PT)  # two words: sum_T p(A -> T T') p(w|T), times p(w'|T')
    products += 2 * (l - 2) * NT**2 * PT  # of each word p(A -> T C) and p(A -> B T), times p(w|T)
    products += sum(n * 2 * NT**2 for _, n in _spans(l, 3))  # which meet the span without its first or last word
    return products + sum(n * ((w - 3) * NT**2 + NT**3) for w, n in _spans(l, 4))  # sums over splits, then the rules


@networks.register
def _(model: TNPCFG, words: Tensor) -> int:
    (S, dim), NT, PT, V = model.u_X.shape, model.NT, len(model.u_T), len(model.p_w_T.output.weight)
    products = _network(dim, 1, (1, dim)) + dim * NT  # p(A|S)
    products += (NT + 2 * S) * dim * (dim + _rank(model))  # p(R|A), p(B|R), p(C|R)
    return products + _network(dim, PT, (PT, dim)) + PT * dim * V  # p(w|T)


@chart.register
def _(model: TNPCFG, l: int) -> int:
    NT, PT, R = model.NT, len(model.u_T), _rank(model)
    products = 2 * (l - 1) * PT * R  # left of all words but the last, right of all but the first
    # sums over splits, then p(R|A), and p(B|R) and p(C|R) of spans that are a left or a right part
    return products + sum(R * (n * (w - 1) + (n + _parts(n, 2)) * NT) for w, n in _spans(l))


def _rank(model: TNPCFG) -> int:
    *_, bias = model.p_R_A.parameters()
    return len(bias)


@networks.register
def _(model: NLPCFG, words: Tensor) -> int:
    (NT, dim), S, V = model.u_A.shape, model.S, len(model.p_w_X.output.weight)
    n, z, distinct = _sets_of_rules(model, words), model.z_dim, _distinct(words)
    heads = distinct if n == 1 else sum(map(_distinct, words))
    inputs = ((distinct, dim), (NT, dim), (n, z))
    products = _network(dim, n, (1, dim), (n, z)) + n * dim * NT  # p(A|S)
    products += _network(dim, n * S, (S, dim), (n, z)) + n * S * dim * V  # p(w|X)
    products += _network(dim, heads * NT, *inputs, blocks=1) + heads * NT * dim * 2 * S  # p(B,D|A,w)
    products += _joined(2 * S**2, *inputs) + heads * NT * 2 * S**2  # p(C|A,B,D,w), and its sum over C
    return products + _inference(model, words)


@chart.register
def _(model: NLPCFG, l: int) -> int:
    NT = len(model.u_A)
    PT = model.S - NT
    products = (l * (l - 1) - 2) * NT**2 * PT  # of each head p(A -> B T), times p(w|T) of a word beside its span
    products += (l - 1) * 2 * NT * PT + sum(n * 2 * NT**2 for _, n in _spans(l, 3))  # heads that are a preterminal
    products += sum(n * 2 * (w - 1) * NT**2 for w, n in _spans(l, 3))  # children that are
    products += sum(n * w * NT for w, n in _spans(l))  # p(w|C) of the heads
    # sums over splits, then the rules of the heads and directions that have any
    return products + sum(n * (w * (w - 3) * NT**2 + 2 * (w - 2) * NT**3) for w, n in _spans(l, 4))


@networks.register
def _(model: NBLPCFG, words: Tensor) -> int:
    """In the released parameterisation."""
    (NT, dim), d_H, V, S = model.u_A.shape, len(model.u_Hw), model.vocab_size, model.S
    distinct = _distinct(words)
    products = _network(dim, 1, (1, dim)) + dim * NT  # p(A|S)
    products += _network(dim, NT, (NT, dim)) + NT * dim * V  # p(w|A)
    products += _network(dim, distinct * NT, (NT, dim), (distinct, dim), blocks=1)
    products += distinct * NT * dim * d_H  # p(H|A,w)
    products += d_H * dim * (model.D_B + model.D_C) * S  # p(B|H), p(C|H)
    return products + _network(dim, d_H, (d_H, dim)) + d_H * dim * model.D_w * V  # p(w|H)


@chart.register
def _(model: NBLPCFG, l: int) -> int:
    NT, d_H, D_B, D_C, D_w = len(model.u_A), len(model.u_Hw), model.D_B, model.D_C, model.D_w
    products = 0
    for w, n in _spans(l):
        products += n * w * (w - 1 + NT)  # sums over splits, then p(H|A,w)
        products += (_parts(n, D_B) + _parts(n, D_w)) * w * NT + _parts(n, max(D_C, D_w)) * NT  # I; K, heads first
    return d_H * products


def _sets_of_rules(model: CompoundGrammar, words: Tensor) -> int:
    """Rules that depend on z are those of one sentence."""
    return len(words) if model.z_dim else 1


def _distinct(words: Tensor) -> int:
    return len(words.unique())


def _joined(out: int, *inputs: tuple[int, int]) -> int:
    """Of a `JoinedLinear` layer: inputs of so many rows and columns."""
    return out * sum(rows * columns for rows, columns in inputs)


def _network(dim: int, rows: int, *inputs: tuple[int, int], blocks: int = 2) -> int:
    """Of a `Network`: a joined layer, and residual blocks for so many rows."""
    return _joined(dim, *inputs) + rows * 2 * blocks * dim**2


def _inference(model: CompoundGrammar, words: Tensor) -> int:
    """Of q(z|w): an LSTM in each direction, whose first state is 0, and the layer above."""
    if model.inference is None:
        return 0
    (b, l), lstm = words.shape, model.inference.forwards
    w_dim, h_dim = lstm.input_size, lstm.hidden_size
    return 2 * 4 * h_dim * (_distinct(words) * w_dim + b * (l - 1) * h_dim) + b * 2 * h_dim * 2 * model.z_dim


def _spans(l: int, least: int = 2) -> list[tuple[int, int]]:
    """Each width from the least one on, and how many spans have it."""
    return [(w, l - w + 1) for w in range(least, l + 1)]


def _parts(n: int, D: int) -> int:
    """How often n spans of a width are parts of wider ones.

    With a value for each side (D = 2): all but the one at that end of the sentence. Otherwise
    (D = 1): all but the whole sentence.
    """
    return 2 * (n - 1) if D == 2 else n - (n == 1)
