"""Mixes of sizes: the sizes of a server's requests with the share of each, from a file.

Must not know any model.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bricks.errors import UsageError, suggestion
from bricks.graph.sizes import LARGEST_DIM, parse_shape
from bricks.studies.inference.settings import Shapes

# The columns of a file that are no input of a model.
WEIGHT, BATCH = "weight", "batch"

# Each size may take minutes to measure.
_MOST = 64


@dataclass(frozen=True, slots=True)
class MixedSize:
    """Shapes of inputs and a batch, None for the model's own, and its share of all requests."""

    shapes: Shapes
    batch: int | None
    share: float


def read_sizes(path: Path) -> tuple[MixedSize, ...]:
    """Read the sizes in a CSV file, whose first line names the columns.

    Column ``weight`` has how often a size occurs, in any unit; ``batch``, which may be missing, its
    batch; any other column the shape (``?x3x48x640``) of the input of its name. Equal sizes are
    added, those that never occur left out. Raises :class:`UsageError` that names the line.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is no text in UTF-8"
        raise UsageError(f"{path} cannot be read: {reason}: give a CSV file of sizes") from exc
    lines = csv.DictReader(text.splitlines(), skipinitialspace=True)
    columns = [name.strip() for name in lines.fieldnames or ()]
    if WEIGHT not in columns:
        meant = suggestion(WEIGHT, columns) if columns else "it is empty"
        raise UsageError(f"{path} has no column {WEIGHT!r}: {meant}")
    if len(columns) == 1 or len(set(columns)) < len(columns):
        raise UsageError(
            f"{path} has the columns {', '.join(columns)}: give {WEIGHT}, and each input whose"
            f" shape changes or {BATCH}, once"
        )
    lines.fieldnames = columns
    weights: dict[tuple[Shapes, int | None], float] = {}
    for row in lines:
        size, weight = _size(f"{path}, line {lines.line_num}", row)
        weights[size] = weights.get(size, 0.0) + weight
    total = sum(weights.values())
    if not 0 < total < math.inf:
        raise UsageError(f"{path} has no weight above 0: give how often each size occurs")
    sizes = tuple(MixedSize(*size, of / total) for size, of in weights.items() if of)
    if len(sizes) > _MOST:
        raise UsageError(
            f"{path} has {len(sizes)} sizes, each of which is measured: give {_MOST} or fewer,"
            " rounded"
        )
    return sizes


def _size(place: str, row: Mapping[str, str | None]) -> tuple[tuple[Shapes, int | None], float]:
    """The size and the weight of a line of the file."""
    if None in row or None in row.values():
        raise UsageError(f"{place} has more or fewer values than there are columns")
    cells = {name: str(cell).strip() for name, cell in row.items()}
    weight, batch = _number(place, cells.pop(WEIGHT)), cells.pop(BATCH, None)
    if batch is not None and not (
        batch.isascii() and batch.isdecimal() and len(batch) < 18 and 1 <= int(batch) <= LARGEST_DIM
    ):
        raise UsageError(f"{place}: {BATCH} {batch!r} is no whole number from 1 to {LARGEST_DIM}")
    shapes = tuple(f"{name}={cell}" for name, cell in cells.items())
    for shape in shapes:
        try:
            parse_shape(shape)
        except UsageError as exc:
            raise UsageError(f"{place}: {exc}") from exc
    return (shapes, None if batch is None else int(batch)), weight


def _number(place: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError as exc:
        raise UsageError(f"{place}: {WEIGHT} {text!r} is no number") from exc
    if not 0 <= weight < math.inf:
        raise UsageError(f"{place}: {WEIGHT} {text} is negative or no finite number")
    return weight
