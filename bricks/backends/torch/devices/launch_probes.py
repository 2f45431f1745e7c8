"""The costs of launching on a GPU as probes that a backend loads, a sample of each in a round.

Must not know how the costs are used.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bricks.backends.base import OwnMemory
from bricks.backends.torch.devices.launches import launch_seconds
from bricks.errors import BackendError
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.backends.torch.devices.cuda import CudaDevice

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
        """Return a sample of a cost in seconds: the median of many launches."""
        if cost not in self._samples_s:
            self._samples_s = self._round()
        return max(_LEAST_S, self._samples_s.pop(cost))

    def _round(self) -> dict[str, float]:
        taken_s = launch_seconds(self._device)
        if min(map(len, taken_s.values())) < _ENOUGH:
            raise BackendError("the profiler of PyTorch shows no kernels: CUPTI may not be allowed")
        return {cost: median(seconds) for cost, seconds in taken_s.items()}


class LaunchProbe(OwnMemory):
    """The probe of one cost."""

    def __init__(self, probes: LaunchProbes, cost: str) -> None:
        self._probes, self._cost = probes, cost

    def sample(self) -> Sample:
        """Return the cost as the time on the host."""
        return Sample(self._probes.sample_s(self._cost))
