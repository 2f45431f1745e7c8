"""A runtime that computes nothing: latencies are made up (:mod:`bricks.backends.fake.backend`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.backends.offer import BackendInfo, MemoryUse, Offer
from bricks.system.accelerator import CPU, Accelerator

if TYPE_CHECKING:
    from bricks.backends.fake.backend import FakeBackend


@dataclass(frozen=True, kw_only=True)
class FakeOffer(Offer):
    """A runtime for tests, and for trying the pipeline where timing does not matter.

    On ``cuda`` it has a fake GPU (:mod:`bricks.backends.fake.gpu`).
    """

    device: str = CPU

    def describe(self) -> BackendInfo:
        """The same on every host."""
        on_host = self.device == CPU
        provider = "none" if on_host else self.device.upper()
        return BackendInfo(self.name, "1", provider, timed=False, parallel=on_host)

    def on(self, device: str) -> FakeOffer:
        """Return the runtime without a device, or with the fake GPU."""
        return replace(self, device=device)

    def accelerator(self) -> Accelerator | None:
        """Return the facts of the fake GPU."""
        if self.device == CPU:
            return None
        from bricks.backends.fake.gpu import ACCELERATOR

        return ACCELERATOR

    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> FakeBackend:
        """A backend that none of this changes."""
        if self.device != CPU:
            from bricks.backends.fake.gpu import FakeGpuBackend

            return FakeGpuBackend()
        from bricks.backends.fake.backend import FakeBackend

        return FakeBackend()


OFFER = FakeOffer(
    name="fake",
    summary="no runtime: made-up latencies, at once",
    collectives=("fake",),
    memory=MemoryUse.PLANNED,
    computes=False,
    order=90,
)
