"""What launching kernels costs on a GPU, from kernels that do next to nothing.

Gap and duration are those of kernels queued behind a long one, the latency of a launch that of an
idle GPU. Imported where nothing of this package is, in Python 3.9 or later. Must not know how the
costs are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from bricks.backends.torch.devices.kernel_trace import launched_kernels

if TYPE_CHECKING:
    from bricks.backends.torch.devices.cuda import CudaDevice

_WARM_UP, _QUEUED, _IDLE, _TIMED = 10, 200, 50, 50


def launch_seconds(device: CudaDevice) -> Mapping[str, Sequence[float]]:
    """Return samples in seconds by the name of the cost, as in ``samples.call_overhead``.

    A cost of kernels has none where the profiler shows no kernels.
    """
    numbers = torch.zeros(32, device=device.kind)

    def launch() -> None:
        numbers.add_(1)

    def queued() -> None:
        device.occupy()
        for _ in range(_QUEUED):
            launch()
        device.synchronise()

    def idle() -> None:
        for _ in range(_IDLE):
            device.synchronise()
            launch()
        device.synchronise()

    for _ in range(_WARM_UP):
        launch()
    device.synchronise()
    ahead = launched_kernels(device.events(queued))[-_QUEUED:]
    alone = launched_kernels(device.events(idle))
    return {
        "gap": [after.begin_s - one.end_s for one, after in pairwise(ahead)],
        "kernel": [kernel.end_s - kernel.begin_s for kernel in ahead],
        "launch": [kernel.begin_s - kernel.launched_s for kernel in alone],
        "round trip": _timed_s(device, launch),
        "synchronise": _timed_s(device, lambda: None),
    }


def _timed_s(device: CudaDevice, run: Callable[[], None]) -> list[float]:
    """Seconds of ``run`` and a wait for the GPU, which was idle before."""
    taken_s = []
    for _ in range(_TIMED):
        device.synchronise()
        start = time.perf_counter()
        run()
        device.synchronise()
        taken_s.append(time.perf_counter() - start)
    return taken_s
