"""The parts of research/accuracy.md, docs/accuracy.md and the README, from rows of accuracy.py.

The newest host in detail, and a row for each host and case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from benchmarks import summary
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, quantile
from benchmarks.reference_states import same_state, states
from benchmarks.study import Results
from bricks.compose.basis import IN_WALK_CALL_FACTOR
from bricks.compose.recomposition_error import CALL_SHARE, STATE_SHARE
from bricks.report.tables import number, percent, seconds
from bricks.samples.statistics import median
from bricks.zoo import entries

# Factors on the call overhead that are compared.
CALLS = tuple(round(0.8 + 0.1 * i, 1) for i in range(13))

# From this share of an estimate on, bricks known in another machine state only make a comparison
# one between two states.
CHANGED_SHARE = 0.05

FAMILIES = {entry.name: entry.family for entry in entries()}

_COLUMNS = ("median error", "95th percentile", "worst", "geometric mean", "noise floor",
            "inside the interval")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A model at a batch size, with a number of threads."""

    threads: int
    batch: int
    model: str

    @property
    def title(self) -> str:
        """Threads and batch size in words."""
        return f"{self.threads} {'thread' if self.threads == 1 else 'threads'}, batch {self.batch}"

    @property
    def cache(self) -> str:
        """The cache of all models with these threads and this batch size."""
        return f"{self.threads}-threads-batch-{self.batch}"


@dataclass(frozen=True, slots=True)
class Row:
    """A model's estimate next to its measured latency, both in the same conditions of the host.

    Latencies are in microseconds. ``state_us`` identifies the state, in earlier results: the
    latency of the reference workload while the whole model was run. ``other_state_share`` is the
    share of the estimate that is known in another state only, ``noise`` the error of the model
    against itself, ``composing_us`` the part of half the interval that covers errors of
    recomposition, ``sampled_us`` the other, independent part, and ``by_factor`` the ratio for each
    of ``CALLS``. ``new_bricks_us`` is the sum over bricks that no earlier model of the case has,
    and wall times are those of measuring the model and these bricks, everything counted. None: not
    recorded.
    """

    case: Case
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
    sampled_us: float | None = None
    by_factor: tuple[float, ...] | None = None
    rounds: int = 0
    disturbed_rounds: int = 0
    remeasured_bricks: int = 0
    whole_wall_s: float = 0.0
    new_bricks_us: float = 0.0
    new_bricks_wall_s: float = 0.0

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

    def scaled_half_us(self, scale: float) -> float:
        """Half the width of an interval whose composition part is ``scale`` times as wide.

        In rows from before both parts were independent, they add up; else their squares do.
        """
        part_us = scale * (self.composing_us or 0.0)
        if self.sampled_us is None:
            return self.half_us - (self.composing_us or 0.0) + part_us
        return math.hypot(self.sampled_us, part_us)

    @property
    def needed_scale(self) -> float:
        """The factor by which the composition part of the interval would have to be wider."""
        part_us = self.composing_us or math.nan
        if self.sampled_us is None:
            return max(0.0, self.miss_us - (self.half_us - part_us)) / part_us
        return math.sqrt(max(0.0, self.miss_us**2 - self.sampled_us**2)) / part_us


@dataclass(frozen=True, slots=True)
class Granularity:
    """A granularity that some models are cut at."""

    granularity: str


@dataclass(frozen=True, slots=True)
class Cut:
    """Some models cut at one granularity."""

    case: Granularity
    models: tuple[str, ...]
    bricks: int
    occurrences: int
    median_error: float
    worst_error: float
    geomean_ratio: float
    speedup_latency: float
    bricks_wall_s: float


def parts(results: Results[Row]) -> dict[str, str]:
    """The tables and figures of the newest host, and a row for each host and case."""
    rows, about = results.rows, results.about
    ratios = Ratios(tuple(row.ratio for row in rows))
    inside = sum(row.inside for row in rows) / len(rows)
    hosts = (results, *results.others)
    every = [
        [f"{host.about.system}, {host.about.runtime}, {host.about.date}", title,
         str(len(of)), *_cells(of, whole=whole)]
        for host in hosts
        for title, of, whole in _by_case(host)
    ]  # fmt: skip
    return {
        "date": about.date,
        "system": f"{about.system} with {about.runtime}",
        "half_within": percent(ratios.median_error),
        "p95_within": percent(ratios.p95_error),
        "worst": percent(ratios.worst_error),
        "geomean": number(ratios.geomean, 3),
        "inside": percent(inside, 0),
        "overview": _overview(results),
        "models": str(len({row.case.model for row in rows})),
        "zoo": str(len(FAMILIES)),
        "hosts": _dense(table(["host", "case", "models", *_COLUMNS], every, "ll")),
        "calls": _calls(rows),
        **_intervals(rows),
        "largest": _largest(rows),
        "conduct": _conduct(rows),
    }


def _groups(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by number of threads and batch size."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.case.title, []).append(row)
    return found


def _by_case(host: Results[Row]) -> list[tuple[str, Sequence[Row], bool]]:
    """Rows of each case with its title, and all of a host."""
    cases = [(title, of, False) for title, of in _groups(host.rows).items()]
    return [*cases, (f"all {len(host.rows)}", host.rows, True)]


def _cells(rows: Sequence[Row], *, whole: bool = False) -> list[str]:
    """Errors, the noise floor and the share inside; of a ``whole`` host if all rows have it."""
    ratios = Ratios(tuple(row.ratio for row in rows))
    noises = [row.noise for row in rows if row.noise is not None]
    known = len(noises) == len(rows) if whole else bool(noises)
    inside = sum(row.inside for row in rows) / len(rows)
    return [*_errors(ratios), percent(median(noises)) if known else "", percent(inside, 0)]


def _errors(ratios: Ratios) -> list[str]:
    errors = (ratios.median_error, ratios.p95_error, ratios.worst_error)
    return [*map(percent, errors), number(ratios.geomean, 3)]


def _overview(results: Results[Row]) -> str:
    """Rows for each case and its machine states, and one for all of them."""
    lines = []
    several = False
    for title, rows, whole in _by_case(results):
        lines.append([title, *_cells(rows, whole=whole)])
        groups = [] if whole else list(by_state(rows))
        several = several or bool(groups)
        lines += [[f"– {name} ({_count(of)})", *_cells(of)] for name, of in groups]
    note = (
        "Error is |estimate / measured - 1|. The noise floor is the error of whole models against"
        " themselves, between two series that were sampled in alternation in the same session."
    )
    between = (
        " A model is *between two states* if the host changed its [conditions]"
        "(../docs/glossary.md#host-conditions) between the model and a part of its bricks."
    )
    failed = [f"Not compared: {each.case.title}: {each.error}" for each in results.failed]
    body = table(["", *_COLUMNS], lines)
    return paragraphs(body, note + (between if several else ""), *failed)


def _count(rows: Sequence[object]) -> str:
    return f"{len(rows)} {'model' if len(rows) == 1 else 'models'}"


def by_state(rows: Sequence[Row]) -> Iterable[tuple[str, list[Row]]]:
    """The rows of each machine state, where there are several; and of changes between two."""
    changed = [row for row in rows if row.changed]
    steady = [row for row in rows if not row.changed]
    known = [s for s in states(row.state_us for row in steady) if s is not None]
    if len(known) + bool(changed) > 1:
        left = steady
        for state_us in known:
            mine = [row for row in left if same_state(row.state_us, state_us)]
            left = [row for row in left if not same_state(row.state_us, state_us)]
            yield f"in the state of {state_us:.0f} µs", mine
    if changed:
        yield "between two states", changed


def _calls(rows: Iterable[Row]) -> str:
    """The effect of the chosen factor on the call overhead; families are left out of the fit."""
    every = [(FAMILIES[row.case.model], row.by_factor) for row in rows if row.by_factor is not None]
    families = sorted({family for family, _ in every})
    if len(families) < 2:
        return ""

    def best(kept: Collection[Sequence[float]]) -> int:
        errors = [sum(abs(of[i] - 1) for of in kept) for i in range(len(CALLS))]
        return errors.index(min(errors))

    def errors(factor: Callable[[str], int]) -> list[str]:
        return _errors(Ratios(tuple(of[factor(family)] for family, of in every)))

    left_out = {family: best([of for other, of in every if other != family]) for family in families}
    factors = ", ".join(number(CALLS[i], 1) for i in sorted(set(left_out.values())))
    shipped = CALLS.index(IN_WALK_CALL_FACTOR)
    lines = [
        ["1, what the probes say", *errors(lambda family: CALLS.index(1.0))],
        [f"{number(IN_WALK_CALL_FACTOR, 1)}, as shipped", *errors(lambda family: shipped)],
        [f"best for all *other* families ({factors})", *errors(lambda family: left_out[family])],
    ]
    own = CALLS[best([of for _, of in every])]
    return paragraphs(
        table(["factor", *_COLUMNS[:4]], lines),
        f"In this session the best factor is {number(own, 1)}.",
    )


def _intervals(rows: Iterable[Row]) -> dict[str, str]:
    """How often intervals hold the latency; families are left out of the fit of their width."""
    known = [row for row in rows if row.composing_us]
    shares = {"state_share": percent(STATE_SHARE), "call_share": number(CALL_SHARE)}
    families = {FAMILIES[row.case.model] for row in known}
    if len(families) < 2:
        return {**shares, "intervals": "", "scale": "–"}
    scales = {family: _scale(r for r in known if FAMILIES[r.case.model] != family)
              for family in families}  # fmt: skip
    scaled_us = [row.scaled_half_us(scales[FAMILIES[row.case.model]]) for row in known]
    lines = [
        ["samples alone", _inside(known, [row.scaled_half_us(0.0) for row in known]), ""],
        ["as shipped", *_widths(known, [row.half_us for row in known])],
        ["second part scaled, by 95 % of *other* families", *_widths(known, scaled_us)],
    ]
    rendered = table(["width", "inside", "median half-width"], lines)
    return {**shares, "intervals": _dense(rendered), "scale": number(_scale(known))}


def _scale(rows: Iterable[Row]) -> float:
    """The factor that 95 % of the rows need at most."""
    return quantile([row.needed_scale for row in rows], 0.95)


def _widths(rows: Sequence[Row], halves_us: Sequence[float]) -> list[str]:
    relative = [half / row.estimate_us for row, half in zip(rows, halves_us, strict=True)]
    return [_inside(rows, halves_us), percent(median(relative))]


def _inside(rows: Sequence[Row], halves_us: Sequence[float]) -> str:
    hits = sum(row.miss_us <= half for row, half in zip(rows, halves_us, strict=True))
    return percent(hits / len(rows), 0)


def _largest(rows: Iterable[Row], most: int = 10) -> str:
    """The models with the largest errors of each case."""
    groups = _groups(rows)
    worst = [sorted(of, key=lambda row: -abs(row.ratio - 1))[:most] for of in groups.values()]
    lines = []
    for i in range(max(map(len, worst), default=0)):
        pairs = [(of[i].case.model, number(of[i].ratio, 3)) if i < len(of) else ("", "")
                 for of in worst]  # fmt: skip
        lines.append([cell for pair in pairs for cell in pair])
    head = [cell for title in groups for cell in (title, "ratio")]
    return table(head, lines, "lr" * len(groups))


def _conduct(rows: Iterable[Row]) -> str:
    """How the measurements of each case went, and what they cost."""
    lines = []
    for title, of in _groups(rows).items():
        disturbed = sum(row.disturbed_rounds for row in of)
        lines.append([
            title, f"{disturbed} of {sum(row.rounds for row in of)}",
            str(sum(row.remeasured_bricks for row in of)), _states(of), *_savings(of),
        ])  # fmt: skip
    head = ["", "disturbed rounds", "measured again", "machine states", "ratio of latencies",
            "ratio of wall times"]  # fmt: skip
    return table(head, lines)


def _states(rows: Iterable[Row]) -> str:
    """The machine states that models were run in, with the number of models."""
    known = [row.state_us for row in rows]
    found = []
    for state_us in states(known):
        if state_us is not None:
            of_state = [each for each in known if same_state(each, state_us)]
            found.append(f"{seconds(state_us / 1e6)} ({_count(of_state)})")
    return ", ".join(found)


def _savings(rows: Sequence[Row]) -> list[str]:
    """Ratios of all models to all unique bricks: of latencies and of wall times."""
    bricks_us = sum(row.new_bricks_us for row in rows)
    if not bricks_us:
        return ["–", "–"]
    models_s = sum(row.whole_wall_s for row in rows)
    bricks_s = sum(row.new_bricks_wall_s for row in rows)
    wall = f"{number(models_s / bricks_s)} ({seconds(models_s)} / {seconds(bricks_s)})"
    return [number(sum(row.measured_us for row in rows) / bricks_us), wall]


def _dense(text: str) -> str:
    """A table whose empty cells take one space."""
    while "|  |" in text:
        text = text.replace("|  |", "| |")
    return text


def granularities(results: Results[Cut]) -> dict[str, str]:
    """Errors and cost of estimates of some models, by granularity; one thread."""
    names = results.rows[0].models
    head = ["granularity", "bricks", "occurrences", "median error", "worst", "geometric mean",
            "latencies, models / bricks", "wall time of bricks"]  # fmt: skip
    lines = (
        [cut.case.granularity, str(cut.bricks), str(cut.occurrences), percent(cut.median_error),
         percent(cut.worst_error), number(cut.geomean_ratio, 3), number(cut.speedup_latency),
         seconds(cut.bricks_wall_s)]
        for cut in results.rows
    )  # fmt: skip
    return {
        "cut_models": f"{len(names)} models ({', '.join(names)})",
        "granularities": table(head, lines),
    }


def summed_up(results: Results[Row]) -> dict[str, str]:
    """A row for each host, and the figures of the newest."""
    hosts = [(host.about, _by_case(host)[-1][1]) for host in (results, *results.others)]
    lines = [
        [f"{about.system}, {about.runtime}", str(len(of)), *_cells(of, whole=True)]
        for about, of in hosts
    ]
    inside = [row.inside for row in results.rows]
    return {
        **summary.row("onnx", Ratios(tuple(row.ratio for row in results.rows)), inside),
        "accuracy": _dense(table(["host", "estimates", *_COLUMNS], lines)),
    }


def readme(results: Results[Row]) -> dict[str, str]:
    """The README's sentence about the newest host."""
    rows = results.rows
    ratios = Ratios(tuple(row.ratio for row in rows))
    inside = percent(sum(row.inside for row in rows) / len(rows), 0)
    sentence = (
        f"Half of {len(rows)} estimates of the zoo are within {percent(ratios.median_error)} of a"
        f" run, 95 % within {percent(ratios.p95_error)}; {inside} of the runs lie inside the"
        f" interval ({results.about.system}, {results.about.runtime})."
    )
    return {"accuracy": sentence}
