"""Predicts a training step on several ranks, with intervals, from a rank's own step and a network.

Each metric is computed for the most likely latencies, and again with each source of error at both
ends of its interval: computation, its variation, the network, its slowdown of cores, and copies.
The parts of a source have a common error, so they move together; sources are independent, so the
squares of their deviations add up. Must not know bricks, nor how results are shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bricks.network.times import EXTRAPOLATED, FITTED, MEASURED, PUBLISHED, STATED, Network
from bricks.studies.scaling.options import StepOptions
from bricks.studies.scaling.result import Origins, ScalePoint
from bricks.studies.scaling.simulation import NETWORK, Action, Compute, simulate
from bricks.studies.scaling.strategies import (
    COPYING,
    DDP_CODE,
    SLOWEST,
    Costs,
    Schedule,
    Strategy,
    slowed,
    solo,
)
from bricks.studies.scaling.training_step import slowest
from bricks.units.interval import End, Interval, high_of, low_of, value_of

if TYPE_CHECKING:
    from bricks.compose.lanes import Timeline
    from bricks.studies.scaling.steps import CopyTimes
    from bricks.studies.scaling.training_step import TrainingStep

# A further rank pays if it adds at least this share of the samples/s of a rank by itself.
MIN_GAIN = 0.5

# From the most to the least that is known of a figure.
_CERTAINTY = (MEASURED, FITTED, EXTRAPOLATED, PUBLISHED, STATED)


@dataclass(frozen=True, slots=True)
class DataParallelTraining:
    """A training on several ranks: strategy, network, batch and step.

    ``batch`` is the number of samples of one rank by itself. ``price_per_hour`` is that of a rank's
    host.
    """

    strategy: Strategy
    network: Network
    batch: int
    step: StepOptions = field(default_factory=StepOptions)
    price_per_hour: float | None = None

    def share(self, ranks: int) -> int:
        """The samples of each of ``ranks`` ranks in a forward pass."""
        return self.batch // ranks if self.step.strong else self.batch


@dataclass(frozen=True, slots=True)
class _Case:
    """The number of each source's intervals in one computation: value, low end or high end."""

    compute: End = value_of
    network: End = value_of
    slowdown: End = value_of
    copies: End = value_of
    unevenness: End = value_of

    @classmethod
    def ends(cls) -> Iterable[tuple[str, _Case]]:
        """The name of each source, with the case of each of its ends."""
        for source in ("compute", "network", "slowdown", "copies", "unevenness"):
            for end in (low_of, high_of):
                yield source, replace(cls(), **{source: end})


_LIKELY = _Case()


@dataclass(frozen=True, slots=True)
class _SimulatedStep:
    """A simulated step in one case, with the seconds that a rank computes and copies."""

    simulated: Timeline
    schedule: Schedule
    compute_s: float
    copying_s: float
    origins: frozenset[str]


@dataclass(frozen=True, slots=True)
class RankTimes:
    """A rank's own ``step``, and its ``copies`` of gradients."""

    step: TrainingStep
    copies: CopyTimes


@dataclass(frozen=True, slots=True)
class Scaling:
    """Predictions of ``training``.

    ``steps`` are a rank's own step by the samples that it has in a forward pass. ``at_once`` are
    the times of a rank by the number of ranks, where these share a host and slow each other down.
    """

    training: DataParallelTraining
    steps: Mapping[int, TrainingStep]
    copies: CopyTimes
    at_once: Mapping[int, RankTimes] = field(default_factory=dict)

    def point(self, ranks: int) -> ScalePoint:
        """The training on ``ranks`` ranks."""
        likely = self._run(ranks, _LIKELY)
        middle = self._figures(ranks, _LIKELY)
        others = [(source, self._figures(ranks, case)) for source, case in _Case.ends()]
        intervals = {
            name: _interval(value, [(source, figures[name]) for source, figures in others])
            for name, value in middle.items()
        }
        steps = self.training.step.steps_per_epoch(self._samples(ranks))
        epochs = self.training.step.epochs
        epoch_s = None if steps is None else intervals["step_s"].scaled(steps)
        return ScalePoint(
            ranks=ranks,
            strategy=self.training.strategy.name,
            batch=self.training.share(ranks),
            step_s=intervals["step_s"],
            samples_per_s=intervals["samples_per_s"],
            speedup=intervals["speedup"],
            efficiency=intervals["efficiency"],
            exposed_communication_s=intervals["exposed_s"],
            communication_s=likely.simulated.busy_s(NETWORK) + likely.copying_s,
            bytes_sent=likely.schedule.bytes_sent,
            cost_per_epoch=intervals.get("cost"),
            origins=self._origins(ranks, likely),
            simulated=likely.simulated,
            solo_s=likely.compute_s,
            epoch_s=epoch_s,
            run_s=None if epoch_s is None or epochs is None else epoch_s.scaled(epochs),
        )

    def computing_s(self, ranks: int) -> float:
        """The seconds of an isolated step of one of ``ranks`` ranks."""
        times = self._times(ranks)
        costs = Costs(self.training.network, times.copies, 1)
        solo_schedule = solo(times.step, costs, self.training.step.accumulate)
        return simulate([self._sharing(solo_schedule)], solo_schedule.moved, 1.0).end_s

    def _times(self, ranks: int) -> RankTimes:
        isolated = RankTimes(self.steps[self.training.share(ranks)], self.copies)
        return self.at_once.get(ranks, isolated)

    def _sharing(self, schedule: Schedule, straggler: float = 1.0) -> tuple[Action, ...]:
        """The actions of a rank on its share of a core, ``straggler`` times slower."""
        return slowed(schedule.actions, straggler / self.training.network.cores_per_rank)

    def last_that_pays(self, candidates: Sequence[int]) -> int | None:
        """The last of the ascending numbers of ranks after which further ranks do not pay.

        Further ranks pay if each adds at least :data:`MIN_GAIN` of the samples/s of one rank, on
        average over a quarter more ranks, since fits of buckets and cycles make steps in the curve.
        None if further ranks pay at all ``candidates``.
        """
        rates = {ranks: self._samples_per_s(ranks) for ranks in candidates}
        last = None
        for ranks in candidates:
            next_ = next((n for n in candidates if n >= max(ranks + 1, 1.25 * ranks)), None)
            if next_ is None:
                return last
            gained = (rates[next_] - rates[ranks]) / (next_ - ranks)
            pays = gained >= MIN_GAIN * rates[candidates[0]]
            # A slow rank is waited for by the second one, but costs the third nothing more.
            last = None if pays else ranks if last is None else last
        return last

    def _samples(self, ranks: int) -> int:
        """Samples of a step of the optimiser."""
        training = self.training
        return training.share(ranks) * training.step.accumulate * ranks

    def _samples_per_s(self, ranks: int, case: _Case = _LIKELY) -> float:
        return self._samples(ranks) / self._run(ranks, case).simulated.end_s

    def _figures(self, ranks: int, case: _Case) -> dict[str, float]:
        """All metrics in one case; errors that one rank has too cancel in ratios."""
        run, training = self._run(ranks, case), self.training
        rate = self._samples(ranks) / run.simulated.end_s
        speedup = rate / self._samples_per_s(1, case) if ranks > 1 else 1.0
        figures = {
            "step_s": run.simulated.end_s,
            "samples_per_s": rate,
            "speedup": speedup,
            "efficiency": speedup / ranks,
            "exposed_s": max(0.0, run.simulated.end_s - run.compute_s),
        }
        price, steps = training.price_per_hour, training.step.steps_per_epoch(self._samples(ranks))
        if price is not None and steps is not None:
            figures["cost"] = price * ranks * steps * run.simulated.end_s / 3600
        return figures

    def _run(self, ranks: int, case: _Case) -> _SimulatedStep:
        training, times = self.training, self._times(ranks)
        step = times.step.times(case.compute(times.step.relative))
        costs = Costs(training.network, times.copies, ranks, case.network, case.copies)
        solo_schedule = solo(step, costs, training.step.accumulate)
        isolated = simulate([self._sharing(solo_schedule)], solo_schedule.moved, 1.0)
        if ranks == 1:
            return _SimulatedStep(isolated, solo_schedule, isolated.end_s, 0.0, frozenset())
        schedule = training.strategy.schedule(step, costs, training.step.accumulate)
        lanes = [self._sharing(schedule)]
        if training.step.straggler > 1:
            lanes.insert(0, self._sharing(schedule, training.step.straggler))
        else:  # a straggler is the slowest in any case
            uneven = times.step.unevenness.repeated(training.step.accumulate)
            mean_s = slowest(ranks) * case.unevenness(uneven.deviation_s)
            waiting_s = mean_s / training.network.cores_per_rank
            lanes = [(*lanes[0], Compute(SLOWEST, waiting_s))]
        slowdown = case.slowdown(training.network.slowdown(ranks).interval)
        simulated = simulate(lanes, schedule.moved, max(1.0, slowdown))
        added = {COPYING, DDP_CODE}
        copying_s = sum(w.seconds for w in lanes[0] if isinstance(w, Compute) and w.kind in added)
        return _SimulatedStep(
            simulated,
            schedule,
            compute_s=training.step.straggler * isolated.end_s,
            copying_s=copying_s,
            origins=frozenset(costs.origins),
        )

    def _origins(self, ranks: int, run: _SimulatedStep) -> Origins:
        times = self._times(ranks)
        compute = times.step.provenance.origin
        if ranks == 1:
            return Origins(compute)
        return Origins(
            compute,
            copies="measured" if times.copies.measured else "predicted",
            network=max(run.origins, key=_CERTAINTY.index, default=None),
            slowdown=self.training.network.slowdown(ranks).origin,
        )


def _interval(value: float, others: Iterable[tuple[str, float]]) -> Interval:
    """``value`` with an interval of the deviations that each source causes."""
    moved: dict[str, list[float]] = defaultdict(lambda: [value])
    for source, other in others:
        moved[source].append(other)
    sources = [Interval(value, min(seen), max(seen)) for seen in moved.values()]
    return Interval.deviating(value, sources).at_least(0.0)
