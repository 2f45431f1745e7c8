"""Steps of a program under PyTorch's own profiler, as events of the recorded calls.

The profiler sees more than the recorder: operators that only call others, and operators that
kernels call. Recorded calls are matched with its events in order; events inside a call and all
others are dropped. Must not know how a profile is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile

from bricks.backends.base import NodeEvent
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.recording import WARM_UP
from bricks.graph.program import call_of

if TYPE_CHECKING:
    import onnx


class ProfiledSteps:
    """Profiled steps of ``program``; ``nodes`` are its recorded calls, with distinct names."""

    def __init__(self, program: Program, nodes: Sequence[onnx.NodeProto]) -> None:
        self._program = program
        self._calls = [(node.name, node.op_type, _title(node)) for node in nodes]
        self._runs: list[tuple[float, list[Any]]] = []
        with users_errors(program.entry):
            for _ in range(WARM_UP):
                program.step()

    def sample(self) -> float:
        """Run a step; return the latency in seconds, which profiling increases."""
        with users_errors(self._program.entry), profile(activities=[ProfilerActivity.CPU]) as seen:
            self._program.step()
        events = sorted(seen.events(), key=lambda e: (e.time_range.start, -e.time_range.end))
        events = [event for event in events if event.name.startswith(("aten::", "bricks::"))]
        begin_us = events[0].time_range.start if events else 0.0
        end_us = max((event.time_range.end for event in events), default=0.0)
        self._runs.append((begin_us, events))
        return float(end_us - begin_us) * 1e-6

    def runs(self) -> list[list[NodeEvent]]:
        """Return the events of recorded calls for each step so far."""
        return [self._matched(begin_us, events) for begin_us, events in self._runs]

    def _matched(self, begin_us: float, events: Sequence[Any]) -> list[NodeEvent]:
        matched: list[NodeEvent] = []
        busy_until_us = 0.0
        for event in events:
            span = event.time_range
            if len(matched) == len(self._calls) or span.start < busy_until_us:
                continue
            name, operator, title = self._calls[len(matched)]
            if event.name != title:
                continue
            busy_until_us = span.end
            matched.append(
                NodeEvent(
                    name=name,
                    operator=operator,
                    begin_s=(span.start - begin_us) * 1e-6,
                    end_s=(span.end - begin_us) * 1e-6,
                    thread=int(event.thread),
                )
            )
        return matched


def _title(node: onnx.NodeProto) -> str:
    """Return the name of a call's operator in the profiler."""
    call = call_of(node)
    return f"{call.namespace}::{call.operator.partition('.')[0]}"
