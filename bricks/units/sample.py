"""The times of one run: on the host, and in the kernels that it started on a device.

Must not know what ran, nor how it was timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# A copy of a device to its host, as the profiler names it.
COPY_TO_HOST = "Memcpy DtoH"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that ran on a device for ``device_s`` seconds."""

    name: str
    device_s: float

    @property
    def copies_to_host(self) -> bool:
        """Whether it is a copy to the host, for which the host waits."""
        return self.name.startswith(COPY_TO_HOST)


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: ``host_s`` seconds from the call to its end, and the kernels that ran for it.

    On a CPU there are no kernels, and ``host_s`` is the latency. ``displaced_bytes`` is the state
    of the device's cache: the bytes that other work has touched since the data of this run were
    last used, 0 for a run that repeats. None: the run is part of a walk.
    """

    host_s: float
    kernels: tuple[Kernel, ...] = ()
    displaced_bytes: int | None = None

    @property
    def device_s(self) -> float:
        """Seconds of all kernels; 0 on a CPU."""
        return sum(kernel.device_s for kernel in self.kernels)

    def to_json(self) -> float | list[Any]:
        """Seconds, or with kernels ``[host_s, [[name, device_s], …], displaced_bytes]``."""
        if not self.kernels:
            return self.host_s
        kernels = [[kernel.name, kernel.device_s] for kernel in self.kernels]
        displaced = [] if self.displaced_bytes is None else [self.displaced_bytes]
        return [self.host_s, kernels, *displaced]

    @classmethod
    def from_json(cls, data: float | list[Any]) -> Sample:
        """The inverse of :meth:`to_json`."""
        if not isinstance(data, list):
            return cls(data)
        host_s, kernels, *displaced = data
        own = tuple(Kernel(name, device_s) for name, device_s in kernels)
        return cls(host_s, own, *displaced)


def weighted_mean(samples: Sequence[Sample], weights: Sequence[float]) -> Sample:
    """The weighted mean of several runs of the same brick or model.

    Kernels correspond if their names and their ordinals among kernels of one name are equal. A
    kernel that a run lacks counts as 0 s. The state of the cache is None where runs differ in it.
    """
    total = sum(weights)
    host_s = sum(w * s.host_s for w, s in zip(weights, samples, strict=True)) / total
    if not any(sample.kernels for sample in samples):
        return Sample(host_s)
    states = {sample.displaced_bytes for sample in samples}
    displaced = states.pop() if len(states) == 1 else None
    summed_s: dict[tuple[str, int], float] = {}
    for weight, sample in zip(weights, samples, strict=True):
        before: Counter[str] = Counter()
        for kernel in sample.kernels:
            numbered = kernel.name, before[kernel.name]
            summed_s[numbered] = summed_s.get(numbered, 0.0) + weight * kernel.device_s
            before[kernel.name] += 1
    kernels = tuple(Kernel(name, s / total) for (name, _), s in summed_s.items())
    return Sample(host_s, kernels, displaced)
