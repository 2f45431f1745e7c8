"""The result of recomposing: an estimate, or an incomplete one that names its missing bricks.

Plain data, here so that reports need not import the calculation. Must not know how it is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bricks.estimate.uncertainty import Uncertainty


@dataclass(frozen=True, slots=True)
class Share:
    """The contribution of one brick to a model: all its occurrences, call overhead subtracted.

    Where bricks overlap, ``occurrences`` is a net count; it and the other numbers are negative for
    a brick whose latency is subtracted. ``predicted`` says that the brick was not measured but
    predicted from similar ones.
    """

    brick: str
    occurrences: int
    latency_s: float
    share: float
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """A brick without a measurement, how often the model needs it, and why there is none."""

    brick: str
    occurrences: int
    reason: str


@dataclass(frozen=True, slots=True)
class PhaseShare:
    """The part of one phase of a recorded program in its latency, in seconds.

    ``estimate_s`` includes ``around_s``, what Python and the engine of automatic differentiation
    take around the phase's ``calls``. That is negative where the engine calls an operator faster
    than the replay of a brick does.
    """

    phase: str
    calls: int
    estimate_s: float
    around_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A model's latency in seconds, recomposed from its bricks' latencies.

    ``low_s`` and ``high_s`` are meant to hold the model's latency with 95 %: they follow from the
    samples' spread, from the error of predictions, and from that of recomposing.
    ``critical_path_s`` is the longest chain of occurrences that depend on each other: no schedule
    can beat it. ``other_state_share`` is the share of the latency that comes from bricks measured
    only in another machine state, ``predicted_share`` that of unmeasured bricks; ``coverage`` is
    the share of the occurrences whose brick is measured. ``uncertainty`` is half the interval's
    width by its sources. ``phases`` are those of a recorded program. With several ``workers`` the
    interval spans from the bound that no schedule can beat to the latency without any overlap;
    shares are of the total working time of all workers.
    """

    model: str
    granularity: str
    estimate_s: float
    low_s: float
    high_s: float
    critical_path_s: float
    call_overhead_s: float
    other_state_share: float
    predicted_share: float
    coverage: float
    shares: tuple[Share, ...]
    uncertainty: Uncertainty
    workers: int = 1
    phases: tuple[PhaseShare, ...] = ()

    @property
    def measured_share(self) -> float:
        """The share of the latency that comes from measured bricks."""
        return 1.0 - self.predicted_share

    @property
    def relative_uncertainty(self) -> float:
        """Half the interval's width, relative to the estimate; infinite for an estimate of zero."""
        half_s = (self.high_s - self.low_s) / 2
        return half_s / self.estimate_s if self.estimate_s > 0 else math.inf


@dataclass(frozen=True, slots=True)
class IncompleteEstimate:
    """No estimate, because measurements of bricks are missing; ``measured_s`` is the known part."""

    model: str
    granularity: str
    measured_s: float
    coverage: float
    gaps: tuple[Gap, ...]
    shares: tuple[Share, ...]
