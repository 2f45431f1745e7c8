"""MXNet on the processor (:mod:`bricks.backends.mxnet.backend`), with its fusions or without."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.backends.offer import BackendInfo, Offer, locked_environment, unimportable

if TYPE_CHECKING:
    from bricks.backends.mxnet.backend import MxnetBackend
    from bricks.system.environments import Environment


@dataclass(frozen=True, kw_only=True)
class MxnetOffer(Offer):
    """MXNet as its lock file pins it; with ``fuse``, it fuses operators."""

    fuse: bool

    @property
    def environment(self) -> Environment:
        """Its own, which a lock file pins."""
        return locked_environment(__file__, "mxnet")

    def describe(self) -> BackendInfo:
        """The pinned version."""
        python = str(self.environment.required())
        return BackendInfo(
            self.name,
            self.environment.pinned("mxnet"),
            "oneDNN",
            timed=True,
            brick_optimization="all" if self.fuse else "none",
            python=python,
            bounded_memory=False,  # keeps memory of earlier models; crashes when memory is short
        )

    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> MxnetBackend:
        """A backend with so many ``threads``."""
        # The library reads these variables when it is loaded.
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.environ["MXNET_ENGINE_TYPE"] = "NaiveEngine"
        try:
            from bricks.backends.mxnet.backend import MxnetBackend
        except ImportError as exc:
            raise unimportable(self.environment, exc) from exc

        return MxnetBackend(seed=seed, fuse=self.fuse)


OFFER = MxnetOffer(
    name="mxnet",
    summary="MXNet, in an environment of its own (bricks backends install)",
    order=30,
    fuse=True,
)
UNFUSED = MxnetOffer(
    name="mxnet-unfused",
    summary="the same, operator by operator",
    order=31,
    variant=True,
    fuse=False,
)
