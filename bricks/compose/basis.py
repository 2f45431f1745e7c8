"""The inputs of a model's estimate: plan, results, predictions and construction. Plain data.

Bricks of a plan differ in how their latency is known: measured, predicted, or missing.
Predictions have the form of measurements, so both are corrected by the same code. On a device, the
costs of launching from its probes are inputs too.

Priors are measurements or predictions of another host of the same kind.

A measurement on a noisy host may be less precise than its prior. Then a brick's latency is the
posterior of both, weighted by their precision. Must not know how latencies are composed, nor how
inputs are measured or stored.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bricks.compose.device.launching import LaunchCosts
from bricks.compose.estimate import Gap
from bricks.compose.recomposition_error import OTHER_HOST_SHARE
from bricks.predict.prediction import BrickPredictions, Prediction
from bricks.samples.call_overhead import DEVICE_PROBES, probes_of
from bricks.samples.correction import Correction
from bricks.samples.measurement import UNSURE_SHARE, Failure, Measurement, round_spread
from bricks.samples.statistics import NORMAL_95
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.compose.recomposition_error import OwnRuns
    from bricks.compose.schedule import Construction
    from bricks.decompose.plan import Brick, Plan
    from bricks.samples.sensitivity import Sensitivities
    from bricks.samples.usual_conditions import UsualConditions
    from bricks.system.accelerator import Accelerator

# The cost of a call in a walk, relative to the probes, which run repeatedly and so find the
# runtime's code and data cached. Light bricks do too, since they run once before each sample; heavy
# bricks do not. Chosen on one half of the zoo's families; benchmarks/accuracy.py reports the best
# factor for all families but one, and estimates without the factor.
IN_WALK_CALL_FACTOR = 1.0


@dataclass(frozen=True, slots=True)
class Basis:
    """The inputs of an estimate of ``plan``; ``results`` hold bricks and probes by key.

    The estimate is for the ``conditions`` of the host, to which latencies are corrected by the
    ``sensitivities`` of bricks; without either, latencies count as they were measured. An
    unmeasured brick counts with its latency in ``predictions``, a
    measured one with a prior there with the posterior of both; a brick whose measurement failed is
    a gap, unless it is unmeasurable and predicted. ``own_runs`` are whole models that the host ran,
    which show its error of recomposition; None: it is as usual. ``construction`` says how
    occurrences run in parallel; if None, they run one after another. ``in_walk_call_factor`` times
    the call cost of the probes is subtracted from each brick. ``device`` are further inputs about
    a known accelerator.
    """

    plan: Plan
    results: Results
    predictions: BrickPredictions = field(default_factory=BrickPredictions)
    conditions: UsualConditions | None = None
    sensitivities: Sensitivities | None = None
    own_runs: OwnRuns | None = None
    construction: Construction | None = None
    device: DeviceBasis | None = None
    in_walk_call_factor: float = IN_WALK_CALL_FACTOR

    @property
    def parts(self) -> Parts:
        """The measured and the predicted bricks."""
        return Parts.of(self.plan, self.results, self.predictions)

    @property
    def correction(self) -> Correction:
        """The correction to the conditions, as the rounds of measured bricks teach it."""
        return Correction(self.sensitivities, self.conditions, self.parts.measured.values())


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


@dataclass(frozen=True, slots=True)
class PredictedKernels:
    """The kernels of a brick that was not measured, in the form of a measurement.

    ``device_s`` are the seconds of all of them, ``host_s`` those of the host for the call, with the
    errors of their predictions, which bricks of one ``operator`` have in common. They are
    ``carried`` if another card ran the same call.
    """

    operator: str
    kernels: Measurement
    device_s: Interval
    host_s: Interval
    carried: bool = False


@dataclass(frozen=True, slots=True)
class DeviceBasis:
    """A device, what launching costs there, and the ``predicted`` kernels of unmeasured bricks.

    ``bricks`` are those of the plan, by key, from which the state of the device's cache follows.
    ``transfer_error`` is half the width, relative to all kernels, of an error that all predictions
    have in common because another card was measured; 0 for the card itself.
    """

    accelerator: Accelerator
    costs: LaunchCosts
    bricks: Mapping[str, Brick]
    predicted: Mapping[str, PredictedKernels] = field(default_factory=dict)
    transfer_error: float = 0.0


# Where a system's probes were not measured: the middle and the ends of five processes on two cards.
_ASSUMED = {
    "gap": Interval(1.1e-6, 0.9e-6, 1.4e-6),
    "launch": Interval(9e-6, 6e-6, 11e-6),
    "synchronise": Interval(10e-6, 5e-6, 12e-6),
}

# Assumed of all cards, from the graphs of twelve programs on two cards (research/gpu.md).
_GRAPH_GAP, _GRAPH_LAUNCH = Interval(0.55e-6, 0.3e-6, 0.8e-6), Interval(10e-6, 5e-6, 15e-6)


def launch_costs(results: Results) -> LaunchCosts:
    """The costs among ``results``; those that were not measured are assumed as on other cards."""
    measured = {name: of for name in _ASSUMED if (of := _cost(results, name)) is not None}
    known = {**_ASSUMED, **measured}
    return LaunchCosts(
        gap_s=known["gap"],
        launch_s=known["launch"],
        synchronize_s=known["synchronise"],
        graph_gap_s=_GRAPH_GAP,
        graph_launch_s=_GRAPH_LAUNCH,
        assumed=len(measured) < len(_ASSUMED),
    )


def _cost(results: Results, name: str) -> Interval | None:
    measured = results.get(DEVICE_PROBES[name])
    return round_spread(measured) if isinstance(measured, Measurement) else None


# How much hosts of one kind differ, as a standard deviation of the logarithm of latencies.
OTHER_HOST_SD = OTHER_HOST_SHARE / NORMAL_95

# Bricks whose standard deviations add up to no more than this share of an estimate need no priors:
# a prior that agrees with the measurement moves a brick by less than its standard deviation.
_NEGLIGIBLE_SHARE = 0.001


def imprecise_bricks(basis: Basis) -> set[str]:
    """Keys of bricks measured on this host whose intervals are so wide that priors count.

    None if all of these together are negligible: priors take longer to find than all the rest.
    """
    counts, measured = basis.plan.counts, basis.parts.measured
    correction = basis.correction
    spreads = {key: round_spread(correction.corrected(m)) for key, m in measured.items()}
    parts_s = {key: abs(counts[key]) * spread.value for key, spread in spreads.items()}
    unsure = {
        key
        for key, spread in spreads.items()
        if not measured[key].published and spread.relative > UNSURE_SHARE
    }
    moved_s = sum(parts_s[key] * spreads[key].relative / NORMAL_95 for key in unsure)
    return unsure if moved_s > _NEGLIGIBLE_SHARE * sum(parts_s.values()) else set()


def prior_of_measurement(latency_s: Interval) -> Prediction:
    """The prior for this host from a latency that another host of its kind measured."""
    return prior_of_prediction(Prediction(latency_s.value, latency_s.relative / NORMAL_95))


def prior_of_prediction(prediction: Prediction) -> Prediction:
    """The prior for this host from a prediction for another host of its kind."""
    return replace(prediction, log_sd=math.hypot(prediction.log_sd, OTHER_HOST_SD))
