"""The fake runtime on a fake GPU: the host launches a kernel for each node, the GPU runs them.

A kernel takes as long as its node on the processor: less where it runs again right away, and more
after its data were evicted. It begins once it was launched, plus a latency, and the kernel before
it has ended, plus a gap; the queue of launches is limited. So nothing needs a card to be tried.
``BRICKS_FAKE_THROTTLE`` is what lowers the GPU's clock to half, ``power`` for example.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnx

from bricks.backends.base import Binding
from bricks.backends.fake.backend import (
    CALL_OVERHEAD_S,
    FakeBackend,
    FakeBoundModel,
    FakeModel,
    fault_of,
    is_reference,
    kernels_s,
)
from bricks.backends.kernel_timing import KernelTimer, launch_cost
from bricks.system.accelerator import Accelerator, AcceleratorState
from bricks.units.sample import Kernel, Sample

ACCELERATOR = Accelerator(
    "Fake GPU", memory_bytes=16 << 30, l2_bytes=32 << 20, multiprocessors=64, capability="0.0",
    clock_hz=1e9, memory_clock_hz=1e9, power_limit_w=300.0,
)  # fmt: skip

# The host's time for a node, the latency of a launch, the gap between kernels, the queue's length.
LAUNCH_S, LATENCY_S, GAP_S, QUEUE_DEPTH = 5e-6, 8e-6, 1.2e-6, 1000

# Costs of launching by name (``samples/call_overhead``).
COSTS_S = {
    "gap": GAP_S, "kernel": 1e-6, "launch": LATENCY_S, "round trip": LAUNCH_S + LATENCY_S,
    "synchronise": 2e-6,
}  # fmt: skip

# Keys of whole models begin with this.
_WHOLE_MODEL = "m1-"

# Durations right after the same run and after evictions, relative to those in a walk.
HOT, COLD = 0.8, 1.2


class FakeGpuBackend(FakeBackend, KernelTimer):
    """The fake runtime on its GPU, which remembers what ran before."""

    def __init__(self) -> None:
        super().__init__()
        self._before: object = None
        self._kernels: tuple[Kernel, ...] = ()

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> FakeGpuModel:
        """Load anything: a brick's run ends with its launches, a model's with its last kernel."""
        cost = launch_cost(proto)
        if cost is not None:
            return FakeGpuModel(self, COSTS_S[cost], (), None, ())
        nodes = kernels_s(proto)
        whole = key.startswith(_WHOLE_MODEL)
        host_s = _run_s([s for _, s in nodes]) if whole else LAUNCH_S * len(nodes)
        kernels = tuple(Kernel(operator, device_s) for operator, device_s in nodes)
        latency_s = CALL_OVERHEAD_S + host_s
        if is_reference(key):
            return FakeGpuModel(self, latency_s, kernels, None, ())
        model = FakeGpuModel(self, latency_s, kernels, fault_of(proto), self._loaded)
        self._loaded.add(model)
        return model

    def synchronise(self) -> None:
        """Do nothing: time does not pass."""

    def displace(self, size_bytes: int) -> None:
        """Evict all that the GPU's cache holds."""
        self._before = size_bytes

    def device_state(self) -> AcceleratorState | None:
        """Return half the highest clock where it is to be throttled; None: it does not tell."""
        reason = os.environ.get("BRICKS_FAKE_THROTTLE")
        return AcceleratorState(0.5e9, 300.0, (reason,)) if reason else None

    def kernels(self, runs: Sequence[Callable[[], Sample]]) -> list[tuple[Kernel, ...]]:
        """Make all runs; return the kernels of each."""
        return [self._started(run) for run in runs]

    def started(self, model: FakeGpuModel) -> None:
        """Note the kernels of a run of ``model``, in the state that the run before has left."""
        evicted = isinstance(self._before, int)
        factor = HOT if self._before is model else COLD if evicted else 1.0
        self._kernels = tuple(Kernel(k.name, factor * k.device_s) for k in model.kernels)
        self._before = model

    def _started(self, run: Callable[[], Sample]) -> tuple[Kernel, ...]:
        run()
        return self._kernels


class FakeGpuModel(FakeModel):
    """A loaded model that starts ``kernels``, each with its duration in a walk."""

    def __init__(
        self,
        backend: FakeGpuBackend,
        latency_s: float,
        kernels: tuple[Kernel, ...],
        fault: str | None,
        loaded: Collection[FakeModel],
    ) -> None:
        super().__init__(latency_s, fault, loaded)
        self.backend, self.kernels = backend, kernels

    def bind(self, binding: Binding, region: np.ndarray) -> FakeBoundModel:
        """A model ready to run."""
        return FakeGpuBoundModel(self)


class FakeGpuBoundModel(FakeBoundModel):
    """A bound model on the GPU."""

    def __init__(self, model: FakeGpuModel) -> None:
        super().__init__(model)
        self._on_gpu = model

    def sample(self) -> Sample:
        """The latency on the host; the GPU notes the kernels."""
        sample = super().sample()
        self._on_gpu.backend.started(self._on_gpu)
        return sample


def _run_s(kernels_s: Sequence[float]) -> float:
    """Seconds until a host has launched these kernels and the GPU has run them."""
    host_s = 0.0
    ends_s = [0.0]
    for number, kernel_s in enumerate(kernels_s):
        host_s += LAUNCH_S
        if number >= QUEUE_DEPTH:  # it waits until a launch leaves the queue
            host_s = max(host_s, ends_s[number - QUEUE_DEPTH + 1])
        begin_s = max(host_s + LATENCY_S, ends_s[-1] + GAP_S if number else 0.0)
        ends_s.append(begin_s + kernel_s)
    return max(host_s, ends_s[-1])
