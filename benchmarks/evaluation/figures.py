"""The figures of the page, and those of estimates: results here, and the paper's in grey.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from benchmarks.evaluation import published
from benchmarks.evaluation.drawing import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    PAPER,
    PERCENT,
    PINK,
    ROW,
    SOFT,
    VERMILION,
    cells,
    image,
    room,
    save,
    separate,
    short_names,
    styled,
)
from benchmarks.evaluation.layer_figures import jaccard, types, unique
from benchmarks.evaluation.results import EXECUTED, Results

PREFIX = "paper-"

TITLES = {
    "mxnet-unfused": "MXNet",
    "mxnet": "MXNet with fusions",
    "onnxruntime": "ONNX Runtime",
    "fake": "Fake runtime",
}
RUNTIMES = ((VERMILION, "o"), (BLUE, "s"), (GREEN, "D"), (PINK, "^"))

# Where `executed` stands on an axis, right of all numbers of layers.
BESIDE = 2.4
# Colours of deviations end here; larger deviations are as dark.
MAX_DEVIATION = 0.25
# The axis of ratios ends here: one outlier would leave no space for the others.
MIN_RATIO, MAX_RATIO = 0.7, 1.5


def draw(results: Results, folder: Path) -> dict[str, Path]:
    """Write every figure for which there are results; returns files by name of the figure."""
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
    """The name of a runtime on the page."""
    return TITLES.get(runtime, runtime)


def models(results: Results) -> Figure | None:
    """A cell for each model and granularity: how far the estimate is off."""
    runtimes, reached = _compared(results), set(results.reached)
    groups = [(task, [m for m in results.of_task(task) if m.name in reached])
              for task in results.tasks]  # fmt: skip
    groups = [(task, of) for task, of in groups if of]
    if not runtimes:
        return None
    names = [model.name for _, of in groups for model in of]
    short = short_names([model.name for model in results.models])
    labels = [*map(short, names), f"paper, {published.STATED_SYSTEM}"]
    panels = [max(1.4, len(results.cuts_of(runtime)) * 0.245) for runtime in runtimes]
    body, head = len(names) * ROW, 2.3 * ROW
    left, right, above, below, gap = room(labels), 0.95, 0.85, 0.7, 0.2
    width = left + sum(panels) + gap * (len(runtimes) - 1) + right
    height = above + head + 0.12 + body + below
    figure = Figure(figsize=(width, height))
    scale = ScalarMappable(Normalize(-MAX_DEVIATION, MAX_DEVIATION), colormaps["PuOr_r"])
    for number, (runtime, panel) in enumerate(zip(runtimes, panels, strict=True)):
        cuts = results.cuts_of(runtime)
        x = (left + sum(panels[:number]) + gap * number) / width
        axes = figure.add_axes((x, below / height, panel / width, body / height))
        values = np.array([
            [results.ratios(runtime, cut).get(name, np.nan) - 1 for cut in cuts] for name in names
        ])  # fmt: skip
        _deviations(axes, scale, values, labels[:-1] if number == 0 else None)
        cells(axes, np.where(np.isnan(values), "×", ""), SOFT)
        axes.set_xticks(range(len(cuts)), ["ex" if c == EXECUTED else c for c in cuts], fontsize=7)
        separate(axes, groups, named=number == len(runtimes) - 1)
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
    bar = figure.add_axes((left / width, 0.25 / height, min(2.6, panels[0]) / width, 0.11 / height))
    ticks = [-MAX_DEVIATION, -0.1, 0, 0.1, MAX_DEVIATION]
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
        axes.vlines(0.7, published.STATED_LOW, published.STATED_HIGH, color=PAPER, linewidth=1)
        for cut, x in _places(results).items():
            ratios = sorted(results.ratios(runtime, cut).values())
            if ratios:
                tenth = len(ratios) // 10
                axes.vlines(x, ratios[0], ratios[-1], color=colour, linewidth=0.8, alpha=0.55)
                middle = ratios[tenth], ratios[-1 - tenth]
                axes.vlines(x, *middle, color=colour, linewidth=3.2, alpha=0.35)
        _curve(axes, results, partial(results.geomean, runtime), colour, marker, None)
        axes.set_title(title_of(runtime), color=colour)
        _granularity_axis(axes, results)
    panels[0].set_ylabel("estimate / measured")
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(max(low, MIN_RATIO), min(high, MAX_RATIO))
    beyond = "; some ranges go on beyond the axis" if high > MAX_RATIO or low < MIN_RATIO else ""
    figure.suptitle(
        "Normalised latency: geometric mean (mark), middle 80 % (thick line) and range (thin line)"
        " of the models.\nGrey: the paper's geometric means on four systems, and its range on"
        f" {published.STATED_SYSTEM} at one layer per brick{beyond}.",
        x=0.008, ha="left", fontsize=7.5, color=SOFT,
    )  # fmt: skip
    return figure


def errors(results: Results) -> Figure | None:
    """Mean absolute error over the models, by granularity."""
    title = "Mean of |estimate / measured - 1| over the models, %"
    figure = _lines(results, title, results.mean_error, published.STATED_SYSTEM,
                    published.MEAN_ERRORS)  # fmt: skip
    if figure is not None:
        figure.axes[0].yaxis.set_major_formatter(PERCENT)
    return figure


def speedup(results: Results) -> Figure | None:
    """The paper's formula, by granularity, for the paper's list and for every network once."""
    title = (
        "Speed-up: latencies of all models over latencies of all unique bricks\n"
        "solid: trained models of the paper's list; dotted: every network here once"
    )
    figure = _lines(results, title, results.trained_speedup, published.SPEEDUP_SYSTEM,
                    published.SPEEDUPS, dotted=results.speedup)  # fmt: skip
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


def _compared(results: Results) -> list[str]:
    """Runtimes on which something was compared."""
    return [r for r in results.runtimes if any(results.ratios(r, g) for g in results.cuts)]


def _places(results: Results) -> dict[str, float]:
    """Positions of granularities on an axis that has space for all of the paper's."""
    return {cut: 10 + BESIDE if cut == EXECUTED else float(cut) for cut in results.cuts}


def _signed(deviation: float) -> str:
    """Percent with a sign; nothing where not known."""
    if np.isnan(deviation):
        return ""
    return f"{100 * deviation:+.0f}" if abs(deviation) >= 0.005 else "0"


def _theirs(cuts: Sequence[str]) -> list[float]:
    means = published.GEOMEANS[published.STATED_SYSTEM]
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
    """Values at numbers of layers, joined; that of executed nodes is separate."""
    points = [(cut, x, v) for cut, x in _places(results).items() if (v := value(cut)) is not None]
    joined = [(x, v) for cut, x, v in points if cut != EXECUTED]
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4.5, "zorder": 3}
    if joined:
        axes.plot(*zip(*joined, strict=True), linewidth=1.6, label=label, **look)
    for cut, x, v in points:
        if cut == EXECUTED:
            own_label = None if joined else label
            axes.plot([x], [v], linestyle="", markeredgecolor=INK, label=own_label, **look)


def _dots(axes: Axes, results: Results, value: Callable[[str], float | None], colour: str) -> None:
    points = [(cut, x, v) for cut, x in _places(results).items() if (v := value(cut)) is not None]
    for executed in (False, True):
        part = [(x, v) for cut, x, v in points if (cut == EXECUTED) == executed]
        if part:
            axes.plot(*zip(*part, strict=True), linestyle=":", linewidth=1.1, marker=".",
                      markersize=4, color=colour, zorder=2)  # fmt: skip


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
    *,
    dotted: Callable[[str, str], float | None] | None = None,
) -> Figure | None:
    """A line for each runtime, and a grey one for a system of the paper's; from 0 up.

    Values of ``dotted`` are drawn as dots of the same colour.
    """
    runtimes = _compared(results)
    if not runtimes:
        return None
    figure = Figure(figsize=(8.0, 3.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, 1 + len(theirs)), theirs, color=PAPER, linewidth=1.4,
              label=f"the paper, {system}")  # fmt: skip
    for (colour, marker), runtime in zip(RUNTIMES, runtimes, strict=False):
        _curve(axes, results, partial(value, runtime), colour, marker,
               title_of(runtime))  # fmt: skip
        if dotted is not None:
            _dots(axes, results, partial(dotted, runtime), colour)
    _granularity_axis(axes, results)
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
