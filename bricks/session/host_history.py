"""The conditions that the host of a target was watched in, and how its bricks follow them.

Read once. Must not know what is estimated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.samples.correction import Correction
from bricks.samples.sensitivity import BrickWork, Sensitivities
from bricks.samples.usual_conditions import UsualConditions
from bricks.system.host_conditions import mean_conditions

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.samples.measurement import Measurement
    from bricks.store import Reading


class HostHistory:
    """The history of the target with ``key`` in ``source``, which runs bricks on ``threads``."""

    def __init__(self, source: Reading, key: str, threads: int) -> None:
        self._source, self._key, self.threads = source, key, threads
        self._work: dict[str, BrickWork] = {}

    @classmethod
    def of(cls, source: Reading, key: str) -> HostHistory:
        """The history of a target of ``source``, whose threads are looked up."""
        threads = {t.key: t.runtime.threads for t in source.systems.targets()}
        return cls(source, key, threads.get(key, 1))

    @cached_property
    def watched(self) -> UsualConditions | None:
        """The usual conditions; None if the host was never watched."""
        return UsualConditions.seen(self._source.measurements.watched(self._key))

    def usual(self, measured: Iterable[Measurement]) -> UsualConditions | None:
        """The usual conditions; of an unwatched host, those in which bricks were ``measured``."""
        if self.watched is not None:
            return self.watched
        mean = mean_conditions(m.host for m in measured)
        return None if mean is None else UsualConditions.assumed(mean)

    def sensitivities(self, keys: Collection[str]) -> Sensitivities:
        """How the bricks of ``keys`` follow the conditions."""
        missing = [key for key in keys if key not in self._work]
        if missing:
            bricks = self._source.plans.load_bricks(missing)
            self._work |= {key: work_of(brick) for key, brick in bricks.items()}
        mean = None if self.watched is None else self.watched.mean
        return Sensitivities(self._work, self.threads, mean)

    def correction(self, measured: Collection[Measurement]) -> Correction:
        """The correction of measurements to the usual conditions."""
        sensitivities = self.sensitivities([m.key for m in measured])
        return Correction(sensitivities, self.usual(measured), measured)


def work_of(brick: Brick) -> BrickWork:
    """The work of a brick, from its types and operators."""
    weights, values = brick.numeric_weight_bytes, brick.bytes_moved - brick.numeric_weight_bytes
    names = [name.lower() for name in brick.operators]
    if any("gather" in name or "embedding" in name for name in names):
        weights = min(weights, values)  # only some rows of a table are read
    convolves = any("conv" in name for name in names)
    return BrickWork(float(brick.flops or 0), float(values), float(weights), len(names), convolves)
