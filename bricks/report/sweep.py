"""Predictions in several settings for terminals: tables of two dimensions, and of mixes of sizes.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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
from bricks.report.tables import (
    DASH,
    Cells,
    Column,
    number,
    part_column,
    render_table,
    seconds,
    share_text,
    table_of,
)
from bricks.report.words import count_text, place_of, shapes_text, uncertainty_text
from bricks.samples.whole_models import SizeTimes
from bricks.studies.inference.prediction import Mix, SizeInMix

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from bricks.studies.inference.prediction import ModelPredictions, PredictedModel

# Sessions with open dimensions are remarked on if they are slower or faster by more than this.
_NOTABLE = 0.1


def mix_parts(mixes: Sequence[Mix], *, every: bool) -> list[RenderableType]:
    """The sizes of a single mix; of several, a row for each, and with ``every`` their sizes too."""
    whole = [of for of in mixes if of.sizes]
    if len(whole) == 1 and not every:
        return [_sizes_table(whole[0])]
    parts: list[RenderableType] = [table_of(whole, _MIXES)]
    for of in whole if every else ():
        parts += [f"{of.model} {place_of(of.setting)}:", _sizes_table(of)]
    return parts


def mix_remarks(mixes: Sequence[Mix]) -> list[str]:
    """What a mix does not tell, and where one session with open dimensions takes other times."""
    lines = [line for of in mixes if of.sizes for line in _remarks(of)]
    return list(dict.fromkeys(lines))


def _remarks(of: Mix) -> Iterator[str]:
    if of.unknown is not None:
        why = of.unknown.removeprefix(f"{of.model}: ")
        yield f"{of.model}: what a change of size costs is unknown: {why}."
    if of.open_ratio is not None and abs(of.open_ratio - 1) > _NOTABLE:
        yield (
            f"{of.model}: one session with open dimensions takes {number(of.open_ratio)} times as"
            " long as the sessions for one size each that the estimates are of."
        )


def longer_text(extra_s: float | None) -> str | None:
    """How much longer a run takes: ``+1.2 ms``; None if it is not known."""
    if extra_s is None:
        return None
    return f"{'-' if extra_s < 0 else '+'}{seconds(abs(extra_s))}"


_MIXES: Sequence[Column[Mix]] = (
    Column("model", lambda of: of.model, left=True),
    Column("where", lambda of: place_of(of.setting), left=True),
    part_column("mean", lambda of: of.mean_s, lambda mean_s: seconds(mean_s.value)),
    part_column("interval", lambda of: of.mean_s, uncertainty_text),
    part_column("p50", lambda of: of.p50_s, seconds),
    part_column("p99", lambda of: of.p99_s, seconds),
    part_column("in random order", lambda of: of.shuffled_s, lambda own_s: seconds(own_s.value)),
)


def _times(of: SizeInMix) -> SizeTimes | None:
    return of.times if isinstance(of.times, SizeTimes) else None


_SIZES: Sequence[Column[SizeInMix]] = (
    Column("shape", lambda of: shapes_text(of.shapes) if of.shapes else None, left=True),
    part_column("batch", lambda of: of.batch, str),
    Column("share", lambda of: share_text(of.share)),
    Column("latency", lambda of: seconds(of.latency_s.value)),
    Column("interval", lambda of: uncertainty_text(of.latency_s)),
    part_column("p99", lambda of: of.runs, lambda runs: seconds(runs.p99_s)),
    part_column("after a change", _times, lambda times: longer_text(times.change_s.value)),
    part_column("first run", _times, lambda times: longer_text(times.new_s)),
)


def _sizes_table(of: Mix) -> RenderableType:
    return table_of(of.sizes, _SIZES)


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
    return render_table(Cells(titles, tuple(rows), (True, *(False for _ in columns))))


def _text(cell: PredictedModel | None, best: Sequence[PredictedModel]) -> str:
    if cell is None or cell.interval is None:
        return DASH
    text = f"{seconds(cell.latency_s.value)} {uncertainty_text(cell.latency_s)}"
    return marked(text, is_among(cell, best))


def _sample_text(cell: PredictedModel | None, best: Sequence[PredictedModel]) -> str:
    if cell is None or cell.interval is None:
        return DASH
    return marked(seconds(cell.sample_s.value), is_among(cell, best))


def _values(cells: Sequence[PredictedModel], name: str) -> list[str]:
    return list(dict.fromkeys(_value(cell, name) for cell in cells))


def _value(cell: PredictedModel, name: str) -> str:
    return cell.model if name == "model" else dimension_text(cell.setting, name)
