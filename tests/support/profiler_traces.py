"""Traces as PyTorch's profiler writes them, made by hand: a call is a few facts, times are chosen.

Fields and their names are those of real files; what no reader needs is left out.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]

# Process, thread of the forward pass, thread of the backward pass; process of the GPU, its stream.
PROCESS, FORWARD, BACKWARD = 100, 100, 101
GPU, STREAM = 0, 7

H100: dict[str, Any] = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028765696, "computeMajor": 9,
    "computeMinor": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": 132,
}  # fmt: skip


def tensor(shape: Sequence[int], strides: Sequence[int], type_: str = "float") -> tuple[Any, ...]:
    """A tensor among the arguments of :func:`call`."""
    return type_, "", list(shape), list(strides)


def number(text: str) -> tuple[Any, ...]:
    """A number or truth value among the arguments, as the profiler writes it."""
    return "Scalar", text, [], []


def numbers(text: str) -> tuple[Any, ...]:
    """A list of numbers, as the profiler writes it."""
    return "ScalarList", text, [], []


NOTHING = ("", "", [], [])


def event(
    name: str, category: str, begin_us: float, end_us: float, thread: int = FORWARD, **args: Any
) -> Event:
    """An event with a duration."""
    return {
        "ph": "X", "cat": category, "name": name, "pid": PROCESS, "tid": thread,
        "ts": begin_us, "dur": end_us - begin_us, "args": args,
    }  # fmt: skip


def call(
    name: str,
    arguments: Sequence[tuple[Any, ...]],
    begin_us: float,
    end_us: float,
    thread: int = FORWARD,
) -> Event:
    """A call of an operator (``aten::mm``) with its arguments."""
    types, values, shapes, strides = (list(of) for of in zip(*arguments, strict=True))
    facts = {
        "Input type": types, "Concrete Inputs": values, "Input Dims": shapes,
        "Input Strides": strides,
    }  # fmt: skip
    return event(name, "cpu_op", begin_us, end_us, thread, **facts)


def step(number_: int, begin_us: float, end_us: float) -> Event:
    """A step of the profiler's schedule."""
    return event(f"ProfilerStep#{number_}", "user_annotation", begin_us, end_us)


def launch(number_: int, begin_us: float, thread: int = FORWARD) -> Event:
    """A launch by the CUDA library on a thread of the host."""
    return event(
        "cudaLaunchKernel", "cuda_runtime", begin_us, begin_us + 1, thread,
        **{"External id": 1, "cbid": 211, "correlation": number_},
    )  # fmt: skip


def kernel(number_: int, name: str, begin_us: float, end_us: float) -> Event:
    """The kernel of a launch with the same number."""
    made = event(
        name, "kernel", begin_us, end_us, STREAM,
        **{"External id": 1, "device": 0, "context": 1, "stream": STREAM, "correlation": number_},
    )  # fmt: skip
    return {**made, "pid": GPU}


def trace(events: Sequence[Event], devices: Sequence[dict[str, Any]] = (), **facts: Any) -> Event:
    """The content of a file."""
    return {
        "schemaVersion": 1, "deviceProperties": list(devices), "record_shapes": 1,
        "displayTimeUnit": "ms", "traceEvents": list(events), **facts,
    }  # fmt: skip


def write(path: Path, content: Event) -> Path:
    """Write a trace, compressed if the name of the file says so."""
    text = json.dumps(content, indent=2).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
