"""Plots of results for notebooks: estimates, comparisons, operators, curves, points, similarity.

They need the extra ``plots``, and no state of matplotlib: each is a figure of its own.

A heat map of similarity has one square for every two models, darker the more bricks they share.
Must not compute results.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.errors import BricksError, UsageError, printable
from bricks.studies.inference.result import Comparison, ModelComparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bricks.analysis.explanation import Explanation
    from bricks.analysis.similarity import Similarity
    from bricks.compose.estimate import Estimate
    from bricks.units.interval import Interval

# A colour-blind safe palette (Okabe and Ito, 2008).
_BLUE, _VERMILION = "#0072B2", "#D55E00"
_HUES = (_BLUE, _VERMILION, "#009E73", "#CC79A7", "#E69F00", "0.45")
_GREY, _DARK = "0.8", "0.3"
_STYLE: dict[Any, Any] = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
    "axes.axisbelow": True, "grid.color": "0.9", "legend.frameon": False,
    "lines.solid_capstyle": "butt", "svg.fonttype": "none",
}  # fmt: skip
_WIDTH, _ROW, _DPI = 7.0, 0.34, 110  # inches, inches, pixels an inch
_LEAST_SHARE = 0.005  # of the latency: smaller operators are left out


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure that notebooks show; ``save`` writes it as PNG or SVG."""

    figure: Figure

    def save(self, path: Path | str) -> None:
        """Write the figure; the suffix of ``path`` is the format."""
        self.figure.savefig(path, dpi=2 * _DPI)

    def _repr_png_(self) -> bytes:
        written = io.BytesIO()
        self.figure.savefig(written, format="png", dpi=_DPI)
        return written.getvalue()


def plot_estimates(
    estimates: Mapping[str, Estimate],
    *,
    runs_s: Mapping[str, float] | None = None,
    bound_s: float | None = None,
    title: str = "",
) -> Plot:
    """Latencies with their intervals, a row for each label.

    ``runs_s`` are latencies of whole models by label, ``bound_s`` is one that should be kept.
    Raises :class:`~bricks.errors.UsageError` without matplotlib, as all plots do.
    """
    labels = list(estimates)
    with _drawn(title, _ROW * len(labels) + 1.3) as (figure, axes):
        for at, estimate in enumerate(estimates.values()):
            _interval(axes, estimate.latency_s.scaled(1e3), at)
        for label, run_s in (runs_s or {}).items():
            axes.plot(run_s * 1e3, labels.index(label), "|", ms=14, mew=2, color=_VERMILION)
        _legend(axes, {"estimate, 95 %": ("o", _BLUE)})
        if runs_s:
            _legend(axes, {"run": ("|", _VERMILION)})
        if bound_s is not None:
            axes.axvline(bound_s * 1e3, color=_DARK, lw=1, ls="--", label="bound")
        _rows(axes, labels)
        axes.set(xlabel="latency, ms", xlim=(0, None))
        figure.legend(loc="outside lower center", ncols=3)
    return Plot(figure)


def plot_comparison(comparison: Comparison, *, title: str = "Estimates next to runs") -> Plot:
    """Estimates over runs, with the intervals of both, a row for each compared model."""
    compared = [row for row in comparison.rows if isinstance(row, ModelComparison)]
    rows = sorted(compared, key=lambda row: row.ratio, reverse=True)
    with _drawn(title, _ROW * len(rows) + 1.3) as (figure, axes):
        for at, row in enumerate(rows):
            run = row.measured_s.scaled(1 / row.measured_s.value)
            axes.plot([run.low, run.high], [at, at], color=_GREY, lw=12)
            _interval(axes, row.estimate.latency_s.scaled(1 / row.measured_s.value), at)
        axes.axvline(1, color=_DARK, lw=1)
        _legend(axes, {"estimate, 95 %": ("o", _BLUE), "run, 95 %": ("s", _GREY)})
        _rows(axes, [row.model for row in rows])
        axes.set(xlabel="latency / run")
        figure.legend(loc="outside lower center", ncols=2)
    return Plot(figure)


def plot_operators(explanation: Explanation, *, title: str = "Time by operator") -> Plot:
    """The share of each operator in a model's latency, the largest first."""
    parts = [part for part in explanation.operators if part.share >= _LEAST_SHARE]
    with _drawn(title, _ROW * len(parts) + 1) as (figure, axes):
        axes.barh(range(len(parts)), [part.share for part in parts], color=_BLUE, height=0.65)
        for at, part in enumerate(parts):
            text = f" {part.share:.0%}, {part.occurrences} times"
            axes.text(part.share, at, text, va="center", fontsize=8, color=_DARK)
        _rows(axes, [part.operator.removeprefix("com.microsoft.") for part in parts])
        axes.set(xlabel="share of the latency", xlim=(0, 1.3 * parts[0].share if parts else 1))
        axes.xaxis.set_major_formatter("{x:.0%}")
    return Plot(figure)


def plot_curves(
    curves: Mapping[str, Mapping[float, Interval]],
    *,
    x: str,
    y: str,
    bound: float | None = None,
    title: str = "",
) -> Plot:
    """Lines over a quantity, each with the band of its intervals.

    ``x`` and ``y`` say what the axes hold, with their units; ``bound`` is a dashed line.
    """
    with _drawn(title, 3.4) as (figure, axes):
        for hue, (label, curve) in zip(_HUES, curves.items(), strict=False):
            at, found = list(curve), list(curve.values())
            axes.plot(at, [each.value for each in found], "o-", color=hue, label=label)
            low, high = [each.low for each in found], [each.high for each in found]
            axes.fill_between(at, low, high, color=hue, alpha=0.2, lw=0)
        if bound is not None:
            axes.axhline(bound, color=_DARK, lw=1, ls="--", label="bound")
        axes.set(xlabel=x, ylabel=y, ylim=(0, None))
        axes.grid(axis="y")
        figure.legend(loc="outside lower center", ncols=3)
    return Plot(figure)


def plot_points(
    groups: Mapping[str, Sequence[tuple[float, float]]], *, x: str, y: str, title: str = ""
) -> Plot:
    """Points of several groups on logarithmic axes; ``x`` and ``y`` say what the axes hold."""
    with _drawn(title, 3.8) as (figure, axes):
        for hue, (label, points) in zip(_HUES, groups.items(), strict=False):
            across, up = zip(*points, strict=True) if points else ((), ())
            axes.plot(across, up, "o", ms=4, color=hue, alpha=0.7, label=label)
        axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
        axes.grid()
        figure.legend(loc="outside lower center", ncols=3)
    return Plot(figure)


@contextmanager
def _drawn(title: str, height: float) -> Iterator[tuple[Figure, Axes]]:
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        yield figure, axes


def _interval(axes: Axes, of: Interval, at: float) -> None:
    axes.plot([of.low, of.high], [at, at], color=_BLUE, lw=6, alpha=0.3)
    axes.plot(of.value, at, "o", color=_BLUE)


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="x")


def _legend(axes: Axes, marks: Mapping[str, tuple[str, str]]) -> None:
    for label, (marker, colour) in marks.items():
        axes.plot([], [], marker, color=colour, label=label)


SUFFIXES = (".svg", ".png")

_HEATMAP_DPI = 160
_MAX_WITH_NUMBERS = 16  # squares large enough to be written into
_GRID = 6.5  # inches; the squares do not shrink below the smallest readable size
_SMALLEST, _LARGEST = 0.125, 0.5  # inches a square
_MARKS = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 1.0)
_FRAME = "0.55"
# A colour-blind safe palette (Okabe and Ito, 2008).
_KINDS = (
    "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#0072B2", "#000000",
)  # fmt: skip


def check_picture(path: Path) -> None:
    """Raise :class:`UsageError` if no picture can be drawn, before any other work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: a picture's name ends in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}: make it first")
    require_matplotlib()


def require_matplotlib() -> None:
    """Raise :class:`UsageError` if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401  # only checks that it is installed
    except ImportError as exc:
        raise UsageError(
            "pictures need matplotlib, which is not installed: pip install 'onnx-bricks[plots]'"
        ) from exc


def draw_similarity(
    similarity: Similarity, path: Path, *, title: str, kinds: Mapping[str, str] | None = None
) -> None:
    """Draw the grid into an SVG or PNG file, similar models next to each other.

    ``kinds`` gives the kind of a model (its task, say), by name; colours at the left edge mark the
    kinds. Raises :class:`UsageError` if there is no model or the file name has no picture
    extension, and :class:`BricksError` if the file cannot be written.
    """
    check_picture(path)
    if not similarity.models:
        raise UsageError(f"{path}: there is no model to draw: give one")
    import matplotlib

    # Text stays text, and the same grid gives the same bytes.
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "bricks"}
    with matplotlib.rc_context(settings):
        figure = _figure(similarity, title, kinds or {})
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        try:
            figure.savefig(
                path, dpi=_HEATMAP_DPI, metadata=metadata, bbox_inches="tight", pad_inches=0.15
            )
        except OSError as exc:
            raise BricksError(
                f"the picture {path} cannot be written ({exc.strerror}): give another name"
            ) from exc


def _figure(similarity: Similarity, title: str, kinds: Mapping[str, str]) -> Figure:
    from matplotlib.figure import Figure

    order = similarity.ordered()
    count = len(order)
    square = min(_LARGEST, max(_SMALLEST, _GRID / count))
    side = square * count
    # Axes are placed in inches: labels may extend beyond them, the picture is cropped to its
    # contents.
    figure = Figure(figsize=(side, side))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    points = min(9.0, 72 * square * 0.78)
    mesh = _squares(axes, similarity, order, points)
    names = [printable(similarity.models[i]).replace("$", r"\$") for i in order]  # no formulas
    middles = [i + 0.5 for i in range(count)]
    axes.set_xticks(middles, names, rotation=90, fontsize=points)
    axes.set_yticks(middles, names, fontsize=points)
    axes.tick_params(length=0, pad=8)
    for spine in axes.spines.values():
        spine.set_color(_FRAME)
        spine.set_linewidth(0.6)
    axes.set_title(title, fontsize=11, loc="left", pad=10)
    thick = 0.14 / side
    bar = figure.add_axes((1 + 2 * thick, 0.0, thick, min(1.0, 3.2 / side)))
    scale = figure.colorbar(mesh, cax=bar, ticks=_MARKS)
    scale.ax.set_yticklabels([f"{mark:g}" for mark in _MARKS])
    scale.ax.tick_params(labelsize=8)
    scale.outline.set_visible(False)
    bar.set_title("similarity", fontsize=8, loc="left")
    _kinds(axes, [kinds.get(similarity.models[i]) for i in order], thick)
    return figure


def _squares(axes: Axes, similarity: Similarity, order: list[int], points: float) -> Any:
    from matplotlib import colormaps
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import PowerNorm

    # Pairs with nothing in common stay white: no square is drawn or stored for them. Most pairs
    # share little: equal steps of colour would only show the nearly identical ones.
    similar = {
        (row, column): similarity.grid[i][j]
        for row, i in enumerate(order)
        for column, j in enumerate(order)
        if i != j and similarity.grid[i][j] > 0
    }
    lines: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.3}
    squares = PolyCollection(
        [_corners(*place) for place in similar],
        array=list(similar.values()),
        cmap=colormaps["YlGnBu"],
        norm=PowerNorm(0.5, 0.0, 1.0),
        **lines,
    )
    axes.add_collection(squares)
    # The similarity of a model with itself carries no information.
    own = [_corners(i, i) for i in range(len(order))]
    axes.add_collection(PolyCollection(own, facecolors="0.85", **lines))
    axes.set(xlim=(0, len(order)), ylim=(len(order), 0), aspect="equal")
    if len(order) <= _MAX_WITH_NUMBERS:
        for (row, column), value in similar.items():
            colour = "white" if value > 0.25 else "black"
            text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": points * 0.85}
            axes.text(column + 0.5, row + 0.5, f"{value:.2f}", color=colour, **text)
    return squares


def _corners(row: int, column: int) -> list[tuple[int, int]]:
    return [(column, row), (column + 1, row), (column + 1, row + 1), (column, row + 1)]


def _kinds(axes: Axes, kinds: list[str | None], thick: float) -> None:
    from matplotlib.patches import Patch, Rectangle

    known = sorted({kind for kind in kinds if kind is not None})
    if len(known) < 2:
        return  # a single kind needs no legend
    colours = {kind: _KINDS[i % len(_KINDS)] for i, kind in enumerate(known)}
    high = 1 / len(kinds)
    for row, kind in enumerate(kinds):
        if kind is None:
            continue
        for corner, wide, tall in (
            ((-0.6 * thick, 1 - (row + 1) * high), 0.4 * thick, high),
            ((row * high, -0.6 * thick), high, 0.4 * thick),
        ):
            mark = Rectangle(
                corner, wide, tall, transform=axes.transAxes, color=colours[kind], lw=0,
                clip_on=False,
            )  # fmt: skip
            axes.add_patch(mark)
    patches = [Patch(color=colours[kind], label=kind) for kind in known]
    axes.legend(
        handles=patches, loc="upper left", bbox_to_anchor=(1 + 1.5 * thick, 1.0), fontsize=8,
        frameon=False, borderaxespad=0.0, handlelength=0.8, handleheight=0.8,
    )  # fmt: skip
