"""What recomposing yields: an estimate, or an incomplete one that names what it lacks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """What one brick contributes to a model: all its occurrences, call overhead subtracted.

    Where bricks overlap, ``occurrences`` is net, and with the rest negative for what is taken away.
    ``predicted`` tells that the brick was not measured: others like it were.
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
class Estimate:
    """A model's latency in seconds, recomposed from its bricks'.

    ``low_s`` and ``high_s`` are meant to hold the model's latency with 95 %: they follow from the
    samples' spread, from what predictions may be wrong by, and from what recomposing may be.
    ``critical_path_s`` is the longest chain of occurrences that depend on each other: no schedule
    can beat it. ``other_state_share`` is the share of the latency that comes from bricks which were
    measured in another state of the machine only, ``predicted_share`` that of bricks which were not
    measured at all; ``coverage`` is the share of the occurrences that stand on a measurement. With
    several ``workers`` the interval spans from what no schedule can beat to where nothing overlaps;
    shares are of the time that all of them work.
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
    workers: int = 1

    @property
    def measured_share(self) -> float:
        """The share of the latency that comes from bricks which were measured."""
        return 1.0 - self.predicted_share


@dataclass(frozen=True, slots=True)
class IncompleteEstimate:
    """No estimate, because bricks lack a measurement; ``measured_s`` is the part that is known."""

    model: str
    granularity: str
    measured_s: float
    coverage: float
    gaps: tuple[Gap, ...]
    shares: tuple[Share, ...]
