"""The kernels, copies and sets on a device that calls have launched.

A call of the CUDA library launches a kernel; both have the same number (``correlation``). The call
of an operator within which the launch was is the one that the kernel ran for. Must not know
operators.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.backends.torch.kineto.trace_file import (
    KERNELS,
    LAUNCHES,
    Thread,
    TraceEvent,
    TraceFile,
)
from bricks.errors import printable
from bricks.units.sample import Kernel

if TYPE_CHECKING:
    from bricks.backends.profiler_trace import TracedDevice

_LAUNCH, _NUMBER = "Launch", "correlation"


@dataclass(frozen=True, slots=True)
class Launched:
    """By the position of a call: its kernels in order, and whether all of them were traced.

    ``loose`` counts kernels that no call has launched.
    """

    kernels: Mapping[int, tuple[Kernel, ...]]
    unfinished: frozenset[int]
    loose: int


def launched(file: TraceFile, calls: Sequence[TraceEvent]) -> Launched:
    """The kernels of ``calls``, which do not overlap on a thread."""
    launches = {event.args.get(_NUMBER): event for event in file.of(LAUNCHES)}
    by_thread, events = _ByThread(calls), file.of(KERNELS)
    owners = [by_thread.around(launches.get(event.args.get(_NUMBER))) for event in events]
    kernels: dict[int, list[Kernel]] = defaultdict(list)
    for event, owner in zip(events, owners, strict=True):
        if owner is not None:
            kernels[owner].append(_kernel(event))
    traced = {event.args.get(_NUMBER) for event in events}
    lost = (of for number, of in launches.items() if _LAUNCH in of.name and number not in traced)
    unfinished = frozenset(o for o in map(by_thread.around, lost) if o is not None)
    return Launched({o: tuple(k) for o, k in kernels.items()}, unfinished, owners.count(None))


def device_of(file: TraceFile) -> TracedDevice | None:
    """The GPU on which most kernels ran; None if none were traced."""
    numbers = Counter(event.args.get("device", 0) for event in file.of(KERNELS))
    if not numbers:
        return None
    number, _ = numbers.most_common(1)[0]
    return file.devices.get(number)


def _kernel(event: TraceEvent) -> Kernel:
    return Kernel(printable(event.name), (event.end_us - event.begin_us) * 1e-6)


class _ByThread:
    """Finds the call that was running on a thread."""

    def __init__(self, calls: Sequence[TraceEvent]) -> None:
        self._calls = calls
        self._positions: dict[Thread, list[int]] = defaultdict(list)
        for position in sorted(range(len(calls)), key=lambda i: calls[i].begin_us):
            self._positions[calls[position].thread].append(position)
        self._begins = {
            thread: [calls[i].begin_us for i in of] for thread, of in self._positions.items()
        }

    def around(self, event: TraceEvent | None) -> int | None:
        """The position of the call within which ``event`` begins; None if there is none."""
        begins = () if event is None else self._begins.get(event.thread, ())
        if event is None or not begins:
            return None
        number = bisect_right(begins, event.begin_us) - 1
        position = self._positions[event.thread][number]
        return position if number >= 0 and event.begin_us <= self._calls[position].end_us else None
