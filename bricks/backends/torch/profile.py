"""Steps of a program under PyTorch's own profiler, as the calls that were recorded.

The profiler sees more than the recorder: operators that only call others, and those that kernels
call. Recorded calls are found among them in order; what runs inside a call belongs to it, and the
rest is left out. Must not know how a profile is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from torch.profiler import ProfilerActivity, profile

from bricks.backends.base import NodeEvent
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.recording import WARM_UP
from bricks.graph.program import call_of


class ProfiledSteps:
    """Steps of ``program``, whose recorded calls are ``nodes``, each with a name of its own."""

    def __init__(self, program: Program, nodes: Sequence[onnx.NodeProto]) -> None:
        self._program = program
        self._wanted = [(node.name, node.op_type, _title(node)) for node in nodes]
        self._runs: list[tuple[float, list[Any]]] = []
        with users_errors(program.entry):
            for _ in range(WARM_UP):
                program.step()

    def sample(self) -> float:
        """Run a step; the latency in seconds, which recording makes longer."""
        with users_errors(self._program.entry), profile(activities=[ProfilerActivity.CPU]) as seen:
            self._program.step()
        events = sorted(seen.events(), key=lambda e: (e.time_range.start, -e.time_range.end))
        events = [event for event in events if event.name.startswith(("aten::", "bricks::"))]
        begin_us = events[0].time_range.start if events else 0.0
        end_us = max((event.time_range.end for event in events), default=0.0)
        self._runs.append((begin_us, events))
        return float(end_us - begin_us) * 1e-6

    def runs(self) -> list[list[NodeEvent]]:
        """The recorded calls of each step so far."""
        return [self._found(begin_us, events) for begin_us, events in self._runs]

    def _found(self, begin_us: float, events: Sequence[Any]) -> list[NodeEvent]:
        found = []
        wanted = iter(self._wanted)
        name, operator, title = next(wanted, ("", "", ""))
        busy_until_us = 0.0
        for event in events:
            span = event.time_range
            if event.name != title or span.start < busy_until_us:
                continue
            busy_until_us = span.end
            found.append(
                NodeEvent(
                    name=name,
                    operator=operator,
                    begin_s=(span.start - begin_us) * 1e-6,
                    end_s=(span.end - begin_us) * 1e-6,
                    thread=int(event.thread),
                    inner=False,
                )
            )
            name, operator, title = next(wanted, ("", "", ""))
        return found


def _title(node: onnx.NodeProto) -> str:
    """The operator's name as the profiler tells it."""
    call = call_of(node)
    return f"{call.namespace}::{call.operator.partition('.')[0]}"
