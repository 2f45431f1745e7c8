"""A toy runtime with a host and a device, in a package of its own: all that a runtime needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.backends import BackendInfo, MemoryUse, Offer

if TYPE_CHECKING:
    from two_lane_runtime.backend import TwoLaneBackend


class TwoLaneOffer(Offer):
    """The runtime of another package."""

    def describe(self) -> BackendInfo:
        return BackendInfo(self.name, "7", "device", timed=False)

    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> TwoLaneBackend:
        from two_lane_runtime.backend import TwoLaneBackend

        return TwoLaneBackend()


OFFER = TwoLaneOffer(
    name="two-lanes", summary="a host that launches kernels", memory=MemoryUse.PLANNED
)
