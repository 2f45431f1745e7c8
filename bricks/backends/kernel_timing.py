"""A capability of backends whose runs start kernels on a device: the times of these kernels.

Used inside the worker process; see :mod:`bricks.backends.base`. Must not know any runtime.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from bricks.backends.capability import Capability
from bricks.units.sample import Kernel, Sample


class KernelTimer(Capability):
    """An optional interface of a backend whose models run on a device next to the host.

    A sample of a bound model then ends when its kernels are launched; that of a whole model when
    the device has ended.
    """

    lacking: ClassVar[str] = "{name} starts no kernels on a device: choose --device cuda"

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until the device has no work left."""

    @abstractmethod
    def displace(self, size_bytes: int) -> None:
        """Let the device touch ``size_bytes`` of memory that no model uses."""

    @abstractmethod
    def kernels(self, runs: Sequence[Callable[[], Sample]]) -> Sequence[tuple[Kernel, ...]]:
        """Make all ``runs`` in order; return the kernels that each started, in order.

        Of a run that samples a model several times, the kernels of the last sample count. Watching
        kernels slows the host, so the samples' times on the host are of no use.
        """
