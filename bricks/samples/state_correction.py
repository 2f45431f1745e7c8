"""Corrects a latency that was taken in one machine state to another state.

The model of the change is :mod:`bricks.samples.state_model`. Within a state the machine drifts: in
a round with a slower reference, bricks that communicate are slower too, and are corrected by the
same model. Must not know how latencies are measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.samples.statistics import NORMAL_95, median

if TYPE_CHECKING:
    from bricks.samples.measurement import Measurement
    from bricks.samples.state_model import Power, StateModel


@dataclass(frozen=True, slots=True)
class Factor:
    """The factor to multiply a latency with, and the errors that this brings: log-normal.

    ``shared_sd`` is the standard deviation of the logarithm of the error that all corrections have
    in common, ``independent_sd`` that of this latency's own error.
    """

    middle: float = 1.0
    shared_sd: float = 0.0
    independent_sd: float = 0.0

    @property
    def log_sd(self) -> float:
        """The standard deviation of the correction factor's logarithm."""
        return math.hypot(self.shared_sd, self.independent_sd)

    @property
    def low(self) -> float:
        """The lower end of the interval that holds 95 % of such factors."""
        return self.middle * math.exp(-NORMAL_95 * self.log_sd)

    @property
    def high(self) -> float:
        """The upper end of that interval."""
        return self.middle * math.exp(NORMAL_95 * self.log_sd)

    @property
    def relative_uncertainty(self) -> float:
        """The relative error that a latency may have after the multiplication."""
        return math.expm1(NORMAL_95 * self.log_sd)

    @property
    def errors(self) -> Factor:
        """The errors of this factor, without its expected change."""
        return Factor(1.0, self.shared_sd, self.independent_sd)


class StateCorrection:
    """Corrects latencies to the machine state ``state_s`` by a model of changes.

    The model is ``model``, or is learned from ``measurements``. No latency is corrected if its
    state or ``state_s`` is None. ``others`` are measurements to correct that the model does not
    learn from.
    """

    def __init__(
        self,
        measurements: Iterable[Measurement],
        state_s: float | None,
        model: StateModel | None = None,
        others: Iterable[Measurement] = (),
    ) -> None:
        self._state_s = state_s
        # All at once as soon as one is needed: learning and predicting take a while.
        self._waiting = [] if state_s is None else list(measurements)
        self._others = [] if state_s is None else list(others)
        self._model = model
        self._powers: dict[tuple[str, float, float], Power] = {}

    def rounds_s(self, measurement: Measurement) -> list[float]:
        """The latency of each of its used rounds in that state, in seconds."""
        used = measurement.used_rounds(self._state_s)
        state_s, power = self._state_s, self._power(measurement)
        if state_s is None or power is None:
            return [r.latency_s for r in used]
        return [
            r.latency_s * (1.0 if r.state_s is None else (state_s / r.state_s) ** power.mean)
            for r in used
        ]

    def mean_s(self, measurement: Measurement) -> float:
        """The mean seconds of a run in that state."""
        return median(self.rounds_s(measurement)) * measurement.runs(self._state_s).mean

    def factor(self, measurement: Measurement) -> Factor:
        """The correction from the state in which most of a measurement's rounds were taken."""
        power = self._power(measurement)
        if self._state_s is None or power is None:
            return Factor()
        _, _, own_s = self._observed(measurement)
        change = math.log(self._state_s / own_s)
        return Factor(
            math.exp(change * power.mean),
            abs(change) * power.shared_sd,
            abs(change) * power.independent_sd,
        )

    def shared_s(self, parts: Iterable[tuple[Measurement, float]]) -> float:
        """The error in common of a sum of corrected latencies: a standard deviation, in seconds.

        Each measurement counts with its part of the sum in seconds.
        """
        if self._state_s is None:
            return 0.0
        known = [(m, part_s) for m, part_s in parts if self._power(m) is not None]
        if not known or self._model is None:
            return 0.0
        keys, latencies_s, states_s = zip(*(self._observed(m) for m, _ in known), strict=True)
        changes = [
            part_s * math.log(self._state_s / own_s)
            for (_, part_s), own_s in zip(known, states_s, strict=True)
        ]
        return self._model.shared_sd(keys, latencies_s, states_s, changes)

    def _power(self, measurement: Measurement) -> Power | None:
        """The power of the reference's change by which a latency changes; None without a state.

        Several measurements may have one key: of a brick, and of predictions in its place.
        """
        if self._state_s is None or measurement.used_state_s(self._state_s) is None:
            return None
        observed = self._observed(measurement)
        if observed not in self._powers:
            if self._model is None:
                from bricks.samples.state_model import StateModel  # needs numpy

                self._model = StateModel(self._waiting)
            known = [m for m in (*self._waiting, *self._others) if m.state_s is not None]
            observations = [observed, *map(self._observed, known)]
            self._waiting, self._others = [], []
            self._powers.update(
                zip(observations, self._model.powers(*zip(*observations, strict=True)), strict=True)
            )
        return self._powers[observed]

    def _observed(self, measurement: Measurement) -> tuple[str, float, float]:
        """Its key, its latency as it was taken, and the state in which it was, in seconds."""
        state_s = measurement.used_state_s(self._state_s)
        assert state_s is not None, "some round has a state"
        return measurement.key, measurement.latency_s(self._state_s), state_s
