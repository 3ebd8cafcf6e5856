"""The paper's curves: two panels where it has two axes, one point per seed, a band of one standard deviation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from nbl import settings
from nbl.files import replacing
from nbl.matrix import Experiment
from nbl.paper.results import METRICS, Curve, Results
from nbl.paper.results import times as times_over
from nbl.paper.roles import MODELS

logging.getLogger("fontTools").setLevel(logging.ERROR)  # it warns of the age of the fonts

MAX_TICKS = 12
MAX_COLOURS = 10  # of the palette for the colour-blind
WIDTH, HEIGHT = 6.3, 2.3  # inches; the width of the document's text
COLOURS = dict(zip(("nblpcfg", "nlpcfg"), sns.color_palette("colorblind", 2), strict=True))
MARKERS = {"nblpcfg": "o", "nlpcfg": "s"}
STYLE: dict[Any, Any] = {  # the fonts and sizes of the LaTeX tables
    "font.family": "serif",
    "font.serif": ["cmr10"],
    "mathtext.fontset": "cm",
    "axes.formatter.use_mathtext": True,
    "font.size": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}
# Nothing that differs from one day to the next.
METADATA: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None, "ModDate": None}, "png": {"Software": None}}


def draw_figures(results: Results, folder: Path) -> None:
    """Write each figure as PDF and PNG."""
    figures: dict[str, Callable[[Results], Figure]] = {
        "f1_perp_rank": lambda r: by_d_H(r, ("f1", "perplexity")),
        "f1_perp_nt": lambda r: by_NT(r, ("f1", "perplexity")),
        "das_h": lambda r: by_d_H(r, ("udas", "uuas")),
        "das_nt": lambda r: by_NT(r, ("udas", "uuas")),
        "time_length": lambda r: times(r, "l", "words in the sentence, $l$"),
        "time_nt": lambda r: times(r, "m", "nonterminals, $m$"),
    }
    with sns.axes_style("whitegrid"), plt.rc_context(STYLE):
        for name, draw in figures.items():
            figure = draw(results)
            for kind, metadata in METADATA.items():
                with replacing(folder / f"{name}.{kind}") as temporary:
                    figure.savefig(temporary, format=kind, metadata=metadata)
            plt.close(figure)


def draw_training(curves: Sequence[Curve], part: str, path: Path) -> None:
    """Write the training curves as PNG: one column per model, one colour per experiment, one line per seed.

    `part` is the part of the corpus whose trees were parsed after each epoch.
    """
    quantities: dict[str, Callable[[dict[str, float]], float | None]] = {
        "dev perplexity": lambda row: row.get("dev_perplexity"),
        f"{part} F1 (%)": lambda row: row.get("dev_f1", row.get("test_f1")),
        "left-branching (%)": lambda row: row.get("left_branching"),
    }
    models = [model for model in settings.MODELS if any(curve.experiment.model == model for curve in curves)]
    size = (max(WIDTH, 2 * len(models)), 1.5 * len(quantities) + 1)
    with sns.axes_style("whitegrid"), plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            len(quantities), len(models), figsize=size, sharex=True, sharey="row", squeeze=False, layout="constrained"
        )
        for column, model in zip(grid.T, models, strict=True):
            own = [curve for curve in curves if curve.experiment.model == model]
            runs = list(dict.fromkeys(curve.experiment.name for curve in own))
            palette = "colorblind" if len(runs) <= MAX_COLOURS else "husl"
            colours = dict(zip(runs, sns.color_palette(palette, len(runs)), strict=True))
            for panel, value in zip(column, quantities.values(), strict=True):
                for curve in own:
                    points = [(row["epoch"], value(row)) for row in curve.rows if value(row) is not None]
                    if points:
                        panel.plot(*zip(*points, strict=True), color=colours[curve.experiment.name], lw=1)
                panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            column[0].set_title(settings.MODELS[model].title, fontsize=9)
            column[-1].set_xlabel("epoch")
            lines = [Line2D([], [], color=colour) for colour in colours.values()]
            names = [run.replace("d_H", "$d_H$") for run in runs]
            column[-1].legend(lines, names, loc="upper center", bbox_to_anchor=(0.5, -0.35), frameon=False)
        for panel, title in zip(grid[:, 0], quantities, strict=True):
            panel.set_ylabel(title)
        grid[-1, 0].set_ylim(bottom=0)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", metadata=METADATA["png"])
        plt.close(figure)


def by_d_H(results: Results, metrics: Sequence[str]) -> Figure:
    """NBL-PCFG with growing d_H."""
    return _panels(results, {"nblpcfg": results.plan.by_d_H()}, "d_H", "$d_H$", metrics)


def by_NT(results: Results, metrics: Sequence[str]) -> Figure:
    """NBL-PCFG and NL-PCFG with a growing number of nonterminals."""
    series = {model: results.plan.by_NT(model) for model in COLOURS}
    return _panels(results, series, "NT", "nonterminals, $m$", metrics)


def _panels(
    results: Results, series: dict[str, list[Experiment]], size: str, label: str, metrics: Sequence[str]
) -> Figure:
    figure, panels = plt.subplots(1, len(metrics), figsize=(WIDTH, HEIGHT), layout="constrained")
    for axes, metric in zip(panels, metrics, strict=True):
        points = [
            (experiment.hyperparameters[size], model, value)
            for model, experiments in series.items()
            for experiment in experiments
            for value in results.values(experiment, "mbr", metric).values()
        ]
        if points:
            _curves(axes, pd.DataFrame(points, columns=["size", "model", "value"]))
            _label_sizes(axes, sorted({point[0] for point in points}))
        else:
            _nothing(axes)
        axes.set(xlabel=label, ylabel=METRICS[metric].axis)
    handles, labels = panels[0].get_legend_handles_labels()
    if len(series) > 1 and handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=len(handles), frameon=False)  # on no point
    return figure


def _curves(axes: Axes, points: pd.DataFrame) -> None:
    """Of each model: its seeds as points, their mean as a line, a band of one standard deviation."""
    for model in points["model"].unique():
        own = points[points["model"] == model]
        style = {"ax": axes, "x": "size", "y": "value", "color": COLOURS[model]}
        sns.lineplot(
            data=own,
            errorbar="sd",
            linestyle="-" if model == "nblpcfg" else "--",
            legend=False,
            err_kws={"alpha": 0.18, "linewidth": 0},
            **style,
        )
        sns.scatterplot(data=own, marker=MARKERS[model], s=16, alpha=0.7, label=MODELS[model], legend=False, **style)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter("{x:g}")


def times(results: Results, variable: str, label: str) -> Figure:
    """Time of a forward and backward pass, both axes logarithmic so that a power is a line."""
    figure, axes = plt.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")
    rows = times_over(results, variable)
    axes.set(xlabel=label, ylabel="seconds")
    if not rows:
        _nothing(axes)
        return figure
    names = list(dict.fromkeys(row["implementation"] for row in results.bench))
    colours = dict(zip(names, sns.color_palette("colorblind", len(names)), strict=True))
    markers = dict(zip(names, cycle("osD^vP*Xd<>"), strict=False))
    for name in names:
        own = [
            [row[key] for key in (variable, "median", "low", "high")] for row in rows if row["implementation"] == name
        ]
        if own:
            sizes, median, low, high = zip(*own, strict=True)
            axes.plot(sizes, median, color=colours[name], marker=markers[name], markersize=4, label=name)
            axes.fill_between(sizes, low, high, color=colours[name], alpha=0.18, linewidth=0)
    axes.set(xscale="log", yscale="log")
    _label_sizes(axes, sorted({row[variable] for row in rows}))
    axes.minorticks_off()
    other = "m" if variable == "l" else "l"
    axes.legend(title=f"${other} = {rows[0][other]}$", loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure


def _label_sizes(axes: Axes, sizes: Sequence[int]) -> None:
    """A tick at each size, or at some of many."""
    shown = sizes[:: 1 + len(sizes) // MAX_TICKS]
    axes.set_xticks(shown, [str(size) for size in shown])


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "no results", transform=axes.transAxes, ha="center", va="center")
