"""Pictures as files: SVG, written by hand, and PNG, by way of matplotlib."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from html import escape

from nbl.draw import Picture, Stroke, Text, text_width
from nbl.errors import UserError

FONTS = ["DejaVu Sans", "Verdana", "sans-serif"]
ARROW = (3.2, 7.0)  # half the width, the height
PNG_SCALE = 2
MAX_PNG_SIDE = 2**15  # pixels

Point = tuple[float, float]


def svg(picture: Picture) -> str:
    """A whole SVG document."""
    size = f'width="{_round(picture.width)}" height="{_round(picture.height)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'viewBox="0 0 {_round(picture.width)} {_round(picture.height)}" '
        f'font-family="{", ".join(FONTS)}" text-anchor="middle">',
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
            x, y, width, height = map(_round, _box(text))
            parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="white"/>')
        parts.append(
            f'<text x="{_round(text.x)}" y="{_round(text.y)}" font-size="{text.size}" fill="{text.colour}">'
            f"{escape(text.string)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def png(picture: Picture) -> bytes:
    """A PNG file of twice the picture's size, for sharp letters on any screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # a second's start-up only pictures need
    from matplotlib.figure import Figure
    from matplotlib.patches import PathPatch, Polygon, Rectangle
    from matplotlib.path import Path

    if PNG_SCALE * max(picture.width, picture.height) > MAX_PNG_SIDE:
        raise UserError(
            f"a picture of {picture.width:.0f} x {picture.height:.0f} pixels is too large for PNG: "
            "draw fewer sentences at a time, or choose svg"
        )
    codes = {"M": [Path.MOVETO], "L": [Path.LINETO], "Q": [Path.CURVE3, Path.CURVE3]}
    dots = 72  # an inch: a pixel of the picture is a point of type
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
    """The point so far from the start, at most half way to the end."""
    length = math.dist(start, end)
    share = min(distance / length, 0.5) if length else 0.0
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])


def _arrowhead(stroke: Stroke) -> list[Point]:
    x, y = stroke.points[-1]
    return [(x, y - 1), (x - ARROW[0], y + ARROW[1]), (x + ARROW[0], y + ARROW[1])]


def _box(text: Text) -> tuple[float, float, float, float]:
    """x, y, width and height of what a text covers."""
    width = text_width(text.string, text.size) + 4
    return text.x - width / 2, text.y - 0.9 * text.size, width, 1.2 * text.size


def _pair(point: Point) -> str:
    return f"{_round(point[0])},{_round(point[1])}"


def _round(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
