"""PyTorch on a GPU: the same programs and calls, whose kernels a device times.

Must not know plans or the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bricks.backends.kernel_timing import KernelTimer
from bricks.backends.torch.backend import TorchBackend
from bricks.backends.torch.devices.device import Device
from bricks.units.sample import Kernel, Sample


class TorchGpuBackend(TorchBackend, KernelTimer):
    """PyTorch with its tensors on ``device``; ``threads`` are those of calls on the host."""

    def __init__(
        self, name: str, *, threads: int, seed: int, device: Device, compiled: bool = False
    ) -> None:
        super().__init__(name, threads=threads, seed=seed, compiled=compiled, device=device)
        self._gpu = device

    def synchronise(self) -> None:
        """Wait until all launched kernels have ended."""
        self._gpu.synchronise()

    def displace(self, size_bytes: int) -> None:
        """Write to ``size_bytes`` of memory that no call uses."""
        self._gpu.displace(size_bytes)

    def kernels(self, runs: Sequence[Callable[[], Sample]]) -> list[tuple[Kernel, ...]]:
        """Make all runs under the profiler; return the kernels of each."""
        return self._gpu.kernels(runs)
