"""The bricks of a plan by how their latency is known: measured, predicted, or missing.

Predictions have the form of measurements, so both are corrected by the same code. Must not know how
latencies are composed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.estimate import Gap
from bricks.predict.prediction import BrickPredictions
from bricks.samples.call_overhead import probes_of
from bricks.samples.measurement import Failure, Measurement

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan

Results = Mapping[str, Measurement | Failure]


@dataclass(frozen=True, slots=True)
class Parts:
    """The ``measured`` and the ``predicted`` bricks of a plan, by key."""

    measured: Mapping[str, Measurement]
    predicted: Mapping[str, Measurement]

    @classmethod
    def of(cls, plan: Plan, results: Results, predictions: BrickPredictions) -> Parts:
        """The parts of ``plan``; a brick that failed is predicted only if it is unmeasurable."""
        measured = {k: m for k in plan.counts if isinstance(m := results.get(k), Measurement)}
        tried = results.keys() - predictions.unmeasurable
        predicted = sorted((plan.counts.keys() & predictions.of.keys()) - tried)
        host = predictions.host
        return cls(measured, {k: predictions.of[k].measurement(k, host) for k in predicted})

    @property
    def all(self) -> dict[str, Measurement]:
        """Measured and predicted bricks by key."""
        return {**self.measured, **self.predicted}


def gaps(plan: Plan, results: Results, predicted: Collection[str]) -> tuple[Gap, ...]:
    """A :class:`Gap` for each brick or probe without a measurement or a prediction.

    An outdated plan, which lacks the counts of probes, has a gap too.
    """
    needed = (*plan.counts.items(), *((key, 0) for key in probes_of(plan)))
    missing = (gap(key, n, results) for key, n in needed if key not in predicted)
    outdated: tuple[Gap, ...] = ()
    if plan.memory.outdated:
        outdated = (Gap(plan.model, 0, "its plan is of an earlier version: decompose it again"),)
    return (*(gap for gap in missing if gap is not None), *outdated)


def gap(key: str, occurrences: int, results: Results) -> Gap | None:
    """A :class:`Gap` for ``key`` without a measurement; None for a measured one."""
    match results.get(key):
        case None:
            return Gap(key, occurrences, "not measured on this target")
        case Failure(reason=reason):
            return Gap(key, occurrences, reason)
        case _:
            return None
