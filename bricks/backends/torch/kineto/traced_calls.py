"""Calls of operators out of the nested events of a trace.

A recorded program has the calls that reach an operator with a kernel of its own. In a trace they
lie within composite operators, which only call others, and other operators lie within them. Must
not know bricks.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bricks.backends.profiler_trace import ProfilerTrace, TracedArgument, TracedCall
from bricks.backends.torch.kineto.launches import device_of, launched
from bricks.backends.torch.kineto.phases import STEP, steps_of, traced_phases
from bricks.backends.torch.kineto.signatures import Parameter, Signature, signatures
from bricks.backends.torch.kineto.trace_file import (
    CALLS,
    SHAPES,
    STRIDES,
    TYPES,
    VALUES,
    Thread,
    TraceEvent,
    TraceFile,
)
from bricks.units.sample import Sample

# Samples are positive; a clock of whole microseconds shows none of a short call.
_SHORTEST_US = 1e-3

# What the profiler calls arguments that are no tensors; nothing, if it does not write them.
_NOTHING, _LISTS = "", frozenset({"TensorList", "GenericList"})
_NUMBERS = frozenset({"Scalar", "ScalarList"})


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
    """The calls that a recorder would see, in order of their begin."""
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
    """Whether an operator is one of its own, and not made of others."""
    types = event.args.get(TYPES, ())
    overloads = signatures().get(event.name, {}).values()
    fitting = [each for each in overloads if _fits(each, types)] or list(overloads)
    return any(not each.composite for each in fitting)


def _fits(signature: Signature, types: Sequence[str]) -> bool:
    """Whether arguments of these ``types`` can be those of an overload."""
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
    """A function that returns the number of the step in which an event begins."""
    begins = [event.begin_us for event in steps]
    numbers = [int(event.name.removeprefix(STEP)) for event in steps]

    def step_of(event: TraceEvent) -> int | None:
        position = bisect_right(begins, event.begin_us) - 1
        inside = position >= 0 and event.begin_us <= steps[position].end_us
        return numbers[position] if inside else None

    return step_of
