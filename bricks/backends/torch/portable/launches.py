"""What launching kernels costs: gaps between them, the latency of a launch, waiting for a device.

Must not know how steps are composed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bricks.backends.torch.devices.device import Device

# Tiny kernels behind a long one, and repetitions of what is timed on its own.
_QUEUED, _ALONE, _TIMED = 200, 50, 200
_SLEEP_CYCLES = 4_000_000

_Span = Sequence[float]  # launched, begun, ended, in seconds


def launch_seconds(device: Device) -> Mapping[str, Sequence[float]]:
    """Return seconds by name, as in ``samples.call_overhead``.

    Gaps lie between dependent tiny kernels that are queued, a launch passes until an idle device
    begins one, a round trip until the host knows that one has ended.
    """
    x = torch.zeros(32, device=device.kind)
    for _ in range(10):
        x.add_(1)
    device.synchronise()
    queued = _spans(device, lambda: _queue(x))
    alone = _spans(device, lambda: _one_by_one(device, x, _ALONE))
    return {
        "gap": [queued[n][1] - queued[n - 1][2] for n in range(1, len(queued))],
        "kernel": [ended - begun for _, begun, ended in queued],
        "launch": [begun - launched for launched, begun, _ in alone],
        "round trip": [_timed(lambda: _one_by_one(device, x, 1)) for _ in range(_TIMED)],
        "synchronise": [_timed(device.synchronise) for _ in range(_TIMED)],
    }


def _queue(x: torch.Tensor) -> None:
    torch.cuda._sleep(_SLEEP_CYCLES)
    for _ in range(_QUEUED):
        x.add_(1)


def _one_by_one(device: Device, x: torch.Tensor, count: int) -> None:
    for _ in range(count):
        x.add_(1)
        device.synchronise()


def _spans(device: Device, run: Callable[[], None]) -> list[_Span]:
    """The elementwise kernels of a run, in order."""
    events: Any = device.events(run)  # type: ignore[attr-defined]  # a GPU has them
    launched = {
        e["args"].get("correlation"): e["ts"]
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    kernels = [e for e in events if e.get("cat") == "kernel" and "elementwise" in e["name"]]
    kernels.sort(key=lambda e: e["ts"])
    return [
        (launched[at] * 1e-6, e["ts"] * 1e-6, (e["ts"] + e["dur"]) * 1e-6)
        for e in kernels
        if (at := e["args"].get("correlation")) in launched
    ]


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - started) * 1e-9
