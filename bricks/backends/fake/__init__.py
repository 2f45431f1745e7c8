"""A runtime that computes nothing: latencies are made up (:mod:`bricks.backends.fake.backend`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.backends.offer import BackendInfo, MemoryUse, Offer

if TYPE_CHECKING:
    from bricks.backends.fake.backend import FakeBackend


class FakeOffer(Offer):
    """A runtime for tests, and for trying the pipeline where timing does not matter."""

    def describe(self) -> BackendInfo:
        """The same on every host."""
        return BackendInfo(self.name, "1", "none", timed=False, parallel=True)

    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> FakeBackend:
        """A backend that none of this changes."""
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
