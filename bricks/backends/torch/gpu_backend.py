"""PyTorch on a GPU: the same programs and calls, whose kernels a device times.

The costs of launching are probes that it loads, a sample of each in a round. Must not know plans or
the store, nor how the costs are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import onnx

from bricks.backends.base import BindableModel, ExecutedGraph, OwnMemory
from bricks.backends.kernel_timing import KernelTimer, launch_cost
from bricks.backends.torch.backend import TorchBackend
from bricks.backends.torch.device import CudaDevice, launch_seconds
from bricks.errors import BackendError
from bricks.graph.form import DOMAIN
from bricks.system.accelerator import AcceleratorState
from bricks.units.sample import Kernel, Sample

# The domain of calls of a library for processors.
_OF_PROCESSORS = DOMAIN + "mkldnn"

# Kernels of one trace; fewer tell nothing of the gap between them.
_ENOUGH = 20

# A sample is positive, even where the trace's clock shows no time.
_LEAST_S = 1e-9


class TorchGpuBackend(TorchBackend, KernelTimer):
    """PyTorch with its tensors on ``device``; ``threads`` are those of calls on the host."""

    def __init__(
        self, name: str, *, threads: int, seed: int, device: CudaDevice, compiled: bool = False
    ) -> None:
        super().__init__(name, threads=threads, seed=seed, compiled=compiled, device=device)
        self._gpu, self._costs = device, LaunchProbes(device)

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """Return the program itself; an error if it calls what processors alone have."""
        for node in proto.graph.node:
            if node.domain == _OF_PROCESSORS or "_for_cpu" in node.op_type:
                raise BackendError(
                    f"it was recorded on a processor, whose {node.op_type} a GPU has not: record"
                    " its code again with --device cuda"
                )
        return super().executed(proto)

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> BindableModel:
        """Load a brick, a program, a probe, or the model that stands for a cost of launching."""
        cost = launch_cost(proto)
        if cost is not None:
            return LaunchProbe(self._costs, cost)
        return super().load(proto, key=key, optimize=optimize, streams=streams)

    def synchronise(self) -> None:
        """Wait until all launched kernels have ended."""
        self._gpu.synchronise()

    def displace(self, size_bytes: int) -> None:
        """Write to ``size_bytes`` of memory that no call uses."""
        self._gpu.displace(size_bytes)

    def device_state(self) -> AcceleratorState | None:
        """Return clock, power and throttling of the GPU now."""
        return self._gpu.state()

    def kernels(self, runs: Sequence[Callable[[], Sample]]) -> list[tuple[Kernel, ...]]:
        """Make all runs under the profiler; return the kernels of each."""
        return self._gpu.kernels(runs)


class LaunchProbes:
    """Costs of launching on ``device``; all are sampled in one round, so that drift affects all."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._samples_s: dict[str, float] = {}

    def sample_s(self, cost: str) -> float:
        """Return a sample of a cost in seconds: the median of many launches."""
        if cost not in self._samples_s:
            taken_s = launch_seconds(self._device)
            if min(map(len, taken_s.values())) < _ENOUGH:
                raise BackendError(
                    "the profiler of PyTorch shows no kernels: CUPTI may not be allowed"
                )
            self._samples_s = {each: median(seconds) for each, seconds in taken_s.items()}
        return max(_LEAST_S, self._samples_s.pop(cost))


class LaunchProbe(OwnMemory):
    """The probe of one cost."""

    def __init__(self, probes: LaunchProbes, cost: str) -> None:
        self._probes, self._cost = probes, cost

    def sample(self) -> Sample:
        """Return the cost as the time on the host."""
        return Sample(self._probes.sample_s(self._cost))
