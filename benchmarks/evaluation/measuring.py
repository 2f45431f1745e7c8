"""The measuring part: every model on every runtime at every granularity.

The model is the outermost loop, so that all measurements of one model are within a minute or two of
each other: a machine's speed drifts. All share one cache, and nothing in it is measured again; so a
brick that several models or granularities need is measured once, as in the paper, and an
interrupted run continues. Must not know how results are shown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.evaluation import published
from benchmarks.evaluation.layers import Layers
from benchmarks.evaluation.results import (
    EXECUTED,
    Failed,
    Interval,
    ModelFacts,
    Results,
    Row,
    Totals,
)
from benchmarks.ratios import digits
from bricks import (
    BackendError,
    Bench,
    Conditions,
    Measurement,
    Model,
    ModelComparison,
    ModelError,
    StopRule,
    UsageError,
    WorkerError,
)
from bricks.closing import Closing
from bricks.sources import exactly_one, find_files
from bricks.zoo import entries

# Errors of one model that do not end the run; errors of the cache do.
OF_THE_MODEL = (BackendError, ModelError, WorkerError)

# Workers keep the memory of the largest model; they are ended when less than this share is free.
MIN_FREE_SHARE = 0.5

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What to run: names or files of models, runtimes, granularities, and how.

    ``retry`` measures again what the cache knows as a failure. ``whole_runtimes`` are run at
    granularity ``executed`` alone, if that is asked for.
    """

    models: tuple[str, ...]
    runtimes: tuple[str, ...]
    granularities: tuple[str, ...]
    rule: StopRule
    threads: int = 1
    batch: int = 1
    quick: bool = False
    retry: bool = False
    whole_runtimes: tuple[str, ...] = ()

    def cuts_of(self, runtime: str) -> tuple[str, ...]:
        """The granularities that a runtime is run at."""
        if runtime in self.whole_runtimes and EXECUTED in self.granularities:
            return (EXECUTED,)
        return self.granularities

    @property
    def cuts(self) -> list[tuple[str, str]]:
        """Every runtime with each of its granularities."""
        return [(runtime, cut) for runtime in self.runtimes for cut in self.cuts_of(runtime)]

    def protocol(self) -> dict[str, Any]:
        """The facts that a reader needs to judge the latencies."""
        rule = self.rule
        return {
            "threads": self.threads,
            "batch": self.batch,
            "precision": rule.precision,
            "min_rounds": rule.min_rounds,
            "max_rounds": rule.max_rounds,
            "passes": rule.passes,
        }


class Benches(Closing):
    """A bench for each runtime and granularity on one cache, each kept open while memory lasts.

    Starting a worker costs more than measuring a small model does.
    """

    def __init__(self, cache: Path, settings: Settings) -> None:
        """Open nothing yet; raises nothing."""
        self._cache = cache
        self._settings = settings
        self._open: dict[tuple[str, str], Bench] = {}

    def get(self, runtime: str, granularity: str) -> Bench:
        """The bench, opened if it isn't."""
        cut = (runtime, granularity)
        if cut not in self._open:
            settings = self._settings
            self._open[cut] = Bench(
                self._cache,
                runtime=runtime,
                granularity=granularity,
                threads=settings.threads,
                retry=settings.retry,
                conditions=Conditions(rule=settings.rule),
            )
        return self._open[cut]

    def relieve(self) -> None:
        """Close all if the next one might not have enough memory."""
        memory = psutil.virtual_memory()
        if memory.available < MIN_FREE_SHARE * memory.total:
            self.close()

    def close(self) -> None:
        """Close all; they open again when asked for."""
        while self._open:
            self._open.popitem()[1].close()


class Evaluation:
    """A run in progress; :meth:`results` are those so far."""

    def __init__(self, settings: Settings, benches: Benches) -> None:
        """Open every bench once, so that invalid settings are errors before anything is run.

        Raises :class:`UsageError` where one model is named twice.
        """
        self._settings = settings
        self._benches = benches
        self._names = [_name(given) for given in settings.models]
        if twice := {name for name in self._names if self._names.count(name) > 1}:
            raise UsageError(f"{', '.join(sorted(twice))}: named twice; name each model once")
        zoo = {entry.name: entry for entry in entries()}
        self._facts = [
            ModelFacts(name, e.task, e.family, e.framework, _inputs(e.inputs), e.parameters)
            if (e := zoo.get(name)) is not None and given == name
            else ModelFacts(name, "other", "other", "file", "", None)
            for name, given in zip(self._names, settings.models, strict=True)
        ]
        opened = [benches.get(*cut) for cut in settings.cuts]
        self._system = {
            k: v for k, v in opened[0].target.system.to_json().items() if k != "recorded"
        }
        self._runtimes = {
            name: {
                "version": bench.workspace.runtime.version,
                "provider": bench.workspace.runtime.provider,
            }
            for bench in opened
            for name in [bench.workspace.runtime.backend]
        }
        self._rows: dict[tuple[str, str, str], Row | Failed] = {}
        self._layers: dict[str, tuple[int, ...]] = {}
        self._numbers: dict[str, int] = {}  # of unique layers, by key of their brick
        self._types: list[str] = []
        # By runtime and granularity: models with their latency and the keys of their bricks, and
        # latencies of bricks by key.
        self._wholes: dict[tuple[str, str], dict[str, tuple[float, frozenset[str]]]] = {}
        self._bricks: dict[tuple[str, str], dict[str, float]] = {}
        self._counted: set[tuple[str, str]] = set()
        self._rounds = self._disturbed = self._fresh_rounds = 0
        self._wall_s = 0.0

    def run(self, say: Say, keep: Callable[[Results], None]) -> Results:
        """Measure everything; after each model ``keep`` is called with the results so far.

        ``say`` is called with one line of results for each model on each runtime.
        """
        started = time.monotonic()
        pairs = zip(self._settings.models, self._names, strict=True)
        for number, (given, name) in enumerate(pairs, start=1):
            for line in self._examine(given, name):
                say(f"[{number}/{len(self._names)}] {line}")
            keep(self.results())
            took_s = time.monotonic() - started
            left_s = took_s / number * (len(self._names) - number)
            say(f"[{number}/{len(self._names)}] {took_s / 60:.1f} min, {left_s / 60:.1f} min left")
        return self.results()

    def results(self) -> Results:
        """The results so far."""
        settings = self._settings
        return Results(
            date=datetime.now(UTC).date().isoformat(),
            quick=settings.quick,
            system=self._system,
            runtimes=self._runtimes,
            protocol=settings.protocol(),
            granularities=settings.granularities,
            models=tuple(self._facts),
            layers=Layers(tuple(self._types), dict(self._layers)),
            rows=dict(self._rows),
            totals=self._sums(dict.fromkeys(self._names, 1)),
            trained=self._sums({name: len(of) for name, of in published.TRAINED.items()}),
            rounds=self._rounds,
            disturbed=self._disturbed,
            wall_s=round(self._wall_s, 1),
        )

    def _sums(self, times: Mapping[str, int]) -> dict[tuple[str, str], Totals]:
        """Sums over the models of ``times``, each so many times, and over their unique bricks."""
        sums = {}
        for cut, wholes in self._wholes.items():
            counted = {name: times[name] for name in wholes if name in times}
            keys = frozenset().union(*(wholes[name][1] for name in counted))
            sums[cut] = Totals(
                sum(counted.values()),
                digits(sum(count * wholes[name][0] for name, count in counted.items()), 5),
                len(keys),
                digits(sum(self._bricks[cut][key] for key in keys), 5),
            )
        return sums

    @property
    def measured_anything(self) -> bool:
        """Whether anything was missing from the cache."""
        return self._fresh_rounds > 0

    def _examine(self, given: str, name: str) -> list[str]:
        """Everything about one model; a line for each runtime."""
        settings = self._settings
        cuts = settings.cuts
        try:
            model = self._benches.get(*cuts[0]).read(given, batch=settings.batch)
        except OF_THE_MODEL as error:
            self._rows |= {(name, *cut): Failed(str(error)) for cut in cuts}
            return [str(error)]
        self._learn_layers(name, model)
        lines = []
        for runtime in settings.runtimes:
            found = []
            for granularity in settings.cuts_of(runtime):
                row = self._compare(name, model, runtime, granularity)
                self._rows[name, runtime, granularity] = row
                found.append(
                    f"{granularity} failed: {row.error}"
                    if isinstance(row, Failed)
                    else f"{granularity} {row.ratio:.3f}"
                )
            lines.append(f"{name}, {runtime}: {', '.join(found)}")
        return lines

    def _learn_layers(self, name: str, model: Model) -> None:
        """Add the model's layers, unless no runtime can decompose it."""
        for runtime in self._settings.runtimes:
            with suppress(*OF_THE_MODEL):
                found = self._benches.get(runtime, "1").decompose(model)
                break
        else:
            return
        numbers = []
        for occurrence in found.plan.occurrences:
            key = occurrence.brick
            if key not in self._numbers:
                self._numbers[key] = len(self._numbers)
                self._types.append(found.bricks[key].operators[0])
            numbers.append(self._numbers[key])
        self._layers[name] = tuple(numbers)

    def _compare(self, name: str, model: Model, runtime: str, granularity: str) -> Row | Failed:
        self._benches.relieve()
        bench = self._benches.get(runtime, granularity)
        try:
            comparison = bench.compare([model])
        except OF_THE_MODEL as error:
            return Failed(str(error))
        self._fresh_rounds += comparison.rounds
        (row,) = comparison.rows
        if not isinstance(row, ModelComparison):
            return Failed(row.error)
        self._count(bench, name, row, (runtime, granularity))
        measured, estimate = row.measured_s, row.estimate
        return Row(
            _interval(measured.value, measured.low, measured.high),
            _interval(estimate.estimate_s, estimate.low_s, estimate.high_s),
            len(row.plan.occurrences),
            len(row.plan.keys),
        )

    def _count(self, bench: Bench, name: str, row: ModelComparison, cut: tuple[str, str]) -> None:
        """Add a model and its bricks to those of its runtime and granularity."""
        target, digest = bench.target.key, row.plan.digest
        wholes, bricks = self._wholes.setdefault(cut, {}), self._bricks.setdefault(cut, {})
        for key, result in bench.store.measurements.results(
            target, [digest, *row.plan.keys]
        ).items():
            assert isinstance(result, Measurement), "what was compared was measured"
            if key == digest:
                wholes[name] = result.latency_s, frozenset(row.plan.keys)
            else:
                bricks[key] = result.latency_s
            if (target, key) not in self._counted:
                self._counted.add((target, key))
                self._wall_s += result.wall_s
                if key == digest:
                    self._rounds += len(result.rounds)
                    self._disturbed += sum(one.disturbed for one in result.rounds)


def dated(results: Results, before: Results | None, *, measured: bool) -> Results:
    """``results`` with the date of the results ``before``, if nothing was measured since.

    They are of one run where they have the same rows, whose latencies may differ a little,
    because models that were measured after it can have added rounds to bricks that they share.
    """
    if measured or before is None or _identity(before) != _identity(results):
        return results
    return replace(results, date=before.date)


def _identity(results: Results) -> Results:
    """The facts of a run that are the same however often it is run again, as results."""
    nothing = Failed("")
    return replace(
        results, date="", rows=dict.fromkeys(results.rows, nothing), totals={}, trained={},
        rounds=0, disturbed=0, wall_s=0.0,
    )  # fmt: skip


def note(line: str) -> None:
    """Progress goes to standard error."""
    print(line, file=sys.stderr, flush=True)


def _name(given: str) -> str:
    return exactly_one(given, find_files(given)).title


def _inputs(inputs: Sequence[tuple[str, str, tuple[int | str, ...]]]) -> str:
    return ", ".join("×".join(map(str, shape)) for _, _, shape in inputs)


def _interval(value_s: float, low_s: float, high_s: float) -> Interval:
    return digits(value_s, 5), digits(low_s, 5), digits(high_s, 5)
