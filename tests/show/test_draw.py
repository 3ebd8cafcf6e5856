"""Brackets and pictures of trees, without a grammar."""

import random
from itertools import pairwise

import pytest

from nbl.drawing import BLUE, WORD, draw, text_width
from nbl.formats import Tree
from nbl.metrics import random_branching


def test_heads_of_constituents_by_hand():
    # 1 -> 2 <- 3, 4 -> 3: the words 1 and 3 hang on 2, and 4 on 3
    tree = Tree(list("abcd"), [(0, 4, "NT1"), (2, 4, "NT0"), (0, 2, "NT0")], [2, 0, 2, 3])
    assert {(node.i, node.j): node.head for node in tree.nodes()} == {
        **{(i, i + 1): i for i in range(4)},
        (0, 4): 1,
        (2, 4): 2,
        (0, 2): 1,
    }
    crossing = Tree(list("abcd"), [(0, 4, None), (2, 4, None)], [2, 0, 2, 2])
    assert crossing.nodes()[-2].head is None
    assert crossing.brackets == "(X[b] (T a) (T b) (X (T c) (T d)))"
    assert Tree(["a)", "b"], [(0, 2, None)], [0, 1]).brackets == "(X[a-RRB-] (T a-RRB-) (T b))"


def random_tree(l, seed):
    """A random binary tree with consistent heads."""
    choose = random.Random(seed)
    spans = random_branching(l, choose)
    heads = [0] * l
    top = {(i, i + 1): i for i in range(l)}
    for i, j in sorted(spans, key=lambda span: span[1] - span[0]):
        k = next(k for k in range(i + 1, j) if (i, k) in top and (k, j) in top)
        p, q = choose.sample([top[i, k], top[k, j]], 2)
        heads[q], top[i, j] = p + 1, p
    words = ["".join(choose.choices("abcmiWÄ", k=choose.randint(1, 12))) for _ in range(l)]
    return Tree(words, [(i, j, f"NT{choose.randrange(30)}") for i, j in spans], heads)


@pytest.mark.parametrize("seed", range(20))
def test_lines_of_a_picture_do_not_run_into_each_other(seed):
    tree = random_tree(3 + 3 * seed, seed)
    picture = draw([tree])
    words = [text for text in picture.texts if text.size == WORD]
    assert [text.string for text in words] == tree.words
    boxes = [(t.x - text_width(t.string, t.size) / 2, t.x + text_width(t.string, t.size) / 2) for t in words]
    assert all(a[1] + 5 < b[0] for a, b in pairwise(boxes))
    assert boxes[0][0] > 0
    assert boxes[-1][1] < picture.width
    arcs = [stroke for stroke in picture.strokes if stroke.arrow]
    assert len(arcs) == len(tree.words)
    level = [(y, *sorted((a, b))) for s in arcs for (a, y), (b, y2) in pairwise(s.points) if y == y2]
    upright = [(a, *sorted((y, y2))) for s in arcs for (a, y), (b, y2) in pairwise(s.points) if a == b]
    assert len(level) == len(arcs) - 1
    for k, (y, a, b) in enumerate(level):
        assert not any(y == y2 and a < b2 and a2 < b for y2, a2, b2 in level[:k])
        assert not any(a < x < b and top < y < bottom for x, top, bottom in upright)
    bars = {}  # of constituents: y -> the bars' ends
    for stroke in picture.strokes:
        if not stroke.arrow:
            (a, y), (b, _), _ = stroke.points
            bars.setdefault((y, a), []).append(b)
    by_y = {}
    for (y, _), ends in bars.items():
        by_y.setdefault(y, []).append((min(ends), max(ends)))
    assert sum(map(len, by_y.values())) == len(tree.spans)
    for ends in by_y.values():
        assert all(a[1] < b[0] for a, b in pairwise(sorted(ends)))
    assert max(y for stroke in picture.strokes for _, y in stroke.points) < picture.height


def test_blue_leads_from_the_top_to_the_head_word():
    picture = draw([Tree(["dogs", "bark", "loudly"], [(0, 3, "NT1"), (1, 3, "NT0")], [2, 0, 2])])
    bark = next(text for text in picture.texts if text.string == "bark")
    blue = [s.points for s in picture.strokes if s.colour == BLUE and not s.arrow]
    assert len(blue) == 2
    assert blue[0][-1][0] == bark.x  # the lower constituent ends in the word
    assert blue[1][-1] == blue[0][0]  # and the upper one in the lower
