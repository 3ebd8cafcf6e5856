"""The definition of correct: the paper's first recursion (Eq. inside_naive), and all trees one by one.

Nothing here is fast. Every other inside algorithm and decoder of the package is tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nbl.rules import LEFT, RIGHT, DenseRules

Operation = Callable[..., Tensor]


def inside(dense: DenseRules, lengths: Tensor) -> Tensor:
    """log p(w) of each sentence, [b], in float64; differentiable by autograd."""
    return _each_sentence(dense, lengths, torch.add, torch.sum)


def best(dense: DenseRules, lengths: Tensor) -> Tensor:
    """The log-probability of the most probable tree of each sentence, [b]: the same with maxima for sums."""
    return _each_sentence(dense, lengths, torch.maximum, torch.amax)


def _each_sentence(dense: DenseRules, lengths: Tensor, add: Operation, total: Operation) -> Tensor:
    sentences = zip(*(factor.double() for factor in dense), lengths.tolist(), strict=True)
    return torch.stack([_one(add, total, *sentence) for sentence in sentences])


def _one(add: Operation, total: Operation, logp_root: Tensor, logp_rule: Tensor, logp_leaf: Tensor, l: int) -> Tensor:
    rule = logp_rule.exp()
    NT, S = rule.shape[2], rule.shape[4]
    s: dict[tuple[int, int, int], Tensor] = {}  # s[i, j, p]: one number per symbol
    for p in range(l):
        s[p, p + 1, p] = torch.cat([rule.new_zeros(NT), logp_leaf[p].exp()])
    for width in range(2, l + 1):
        for i in range(l - width + 1):
            j = i + width
            for p in range(i, j):
                value = rule.new_zeros(NT)
                for k in range(p + 1, j):  # term A1: the head child B is the left child
                    for q in range(k, j):
                        pairs = torch.outer(s[i, k, p], s[k, j, q])
                        value = add(value, total(rule[p, q, :, LEFT] * pairs, (1, 2)))
                for k in range(i + 1, p + 1):  # term A2: the head child B is the right child
                    for q in range(i, k):
                        pairs = torch.outer(s[k, j, p], s[i, k, q])
                        value = add(value, total(rule[p, q, :, RIGHT] * pairs, (1, 2)))
                s[i, j, p] = torch.cat([value, rule.new_zeros(S - NT)])
    goal = torch.stack([logp_root[p].exp() * s[0, l, p][:NT] for p in range(l)])
    return total(goal, (0, 1)).log()


@dataclass(frozen=True)
class Node:
    """A constituent with symbol X over words[i:j], headed by word p; D and children for a binary rule."""

    i: int
    j: int
    p: int
    symbol: int
    D: int | None = None
    head_child: Node | None = None
    child: Node | None = None

    def subtrees(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for node in (self.head_child, self.child):
            if node is not None:
                yield from node.subtrees()

    def spans(self) -> set[tuple[int, int]]:
        """The bracketing: (i, j) of every constituent of two or more words."""
        return {(node.i, node.j) for node in self.subtrees() if node.child is not None}

    def heads(self) -> list[int]:
        """The dependency tree: 1-based head of each word, 0 = root."""
        heads = [0] * (self.j - self.i)
        for node in self.subtrees():
            if node.child is not None:
                heads[node.child.p] = node.p + 1
        return heads


def trees(l: int, NT: int, PT: int) -> list[Node]:
    """All lexicalised trees of a sentence of l words. Their number explodes: l <= 5."""
    return list(_trees(0, l, NT, PT))


def _trees(i: int, j: int, NT: int, PT: int) -> Iterator[Node]:
    if j - i == 1:
        for symbol in range(NT, NT + PT):
            yield Node(i, j, i, symbol)
        return
    for k in range(i + 1, j):
        rights = list(_trees(k, j, NT, PT))
        for left in _trees(i, k, NT, PT):
            for right in rights:
                for symbol in range(NT):
                    yield Node(i, j, left.p, symbol, LEFT, left, right)
                    yield Node(i, j, right.p, symbol, RIGHT, right, left)


def tree_log_prob(tree: Node, dense: DenseRules, b: int = 0) -> Tensor:
    """log p of one tree: root rule, one factor per binary rule, one per leaf."""
    NT = dense.logp_root.shape[2]
    log_prob = dense.logp_root[b, tree.p, tree.symbol]
    for node in tree.subtrees():
        if node.head_child is not None and node.child is not None:
            rule = dense.logp_rule[b, node.p, node.child.p, node.symbol, node.D]
            log_prob = log_prob + rule[node.head_child.symbol, node.child.symbol]
        else:
            log_prob = log_prob + dense.logp_leaf[b, node.p, node.symbol - NT]
    return log_prob
