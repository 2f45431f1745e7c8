"""Check how much data an H200's L2 keeps, with calls that ran after some bytes were displaced.

    .venv/bin/python -m benchmarks gpu

Between two runs of a call, 2 to 128 MiB of other memory were read and written. Its time then lies
between hot and cold; the share of the way is compared with the share of its data that the model of
the cache calls missing. The model's constants were fitted on steps, not on these runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.measured import measured
from benchmarks.gpu.raw import RawProgram, Run, read
from benchmarks.markdown import table
from benchmarks.ratios import digits, quantile
from benchmarks.study import Results
from benchmarks.study import Run as BenchmarkRun
from bricks.compose.device.cache_state import CacheModel, Reuse
from bricks.samples.statistics import median
from bricks.system.cards import card_named

SESSION, CARD = "h200-turns", "h200"
_MIB = 1 << 20
HOT, COLD = 0, 256 * _MIB
# Calls whose time depends on the cache, and is much longer than the clock's tick.
_LEAST_RATIO, _LEAST_S = 1.15, 3e-6
# Calls by the bytes that they touch, in MiB.
SIZES_MIB: Mapping[str, tuple[float, float]] = {
    "up to 1 MiB": (0, 1), "1 to 8 MiB": (1, 8), "8 to 32 MiB": (8, 32),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """Calls of a range of sizes, after so many MiB were displaced."""

    sizes: str
    displaced_mib: int


@dataclass(frozen=True, slots=True)
class Row:
    """The way from hot to cold, from 0 to 1: median and quartiles of calls, median of the model."""

    case: Case
    calls: int
    low: float
    share: float
    high: float
    model: float


@dataclass(frozen=True, slots=True)
class _Way:
    """A call's way from hot to cold after displacing, measured and of the model."""

    displaced_mib: int
    own_bytes: int
    share: float
    model: float


@cache
def _ways() -> tuple[_Way, ...]:
    return tuple(way for program in read(SESSION).programs for way in _of_program(program))


def _of_program(program: RawProgram) -> Iterator[_Way]:
    of, seen = measured(program), set[int]()
    for call, occurrence in zip(program.calls, of.plan.occurrences, strict=True):
        if call.unique not in seen and call.unique in program.kernels:
            seen.add(call.unique)
            own_bytes = of.decomposition.bricks[occurrence.brick].bytes_moved
            yield from _of_call(program.kernels[call.unique], own_bytes)


def _of_call(runs: Mapping[int | None, Sequence[Run]], own_bytes: int) -> Iterator[_Way]:
    times_s = {state: _median_s(of) for state, of in runs.items() if state is not None and of}
    hot_s, cold_s = times_s.get(HOT, 0.0), times_s.get(COLD, 0.0)
    if hot_s < _LEAST_S or cold_s < _LEAST_RATIO * hot_s:
        return
    for displaced, device_s in times_s.items():
        if displaced not in (HOT, COLD):
            share = (device_s - hot_s) / (cold_s - hot_s)
            yield _Way(displaced // _MIB, own_bytes, share, _missing(displaced, own_bytes))


def _median_s(runs: Sequence[Run]) -> float:
    return median([sum(kernel.device_s for kernel in run) for run in runs])


def _missing(displaced_bytes: int, own_bytes: int) -> float:
    """The share that the model calls missing; a call that repeats displaces its own data too."""
    reuse = Reuse(max(1, own_bytes), displaced_bytes + own_bytes, True)
    return CacheModel().missing([reuse], card_named(CARD).accelerator.l2_bytes)


@cache
def _by_case() -> Mapping[Case, Sequence[_Way]]:
    found: dict[Case, list[_Way]] = defaultdict(list)
    for way in _ways():
        for name, (low, high) in SIZES_MIB.items():
            if low * _MIB < way.own_bytes <= high * _MIB:
                found[Case(name, way.displaced_mib)].append(way)
    return found


def cases() -> list[Case]:
    """All ranges of sizes with all displaced bytes."""
    order = list(SIZES_MIB)
    return sorted(_by_case(), key=lambda case: (order.index(case.sizes), case.displaced_mib))


def run(case: Case, run: BenchmarkRun) -> Row:
    """The row of a case."""
    ways = _by_case()[case]
    shares = [way.share for way in ways]
    figures = (quantile(shares, 0.25), median(shares), quantile(shares, 0.75))
    model = median([way.model for way in ways])
    return Row(case, len(ways), *(digits(each, 3) for each in (*figures, model)))


def parts(results: Results[Row]) -> dict[str, str]:
    """A table of the displaced bytes, with the measured and the model's way for each size."""
    of = {row.case: row for row in results.rows}
    head = ["displaced, MiB", *(part for name in SIZES_MIB for part in (f"calls {name}", "model"))]
    lines = [
        [str(mib), *(cell for name in SIZES_MIB for cell in _cells(of.get(Case(name, mib))))]
        for mib in sorted({case.displaced_mib for case in of})
    ]
    return {"displaced": table(head, lines, "r")}


def _cells(row: Row | None) -> tuple[str, str]:
    if row is None:
        return "", ""
    share, model = (abs(round(each, 2)) for each in (row.share, row.model))
    return f"{share:.2f}", f"{model:.2f}"


BENCHMARKS = (Derived("displaced", PAGE, Row, cases, run, parts),)
