"""Calls of operators out of the nested events of a trace: samples, kernels, phases.

A recorded program has the calls that reach an operator with a kernel of its own. In a trace they
lie within composite operators, which only call others, and other operators lie within them.

A call of the CUDA library launches a kernel, a copy or a set; both have the same number
(``correlation``). The call of an operator within which the launch was is the one that the kernel
ran for. What a phase of a step takes beyond its calls is spent in Python and in the autograd
engine. Must not know bricks.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from bricks.backends.profiler_trace import (
    ProfilerTrace,
    TracedArgument,
    TracedCall,
    TracedDevice,
    TracedPhase,
)
from bricks.backends.torch.trace.signatures import Parameter, Signature, signatures
from bricks.backends.torch.trace.trace_file import (
    ANNOTATIONS,
    CALLS,
    KERNELS,
    LAUNCHES,
    SHAPES,
    STRIDES,
    TYPES,
    VALUES,
    Thread,
    TraceEvent,
    TraceFile,
)
from bricks.errors import printable
from bricks.graph.call import BACKWARD, FORWARD, INFERENCE, OPTIMIZER
from bricks.units.sample import Kernel, Sample

# Samples are positive; a clock of whole microseconds shows none of a short call.
_SHORTEST_US = 1e-3

# What the profiler calls arguments that are no tensors; nothing, if it does not write them.
_NOTHING, _LISTS = "", frozenset({"TensorList", "GenericList"})
_NUMBERS = frozenset({"Scalar", "ScalarList"})

_LAUNCH, _NUMBER = "Launch", "correlation"

STEP = "ProfilerStep#"
_ENGINE, _OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer.step#"


def profiler_trace(file: TraceFile) -> ProfilerTrace:
    """The calls of a trace with their samples."""
    events = _outermost(file.of([CALLS]))
    kernels, step_of = launched(file, events), _step_finder(steps_of(file))
    calls = [
        TracedCall(event.name, _arguments(event), _sample(event, kernels.kernels.get(i, ())), step)
        for i, event in enumerate(events)
        if i not in kernels.unfinished
        for step in [step_of(event)]
    ]
    phases, unfinished = tuple(traced_phases(file, events)), len(kernels.unfinished)
    return ProfilerTrace(calls, phases, file.host_name, device_of(file), unfinished, kernels.loose)


def _sample(event: TraceEvent, kernels: Sequence[Any]) -> Sample:
    taken_us = max(event.end_us - event.begin_us, _SHORTEST_US)
    return Sample(taken_us * 1e-6, tuple(kernels))


def _outermost(events: Iterable[TraceEvent]) -> list[TraceEvent]:
    by_thread: dict[Thread, list[TraceEvent]] = defaultdict(list)
    for event in events:
        by_thread[event.thread].append(event)
    calls = []
    for of_thread in by_thread.values():
        end_us = -math.inf
        for event in sorted(of_thread, key=lambda event: (event.begin_us, -event.end_us)):
            if event.begin_us >= end_us and SHAPES in event.args and _has_kernel(event):
                calls.append(event)
                end_us = event.end_us
    return sorted(calls, key=lambda event: event.begin_us)


def _has_kernel(event: TraceEvent) -> bool:
    types = event.args.get(TYPES, ())
    overloads = signatures().get(event.name, {}).values()
    fitting = [each for each in overloads if _fits(each, types)] or list(overloads)
    return any(not each.composite for each in fitting)


def _fits(signature: Signature, types: Sequence[str]) -> bool:
    pairs = zip(signature.parameters, types, strict=False)
    return len(types) == len(signature.parameters) and all(
        type_ == _NOTHING or _accepts(parameter, type_) for parameter, type_ in pairs
    )


def _accepts(parameter: Parameter, type_: str) -> bool:
    if parameter.tensor:
        return type_ not in _LISTS | _NUMBERS
    return type_ in (_LISTS if parameter.tensors else _NUMBERS)


def _arguments(event: TraceEvent) -> tuple[TracedArgument, ...]:
    args = event.args
    every = zip(args[TYPES], args[VALUES], args[SHAPES], args[STRIDES], strict=True)
    return tuple(
        TracedArgument(str(type_), str(value), _tuples(shape), _tuples(strides))
        for type_, value, shape, strides in every
    )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _step_finder(steps: Sequence[TraceEvent]) -> Callable[[TraceEvent], int | None]:
    begins = [event.begin_us for event in steps]
    numbers = [int(event.name.removeprefix(STEP)) for event in steps]

    def step_of(event: TraceEvent) -> int | None:
        position = bisect_right(begins, event.begin_us) - 1
        inside = position >= 0 and event.begin_us <= steps[position].end_us
        return numbers[position] if inside else None

    return step_of


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
            taken_s = (event.end_us - event.begin_us) * 1e-6
            kernels[owner].append(Kernel(printable(event.name), taken_s))
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


def steps_of(file: TraceFile) -> list[TraceEvent]:
    """The steps of the profiler's schedule in order."""
    return [event for event in file.of([ANNOTATIONS]) if event.name.startswith(STEP)]


def traced_phases(file: TraceFile, calls: Sequence[TraceEvent]) -> Iterator[TracedPhase]:
    """Yield the phases of each step; ``calls`` are in order of their begin.

    A step whose optimiser begins before its backward pass has ended is left out, and a phase
    without calls.
    """
    backward = [e.begin_us for e in file.of([CALLS]) if e.name.startswith(_ENGINE)]
    optimizer = [e.begin_us for e in file.of([ANNOTATIONS]) if e.name.startswith(_OPTIMIZER)]
    begins = [call.begin_us for call in calls]
    spent_us = [0.0, *accumulate(call.end_us - call.begin_us for call in calls)]
    for step in steps_of(file):
        bounds = _bounds(step, _inside(backward, step), _inside(optimizer, step))
        for (name, begin_us), (_, end_us) in pairwise(bounds):
            first, last = bisect_left(begins, begin_us), bisect_left(begins, end_us)
            if last > first:
                within_us = spent_us[last] - spent_us[first]
                taken_s = 1e-6 * (end_us - begin_us)
                yield TracedPhase(name, taken_s, 1e-6 * within_us, last - first)


def _inside(times_us: Sequence[float], step: TraceEvent) -> Sequence[float]:
    return times_us[bisect_left(times_us, step.begin_us) : bisect_left(times_us, step.end_us)]


def _bounds(
    step: TraceEvent, backward_us: Sequence[float], optimizer_us: Sequence[float]
) -> list[tuple[str, float]]:
    """The begin of each phase of a step by name, and its end; empty if they are out of order."""
    optimizer = min(optimizer_us, default=math.inf)
    if any(begin_us > optimizer for begin_us in backward_us):
        return []
    begins = [(INFERENCE if not backward_us and not optimizer_us else FORWARD, step.begin_us)]
    begins += [(BACKWARD, begin_us) for begin_us in backward_us[:1]]
    begins += [(OPTIMIZER, begin_us) for begin_us in optimizer_us[:1]]
    return [*begins, ("", step.end_us)]
