"""Traces that PyTorch's profiler writes (Kineto), and the bricks that their calls are.

    trace_file.py    the file: checked, events as data
    traced_calls.py  events to calls with their samples, phases of steps, launched kernels
    signatures.py    arguments of operators, and which operators only call others
    matching.py      calls and the bricks that equal them
    kernels.py       kernels of a run of our own, by annotation

Must not import PyTorch, so that traces can be read where it is not installed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.backends.profiler_trace import CallMatcher, ProfilerTrace, TraceFormat
from bricks.backends.torch.trace.matching import BrickMatcher
from bricks.backends.torch.trace.trace_file import begins_like_a_trace, read, refused
from bricks.backends.torch.trace.traced_calls import profiler_trace

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick


class Kineto(TraceFormat):
    """JSON files of ``torch.profiler``'s ``export_chrome_trace``, perhaps compressed with gzip."""

    def recognises(self, path: Path) -> bool:
        """Return whether the file begins like such a trace."""
        return begins_like_a_trace(path)

    def read(self, path: Path) -> ProfilerTrace:
        """Read a trace with shapes, strides and arguments of all calls."""
        file = read(path)
        try:
            return profiler_trace(file)
        except (KeyError, TypeError, ValueError) as exc:
            raise refused(
                path, "has calls that the profiler does not write: export it again"
            ) from exc

    def matcher(self, bricks: Mapping[str, Brick], ran: Collection[str]) -> CallMatcher:
        """Return a matcher among the bricks that are one call."""
        return BrickMatcher(bricks, ran)
