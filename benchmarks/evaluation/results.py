"""Results of the evaluation, as frozen data and as a file, and figures derived from them.

Raw results are latencies by model, runtime and granularity, the layers of every model, and sums
over unique bricks. Everything on the page is computed from them. Must not know how anything was
measured or is shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.evaluation.layers import Layers
from bricks.measure.protocol.request import message_codec

FORMAT = 2
EXECUTED = "executed"

# Median, low and high end of an interval, in seconds.
Interval = tuple[float, float, float]


class ResultsError(Exception):
    """A file of results cannot be used; the text is one line."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The zoo's entry of a model; ``parameters`` is None where unknown."""

    name: str
    task: str
    family: str
    framework: str
    inputs: str
    parameters: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """A model at one granularity on one runtime: estimate and run."""

    measured_s: Interval
    estimate_s: Interval
    occurrences: int
    bricks: int

    @property
    def ratio(self) -> float:
        """Normalised latency: estimate over measured."""
        return self.estimate_s[0] / self.measured_s[0]


@dataclass(frozen=True, slots=True)
class Failed:
    """A model that could not be compared at one granularity, and why, in one line."""

    error: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over models that could be compared, and over their unique bricks.

    ``models_s`` and ``bricks_s`` are latencies of one run of each; ``models`` counts a network as
    often as it is run.
    """

    models: int
    models_s: float
    bricks: int
    bricks_s: float

    @property
    def speedup(self) -> float | None:
        """The paper's formula: all models run once, over each unique brick run once."""
        return self.models_s / self.bricks_s if self.bricks_s else None


# Model, runtime and granularity.
Key = tuple[str, str, str]
Rows = Mapping[Key, Row | Failed]
# By runtime and granularity.
Sums = Mapping[tuple[str, str], Totals]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run, finished or not, without its rows.

    ``models`` are those that were asked for. ``totals`` count every network once, ``trained`` as
    often as the paper's authors run trained models of it. ``system``, ``runtimes`` and ``protocol``
    say where and how it ran. ``quick`` runs show that everything works; their figures mean nothing.
    Of all ``rounds``, ``disturbed`` were taken while other processes kept the worker from running;
    ``wall_s`` is the wall time of measuring.
    """

    date: str
    quick: bool
    system: Mapping[str, Any]
    runtimes: Mapping[str, Mapping[str, Any]]
    protocol: Mapping[str, Any]
    granularities: tuple[str, ...]
    models: tuple[ModelFacts, ...]
    layers: Layers = field(default_factory=Layers)
    totals: Sums = field(default_factory=dict)
    trained: Sums = field(default_factory=dict)
    rounds: int = 0
    disturbed: int = 0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredResults(RunFacts):
    """Results as their file has them: comparisons and failures by model, runtime, granularity."""

    compared: Mapping[Key, Row] = field(default_factory=dict)
    failed: Mapping[Key, Failed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Results(RunFacts):
    """A run with the ``rows`` that were reached."""

    rows: Rows = field(default_factory=dict)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The granularities that are numbers, ascending."""
        return tuple(sorted(int(g) for g in self.granularities if g != EXECUTED))

    @property
    def cuts(self) -> tuple[str, ...]:
        """All granularities in the order in which they are shown."""
        return (*map(str, self.numbers), *(g for g in self.granularities if g == EXECUTED))

    def cuts_of(self, runtime: str) -> tuple[str, ...]:
        """The granularities that a runtime was run at, in the order in which they are shown."""
        run = {cut for _, of, cut in self.rows if of == runtime}
        return tuple(cut for cut in self.cuts if cut in run)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks of the models, those of most models first."""
        names = [model.task for model in self.models]
        return tuple(sorted(set(names), key=lambda task: (-names.count(task), task)))

    def of_task(self, task: str) -> list[ModelFacts]:
        """Models of a task, relatives together."""
        return sorted(
            (model for model in self.models if model.task == task),
            key=lambda model: (model.family, _natural(model.name)),
        )

    @property
    def reached(self) -> list[str]:
        """Names of the models that have results, in the order asked for."""
        known = {name for name, _, _ in self.rows}
        return [model.name for model in self.models if model.name in known]

    def ratios(self, runtime: str, granularity: str | int) -> dict[str, float]:
        """Normalised latency by model, of those that could be compared."""
        return {
            name: row.ratio
            for (name, of, cut), row in self.rows.items()
            if of == runtime and cut == str(granularity) and isinstance(row, Row)
        }

    def failures(self) -> list[tuple[str, str, str, str]]:
        """Model, runtime, granularity and reason of all that could not be compared."""
        return [(*key, row.error) for key, row in self.rows.items() if isinstance(row, Failed)]

    def geomean(self, runtime: str, granularity: str | int) -> float | None:
        """Geometric mean of normalised latency; None where nothing was compared."""
        return geomean(list(self.ratios(runtime, granularity).values()))

    def mean_error(self, runtime: str, granularity: str | int) -> float | None:
        """Mean of |estimate / measured - 1|; None where nothing was compared."""
        ratios = self.ratios(runtime, granularity).values()
        return sum(abs(r - 1) for r in ratios) / len(ratios) if ratios else None

    def within(self, runtime: str, granularity: str | int, error: float) -> int:
        """How many models are estimated with at most this relative error."""
        return sum(abs(r - 1) <= error for r in self.ratios(runtime, granularity).values())

    def speedup(self, runtime: str, granularity: str | int) -> float | None:
        """The paper's formula, every network once; None where nothing was compared."""
        totals = self.totals.get((runtime, str(granularity)))
        return None if totals is None else totals.speedup

    def trained_speedup(self, runtime: str, granularity: str | int) -> float | None:
        """The same for the trained models that the paper's authors run, where one stands for it."""
        totals = self.trained.get((runtime, str(granularity)))
        return None if totals is None else totals.speedup

    def best(self, runtime: str) -> int | None:
        """The number of layers at which the geometric mean is nearest to 1."""
        means = {g: m for g in self.numbers if (m := self.geomean(runtime, g)) is not None}
        return min(means, key=lambda g: (abs(math.log(means[g])), g), default=None)

    def to_json(self) -> dict[str, Any]:
        """The content of a file of results."""
        facts = {each.name: getattr(self, each.name) for each in fields(RunFacts)}
        compared = {key: row for key, row in self.rows.items() if isinstance(row, Row)}
        failed = {key: row for key, row in self.rows.items() if isinstance(row, Failed)}
        stored = StoredResults(**facts, compared=compared, failed=failed)
        return {"format": FORMAT, **_STORED.to_json(stored)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Results:
        """The inverse of :meth:`to_json`; comparisons come before failures."""
        stored = _STORED.from_json({key: of for key, of in data.items() if key != "format"})
        facts = {each.name: getattr(stored, each.name) for each in fields(RunFacts)}
        return cls(**facts, rows={**stored.compared, **stored.failed})


_STORED = message_codec(StoredResults)


def write(results: Results, path: Path) -> None:
    """Replace the file atomically, so that an interruption leaves the old one or the new."""
    parts = (f"{_compact(key)}:{_compact(value)}" for key, value in results.to_json().items())
    new = path.with_name(path.name + ".new")
    new.write_text("{" + ",\n".join(parts).replace("]],[[", "]],\n[[") + "}\n", encoding="utf-8")
    new.replace(path)


def read(path: Path) -> Results:
    """The inverse of :func:`write`; raises :class:`ResultsError` if there are no results."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ResultsError(
                f"{path} has format {data['format']}, and {FORMAT} is known: measure again"
            )
        return Results.from_json(data)
    except OSError as exc:
        raise ResultsError(f"{path} cannot be read ({exc.strerror}): measure first") from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ResultsError(f"{path} holds no results of this program: measure again") from exc


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def geomean(values: Sequence[float]) -> float | None:
    """The geometric mean; None of no values."""
    return geometric_mean(values) if values else None


def _natural(name: str) -> list[tuple[float, str]]:
    """A key that sorts numbers within names by value: resnet18, resnet101; 025 is a quarter."""
    parts: list[str] = []
    for character in name:
        if parts and parts[-1].isdigit() == character.isdigit():
            parts[-1] += character
        else:
            parts.append(character)
    return [(_value(part), "") if part.isdigit() else (-1.0, part) for part in parts]


def _value(digits: str) -> float:
    return float(f"0.{digits[1:]}") if digits.startswith("0") else float(digits)
