"""One predicted step over all of its ranks, as trace events: opens in ui.perfetto.dev.

A process for each rank and one for the network, in the format of :mod:`bricks.report.trace`. Must
not know how the step was simulated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bricks.compose.lanes import Span
from bricks.errors import printable
from bricks.studies.scaling.result import ScalePoint, ScalingResult
from bricks.studies.scaling.simulation import NETWORK

Event = dict[str, Any]

# The network's process; ranks follow.
_NETWORK = 1


def scaling_trace(result: ScalingResult) -> str:
    """The whole file, one event a line, of the step on the most ranks; empty if there is none."""
    first = result.strategies[0]
    if not first.predicted:
        return ""
    point = max(first.predicted, key=lambda each: each.ranks)
    about = {
        "workload": printable(result.workload),
        "system": printable(result.target.system.name),
        "network": printable(result.network),
        "strategy": first.strategy,
        "ranks": point.ranks,
        "step_us": _us(point.step_s.value),
        "low_us": _us(point.step_s.low),
        "high_us": _us(point.step_s.high),
    }
    events = ",\n".join(_json(event) for event in _events(point))
    head = _json({"displayTimeUnit": "ns", "otherData": about})
    return f'{head[:-1]},"traceEvents":[\n{events}\n]}}\n'


def _events(point: ScalePoint) -> Iterator[Event]:
    yield from _named(_NETWORK, "network")
    for span in point.simulated.of(NETWORK):
        alone_s, longer = span.work.work_s, max(span.work.slowed.values())
        facts = {
            "bytes": span.work.size_bytes,
            "messages": len(span.members),
            "alone_us": _us(alone_s),
            "while_computing_us": _us(longer * alone_s),
        }
        yield _slice(_NETWORK, span, facts)
    for rank in range(point.ranks):
        pid = _NETWORK + 1 + rank
        yield from _named(pid, f"rank {rank}")
        for span in point.spans_of(rank):
            yield _slice(pid, span, {})


def _named(pid: int, name: str) -> Iterator[Event]:
    track = {"pid": pid, "tid": 1000 * pid}
    for what, args in (
        ("process_name", {"name": name}),
        ("process_sort_index", {"sort_index": pid}),
        ("thread_name", {"name": name}),
    ):
        yield {"ph": "M", "name": what, **track, "args": args}


def _slice(pid: int, span: Span, facts: Event) -> Event:
    begin, end = round(span.begin_s * 1e9), round(span.end_s * 1e9)
    return {
        "ph": "X", "name": printable(span.kind), "pid": pid, "tid": 1000 * pid,
        "ts": begin / 1000, "dur": max(end - begin, 1) / 1000, "args": facts,
    }  # fmt: skip


def _us(seconds: float) -> float:
    return round(seconds * 1e9) / 1000


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
