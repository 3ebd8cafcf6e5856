"""Pictures of trees: constituents above the words, dependencies below them; as SVG or PNG.

A constituent is a bar from its first child to its last. Heads are blue: the path from a constituent
down to its head word, and the arcs, each an arrow from a head to its dependent. The words set the
width and no lines cross, so that long sentences stay legible.
"""

from __future__ import annotations

import io
import math
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import NamedTuple

from nbl.errors import UserError
from nbl.formats import Node, Tree

# Measures are in pixels; y grows downwards.
WORD, LABEL, NOTE = 15, 11, 11  # sizes of type
GAP = 16  # between two words
NARROWEST = 30  # space of a word, so that the label above it fits
LEVEL = 27  # between a constituent and the one around it
ARC = 15  # between an arc and the one around it
MARGIN = 20
ROUND = 9  # radius of an arc's corners
ARROW = (3.2, 7.0)  # half the width, the height
INK, GREY, BLUE = "#1c2430", "#98a1b0", "#1d5fd1"
FONTS = ["DejaVu Sans", "Verdana", "sans-serif"]
PNG_SCALE = 2
MAX_PNG_SIDE = 2**15

Point = tuple[float, float]


class Text(NamedTuple):
    """Centred at x; `y` is the baseline. `clears` erases what is behind it."""

    x: float
    y: float
    string: str
    size: int
    colour: str
    clears: bool = False


class Stroke(NamedTuple):
    """A line through points, its corners rounded; `arrow`: with an arrowhead at its end, pointing up."""

    points: list[Point]
    colour: str
    width: float
    radius: float = 0
    arrow: bool = False


@dataclass
class Picture:
    """Strokes are drawn first, in their order, then texts."""

    width: float = 2 * MARGIN
    height: float = 0
    strokes: list[Stroke] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)


def draw(trees: Sequence[Tree]) -> Picture:
    """All trees that have words, one below the other, numbered if there are several."""
    picture = Picture()
    for number, tree in enumerate(trees, start=1):
        if tree.words:
            _add_sentence(picture, tree, str(number) if len(trees) > 1 else "")
    picture.height += MARGIN
    return picture


def text_width(string: str, size: float) -> float:
    """Approximate width in DejaVu Sans, which is wider than most fonts."""
    return size * sum(map(_em, string))


def _em(character: str) -> float:
    """The width of a character of size 1."""
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in "iljftrI.,:;'`|!-()[]":
        return 0.4
    return 0.95 if character in "mwMW@%&" else 0.7 if character.isupper() else 0.62


def _add_sentence(picture: Picture, tree: Tree, note: str) -> None:
    """Add a tree below what the picture has already."""
    rooms = [max(text_width(word, WORD), NARROWEST) + GAP for word in tree.words]
    edges = [MARGIN + sum(rooms[:k]) for k in range(len(rooms) + 1)]
    centres = [(a + b) / 2 for a, b in pairwise(edges)]
    top = picture.height + MARGIN
    if note:
        picture.texts.append(Text(MARGIN, top, note, NOTE, GREY))
    nodes = tree.nodes()
    base = top + LEVEL * max(node.level for node in nodes) + LEVEL / 2  # where constituents end
    _add_constituents(picture, nodes, centres, base)
    line = base + 1.1 * WORD
    picture.texts += [Text(x, line, word, WORD, INK) for x, word in zip(centres, tree.words, strict=True)]
    picture.height = line + 0.6 * WORD
    if tree.heads is not None:
        _add_arcs(picture, tree.heads, centres, rooms)
    picture.width = max(picture.width, edges[-1] + MARGIN)


def _add_constituents(picture: Picture, nodes: list[Node], centres: list[float], base: float) -> None:
    x: dict[Node, float] = {}
    plain, headed = [], []
    for node in nodes:
        ends = [x[node.children[0]], x[node.children[-1]]] if node.children else [centres[node.i]] * 2
        x[node] = sum(ends) / 2
        y = base - LEVEL * node.level
        for child in node.children:
            points = [(x[node], y), (x[child], y), (x[child], base - LEVEL * child.level)]
            if node.head is not None and child.i <= node.head < child.j:
                headed.append(Stroke(points, BLUE, 2.0))
            else:
                plain.append(Stroke(points, GREY, 1.3))
        if node.label:
            picture.texts.append(Text(x[node], y + 0.36 * LABEL, node.label, LABEL, INK, clears=True))
    picture.strokes += plain + headed


def _add_arcs(picture: Picture, heads: list[int], centres: list[float], rooms: list[float]) -> None:
    """Arcs below the words; those at one word leave it side by side, the longest in the middle."""
    top = picture.height
    # left word, right word, dependent: two words may be the heads of each other
    arcs = [(min(p - 1, q), max(p - 1, q), q) for q, p in enumerate(heads) if p]
    ends: dict[tuple[int, int, int], list[float]] = {arc: [] for arc in arcs}
    root_x = centres[heads.index(0)]
    for q, (centre, room) in enumerate(zip(centres, rooms, strict=True)):
        to_left = sorted((arc for arc in arcs if arc[1] == q), key=lambda arc: q - arc[0])
        to_right = sorted((arc for arc in arcs if arc[0] == q), key=lambda arc: q - arc[1])
        here = [*to_left, *([None] if heads[q] == 0 else []), *to_right]
        step = min(9.0, 0.8 * room / len(here))
        for k, arc in enumerate(here):
            x = centre + step * (k - (len(here) - 1) / 2)
            if arc is None:
                root_x = x
            else:
                ends[arc].append(x)
    depth: dict[tuple[int, int, int], int] = {}
    for i, j, q in sorted(arcs, key=lambda arc: arc[1] - arc[0]):
        depth[i, j, q] = 1 + max((d for (a, b, _), d in depth.items() if i <= a and b <= j), default=0)
    for (i, j, q), xs in ends.items():
        left, right = sorted(xs)
        start, end = (left, right) if q == j else (right, left)  # from the head
        low = top + ARC * depth[i, j, q] + ROUND
        points = [(start, top), (start, low), (end, low), (end, top)]
        picture.strokes.append(Stroke(points, BLUE, 1.3, radius=ROUND, arrow=True))
    root = heads.index(0)
    low = top + ARC * (1 + max((d for arc, d in depth.items() if root in arc), default=0)) + ROUND
    picture.strokes.append(Stroke([(root_x, low), (root_x, top)], BLUE, 1.3, arrow=True))
    picture.texts.append(Text(root_x, low + NOTE, "root", NOTE, BLUE))
    picture.height = top + ARC * (1 + max(depth.values(), default=0)) + ROUND + NOTE


def svg(picture: Picture) -> str:
    """A complete SVG document."""
    width, height = _round(picture.width), _round(picture.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{", ".join(FONTS)}" text-anchor="middle">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for stroke in picture.strokes:
        path = " ".join(command + " ".join(map(_pair, points)) for command, points in _path(stroke))
        parts.append(f'<path d="{path}" fill="none" stroke="{stroke.colour}" stroke-width="{_round(stroke.width)}"/>')
        if stroke.arrow:
            corners = " ".join(map(_pair, _arrowhead(stroke)))
            parts.append(f'<polygon points="{corners}" fill="{stroke.colour}"/>')
    for text in picture.texts:
        if text.clears:
            x, y, *size = map(_round, _box(text))
            parts.append(f'<rect x="{x}" y="{y}" width="{size[0]}" height="{size[1]}" fill="white"/>')
        parts.append(
            f'<text x="{_round(text.x)}" y="{_round(text.y)}" font-size="{text.size}" fill="{text.colour}">'
            f"{escape(text.string)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def png(picture: Picture) -> bytes:
    """A PNG file of twice the picture's size, sharp on every screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # takes a second, and only pictures need it
    from matplotlib.figure import Figure
    from matplotlib.patches import PathPatch, Polygon, Rectangle
    from matplotlib.path import Path

    if PNG_SCALE * max(picture.width, picture.height) > MAX_PNG_SIDE:
        raise UserError(
            f"a picture of {picture.width:.0f} x {picture.height:.0f} pixels is too large for PNG: "
            "draw fewer sentences at a time, or choose svg"
        )
    codes = {"M": [Path.MOVETO], "L": [Path.LINETO], "Q": [Path.CURVE3, Path.CURVE3]}
    dots = 72  # per inch: a pixel of the picture is a point of type
    figure = Figure(figsize=(picture.width / dots, picture.height / dots), dpi=dots * PNG_SCALE)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, picture.width), ylim=(picture.height, 0))
    axes.axis("off")
    for order, stroke in enumerate(picture.strokes):
        commands = list(_path(stroke))
        path = Path([p for _, points in commands for p in points], [c for name, _ in commands for c in codes[name]])
        axes.add_patch(PathPatch(path, fill=False, edgecolor=stroke.colour, linewidth=stroke.width, zorder=order))
        if stroke.arrow:
            axes.add_patch(Polygon(_arrowhead(stroke), facecolor=stroke.colour, linewidth=0, zorder=order))
    for order, text in enumerate(picture.texts, start=len(picture.strokes)):
        if text.clears:
            x, y, width, height = _box(text)
            axes.add_patch(Rectangle((x, y), width, height, facecolor="white", linewidth=0, zorder=order))
        axes.text(
            text.x, text.y, text.string, fontsize=text.size, color=text.colour, family=FONTS[0], ha="center",
            va="baseline", parse_math=False, zorder=order,
        )  # fmt: skip
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # drawn as a box
        FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()


def _path(stroke: Stroke) -> Iterator[tuple[str, list[Point]]]:
    """The commands M (begin), L (line to) and Q (curve by the corner to), each with its points."""
    points = stroke.points
    yield "M", [points[0]]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        if stroke.radius:
            yield "L", [_towards(corner, before, stroke.radius)]
            yield "Q", [corner, _towards(corner, after, stroke.radius)]
        else:
            yield "L", [corner]
    yield "L", [points[-1]]


def _towards(start: Point, end: Point, distance: float) -> Point:
    """The point at that distance from the start, at most half way to the end."""
    length = math.dist(start, end)
    share = min(distance / length, 0.5) if length else 0.0
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])


def _arrowhead(stroke: Stroke) -> list[Point]:
    x, y = stroke.points[-1]
    return [(x, y - 1), (x - ARROW[0], y + ARROW[1]), (x + ARROW[0], y + ARROW[1])]


def _box(text: Text) -> tuple[float, float, float, float]:
    """x, y, width and height of the area behind a text."""
    width = text_width(text.string, text.size) + 4
    return text.x - width / 2, text.y - 0.9 * text.size, width, 1.2 * text.size


def _pair(point: Point) -> str:
    return f"{_round(point[0])},{_round(point[1])}"


def _round(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
