"""Kernels in a trace of PyTorch's profiler, by the annotation during which each was launched.

A kernel has the correlation number of the call of CUDA that launched it. A launch belongs to the
annotation whose span it lies in, on whichever thread, since the backward pass has a thread of its
own. Must not import PyTorch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bricks.units.sample import Kernel

# Categories of events: spans that a program names, calls that launch, and work on the device.
_ANNOTATION = "user_annotation"
_LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
_KERNEL = "kernel"
_WORK = frozenset({_KERNEL, "gpu_memcpy", "gpu_memset"})


def kernels_by_annotation(
    events: Iterable[Mapping[str, Any]],
) -> Mapping[str, tuple[Kernel, ...]]:
    """Return the kernels, copies and sets that each annotation launched, in order of their start.

    ``events`` are those of a Kineto trace, with times in microseconds. Annotations do not overlap.
    """
    known = list(events)
    spans = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in _of(known, {_ANNOTATION}))
    begins = [begin for begin, _, _ in spans]
    launched_us = {_correlation(event): event["ts"] for event in _of(known, _LAUNCHES)}
    found: dict[str, list[Kernel]] = defaultdict(list)
    for event in sorted(_of(known, _WORK), key=lambda event: event["ts"]):
        at_us = launched_us.get(_correlation(event))
        number = -1 if at_us is None else bisect_right(begins, at_us) - 1
        if at_us is not None and number >= 0 and at_us <= spans[number][1]:
            found[spans[number][2]].append(Kernel(event["name"], event["dur"] * 1e-6))
    return {name: tuple(kernels) for name, kernels in found.items()}


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """When a kernel was launched, began and ended, in seconds of one clock."""

    launched_s: float
    begin_s: float
    end_s: float


def launched_kernels(events: Iterable[Mapping[str, Any]]) -> list[LaunchedKernel]:
    """Return the kernels of a Kineto trace whose launch is known, in order of their start."""
    known = list(events)
    launched_us = {_correlation(event): event["ts"] for event in _of(known, _LAUNCHES)}
    kernels = sorted(_of(known, {_KERNEL}), key=lambda event: event["ts"])
    return [
        LaunchedKernel(1e-6 * launched_us[number], 1e-6 * e["ts"], 1e-6 * (e["ts"] + e["dur"]))
        for e in kernels
        if (number := _correlation(e)) in launched_us
    ]


def _of(events: Iterable[Mapping[str, Any]], categories: Iterable[str]) -> list[Mapping[str, Any]]:
    wanted = frozenset(categories)
    return [event for event in events if event.get("cat") in wanted and "dur" in event]


def _correlation(event: Mapping[str, Any]) -> Any:
    return event.get("args", {}).get("correlation")
