"""Draws the similarity of models: one square for every two, darker the more bricks they share.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.errors import BricksError, UsageError, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bricks.analysis.similarity import Similarity

SUFFIXES = (".svg", ".png")

_DPI = 160
_MAX_WITH_NUMBERS = 16  # squares large enough to be written into
_GRID = 6.5  # inches; the squares do not shrink below the smallest readable size
_SMALLEST, _LARGEST = 0.125, 0.5  # inches a square
_MARKS = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 1.0)
_GREY = "0.55"
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
            figure.savefig(path, dpi=_DPI, metadata=metadata, bbox_inches="tight", pad_inches=0.15)
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
    _labels(axes, [similarity.models[i] for i in order], points)
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


def _labels(axes: Axes, names: list[str], points: float) -> None:
    shown = [printable(name).replace("$", r"\$") for name in names]  # no formulas
    middles = [i + 0.5 for i in range(len(names))]
    axes.set_xticks(middles, shown, rotation=90, fontsize=points)
    axes.set_yticks(middles, shown, fontsize=points)
    axes.tick_params(length=0, pad=8)
    for spine in axes.spines.values():
        spine.set_color(_GREY)
        spine.set_linewidth(0.6)


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
