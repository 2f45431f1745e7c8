"""The style of all figures, their common parts, and how they are saved.

Colours are those of Okabe and Ito, which colour-blind people can distinguish. Must not know the
subject of the figures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import FuncFormatter

INK, SOFT, FAINT = "#222222", "#666666", "#D9D9D9"
PAPER = "#9A9A9A"  # what the paper found
BLUE, SKY, ORANGE, VERMILION, GREEN, PINK, YELLOW = (
    "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#F0E442",
)  # fmt: skip

STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "bricks",  # names of parts would be random
    "svg.fonttype": "none",  # text stays text: a tenth of the size, and it can be searched
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial"],
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.6,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
}

# Inches: a row of a model, and what a character of a label takes.
ROW, CHARACTER = 0.165, 0.066

PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.0f}")


def styled() -> AbstractContextManager[None]:
    """Make and save figures in this context."""
    return matplotlib.rc_context(cast("Any", STYLE))  # its type names every setting there is


def save(figure: Figure, path: Path) -> None:
    """Write an SVG file, the same bytes for the same figure."""
    FigureCanvasSVG(figure)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r' d="[^"]*"', _coarse, path.read_text(encoding="utf-8"))
    path.write_text("\n".join(map(str.rstrip, text.splitlines())) + "\n", encoding="utf-8")


def _coarse(outline: re.Match[str]) -> str:
    """An outline to a hundredth of a point, which is invisible and halves the file."""
    return re.sub(r"\d+\.\d{3,}", lambda n: f"{float(n[0]):.2f}", outline[0])


def room(labels: Sequence[str]) -> float:
    """Inches that labels take."""
    return 0.25 + CHARACTER * max(map(len, labels), default=0)


def boxes(axes: Axes, bars: Sequence[tuple[float, float, float]], colour: str) -> None:
    """Bars (from x, at y, so wide) as one path: a path each would be most of the file."""
    outlines = [
        Outline(
            [(x, y - 0.38), (x + w, y - 0.38), (x + w, y + 0.38), (x, y + 0.38), (x, y - 0.38)],
            closed=True,
        )
        for x, y, w in bars
        if w > 0
    ]
    if outlines:
        whole = Outline.make_compound_path(*outlines)
        axes.add_patch(PathPatch(whole, facecolor=colour, edgecolor="none"))


def legend_above(axes: Axes, entries: Sequence[tuple[str, str, Any]]) -> None:
    """A legend in one line between title and axes: labels, colours, and line styles or ``box``."""
    handles: list[Any] = [
        Patch(color=colour) if style == "box" else Line2D([], [], color=colour, linestyle=style)
        for _, colour, style in entries
    ]
    axes.legend(
        handles, [label for label, _, _ in entries], loc="lower left", bbox_to_anchor=(0, 1.0),
        ncols=len(entries), handlelength=1.2, columnspacing=1.2, handletextpad=0.5,
        borderaxespad=0.3, borderpad=0, fontsize=7.5,
    )  # fmt: skip


def image(axes: Axes, colours: np.ndarray[Any, Any]) -> None:
    """A cell for each colour (lines, columns, red-green-blue-alpha), without a frame."""
    axes.imshow(colours, interpolation="none", aspect="auto")
    axes.tick_params(length=0, left=False, bottom=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def cells(axes: Axes, texts: np.ndarray[Any, Any], colour: str) -> None:
    """Texts in the middle of cells."""
    for (line, column), text in np.ndenumerate(texts):
        if text:
            axes.text(column, line, text, ha="center", va="center", fontsize=6.5, color=colour)


def short_names(names: Sequence[str]) -> Callable[[str], str]:
    """A name without the word that all names begin with."""
    words = {name.partition("_")[0] for name in names}
    prefix = f"{words.pop()}_" if len(words) == 1 else ""
    return lambda name: name.removeprefix(prefix)


def separate(
    axes: Axes, groups: Sequence[tuple[str, Sequence[object]]], *, named: bool = True
) -> list[int]:
    """Lines between groups of rows, and their names at the right; where each begins."""
    begins, begin = [], 0
    for name, members in groups:
        if begin:
            axes.axhline(begin - 0.5, color="#555555", linewidth=0.7)
        if named:
            axes.text(
                1.02, begin + (len(members) - 1) / 2, name.replace(" ", "\n"), va="center",
                transform=axes.get_yaxis_transform(), fontsize=7,
            )  # fmt: skip
        begins.append(begin)
        begin += len(members)
    return begins
