"""The result of measuring: raw samples, or a failure with its reason, as two separate types.

Conditions of sampling (load of other processes, noisy rounds, bricks that were sampled again) are
one type, which results of campaigns, benches and fleets report. Here because the store and all
estimates read it. Must not know how samples are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.samples.statistics import Term, median, pooled_variance, spread
from bricks.system.accelerator import AcceleratorState, joined
from bricks.system.host_conditions import HostConditions, mean_conditions
from bricks.units.sample import Kernel, Sample, weighted_mean

if TYPE_CHECKING:
    from bricks.units.interval import Interval

# Increment this when samples from before and after a change must not be mixed.
PROTOCOL = 4

# A round is disturbed (noisy) if its threads waited for longer than this share of its duration:
# about the error that an estimate should have.
DISTURBED_SHARE = 0.02

# A round on a device that protected itself from heat counts as this part of another one.
_UNSTEADY = 0.1

# Beyond this relative half width of its interval, a measurement is imprecise: its host was noisy.
UNSURE_SHARE = 0.3

# Samples of a round that take longer than its fastest by this factor are outliers.
_OUTLIER = 1.25

# A single run counts as at most this multiple of the latency: longer ones were first runs, or due
# to other processes. Fewer samples than enough do not show how runs vary.
_MOST_OF_A_RUN, _ENOUGH_SAMPLES = 1.5, 6


@dataclass(frozen=True)  # without slots, for cached properties
class Round:
    """One round's raw samples, without warm-ups, and the conditions during the round.

    ``host_s`` are the seconds of each sample on the host: its latency. ``kernels`` are the device
    kernels of each sample; empty without a device. ``displaced_bytes`` is the state of the device's
    cache in all samples, as in :class:`~bricks.units.sample.Sample`.

    ``host`` are the conditions of the host around the round. ``waited_share`` is the share of the
    round in which the worker's threads waited for a processor, or a hypervisor took it.
    ``device_state`` is the state of the device. Each is None if unknown.
    """

    host_s: tuple[float, ...]
    host: HostConditions | None = None
    waited_share: float | None = None
    kernels: tuple[tuple[Kernel, ...], ...] = ()
    displaced_bytes: int | None = None
    device_state: AcceleratorState | None = None

    @classmethod
    def of(
        cls,
        samples: Sequence[Sample],
        host: HostConditions | None = None,
        waited_share: float | None = None,
        device_state: AcceleratorState | None = None,
    ) -> Round:
        """A round of these samples; ValueError if they differ in their displaced bytes."""
        kernels = tuple(sample.kernels for sample in samples)
        host_s = tuple(sample.host_s for sample in samples)
        displaced = {sample.displaced_bytes for sample in samples} or {None}
        if len(displaced) > 1:
            raise ValueError("the samples of a round displace different numbers of bytes")
        kernels = kernels if any(kernels) else ()
        return cls(host_s, host, waited_share, kernels, displaced.pop(), device_state)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples, in the order in which they were taken."""
        kernels = self.kernels or ((),) * len(self.host_s)
        displaced = self.displaced_bytes
        return tuple(Sample(s, own, displaced) for s, own in zip(self.host_s, kernels, strict=True))

    @cached_property
    def device_s(self) -> float:
        """The median of the seconds that a sample's kernels take; 0 without any."""
        return median([sample.device_s for sample in self.samples]) if self.kernels else 0.0

    def times(self, factor: float) -> Round:
        """This round with ``factor`` times the latencies on the host."""
        return replace(self, host_s=tuple(factor * host_s for host_s in self.host_s))

    def rounded(self, digits: int) -> Round:
        """This round with ``digits`` significant digits of each latency, and two of the share."""

        def short(number: float | None, digits: int = digits) -> float | None:
            return None if number is None else float(f"{number:.{digits}g}")

        return replace(
            self,
            host_s=tuple(float(f"{host_s:.{digits}g}") for host_s in self.host_s),
            host=None if self.host is None else self.host.rounded(digits),
            waited_share=short(self.waited_share, 2),
            kernels=tuple(
                tuple(Kernel(k.name, float(f"{k.device_s:.{digits}g}")) for k in of_sample)
                for of_sample in self.kernels
            ),
        )

    @property
    def disturbed(self) -> bool:
        """Whether other processes delayed the worker.

        A device that protects itself from heat counts too; one at its limit of power does not,
        since a long run of the same work is there as well.
        """
        waited = self.waited_share is not None and self.waited_share > DISTURBED_SHARE
        return waited or (self.device_state is not None and self.device_state.unsteady)

    @property
    def weight(self) -> float:
        """How much the round counts among others: less, the longer its threads waited."""
        if self.device_state is not None and self.device_state.unsteady:
            return _UNSTEADY
        return min(1.0, DISTURBED_SHARE / max(DISTURBED_SHARE, self.waited_share or 0.0))

    @property
    def throttled(self) -> bool:
        """Whether the clock of the device was lowered."""
        return self.device_state is not None and bool(self.device_state.throttled_by)

    @cached_property
    def latency_s(self) -> float:
        """The median of its samples, without outliers caused by outside interference.

        A round has few samples, so a single outlier would otherwise be half of its median.
        """
        max_s = _OUTLIER * min(self.host_s)
        return median([s for s in self.host_s if s <= max_s])


@dataclass(frozen=True)  # without slots, as rounds
class Measurement:
    """Raw latencies of a brick, model or probe on a target, round by round.

    ``wall_s`` is all the time spent on it: creating its session, warming up, sampling.
    ``published`` says that it is not of the user's cache, but one that others published; the same
    samples are equal wherever they are kept.
    """

    key: str
    rounds: tuple[Round, ...]
    wall_s: float
    published: bool = field(default=False, compare=False)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples, in the order in which they were taken."""
        return tuple(s for r in self.rounds for s in r.samples)

    @property
    def host_s(self) -> tuple[float, ...]:
        """Seconds of all samples on the host, in the order in which they were taken."""
        return tuple(s for r in self.rounds for s in r.host_s)

    @cached_property
    def walked(self) -> tuple[Round, ...]:
        """The rounds of walks; all, if there are none."""
        return tuple(r for r in self.rounds if r.displaced_bytes is None) or self.rounds

    @property
    def undisturbed(self) -> tuple[Round, ...]:
        """The rounds of walks that nothing disturbed; all, if there are none."""
        return _undisturbed(self.walked)

    @cached_property
    def weights(self) -> tuple[float, ...] | None:
        """The weight of each round of :attr:`walked`; None if no round is disturbed."""
        return _weights(self.walked)

    @cached_property
    def host(self) -> HostConditions | None:
        """The mean conditions of the host over the rounds of walks; None if unknown."""
        return mean_conditions((r.host for r in self.walked), self.weights)

    def since(self, second: int) -> Measurement:
        """The rounds that were taken at this Unix time or later; all, if there are none."""
        late = tuple(
            r for r in self.rounds if r.host and r.host.taken_s and r.host.taken_s >= second
        )
        return replace(self, rounds=late) if late else self

    @property
    def latency_s(self) -> float:
        """The median over the rounds of walks: the samples of one round are not independent."""
        return self._used.latency_s

    @property
    def device_s(self) -> float:
        """Seconds of all kernels of a run: the median over the rounds of walks; 0 on a CPU."""
        return self._used.device_s

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels of a run, each with its mean over all samples of the rounds of walks."""
        return self._used.kernels

    @cached_property
    def kernels_by_displaced(self) -> Mapping[int | None, tuple[Kernel, ...]]:
        """The mean kernels of a run by the displaced bytes before it; None: in a walk."""
        every: dict[int | None, list[Round]] = {}
        for taken in self.rounds:
            if taken.kernels:
                every.setdefault(taken.displaced_bytes, []).append(taken)
        return {displaced: _Used(tuple(of)).kernels for displaced, of in every.items()}

    @cached_property
    def throttled(self) -> AcceleratorState | None:
        """The state of the device over undisturbed rounds whose clock was lowered; None: none."""
        return joined(r.device_state for r in self.undisturbed if r.throttled)

    @property
    def runs(self) -> RunVariation:
        """The variation of single runs in the rounds of walks, relative to :attr:`latency_s`."""
        return self._used.runs

    @property
    def mean_s(self) -> float:
        """The mean seconds of a run: its part in a sum of many; see ``RunVariation``."""
        return self.latency_s * self.runs.mean

    @cached_property
    def _used(self) -> _Used:
        return _Used(self.walked)


@dataclass(frozen=True, slots=True)
class RunVariation:
    """The mean and the variance of single runs, relative to their median.

    In a sum of many runs each counts with its mean; a single run counts with its median. Only
    independent variation counts. Variation from round to round is due to the machine and common to
    all bricks of a run: it is left out, since medians of such latencies add up.
    """

    mean: float
    variance: float

    def term(self, latency_s: float, runs: int) -> Term:
        """The sum of ``runs`` independent runs with the median ``latency_s``, as a term."""
        gap_s = latency_s * (self.mean - 1.0)
        variance = abs(runs) * self.variance * latency_s**2
        return Term(runs * latency_s, runs * (latency_s + gap_s), variance, gap_s)


@dataclass(frozen=True)  # without slots, as rounds
class _Used:
    """The rounds of a measurement that count, each by its weight."""

    rounds: tuple[Round, ...]

    @cached_property
    def latency_s(self) -> float:
        return median([r.latency_s for r in self.rounds], _weights(self.rounds))

    @cached_property
    def device_s(self) -> float:
        known = [r for r in self.rounds if r.kernels]
        return median([r.device_s for r in known], _weights(known)) if known else 0.0

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        weighed = [(sample, r.weight) for r in self.rounds if r.kernels for sample in r.samples]
        return weighted_mean(*zip(*weighed, strict=True)).kernels if weighed else ()

    @cached_property
    def runs(self) -> RunVariation:
        most_s = _MOST_OF_A_RUN * self.latency_s
        rounds = [[min(s, most_s) for s in r.host_s] for r in _undisturbed(self.rounds)]
        counted = [s for samples in rounds for s in samples]
        if len(counted) < _ENOUGH_SAMPLES:
            return RunVariation(1.0, 0.0)
        own, every = pooled_variance(rounds), pooled_variance([counted])
        share = min(1.0, own / every) if every > 0 else 1.0
        more_s = share * (sum(counted) / len(counted) - self.latency_s)
        return RunVariation(1.0 + more_s / self.latency_s, own / self.latency_s**2)


def _undisturbed(rounds: tuple[Round, ...]) -> tuple[Round, ...]:
    return tuple(r for r in rounds if not r.disturbed) or rounds


def _weights(rounds: Sequence[Round]) -> tuple[float, ...] | None:
    weights = tuple(r.weight for r in rounds)
    return None if all(weight == 1.0 for weight in weights) else weights


@dataclass(frozen=True, slots=True)
class Failure:
    """A brick, model or probe that could not be measured on a target, and why, in one line."""

    FACTS: ClassVar[tuple[object, ...]] = (("key", "brick"), "reason")

    key: str
    reason: str


def round_spread(measurement: Measurement) -> Interval:
    """The median latency over rounds and its interval; samples of a round are not independent."""
    of = [r.latency_s for r in measurement.walked]
    return spread(of, weights=measurement.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Conditions of sampling; results that report them inherit from this type.

    ``foreign_cores`` is how many cores other processes kept busy during the measurement, which
    makes latencies too high; None if nothing was timed. ``disturbed_rounds`` counts those of the
    ``rounds`` in which other processes delayed the worker; ``throttled_rounds`` those in which the
    clock of a device was lowered. ``remeasured`` are the keys of bricks that had been measured
    before. ``eviction_short`` is whether memory was too small to evict weights from the caches as
    far as in their models. ``separate`` are the keys of bricks that ran in calls of their own,
    because the runtime could not run them in one call with their neighbours.
    """

    foreign_cores: float | None = None
    rounds: int = 0
    disturbed_rounds: int = 0
    throttled_rounds: int = 0
    remeasured: frozenset[str] = frozenset()
    eviction_short: bool = False
    separate: frozenset[str] = frozenset()

    @property
    def remeasured_bricks(self) -> int:
        """The number of bricks that were measured again."""
        return len(self.remeasured)

    @property
    def sampling_fields(self) -> dict[str, Any]:
        """The fields of this type, to construct another result with."""
        return {field.name: getattr(self, field.name) for field in fields(Sampling)}


def combined(parts: Iterable[Sampling]) -> Sampling:
    """Several samplings merged: the highest load, the sums, the unions."""
    every = list(parts)
    loads = [part.foreign_cores for part in every if part.foreign_cores is not None]
    return Sampling(
        foreign_cores=max(loads, default=None),
        rounds=sum(part.rounds for part in every),
        disturbed_rounds=sum(part.disturbed_rounds for part in every),
        throttled_rounds=sum(part.throttled_rounds for part in every),
        remeasured=frozenset[str]().union(*(part.remeasured for part in every)),
        eviction_short=any(part.eviction_short for part in every),
        separate=frozenset[str]().union(*(part.separate for part in every)),
    )
