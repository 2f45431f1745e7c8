"""The predicted kernels of calls, and their sum over many calls.

Must not know how they were predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bricks.units.interval import Interval, common_sum, independent_sum
from bricks.units.sample import COPY_TO_HOST, Kernel

# States of the cache by displaced bytes: in a walk, again and again, after all of it was displaced.
COLD_BYTES = 256 << 20
STATES: Mapping[int | None, str] = {None: "walk", 0: "hot", COLD_BYTES: "cold"}

# What operators start that start no kernel of their own name: the host waits for a copy.
_STARTED: Mapping[str, str] = {"_local_scalar_dense": COPY_TO_HOST}

# Half the width of a 95 % interval in standard deviations.
WIDTH = 1.96


@dataclass(frozen=True, slots=True)
class KernelPrediction:
    """The predicted kernels of one call.

    ``device_s`` is the total by displaced bytes, as in
    :attr:`~bricks.samples.measurement.Measurement.kernels_by_displaced`: None in a walk. A call
    that starts no kernel has a ``count`` of 0, and no times. ``known`` says whether calls of its
    operator were measured.
    """

    operator: str
    family: str
    count: int
    device_s: Mapping[int | None, Interval]
    known: bool = True

    @classmethod
    def nothing(cls) -> KernelPrediction:
        """The prediction of a call that starts no kernel."""
        return cls("", "", 0, {})

    @property
    def kernels_by_displaced(self) -> Mapping[int | None, tuple[Kernel, ...]]:
        """Kernels of equal duration, called by the operator, by displaced bytes."""
        name = _STARTED.get(self.operator, self.operator)
        return {
            displaced: (Kernel(name, own.value / self.count),) * self.count
            for displaced, own in self.device_s.items()
        }


def total_s(predictions: Iterable[tuple[KernelPrediction, int]], state: int | None) -> Interval:
    """The sum of predicted calls with their numbers of occurrences, in one state of the cache.

    Errors of calls of one operator are taken as common: their ends add up. Those of different
    operators are independent.
    """
    by_operator: dict[str, list[Interval]] = {}
    for prediction, times in predictions:
        if prediction.count:
            own = prediction.device_s[state].scaled(times)
            by_operator.setdefault(prediction.operator, []).append(own)
    return independent_sum([common_sum(parts) for parts in by_operator.values()]).positive()
