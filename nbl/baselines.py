"""Trees that need no model: branching, random and oracle trees, and neighbour heads.

Trees are lists of half-open spans (i, j) of two or more words in pre-order, the sentence first; a
one-word sentence has none. Heads are 1-based, 0 = root. Nothing recurses, so length is no limit.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

from nbl.metrics import Bracket


def left_branching(n: int) -> list[tuple[int, int]]:
    """The tree (((1 2) 3) ... n).

    >>> left_branching(4)
    [(0, 4), (0, 3), (0, 2)]
    """
    return [(0, j) for j in range(n, 1, -1)]


def right_branching(n: int) -> list[tuple[int, int]]:
    """The tree (1 (2 ... (n-1 n))).

    >>> right_branching(4)
    [(0, 4), (1, 4), (2, 4)]
    """
    return [(i, n) for i in range(n - 1)]


def random_branching(n: int, generator: random.Random) -> list[tuple[int, int]]:
    """A random binary tree: from the top down, each span is split at a uniformly drawn fence post.

    That is not uniform over trees: of the five trees of four words, the balanced one has probability
    1/3 and each other 1/6. Only `generator.random()` is called, the one method whose sequence Python
    promises to keep: a seed gives the same trees on every machine and version.

    >>> random_branching(4, random.Random(1))
    [(0, 4), (1, 4), (1, 3)]
    """
    spans = []
    todo = [(0, n)]
    while todo:
        i, j = todo.pop()
        if j - i < 2:
            continue
        spans.append((i, j))
        k = i + 1 + int(generator.random() * (j - i - 1))
        todo += [(k, j), (i, k)]
    return spans


def oracle(gold: Iterable[Bracket]) -> list[tuple[int, int]]:
    """A binary tree that holds every gold constituent, so no binary tree has a better F1.

    `gold` are the constituents of one tree, the sentence's among them. A constituent with more than
    two children is binarised to the right.

    >>> oracle([(0, 5, "S"), (0, 2, "NP"), (2, 5, "VP")])
    [(0, 5), (0, 2), (2, 5), (3, 5)]
    """
    constituents = {span[:2] for span in gold}
    ends = defaultdict(list)
    for i, j in constituents:
        ends[i].append(j)
    binary = set()
    for i, j in constituents:
        k = i  # steps over the children of (i, j); what remains of them, (k, j), is a span of the tree
        while j - k >= 2:
            binary.add((k, j))
            k = max((end for end in ends[k] if end < j), default=k + 1)
    return sorted(binary, key=lambda span: (span[0], -span[1]))


def heads_on_left(n: int) -> list[int]:
    """Each word hangs on its left neighbour; the first is the root.

    >>> heads_on_left(3)
    [0, 1, 2]
    """
    return list(range(n))


def heads_on_right(n: int) -> list[int]:
    """Each word hangs on its right neighbour; the last is the root.

    >>> heads_on_right(3)
    [2, 3, 0]
    """
    return [*range(2, n + 1), 0]
