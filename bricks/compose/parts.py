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
from bricks.samples.measurement import Failure, Measurement, common_state

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
        state_s = predictions.state_s
        return cls(measured, {k: predictions.of[k].measurement(k, state_s) for k in predicted})

    @property
    def all(self) -> dict[str, Measurement]:
        """Measured and predicted bricks by key."""
        return {**self.measured, **self.predicted}


def state_of(
    plan: Plan,
    results: Results,
    whole: Measurement | None = None,
    predictions: BrickPredictions | None = None,
) -> float | None:
    """The machine state in which most of ``plan``'s latency is measured or predicted.

    With ``whole``, the choice is among the states of that measurement.
    """
    parts = Parts.of(plan, results, predictions or BrickPredictions()).all
    anchors = parts.values() if whole is None else [whole]
    return common_state(anchors, parts, plan.counts)


def all_known_in(
    plan: Plan, results: Results, predictions: BrickPredictions, state_s: float | None
) -> bool:
    """Whether all bricks of ``plan`` are known in ``state_s``, without a correction."""
    parts = Parts.of(plan, results, predictions).all
    return all(part.known_in(state_s) for part in parts.values())


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
