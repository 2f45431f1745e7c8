"""Settings in which models run: a runtime on a system, its threads, the batch, and mixes of sizes.

A mix is the sizes of a server's requests with the share of each, from a file. Must not know how a
model is read or measured.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import UsageError, suggestion
from bricks.graph.types import LARGEST_DIM, TensorType, parse_shape

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.system import Target

# Shapes of inputs as texts: ``NAME=1x3x224x224``, ``?`` for sizes that stay.
Shapes = tuple[str, ...]

# The dimensions of settings, in the order in which people name them.
DIMENSIONS = ("system", "runtime", "quantize", "threads", "shapes", "batch")

# The columns of a file that are no input of a model.
WEIGHT, BATCH = "weight", "batch"

# Each size may take minutes to measure.
_MOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to run a model.

    ``system`` is the name of a known system, None for this host. ``threads`` and ``batch`` are None
    for the default of the runtime and of the model, as long as they are unknown. ``shapes`` are
    those of inputs as texts (``x=?x3x48x640``), empty for the model's own. ``quantize`` names the
    type of numbers that a model is converted to; None: its own. ``target`` is the system and
    runtime that the setting stands for; None where there is none.
    """

    runtime: str
    system: str | None = None
    threads: int | None = None
    shapes: Shapes = ()
    batch: int | None = None
    quantize: str | None = None
    target: Target | None = None

    def on(self, target: Target, here: Target) -> Setting:
        """This setting on ``target``, whose threads it has; ``here`` is a target of this host."""
        system = None if target.system.key == here.system.key else target.system.name
        return replace(self, target=target, system=system, threads=target.runtime.threads)

    def running(self, model: Model) -> Setting:
        """This setting with the batch of ``model``."""
        return replace(self, batch=batch_of(model))

    @property
    def copies(self) -> int:
        """Copies of the model that run at once on the host."""
        return 1 if self.target is None else self.target.runtime.copies

    @property
    def system_name(self) -> str | None:
        """The whole name of the system; None for this host without a target."""
        return self.system if self.target is None else self.target.system.name


def varying(settings: Iterable[Setting]) -> tuple[str, ...]:
    """The dimensions in which ``settings`` differ."""
    every = list(settings)
    return tuple(name for name in DIMENSIONS if len({getattr(of, name) for of in every}) > 1)


def batch_of(model: Model) -> int:
    """The number of samples in one run: the first dimension of the first input, or 1."""
    type_ = model.inputs[0][1] if model.inputs else None
    shape = type_.shape if isinstance(type_, TensorType) else ()
    return int(shape[0]) if shape else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The values of each dimension of settings; a model is predicted in every combination.

    ``sizes`` are pairs of shapes and batch; None: every combination of ``shapes`` and ``batches``.
    """

    runtimes: Sequence[str]
    systems: Sequence[str | None] = (None,)
    threads: Sequence[int | None] = (None,)
    shapes: Sequence[Shapes] = ((),)
    batches: Sequence[int | None] = (None,)
    sizes: Sequence[tuple[Shapes, int | None]] | None = None
    quantizations: Sequence[str | None] = (None,)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Every combination once; batches change fastest, then shapes, then threads."""
        sizes = [*product(self.shapes, self.batches)] if self.sizes is None else self.sizes
        every = product(self.systems, self.runtimes, self.quantizations, self.threads, sizes)
        return tuple(
            Setting(
                system=system, runtime=runtime, quantize=quantize, threads=threads,
                shapes=shapes, batch=batch,
            )
            for system, runtime, quantize, threads, (shapes, batch) in dict.fromkeys(every)
        )  # fmt: skip


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
    text, batch = cells.pop(WEIGHT), cells.pop(BATCH, None)
    try:
        weight = float(text)
    except ValueError as exc:
        raise UsageError(f"{place}: {WEIGHT} {text!r} is no number") from exc
    if not 0 <= weight < math.inf:
        raise UsageError(f"{place}: {WEIGHT} {text} is negative or no finite number")
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
