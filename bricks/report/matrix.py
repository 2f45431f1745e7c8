"""Estimates of models in several settings for terminals: rows and columns of two dimensions.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.report.answers.words import uncertainty_text
from bricks.report.columns import DASH, Cells, render_table
from bricks.report.figures import count_text
from bricks.report.mix import mix_parts
from bricks.report.prediction import (
    FEW,
    MARK,
    TITLES,
    best_cells,
    dimension_text,
    has_best,
    is_among,
    marked,
    prediction_table,
)
from bricks.report.tables import seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from bricks.studies.inference.prediction import ModelPredictions, PredictedModel

# More columns would not fit a terminal.
_MOST = 4

# The title of rows with latencies for each sample.
_EACH = "  a sample"

# The dimensions that make good columns, the best first.
_ACROSS = ("batch", "threads", "runtime", "quantize", "system", "shapes", "model")


def prediction_parts(of: ModelPredictions, *, every: bool = False) -> list[RenderableType]:
    """One table: a grid where two dimensions vary, else rows; ``every`` lists all facts."""
    if any(mix.sizes for mix in of.mixes) and not every:
        return mix_parts(of.mixes, every=False)
    table = prediction_table(of, every=every)
    if not of.swept:
        return [table, *_others(of, every=every)]
    grid = None if every else _grid(of)
    mixes = mix_parts(of.mixes, every=every) if of.mixes else []
    return [table if grid is None else grid, _legend(of), *mixes]


def _others(of: ModelPredictions, *, every: bool) -> list[str]:
    """A line about models that the table leaves out; none if it has all."""
    more = 0 if every else len(of.estimated) - FEW
    return [f"{count_text(more, 'slower model')} not shown: add --all."] if more > 0 else []


def _legend(of: ModelPredictions) -> str:
    least = "the least latency for each sample" if "batch" in of.dimensions else "the least latency"
    if not has_best(of):
        return ""
    each = ["model"] if len({model.model for model in of.models}) > 1 else []
    each += ["shape"] if "shapes" in of.dimensions else []
    return f"{MARK} {least}{' of each ' if each else ''}{' and '.join(each)}"


def _grid(of: ModelPredictions) -> Table | None:
    """The estimates over two dimensions; None where another number of dimensions varies."""
    dimensions = list(of.dimensions)
    if len({model.model for model in of.models}) > 1:
        dimensions.append("model")
    if len(dimensions) != 2:
        return None
    across = min(dimensions, key=_ACROSS.index)
    (down,) = (name for name in dimensions if name != across)
    if len(_values(of.estimated, across)) > _MOST:
        return None
    return render_table(_cells(of, down, across))


def _cells(of: ModelPredictions, down: str, across: str) -> Cells:
    by_place = {(_value(cell, down), _value(cell, across)): cell for cell in of.estimated}
    best, columns = best_cells(of) if has_best(of) else (), _values(of.estimated, across)
    rows: list[tuple[str, ...]] = []
    for value in _values(of.estimated, down):
        cells = [by_place.get((value, column)) for column in columns]
        if across == "batch":
            rows.append((value, *(_text(cell, ()) for cell in cells)))
            rows.append((_EACH, *(_sample_text(cell, best) for cell in cells)))
        else:
            rows.append((value, *(_text(cell, best) for cell in cells)))
    heads = (f"{across} {column}" if column.isdecimal() else column for column in columns)
    titles = (TITLES.get(down, down), *heads)
    return Cells(titles, tuple(rows), (True, *(False for _ in columns)))


def _text(cell: PredictedModel | None, best: Sequence[PredictedModel]) -> str:
    """A latency with its interval."""
    if cell is None or cell.interval is None:
        return DASH
    text = f"{seconds(cell.latency_s.value)} {uncertainty_text(cell.latency_s)}"
    return marked(text, is_among(cell, best))


def _sample_text(cell: PredictedModel | None, best: Sequence[PredictedModel]) -> str:
    """The latency for each sample."""
    if cell is None or cell.interval is None:
        return DASH
    return marked(seconds(cell.sample_s.value), is_among(cell, best))


def _values(cells: Sequence[PredictedModel], name: str) -> list[str]:
    return list(dict.fromkeys(_value(cell, name) for cell in cells))


def _value(cell: PredictedModel, name: str) -> str:
    return cell.model if name == "model" else dimension_text(cell.setting, name)
