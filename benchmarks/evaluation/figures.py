"""The figures of the page: what is found here beside what the paper found, which is always grey.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgba
from matplotlib.figure import Figure

from evaluation import published
from evaluation.drawing import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    PERCENT,
    PINK,
    ROW,
    SKY,
    SOFT,
    VERMILION,
    YELLOW,
    boxes,
    cells,
    folded,
    image,
    legend_above,
    room,
    save,
    styled,
)
from evaluation.layers import grid
from evaluation.results import EXECUTED, ModelFacts, Results

PREFIX = "paper-"

TITLES = {"mxnet": "MXNet", "onnxruntime": "ONNX Runtime", "fake": "Fake runtime"}
RUNTIMES = ((VERMILION, "o"), (BLUE, "s"), (GREEN, "D"), (PINK, "^"))
OPERATORS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW)
OTHER = "#BBBBBB"
NOTHING, ITSELF = to_rgba("#F4F4F4"), to_rgba("#CFCFCF")

# Where `executed` stands on an axis, right of all numbers of layers.
BESIDE = 2.4
# Colours of deviations end here; what is further off is as dark.
MOST_DEVIATION = 0.25

Group = tuple[str, Sequence[ModelFacts]]


def draw(results: Results, folder: Path) -> dict[str, Path]:
    """Write every figure that the results have something for; files by name of the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name, make in FIGURES.items():
        with styled():
            figure = make(results)
            if figure is not None:
                drawn[name] = folder / f"{PREFIX}{name}.svg"
                save(figure, drawn[name])
    return drawn


def title_of(runtime: str) -> str:
    """What people call a runtime."""
    return TITLES.get(runtime, runtime)


def unique(results: Results) -> Figure | None:
    """A bar for each model: the share of its layers that are unique."""
    layers = results.layers
    groups = [
        (task, sorted(models, key=lambda m: layers.unique_share(m.name)))
        for task, models in _with_layers(results)
    ]
    if not groups:
        return None
    figure, axes, places = _rows(groups, _short(results))
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
    figure, axes, places = _rows([("", [together]), *groups], _short(results))
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
    short = _short(results)
    labels = [short(name) for name in names]
    side, left = max(2.6, len(names) * 0.142), room(labels)
    below, above, right = 0.85 * left + 0.5, 0.6, 1.0
    width, height = left + side + right, below + side + above
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, below / height, side / width, side / height))
    image(axes, colours)
    axes.set_xticks(range(len(names)), labels, rotation=90, fontsize=6.5)
    axes.set_yticks(range(len(names)), labels, fontsize=6.5)
    for begin in _separate(axes, groups):
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


def models(results: Results) -> Figure | None:
    """A cell for each model and granularity: how far the estimate is off."""
    runtimes, reached = _compared(results), set(results.reached)
    groups = [(task, [m for m in results.of_task(task) if m.name in reached])
              for task in results.tasks]  # fmt: skip
    groups = [(task, of) for task, of in groups if of]
    if not runtimes:
        return None
    names = [model.name for _, of in groups for model in of]
    cuts, short = results.cuts, _short(results)
    labels = [*map(short, names), f"paper, {published.TOLD_SYSTEM}"]
    panel, body, head = max(1.4, len(cuts) * 0.245), len(names) * ROW, 2.3 * ROW
    left, right, above, below, gap = room(labels), 0.95, 0.85, 0.7, 0.2
    width = left + len(runtimes) * (panel + gap) - gap + right
    height = above + head + 0.12 + body + below
    figure = Figure(figsize=(width, height))
    scale = ScalarMappable(Normalize(-MOST_DEVIATION, MOST_DEVIATION), colormaps["PuOr_r"])
    for number, runtime in enumerate(runtimes):
        x = (left + number * (panel + gap)) / width
        axes = figure.add_axes((x, below / height, panel / width, body / height))
        values = np.array([
            [results.ratios(runtime, cut).get(name, np.nan) - 1 for cut in cuts] for name in names
        ])  # fmt: skip
        _deviations(axes, scale, values, labels[:-1] if number == 0 else None)
        cells(axes, np.where(np.isnan(values), "×", ""), SOFT)
        axes.set_xticks(range(len(cuts)), ["ex" if c == EXECUTED else c for c in cuts], fontsize=7)
        _separate(axes, groups, named=number == len(runtimes) - 1)
        place = (x, (below + body + 0.12) / height, panel / width, head / height)
        axes = figure.add_axes(place)
        values = np.array([_theirs(cuts), [(results.geomean(runtime, c) or np.nan) - 1
                                           for c in cuts]])  # fmt: skip
        named = [labels[-1], "geometric mean"]
        _deviations(axes, scale, values, named if number == 0 else None)
        cells(axes, np.array([[_signed(v) for v in of]
                              for of in values]), INK)  # fmt: skip
        axes.set_xticks([])
        axes.set_title(title_of(runtime), pad=4, fontsize=8.5)
    figure.text(
        left / width, 1 - 0.25 / height, "How far estimates are from the measured latency, %",
        fontsize=9.5, fontweight="bold",
    )  # fmt: skip
    figure.text(
        left / width, 1 - 0.42 / height,
        "columns: layers per brick at most, ex: executed nodes; ×: not compared",
        fontsize=7.5, color=SOFT,
    )  # fmt: skip
    bar = figure.add_axes((left / width, 0.25 / height, min(2.6, panel) / width, 0.11 / height))
    ticks = [-MOST_DEVIATION, -0.1, 0, 0.1, MOST_DEVIATION]
    figure.colorbar(scale, cax=bar, orientation="horizontal", ticks=ticks, extend="both")
    bar.set_xticklabels([_signed(t) for t in ticks])
    bar.tick_params(labelsize=7, length=2)
    return figure


def geomean(results: Results) -> Figure | None:
    """A panel for each runtime: geometric mean and range over the models, by granularity."""
    runtimes = _compared(results)
    if not runtimes:
        return None
    figure = Figure(figsize=(4.0 * max(len(runtimes), 2), 3.9), layout="constrained")
    panels = figure.subplots(1, len(runtimes), sharey=True, squeeze=False)[0]
    for (colour, marker), runtime, axes in zip(RUNTIMES, runtimes, panels, strict=False):
        axes.axhline(1, color=SOFT, linewidth=0.7)
        for system, means in published.GEOMEANS.items():
            axes.plot(range(1, 11), means, color=PAPER, linewidth=1, zorder=1)
            axes.text(10.15, means[-1], system, fontsize=6, color="#777777", va="center")
        axes.vlines(0.7, published.TOLD_LOW, published.TOLD_HIGH, color=PAPER, linewidth=1)
        for cut, x in _places(results).items():
            ratios = sorted(results.ratios(runtime, cut).values())
            if ratios:
                tenth = len(ratios) // 10
                axes.vlines(x, ratios[0], ratios[-1], color=colour, linewidth=0.8, alpha=0.55)
                middle = ratios[tenth], ratios[-1 - tenth]
                axes.vlines(x, *middle, color=colour, linewidth=3.2, alpha=0.35)
        _curve(axes, results, lambda c, of=runtime: results.geomean(of, c), colour, marker, None)
        axes.set_title(title_of(runtime), color=colour)
        _granularity_axis(axes, results)
    panels[0].set_ylabel("estimate / measured")
    figure.suptitle(
        "Normalised latency: geometric mean (mark), middle 80 % (thick line) and range (thin line)"
        " of the models.\nGrey: the paper's geometric means on four systems, and its range on"
        f" {published.TOLD_SYSTEM} at one layer per brick.",
        x=0.008, ha="left", fontsize=7.5, color=SOFT,
    )  # fmt: skip
    return figure


def errors(results: Results) -> Figure | None:
    """Mean absolute error over the models, by granularity."""
    title = "Mean of |estimate / measured - 1| over the models, %"
    figure = _lines(results, title, results.mean_error, published.TOLD_SYSTEM,
                    published.MEAN_ERRORS)  # fmt: skip
    if figure is not None:
        figure.axes[0].yaxis.set_major_formatter(PERCENT)
    return figure


def speedup(results: Results) -> Figure | None:
    """The paper's formula, by granularity."""
    title = "Speed-up: latencies of all models over latencies of all unique bricks"
    figure = _lines(results, title, results.speedup, published.SPEEDUP_SYSTEM, published.SPEEDUPS)
    if figure is not None:
        figure.axes[0].axhline(1, color=SOFT, linewidth=0.7)
    return figure


FIGURES: Mapping[str, Callable[[Results], Figure | None]] = {
    "unique": unique,
    "types": types,
    "jaccard": jaccard,
    "models": models,
    "geomean": geomean,
    "errors": errors,
    "speedup": speedup,
}


def _with_layers(results: Results) -> list[Group]:
    """Tasks with those of their models whose layers are known."""
    known = results.layers.models
    groups = [(t, [m for m in results.of_task(t) if m.name in known]) for t in results.tasks]
    return [(task, models) for task, models in groups if models]


def _compared(results: Results) -> list[str]:
    """Runtimes on which something was compared."""
    return [r for r in results.runtimes if any(results.ratios(r, g) for g in results.cuts)]


def _places(results: Results) -> dict[str, float]:
    """Where granularities stand on an axis that has room for all of the paper's."""
    return {cut: 10 + BESIDE if cut == EXECUTED else float(cut) for cut in results.cuts}


def _short(results: Results) -> Callable[[str], str]:
    """What is left of a name without the word that all models' names begin with."""
    words = {model.name.partition("_")[0] for model in results.models}
    prefix = f"{words.pop()}_" if len(words) == 1 else ""
    return lambda name: name.removeprefix(prefix)


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


def _separate(axes: Axes, groups: Sequence[Group], *, named: bool = True) -> list[int]:
    """Lines between tasks, and their names at the right; where each begins."""
    begins, begin = [], 0
    for task, models in groups:
        if begin:
            axes.axhline(begin - 0.5, color="#555555", linewidth=0.7)
        if named:
            place = (1.02, begin + (len(models) - 1) / 2)
            axes.text(*place, folded(task), transform=axes.get_yaxis_transform(), va="center",
                      fontsize=7)  # fmt: skip
        begins.append(begin)
        begin += len(models)
    return begins


def _signed(deviation: float) -> str:
    """Per cent with a sign; nothing for what is not known."""
    if np.isnan(deviation):
        return ""
    return f"{100 * deviation:+.0f}" if abs(deviation) >= 0.005 else "0"


def _theirs(cuts: Sequence[str]) -> list[float]:
    means = published.GEOMEANS[published.TOLD_SYSTEM]
    return [
        means[int(cut) - 1] - 1 if cut != EXECUTED and int(cut) <= len(means) else np.nan
        for cut in cuts
    ]


def _deviations(
    axes: Axes, scale: ScalarMappable, values: np.ndarray[Any, Any], labels: Sequence[str] | None
) -> None:
    """Cells coloured by how far they are from 0; without labels they belong to the panel before."""
    colours = scale.to_rgba(np.nan_to_num(values))
    colours[np.isnan(values)] = (1, 1, 1, 1)
    image(axes, colours)
    if labels is None:
        axes.set_yticks([])
    else:
        axes.set_yticks(range(len(labels)), labels, fontsize=7)


def _curve(
    axes: Axes,
    results: Results,
    value: Callable[[str], float | None],
    colour: str,
    marker: str,
    label: str | None,
) -> None:
    """Values at numbers of layers, joined; that of executed nodes stands apart."""
    points = [(cut, x, v) for cut, x in _places(results).items() if (v := value(cut)) is not None]
    joined = [(x, v) for cut, x, v in points if cut != EXECUTED]
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4.5, "zorder": 3}
    if joined:
        axes.plot(*zip(*joined, strict=True), linewidth=1.6, label=label, **look)
    for cut, x, v in points:
        if cut == EXECUTED:
            alone = None if joined else label
            axes.plot([x], [v], linestyle="", markeredgecolor=INK, label=alone, **look)


def _granularity_axis(axes: Axes, results: Results) -> None:
    places = _places(results)
    axes.set_xticks(list(places.values()), list(places))
    axes.set_xlabel("layers per brick, at most")
    axes.set_xlim(0.4, 10.6 + (BESIDE + 0.4 if EXECUTED in places else 1.2))
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def _lines(
    results: Results,
    title: str,
    value: Callable[[str, str], float | None],
    system: str,
    theirs: Sequence[float],
) -> Figure | None:
    """A line for each runtime, and a grey one for a system of the paper's; from 0 up."""
    runtimes = _compared(results)
    if not runtimes:
        return None
    figure = Figure(figsize=(8.0, 3.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, 1 + len(theirs)), theirs, color=PAPER, linewidth=1.4,
              label=f"the paper, {system}")  # fmt: skip
    for (colour, marker), runtime in zip(RUNTIMES, runtimes, strict=False):
        _curve(axes, results, lambda c, of=runtime: value(of, c), colour, marker,
               title_of(runtime))  # fmt: skip
    _granularity_axis(axes, results)
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
