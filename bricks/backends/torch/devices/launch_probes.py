"""What launching kernels costs on a GPU, from kernels that do next to nothing.

Gap and duration are those of kernels queued behind a long one, the latency of a launch that of an
idle GPU. Must not know how the costs are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import median

import torch

from bricks.backends.base import OwnMemory
from bricks.backends.torch.devices.cuda import CudaDevice
from bricks.backends.torch.devices.kernel_trace import launched_kernels
from bricks.errors import BackendError
from bricks.units.sample import Sample

_WARM_UP, _QUEUED, _IDLE, _TIMED = 10, 200, 50, 50

# Kernels of one trace; fewer tell nothing of the gap between them.
_ENOUGH = 20

# A sample is positive, even where the trace's clock shows no time.
_LEAST_S = 1e-9


class LaunchProbes:
    """Costs of launching on ``device``; all are sampled in one round, so that drift affects all."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._samples_s: dict[str, float] = {}

    def probe(self, cost: str) -> LaunchProbe:
        """Return the probe of a cost, by its name."""
        return LaunchProbe(self, cost)

    def sample_s(self, cost: str) -> float:
        """Return a sample of a cost in seconds."""
        if cost not in self._samples_s:
            self._samples_s = dict(self._round())
        return max(_LEAST_S, self._samples_s.pop(cost))

    def _round(self) -> Iterator[tuple[str, float]]:
        numbers = torch.zeros(32, device=self._device.kind)

        def launch() -> None:
            numbers.add_(1)

        for _ in range(_WARM_UP):
            launch()
        self._device.synchronise()
        yield from self._queued(launch)
        yield "launch", self._latency_s(launch)
        yield "round trip", self._timed_s(launch)
        yield "synchronise", self._timed_s(lambda: None)

    def _queued(self, launch: Callable[[], None]) -> Iterator[tuple[str, float]]:
        def queued() -> None:
            self._device.occupy()
            for _ in range(_QUEUED):
                launch()
            self._device.synchronise()

        kernels = launched_kernels(self._device.events(queued))[-_QUEUED:]
        if len(kernels) < _ENOUGH:
            raise BackendError("the profiler of PyTorch shows no kernels: CUPTI may not be allowed")
        yield "gap", median(after.begin_s - one.end_s for one, after in pairwise(kernels))
        yield "kernel", median(kernel.end_s - kernel.begin_s for kernel in kernels)

    def _latency_s(self, launch: Callable[[], None]) -> float:
        def idle() -> None:
            for _ in range(_IDLE):
                self._device.synchronise()
                launch()
            self._device.synchronise()

        kernels = launched_kernels(self._device.events(idle))
        return median(kernel.begin_s - kernel.launched_s for kernel in kernels)

    def _timed_s(self, run: Callable[[], None]) -> float:
        """Seconds of ``run`` and a wait for the GPU, which was idle before."""
        taken_s = []
        for _ in range(_TIMED):
            self._device.synchronise()
            start = time.perf_counter()
            run()
            self._device.synchronise()
            taken_s.append(time.perf_counter() - start)
        return median(taken_s)


class LaunchProbe(OwnMemory):
    """The probe of one cost."""

    def __init__(self, probes: LaunchProbes, cost: str) -> None:
        self._probes, self._cost = probes, cost

    def sample(self) -> Sample:
        """Return the cost as the time on the host."""
        return Sample(self._probes.sample_s(self._cost))
