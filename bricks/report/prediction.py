"""Predictions of models for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bricks.compose.estimate import Estimate, PhaseShare
from bricks.compose.memory.peak import PeakMemory, UnknownMemory
from bricks.report.columns import DASH, Column, table_of
from bricks.report.figures import interval_text
from bricks.report.tables import measured_text, peak_size, seconds
from bricks.studies.inference.prediction import PredictedModel

_COLUMNS: Sequence[Column[PredictedModel]] = (
    Column("model", lambda of: of.model, left=True),
    Column("estimate", lambda of: _latency(of)),
    Column("interval", lambda of: interval_text(of.interval) or DASH),
    Column("critical path", lambda of: _critical_path(of)),
    Column("measured", lambda of: _measured(of)),
)
_MEMORY: Column[PredictedModel] = Column("peak memory", lambda of: _peak(of))


def prediction_table(models: Sequence[PredictedModel], *, memory: bool = False) -> Table:
    """Estimates with their provenance; with ``memory`` also the peak memory."""
    known = [of for of in models if of.estimate is not None]
    return table_of(known, [*_COLUMNS, *([_MEMORY] if memory else [])])


def _latency(of: PredictedModel) -> str:
    return "incomplete" if of.interval is None else seconds(of.interval.value)


def _critical_path(of: PredictedModel) -> str:
    return seconds(of.estimate.critical_path_s if isinstance(of.estimate, Estimate) else None)


def _measured(of: PredictedModel) -> str:
    if not isinstance(of.estimate, Estimate):
        return DASH
    return measured_text(of.estimate.measured_share, of.estimate.published_share)


def _peak(of: PredictedModel) -> str:
    memory = of.memory
    return peak_size(memory.peak_bytes, memory.unknown) if isinstance(memory, PeakMemory) else (
        peak_size(None, ())
    )  # fmt: skip


def phase_lines(model: str, phases: Sequence[PhaseShare]) -> list[str]:
    """A line with the latency of each phase of a recorded program; empty for other models."""
    if not phases:
        return []
    latencies = ", ".join(f"{phase.phase} {seconds(phase.estimate_s)}" for phase in phases)
    calls = sum(phase.calls for phase in phases)
    overhead_s = sum(phase.overhead_s for phase in phases)
    sign = "-" if overhead_s < 0 else ""
    return [f"{model}: {latencies}; {calls} calls, {sign}{seconds(abs(overhead_s))} around them."]


def memory_remarks(of: PredictedModel) -> list[str]:
    """A line if a model has no peak memory, or if parts of it are unknown."""
    match of.memory:
        case UnknownMemory() as memory:
            return [f"{of.model}: no peak memory: {memory.reason}."]
        case PeakMemory(unknown=unknown) if unknown:
            return [f"{of.model}: the peak memory does not include {'; '.join(unknown)}."]
    return []
