"""Figures of layers: how many are unique, which of them repeat, and which models share them.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgba
from matplotlib.figure import Figure

from benchmarks.evaluation import published
from benchmarks.evaluation.drawing import (
    BLUE,
    GREEN,
    ORANGE,
    PERCENT,
    PINK,
    ROW,
    SKY,
    SOFT,
    VERMILION,
    YELLOW,
    boxes,
    image,
    legend_above,
    room,
    separate,
    short_names,
)
from benchmarks.evaluation.layers import grid
from benchmarks.evaluation.results import ModelFacts, Results

OPERATORS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW)
OTHER = "#BBBBBB"
NOTHING, ITSELF = to_rgba("#F4F4F4"), to_rgba("#CFCFCF")

Group = tuple[str, Sequence[ModelFacts]]


def unique(results: Results) -> Figure | None:
    """A bar for each model: the share of its layers that are unique."""
    layers = results.layers
    groups = [
        (task, sorted(models, key=lambda m: layers.unique_share(m.name)))
        for task, models in _with_layers(results)
    ]
    if not groups:
        return None
    figure, axes, places = _rows(groups, short_names([model.name for model in results.models]))
    names = [model.name for _, models in groups for model in models]
    shares = [layers.unique_share(name) for name in names]
    boxes(axes, [(0.0, y, share) for y, share in zip(places, shares, strict=True)], SKY)
    _counts(axes, places, [len(layers.models[name]) for name in names], "layers")
    together, theirs = layers.unique / layers.total, published.UNIQUE_LAYERS / published.LAYERS
    axes.axvline(together, color=VERMILION, linewidth=1.2)
    axes.axvline(theirs, color=SOFT, linewidth=1.2, linestyle=(0, (4, 2)))
    axes.set_xlim(0, min(1.0, 1.08 * max(shares)))
    axes.xaxis.set_major_formatter(PERCENT)
    axes.set_xlabel("unique layers, % of the model's layers")
    axes.set_title("Share of a model's layers that are unique", pad=22)
    legend_above(axes, [
        (f"all {len(names)} models here together: {100 * together:.1f} %", VERMILION, "-"),
        (f"the paper's {published.MODELS} together: {100 * theirs:.1f} %", SOFT, (0, (4, 2))),
    ])  # fmt: skip
    return figure


def types(results: Results) -> Figure | None:
    """A stacked bar for each model: operators of those layers that repeat an earlier one."""
    layers = results.layers
    groups = [
        (task, [m for m in models if layers.repeated_types([m.name])])
        for task, models in _with_layers(results)
    ]
    groups = [(task, models) for task, models in groups if models]
    if not groups:
        return None
    every = layers.repeated_types([model.name for _, models in groups for model in models])
    together = ModelFacts("all together", "", "", "", "", None)
    figure, axes, places = _rows(
        [("", [together]), *groups], short_names([model.name for model in results.models])
    )
    counts = [every, *(layers.repeated_types([m.name]) for _, ms in groups for m in ms)]
    totals = [sum(of.values()) for of in counts]
    ranked = sorted(every, key=lambda kind: (-every[kind], kind))[: len(OPERATORS)]
    starts = [0.0] * len(counts)
    legend = []
    for kind, colour in [*zip(ranked, OPERATORS, strict=False), ("other", OTHER)]:
        sizes = [
            (total - sum(of[k] for k in ranked) if kind == "other" else of[kind]) / total
            for of, total in zip(counts, totals, strict=True)
        ]
        if any(sizes):
            boxes(axes, list(zip(starts, places, sizes, strict=True)), colour)
            legend.append((kind, colour, "box"))
            starts = [x + w for x, w in zip(starts, sizes, strict=True)]
    _counts(axes, places, totals, "repeats")
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PERCENT)
    axes.set_xlabel("% of the repeated layers")
    axes.set_title("What the repeated layers are", pad=22)
    legend_above(axes, legend)
    return figure


def jaccard(results: Results) -> Figure | None:
    """A cell for every two models: how much of their layers they share."""
    groups = _with_layers(results)
    names = [model.name for _, models in groups for model in models]
    if len(names) < 2:
        return None
    values = np.array(grid(results.layers, names))
    scale = ScalarMappable(Normalize(0, 1), colormaps["YlGnBu"])
    colours = scale.to_rgba(values)
    colours[values == 0] = NOTHING
    colours[np.eye(len(names), dtype=bool)] = ITSELF
    short = short_names([model.name for model in results.models])
    labels = [short(name) for name in names]
    side, left = max(2.6, len(names) * 0.142), room(labels)
    below, above, right = 0.85 * left + 0.5, 0.6, 1.0
    width, height = left + side + right, below + side + above
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, below / height, side / width, side / height))
    image(axes, colours)
    axes.set_xticks(range(len(names)), labels, rotation=90, fontsize=6.5)
    axes.set_yticks(range(len(names)), labels, fontsize=6.5)
    for begin in separate(axes, groups):
        if begin:
            axes.axvline(begin - 0.5, color="#555555", linewidth=0.7)
    axes.set_title("Jaccard similarity of the layers of every two models", pad=16)
    axes.text(
        0, 1 + 0.06 / side, "unique layers that both have, over those that either has; 0 is grey",
        transform=axes.transAxes, fontsize=7.5, color=SOFT,
    )  # fmt: skip
    bar = figure.add_axes((left / width, 0.28 / height, side / width * 0.5, 0.11 / height))
    figure.colorbar(scale, cax=bar, orientation="horizontal", ticks=[0, 0.25, 0.5, 0.75, 1])
    bar.tick_params(labelsize=7, length=2)
    return figure


def _with_layers(results: Results) -> list[Group]:
    """Tasks with those of their models whose layers are known."""
    known = results.layers.models
    groups = [(t, [m for m in results.of_task(t) if m.name in known]) for t in results.tasks]
    return [(task, models) for task, models in groups if models]


def _rows(groups: Sequence[Group], short: Callable[[str], str]) -> tuple[Figure, Axes, list[float]]:
    """Axes with a row for each model under the names of their tasks, and where each row is."""
    places: list[float] = []
    labels, heads = [], []
    y = 0.0
    for task, models in groups:
        if task:
            heads.append((y, task))
            y += 1.15
        for model in models:
            places.append(y)
            labels.append(short(model.name))
            y += 1
        y += 0.45
    above, below, right = 0.65, 0.5, 0.75
    left = room([*labels, *(f"{task}  " for _, task in heads)])
    width, height = left + 5.4 + right, above + below + y * ROW
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, below / height, 5.4 / width, y * ROW / height))
    axes.set_ylim(y - 0.6, -0.7)
    axes.set_yticks(places, labels, fontsize=7)
    axes.tick_params(axis="y", left=False)
    for at, task in heads:
        axes.text(
            -0.065 / 5.4, at, task, transform=axes.get_yaxis_transform(), va="center", ha="right",
            fontsize=7.5, fontweight="bold",
        )  # fmt: skip
    return figure, axes, places


def _counts(axes: Axes, places: Sequence[float], counts: Sequence[int], what: str) -> None:
    """A column of numbers at the right."""
    look: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(), "ha": "right", "va": "center", "color": SOFT,
    }  # fmt: skip
    for y, count in zip(places, counts, strict=True):
        axes.text(1.11, y, f"{count:,}", fontsize=6.5, **look)
    axes.text(1.11, places[0] - 2.2, what, fontsize=7, **look)
