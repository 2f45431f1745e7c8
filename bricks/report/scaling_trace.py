"""One predicted step over all of its ranks, as trace events: opens in ui.perfetto.dev.

A process for each rank and one for the network. Must not know how the step was simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.report.trace_events import (
    Event,
    Rows,
    Track,
    microseconds,
    named,
    slice_on,
    trace_file,
)
from bricks.studies.scaling.simulation import NETWORK

if TYPE_CHECKING:
    from bricks.studies.scaling.result import ScalePoint, ScalingResult

# The network's process; ranks follow.
_NETWORK = Track(1)


def scaling_trace(result: ScalingResult) -> str:
    """The whole file, one event a line, of the step on the most ranks; empty if there is none."""
    first = result.strategies[0]
    if not first.predicted:
        return ""
    point = max(first.predicted, key=lambda point: point.ranks)
    about = {
        "workload": printable(result.workload),
        "system": printable(result.target.system.name),
        "network": printable(result.network.name),
        "strategy": first.strategy,
        "ranks": point.ranks,
        "step_us": microseconds(point.step_s.value),
        "low_us": microseconds(point.step_s.low),
        "high_us": microseconds(point.step_s.high),
    }
    return trace_file(about, _events(point))


def _events(point: ScalePoint) -> Iterator[Event]:
    rows = Rows()
    yield from _named(_NETWORK, "network")
    for span in point.simulated.of(NETWORK):
        isolated_s, longer = span.work.work_s, max(span.work.slowed.values())
        facts = {
            "bytes": span.work.size_bytes,
            "messages": len(span.members),
            "alone_us": microseconds(isolated_s),
            "while_computing_us": microseconds(longer * isolated_s),
        }
        yield slice_on(_NETWORK, span.kind, rows.place(_NETWORK, span.begin_s, span.end_s), facts)
    for rank in range(point.ranks):
        track = Track(_NETWORK.process + 1 + rank)
        yield from _named(track, f"rank {rank}")
        for span in point.spans_of(rank):
            extent = rows.place(track, span.begin_s, span.end_s)
            yield slice_on(track, span.kind, extent, {})


def _named(process: Track, name: str) -> Iterator[Event]:
    yield named(process, "process_name", name=name)
    yield named(process, "process_sort_index", sort_index=process.process)
    yield named(process, "thread_name", name=name)
