"""Predictions of models for terminals, alone or next to runs of the whole models.

With the answer of ``compare``, and what a quota below one processor makes of runs in a loop. Must
not compute results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate, PhaseShare
from bricks.compose.memory.peak import PeakMemory, UnknownMemory
from bricks.report.agreement import differing
from bricks.report.tables import (
    Column,
    notable,
    number,
    peak_size,
    percent,
    seconds,
    share_text,
    table_of,
)
from bricks.report.words import (
    count_text,
    device_of,
    shapes_text,
    target_text,
    uncertainty_text,
    value_text,
    verb,
)
from bricks.samples.statistics import median
from bricks.studies.inference.prediction import ModelPredictions, PredictedModel

if TYPE_CHECKING:
    from rich.table import Table

    from bricks.studies.inference.result import Comparison, ModelComparison
    from bricks.studies.inference.settings import Setting
    from bricks.system import Target
    from bricks.units.interval import Interval

# Of many models, so many of the fastest are shown.
FEW = 10

TITLES = {"quantize": "precision", "shapes": "shape"}
MARK = "*"

Cell = Column[PredictedModel]


def prediction_table(of: ModelPredictions, *, every: bool = False) -> Table:
    """Estimates with their provenance, the fastest models first; ``every`` shows all facts of all.

    Where there are several settings, the best one of each model has a mark.
    """
    rows = [model for model in of.models if model.interval or (every and model.memory)]
    if not of.swept:
        rows.sort(key=_order)
    best = best_cells(of) if has_best(of) else ()
    several = len({model.model for model in of.models}) > 1
    lanes = _LANES if any(map(device_of, rows)) else ()
    columns = [
        *([_MODEL] if several or not of.swept else []),
        *map(_dimension_column, of.dimensions),
        _latency_column(
            "latency", lambda of: marked(seconds(of.latency_s.value), is_among(of, best))
        ),
        _latency_column("interval", lambda of: uncertainty_text(of.latency_s)),
        *([_SAMPLE] if "batch" in of.dimensions else []),
        *lanes,
        *([] if of.swept and not every else _SOURCES[bool(lanes and not every) :]),
        *(_DETAILS if every else []),
    ]
    return table_of(rows if every or of.swept else rows[:FEW], columns)


def best_cells(of: ModelPredictions) -> Sequence[PredictedModel]:
    """The estimate of each model and shape in the setting that takes least for each sample."""
    best: dict[tuple[str, Sequence[str]], PredictedModel] = {}
    for cell in of.estimated:
        # Other shapes are other work: their times for a sample do not compare.
        known = best.setdefault((cell.model, cell.setting.shapes), cell)
        if cell.sample_s.value < known.sample_s.value:
            best[cell.model, cell.setting.shapes] = cell
    return list(best.values())


def has_best(of: ModelPredictions) -> bool:
    """Whether a setting can be the best: of other shapes none is, as they are other work."""
    return of.swept and of.dimensions != ("shapes",) and not of.mixes


def is_among(cell: PredictedModel, cells: Sequence[PredictedModel]) -> bool:
    """Whether ``cell`` itself is one of ``cells``."""
    return any(cell is other for other in cells)


def marked(text: str, best: bool) -> str:
    """``text`` with the mark of the best."""
    return f"{MARK} {text}" if best else text


def dimension_text(setting: Setting, name: str) -> str:
    """The value of a setting in the dimension ``name``."""
    if name == "system":
        return "here" if setting.system is None else str(setting.system_name)
    if name == "shapes":
        return shapes_text(setting.shapes) or "as it is"
    value = getattr(setting, name)
    return "as it is" if value is None else str(value)


def _dimension_column(name: str) -> Cell:
    title = TITLES.get(name, name)
    return Column(title, lambda row: dimension_text(row.setting, name), left=True)


def _latency_column(title: str, text: Callable[[PredictedModel], str | None]) -> Cell:
    """A column about latencies; None for a model without an estimate."""
    return Column(title, lambda of: None if of.interval is None else text(of))


def _order(of: PredictedModel) -> float:
    return math.inf if of.interval is None else of.interval.value


def _rate(of: PredictedModel) -> str | None:
    """Samples per second of all copies; None for a model that takes no time, or no samples."""
    rate = of.samples_per_s.value
    return f"{rate:.4g}" if math.isfinite(rate) and rate > 0 else None


def _source_column(name: str) -> Cell:
    """The share of the latency that is measured, say; None for nothing."""

    def cell(of: PredictedModel) -> str | None:
        if not isinstance(of.estimate, Estimate):
            return None
        shares = notable({name: getattr(of.estimate.provenance, f"{name}_share")})
        return share_text(shares[name]) if shares else None

    return Column(name, cell)


def _critical_path(of: PredictedModel) -> str:
    return seconds(of.estimate.critical_path_s if isinstance(of.estimate, Estimate) else None)


def _peak(of: PredictedModel) -> str:
    memory = of.memory
    return peak_size(memory.peak_bytes, memory.unknown) if isinstance(memory, PeakMemory) else (
        peak_size(None, ())
    )  # fmt: skip


def _lane_column(name: str) -> Cell:
    """Seconds of a step on one lane of a host with a device; None for other models."""

    def cell(of: PredictedModel) -> str | None:
        taken_s: Interval | None = getattr(device_of(of), f"{name}_s", None)
        return None if taken_s is None else seconds(taken_s.value)

    return Column(name, cell)


_LANES: Sequence[Cell] = tuple(map(_lane_column, ("device", "graph")))
_MODEL: Cell = Column("model", lambda row: row.model, left=True)
_SAMPLE: Cell = _latency_column("a sample", lambda of: seconds(of.sample_s.value))
_SOURCES: Sequence[Cell] = (
    _latency_column("samples/s", _rate),
    *map(_source_column, ("measured", "published", "predicted")),
)
_DETAILS: Sequence[Cell] = (
    _lane_column("host"),
    Column("critical path", _critical_path),
    Column("peak memory", _peak),
)


def phase_lines(model: str, phases: Sequence[PhaseShare]) -> list[str]:
    """A line with the latency of each phase of a recorded program; empty for other models."""
    if not phases:
        return []
    latencies = ", ".join(f"{phase.phase} {seconds(phase.estimate_s)}" for phase in phases)
    calls = sum(phase.calls for phase in phases)
    overhead_s = sum(phase.overhead_s for phase in phases)
    sign = "-" if overhead_s < 0 else ""
    around = f", {sign}{seconds(abs(overhead_s))} around them" if overhead_s else ""
    return [f"{model}: {latencies}; {calls} calls{around}."]


def now_remarks(of: PredictedModel) -> list[str]:
    """A line where an answer for now has bricks that were measured at another time."""
    if not of.old_bricks:
        return []
    return [
        f"{of.model}: {count_text(of.old_bricks, 'brick')} {verb(of.old_bricks, 'was', 'were')} not"
        " measured again for now, in the budget or without measuring: the answer follows the"
        " host's reference kernels there. A larger --budget renews them."
    ]


def branch_remarks(of: PredictedModel) -> list[str]:
    """A line for each branch that synthetic data did not choose: what it would take."""
    if of.interval is None:
        return []
    lines = []
    for branch in of.branches:
        taken = f"synthetic data take the {branch.taken} of {branch.node}"
        if branch.other_s is None:
            lines.append(f"{of.model}: {taken}; its {branch.other} is not measured.")
            continue
        whole_s = of.interval.value + branch.other_s.value - branch.taken_s
        lines.append(
            f"{of.model}: {taken}, which takes {seconds(branch.taken_s)}; its {branch.other} takes"
            f" {seconds(branch.other_s.value)}, and the model {seconds(whole_s)} with it."
        )
    return lines


def changing_remarks(models: Sequence[PredictedModel]) -> list[str]:
    """Lines where inputs that change from run to run matter: what a loop over one takes."""
    lines, unknown = [], []
    for of in models:
        changing = of.changing_inputs
        if changing is None:
            continue
        if changing.repeated_s is None:
            unknown.append((changing.share, of.model))
            continue
        lines.append(
            f"{of.model}: inputs change from run to run, as on a server; a loop over one input"
            f" takes {seconds(changing.repeated_s.value)}."
        )
    if unknown:
        share, model = max(unknown)
        others = f" (and {len(unknown) - 1} more models)" if len(unknown) > 1 else ""
        lines.append(
            f"{model}{others}: inputs change from run to run, as on a server, which counts for"
            f" bricks with {share_text(share)} of the latency. For a loop over one input, add"
            " --repeat-inputs."
        )
    return lines


def run_remarks(of: PredictedModel) -> list[str]:
    """A line with percentiles of single runs, where they were requested."""
    runs = of.single_runs
    if runs is None:
        return []
    return [
        f"{of.model}: at any time, 90 % of single runs take at most {seconds(runs.p90_s)}, and"
        f" 99 % at most {seconds(runs.p99_s)}."
    ]


def host_remarks(models: Sequence[PredictedModel], *, every: bool) -> list[str]:
    """A line where this host has not shown how far estimates are off; with ``every``, if it has."""
    runs = [
        of.estimate.own_runs
        for of in models
        if isinstance(of.estimate, Estimate) and of.estimate.own_runs is not None
    ]
    if not runs:
        return []
    if least := min(runs):
        shown = f"{count_text(least, 'whole model')} that this host ran along with their bricks"
        return [f"How far estimates are off follows from {shown}."] if every else []
    return [
        "This host ran no whole model along with its bricks yet, so a wide error is assumed. To"
        " narrow it: bricks compare MODEL"
    ]


def memory_remarks(of: PredictedModel) -> list[str]:
    """A line if a model has no peak memory, or if parts of it are unknown."""
    match of.memory:
        case UnknownMemory() as memory:
            return [f"{of.model}: no peak memory: {memory.reason}."]
        case PeakMemory(unknown=unknown) if unknown:
            return [f"{of.model}: the peak memory does not include {'; '.join(unknown)}."]
    return []


COLUMNS: Sequence[Column[ModelComparison]] = (
    Column("model", lambda row: row.model, left=True),
    Column("bricks", lambda row: str(row.bricks)),
    Column("new", lambda row: str(row.new_bricks) if row.new_bricks else None),
    Column("measured", lambda row: seconds(row.measured_s.value)),
    Column("estimate", lambda row: seconds(row.estimate.estimate_s)),
    Column("interval", lambda row: uncertainty_text(row.estimate.latency_s)),
    Column("ratio", lambda row: number(row.ratio, 3)),
    Column("in interval", lambda row: "yes" if row.checked.inside else "no"),
)


def comparison_table(of: Comparison) -> Table:
    """A row for each model."""
    return table_of(of.compared, COLUMNS)


def comparison_remarks(of: Comparison) -> list[str]:
    """What bricks stand for and where estimates lean to; then what measuring took."""
    summary = of.summary
    return [
        f"{summary.bricks} bricks stand for {summary.occurrences} occurrences in"
        f" {count_text(summary.models, 'model')}. The geometric mean of ratios is"
        f" {number(summary.geomean_ratio, 3)}; noise of runs is {percent(summary.noise_floor)}.",
        f"{_target(of)}: running each model once takes {number(summary.speedup_latency)} times as"
        f" long as each brick once; measuring the models took {number(summary.speedup_wall)} times"
        f" as long as measuring the bricks ({seconds(summary.models_wall_s)} against"
        f" {seconds(summary.bricks_wall_s)}, everything counted).",
    ]


def _target(of: Comparison) -> str:
    workers = f", {of.workers} workers" if of.workers > 1 else ""
    return f"{target_text(of.target)}{workers}, granularity {of.granularity}"


def comparison_answer(of: Comparison) -> str:
    """The error of one estimate, or the greatest and the median one of several.

    ``9 estimates are within 4.9 % of runs, 0.5 % in the median; 8 of 9 intervals hold the run.``
    """
    compared, failed = of.compared, len(of.errors)
    if not compared:
        return f"Nothing was compared: {'; '.join(of.errors) or 'no model was named'}"
    text = _one(compared[0]) if len(compared) == 1 else _several(compared)
    if of.copies > 1:
        text = f"With {of.copies} copies at once, {text}"
    text += differing(of.agreements, of.target.runtime.backend, models=len(compared))
    if not failed:
        return f"{text}."
    return f"{text}; {count_text(failed, 'model')} {verb(failed, 'has', 'have')} no comparison."


def _one(of: ModelComparison) -> str:
    side = "below" if of.ratio < 1 else "above"
    where = "inside" if of.checked.inside else "outside"
    return (
        f"{of.model} is estimated at {value_text(of.estimate.latency_s)},"
        f" {percent(of.checked.error)} {side} the measured {seconds(of.measured_s.value)},"
        f" which is {where} the interval"
    )


def _several(compared: Sequence[ModelComparison]) -> str:
    errors = [of.checked.error for of in compared]
    hits = sum(of.checked.inside for of in compared)
    return (
        f"{len(compared)} estimates are within {percent(max(errors))} of runs,"
        f" {percent(median(errors))} in the median; {hits} of {len(compared)} intervals hold the"
        " run"
    )


def quota_remarks(model: str, latency_s: Interval, target: Target | None) -> list[str]:
    """A line on runs of ``model`` in a loop on ``target``; empty if no quota stops them."""
    quota = None if target is None else target.system.quota
    if quota is None or not latency_s.value:
        return []
    loop = quota.loop(latency_s.value)
    return [
        f"{model}: that is a run within the quota, {seconds(quota.budget_s)} of each"
        f" {seconds(quota.period_s)}. In a loop, runs stop when it is spent: half of them take at"
        f" most {seconds(loop.p50_s)}, 99 % at most {seconds(loop.p99_s)}, and"
        f" {loop.runs_per_s:.4g} are done a second."
    ]
