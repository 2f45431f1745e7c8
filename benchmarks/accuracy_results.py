"""What accuracy.py keeps of a host: rows of models by case, and the figures that sum them up.

One file a host, ``SYSTEM.json``, which stays when other hosts are added; while its models are being
measured, ``SYSTEM.unfinished.json``. Rows hold medians and intervals in microseconds, to four
digits, and no raw samples: a host with all models of the zoo takes some hundred kilobytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

# Factors on the call overhead that are compared.
CALLS = tuple(round(0.8 + 0.1 * i, 1) for i in range(13))

# From this share of an estimate on, bricks known in another machine state only make a comparison
# one between two states.
CHANGED_SHARE = 0.05

_UNFINISHED = ".unfinished.json"


@dataclass(frozen=True, slots=True)
class Row:
    """A model's estimate beside its measured latency, both in one machine state.

    Latencies are in microseconds. ``state_us`` identifies the state: it is the latency of the
    reference workload while the whole model was run. ``other_state_share`` is the share of the
    estimate that is known in another state only, ``noise`` the error of the model against itself,
    ``composing_us`` the part of half the interval that covers errors of recomposition,
    ``sampled_us`` the other, independent part, and ``by_factor`` the ratio for each of ``CALLS``.
    None: not recorded.
    """

    model: str
    occurrences: int
    bricks: int
    measured_us: float
    measured_low_us: float
    measured_high_us: float
    estimate_us: float
    low_us: float
    high_us: float
    ratio: float
    state_us: float | None = None
    other_state_share: float | None = None
    noise: float | None = None
    composing_us: float | None = None
    read_s: float | None = None
    by_factor: Sequence[float] | None = None
    sampled_us: float | None = None

    @property
    def error(self) -> float:
        """|estimate / measured - 1|."""
        return abs(self.ratio - 1)

    @property
    def inside(self) -> bool:
        """Whether the measured latency lies inside the estimate's interval."""
        return self.low_us <= self.measured_us <= self.high_us

    @property
    def changed(self) -> bool:
        """Whether the machine changed its state between the bricks and the model."""
        return (self.other_state_share or 0.0) >= CHANGED_SHARE

    @property
    def half_us(self) -> float:
        """Half the width of the estimate's interval."""
        return (self.high_us - self.low_us) / 2

    @property
    def miss_us(self) -> float:
        """The distance from the estimate to the measured latency."""
        return abs(self.measured_us - self.estimate_us)


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of some estimates: |ratio - 1|, and the geometric mean of ratios."""

    median: float
    p95: float
    worst: float
    geomean_ratio: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The errors of some models, and the share of them ``inside`` their intervals.

    ``noise_floor`` is the median error of models against themselves; None: not recorded.
    """

    title: str
    models: int
    errors: Errors
    inside: float
    noise_floor: float | None = None


@dataclass(frozen=True, slots=True)
class Conduct:
    """How the measurements of a case went."""

    rounds: int = 0
    disturbed_rounds: int = 0
    remeasured_bricks: int = 0

    def plus(self, other: Conduct) -> Conduct:
        """Of both."""
        return Conduct(
            self.rounds + other.rounds,
            self.disturbed_rounds + other.disturbed_rounds,
            self.remeasured_bricks + other.remeasured_bricks,
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What a case's models cost in comparison with their bricks.

    ``speedup_latency`` is the sum of their latencies over that of the unique bricks. The times are
    those of measuring them, everything counted.
    """

    speedup_latency: float
    models_wall_s: float
    bricks_wall_s: float


@dataclass(frozen=True, slots=True)
class Case:
    """Models at one number of threads and one batch size; ``failures`` are errors by model.

    ``figures`` are those of all rows, and then those of each machine state if there are several.
    They and ``cost`` are added at the end.
    """

    threads: int
    batch: int
    rows: tuple[Row, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    conduct: Conduct = field(default_factory=Conduct)
    cost: Cost | None = None
    figures: tuple[Figures, ...] = ()

    @property
    def title(self) -> str:
        """The case in words."""
        return f"{self.threads} {'thread' if self.threads == 1 else 'threads'}, batch {self.batch}"

    @property
    def tried(self) -> set[str]:
        """The models that were compared, and those that could not be."""
        return {row.model for row in self.rows} | self.failures.keys()

    def plus(self, piece: Case) -> Case:
        """With the rows of another piece of the same case."""
        return replace(
            self,
            rows=(*self.rows, *piece.rows),
            failures={**self.failures, **piece.failures},
            conduct=self.conduct.plus(piece.conduct),
        )


@dataclass(frozen=True, slots=True)
class Calls:
    """The effect of the factor on the cost of a call: errors with each of three choices.

    The choices are 1, the factor that is shipped, and the best for all *other* families, which are
    ``left_out_factors``. ``best_factor`` is the best of this session.
    """

    shipped_factor: float
    left_out_factors: Sequence[float]
    best_factor: float
    one: Errors
    shipped: Errors
    left_out: Errors


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often intervals hold the latency, and their median half-widths, as shares.

    Of the samples alone; as shipped, with a second part of ``state_share`` of the latency and
    ``call_share`` calls; and with that part scaled by what *other* families need. ``scale`` is what
    this session would need.
    """

    state_share: float
    call_share: float
    samples_inside: float
    shipped_inside: float
    shipped_width: float
    left_out_inside: float
    left_out_width: float
    scale: float


@dataclass(frozen=True, slots=True)
class Cut:
    """Some models cut at one granularity."""

    granularity: str
    bricks: int
    occurrences: int
    median_error: float
    worst_error: float
    geomean_ratio: float
    speedup_latency: float
    bricks_wall_s: float


@dataclass(frozen=True, slots=True)
class Host:
    """The results of a host: one session, which may have been measured in many pieces.

    ``key`` is the system's, None if it was not recorded. ``note`` is a remark on the results.
    ``figures`` (of all rows), ``calls`` and ``intervals`` are added at the end.
    """

    system: str
    key: str | None
    backend: str
    version: str
    begun: str
    finished: str | None
    zoo: int
    precision: float
    max_rounds: int
    cases: tuple[Case, ...] = ()
    cut_models: Sequence[str] = ()
    cuts: tuple[Cut, ...] = ()
    figures: Figures | None = None
    calls: Calls | None = None
    intervals: Intervals | None = None
    note: str | None = None

    @property
    def rows(self) -> list[Row]:
        """Those of all cases."""
        return [row for case in self.cases for row in case.rows]

    @property
    def models(self) -> int:
        """The number of models."""
        return len({model for case in self.cases for model in case.tried})

    def case(self, threads: int, batch: int) -> Case:
        """What is known of a case by now."""
        found = (c for c in self.cases if (c.threads, c.batch) == (threads, batch))
        return next(found, Case(threads, batch))

    def with_case(self, case: Case) -> Host:
        """With this case in place of what was known of it."""
        same = [(c.threads, c.batch) == (case.threads, case.batch) for c in self.cases]
        if not any(same):
            return replace(self, cases=(*self.cases, case))
        cases = (case if its else c for c, its in zip(self.cases, same, strict=True))
        return replace(self, cases=tuple(cases))


def file_of(folder: Path, system: str, *, unfinished: bool = False) -> Path:
    """The file of the host called ``system``."""
    name = re.sub(r"[^\w.-]+", "-", system)
    return folder / f"{name}{_UNFINISHED if unfinished else '.json'}"


def hosts(folder: Path) -> list[Host]:
    """All finished hosts, the newest first."""
    files = [path for path in folder.glob("*.json") if not path.name.endswith(_UNFINISHED)]
    found = sorted(map(load, files), key=lambda host: host.system)
    return sorted(found, key=lambda host: host.finished or "", reverse=True)


def save(host: Host, path: Path) -> None:
    """Write a host's file: the whole of it, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_plain(host), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    beside = path.with_name(f".{path.name}.new")
    # A line for each row.
    beside.write_text(text.replace("],[", "],\n[") + "\n", encoding="utf-8")
    beside.replace(path)


def load(path: Path) -> Host:
    """The host in a file that :func:`save` wrote."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    columns = facts.pop("columns")
    facts["cases"] = tuple(_case(case, columns) for case in facts["cases"])
    facts["cuts"] = tuple(Cut(**cut) for cut in facts["cuts"])
    if facts["figures"] is not None:
        facts["figures"] = _figures(facts["figures"])
    if facts["intervals"] is not None:
        facts["intervals"] = Intervals(**facts["intervals"])
    if (calls := facts["calls"]) is not None:
        errors = {name: Errors(**calls[name]) for name in ("one", "shipped", "left_out")}
        facts["calls"] = Calls(**{**calls, **errors})
    return Host(**facts)


def _case(facts: Mapping[str, Any], columns: Sequence[str]) -> Case:
    cost = facts["cost"]
    parts = {
        "rows": tuple(Row(**dict(zip(columns, row, strict=True))) for row in facts["rows"]),
        "conduct": Conduct(**facts["conduct"]),
        "cost": None if cost is None else Cost(**cost),
        "figures": tuple(map(_figures, facts["figures"])),
    }
    return Case(**{**facts, **parts})


def _figures(facts: Mapping[str, Any]) -> Figures:
    return Figures(**{**facts, "errors": Errors(**facts["errors"])})


def _plain(host: Host) -> dict[str, Any]:
    """A host as JSON; a row is a list, in the order of ``columns``."""
    columns = [each.name for each in fields(Row)]
    facts = _facts(host)
    for case, plain in zip(host.cases, facts["cases"], strict=True):
        plain["rows"] = [[getattr(row, name) for name in columns] for row in case.rows]
    return {"columns": columns, **facts}


def _facts(value: Any) -> Any:
    """Dataclasses as dicts, sequences as lists."""
    if hasattr(value, "__dataclass_fields__"):
        return {each.name: _facts(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple | list):
        return [_facts(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value
