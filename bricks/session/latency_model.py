"""The latency model of a target: a predictor learned from its measurements at one moment.

It never changes: after new measurements, :mod:`bricks.session.latencies` has another one. Learning
imports libraries that take a moment, so that they are imported where something is learned. Must not
know when anything is learned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.compose.prior import OTHER_HOST_SD
from bricks.predict.context import slowed
from bricks.predict.defaults import MIN
from bricks.session.measured_target import KnownLatencies, MeasuredTarget

if TYPE_CHECKING:
    from bricks.predict.features import BrickFeatures
    from bricks.predict.learned_file import Learned
    from bricks.predict.predictor import Predictor
    from bricks.predict.transfer import SourceTarget, Transfer, ZeroShotTransfer


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """A ``predictor`` of latencies, and the ``known`` latencies that it was learned from.

    ``predictor`` is None if there were too few latencies. ``slowness`` is that of its predictions,
    if a learned file distinguishes it. ``kept`` says whether it was read from such a file.
    """

    predictor: Predictor | Transfer | ZeroShotTransfer | None
    known: KnownLatencies
    slowness: float = 0.0
    kept: bool = False

    @classmethod
    def read(cls, target: MeasuredTarget) -> LatencyModel | None:
        """The model in the learned file of the target's measurements; None without such a file."""
        kept = learned_before(target)
        if kept is None:
            return None
        known = KnownLatencies(target, {}, {})
        return cls(kept.predictor, known, kept.slowness, kept=True)

    @classmethod
    def learn(
        cls,
        known: KnownLatencies,
        features: Mapping[str, BrickFeatures],
        others: Sequence[SourceTarget],
    ) -> LatencyModel:
        """A model of ``known`` latencies of bricks with these ``features``.

        Measurements of ``others``, further targets, inform the model of a target with few own ones.
        """
        from bricks.predict.predictor import learn

        if others:
            from bricks.predict.transfer import learn_transfer

            transfer = learn_transfer(features, known.seconds, known.families, others)
            if transfer is not None:
                return cls(transfer, known)
        latency_s = {key: known.mean_s(known.measured[key]) for key in features}
        return cls(learn(features, latency_s, known.families), known)

    def borrowing(self, predictor: ZeroShotTransfer) -> LatencyModel:
        """This model with the predictor that other targets give, where it has none."""
        return replace(self, predictor=predictor)

    @property
    def missing_count(self) -> int:
        """The number of further bricks to measure before any can be predicted."""
        return 0 if self.predictor else max(1, MIN - len(self.known.measured))

    @property
    def bias(self) -> float:
        """The relative standard deviation of the error that all predictions have in common."""
        if self.predictor is None:
            return 0.0
        bias = self.predictor.bias
        return math.hypot(bias, OTHER_HOST_SD) if self._from_other_host else bias

    @property
    def _from_other_host(self) -> bool:
        """Whether the model was mostly learned from another host of this kind."""
        measured = self.known.measured
        own = sum(not m.published for m in measured.values())
        return self.kept or 2 * own < len(measured)

    def slowed(self, features: Mapping[str, BrickFeatures]) -> dict[str, BrickFeatures]:
        """The features of bricks as the predictor expects them."""
        return slowed(features, self.slowness)


def learned_before(target: MeasuredTarget) -> Learned | None:
    """The learned file of ``target``, if there is one for its granularity."""
    content = target.source.measurements.learned(target.key)
    if content is None:
        return None
    from bricks.predict.learned_file import read

    learned = read(content, target.key, target.granularity)
    if learned is not None:
        new = target.source.plans.usage(target.key, target.granularity, unlearned=True)
        target.note_contexts([usage for _, usage in new])
    return learned
