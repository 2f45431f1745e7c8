"""The result of measuring: raw samples, or a failure with its reason, as two separate types.

Here because the store and all estimates read it. Must not know how samples are taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from bricks.samples.machine_state import SAME_STATE_FACTOR, dominant_state, same_state, states
from bricks.samples.statistics import Term, median, pooled_variance, spread
from bricks.system.accelerator_state import AcceleratorState, joined
from bricks.units.sample import Kernel, Sample, weighted_mean

if TYPE_CHECKING:
    from bricks.units.interval import Interval

# Increment this when samples from before and after a change must not be mixed.
PROTOCOL = 4

# A round is disturbed (noisy) if its threads waited for longer than this share of its duration:
# about the error that an estimate should have.
DISTURBED_SHARE = 0.02

# Beyond this relative half width of its interval, a measurement is imprecise: its host was noisy.
UNSURE_SHARE = 0.3

# Fewer rounds than this are too few to draw conclusions from, if there are others.
ENOUGH = 2

# A single run counts as at most this multiple of the latency: longer ones were first runs, or due
# to other processes. Fewer samples than enough do not show how runs vary.
_MOST_OF_A_RUN, _ENOUGH_SAMPLES = 1.5, 6


@dataclass(frozen=True)  # without slots, for cached properties
class Round:
    """One round's raw samples, without warm-ups, and the conditions during the round.

    ``host_s`` are the seconds of each sample on the host: its latency. ``kernels`` are the device
    kernels of each sample; empty without a device. ``displaced_bytes`` is the state of the device's
    cache in all samples, as in :class:`~bricks.units.sample.Sample`.

    ``reference_s`` and ``reference_end_s`` are the latency of the reference workload just before
    and just after. ``waited_share`` is the share of the round in which the worker's threads waited
    for a processor, or a hypervisor or the core's other hyperthread took it. ``device_state`` is
    the state of the device. Each is None if unknown.
    """

    host_s: tuple[float, ...]
    reference_s: float | None = None
    waited_share: float | None = None
    reference_end_s: float | None = None
    kernels: tuple[tuple[Kernel, ...], ...] = ()
    displaced_bytes: int | None = None
    device_state: AcceleratorState | None = None

    @classmethod
    def of(
        cls,
        samples: Sequence[Sample],
        reference_s: float | None = None,
        waited_share: float | None = None,
        reference_end_s: float | None = None,
        device_state: AcceleratorState | None = None,
    ) -> Round:
        """A round of these samples; ValueError if they differ in their displaced bytes."""
        kernels = tuple(sample.kernels for sample in samples)
        host_s = tuple(sample.host_s for sample in samples)
        conditions = reference_s, waited_share, reference_end_s
        displaced = {sample.displaced_bytes for sample in samples} or {None}
        if len(displaced) > 1:
            raise ValueError("the samples of a round displace different numbers of bytes")
        kernels = kernels if any(kernels) else ()
        return cls(host_s, *conditions, kernels, displaced.pop(), device_state)

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

    def rounded(self, digits: int) -> Round:
        """This round with ``digits`` significant digits of each latency, and two of the share."""

        def short(number: float | None, digits: int = digits) -> float | None:
            return None if number is None else float(f"{number:.{digits}g}")

        return replace(
            self,
            host_s=tuple(float(f"{host_s:.{digits}g}") for host_s in self.host_s),
            reference_s=short(self.reference_s),
            waited_share=short(self.waited_share, 2),
            reference_end_s=short(self.reference_end_s),
            kernels=tuple(
                tuple(Kernel(k.name, float(f"{k.device_s:.{digits}g}")) for k in of_sample)
                for of_sample in self.kernels
            ),
        )

    @property
    def disturbed(self) -> bool:
        """Whether other processes delayed the worker, or the machine state changed meanwhile.

        A device that protects itself from heat counts too; one at its limit of power does not,
        since a long run of the same work is there as well.
        """
        waited = self.waited_share is not None and self.waited_share > DISTURBED_SHARE
        unsteady = self.device_state is not None and self.device_state.unsteady
        return waited or unsteady or not same_state(self.reference_s, self.reference_end_s)

    @property
    def throttled(self) -> bool:
        """Whether the clock of the device was lowered."""
        return self.device_state is not None and bool(self.device_state.throttled_by)

    @cached_property
    def latency_s(self) -> float:
        """The median of its samples, without outliers caused by outside interference.

        Outliers are further from the fastest sample than latencies vary within one machine state. A
        round has few samples, so a single outlier would otherwise be half of its median.
        """
        max_s = SAME_STATE_FACTOR * min(self.host_s)
        return median([s for s in self.host_s if s <= max_s])

    @property
    def state_s(self) -> float | None:
        """The machine state in this round, from its reference."""
        if self.reference_s is None or self.reference_end_s is None:
            return self.reference_s
        return (self.reference_s + self.reference_end_s) / 2


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
    def quiet_rounds(self) -> tuple[Round, ...]:
        """The undisturbed rounds of walks, or all of them if too few are undisturbed."""
        quiet = tuple(r for r in self._walked if not r.disturbed)
        return quiet if len(quiet) >= min(ENOUGH, len(self._walked)) else self._walked

    @cached_property
    def state_s(self) -> float | None:
        """The machine state in which most of the rounds were taken."""
        return dominant_state(r.state_s for r in self.quiet_rounds)

    def used_rounds(self, state_s: float | None = None) -> tuple[Round, ...]:
        """The rounds of the state ``state_s``, if there are enough of them.

        Otherwise, and if None, the rounds of the state in which most of the rounds were taken.
        """
        return self._used(state_s).rounds

    def used_state_s(self, state_s: float | None = None) -> float | None:
        """The state of most of :meth:`used_rounds`: about ``state_s``, if it has enough rounds."""
        return self._used(state_s).state_s

    def known_in(self, state_s: float | None) -> bool:
        """Whether there are enough rounds of this state."""
        return self._enough(self._near(state_s))

    def latency_s(self, state_s: float | None = None) -> float:
        """The median over the rounds in use: the samples of one round are not independent."""
        return self._used(state_s).latency_s

    def device_s(self, state_s: float | None = None) -> float:
        """Seconds of all kernels of a run: the median over the rounds in use; 0 on a CPU."""
        return self._used(state_s).device_s

    def kernels(self, state_s: float | None = None) -> tuple[Kernel, ...]:
        """The kernels of a run, each with its mean over all samples of the rounds in use."""
        return self._used(state_s).kernels

    @cached_property
    def kernels_by_displaced(self) -> Mapping[int | None, tuple[Kernel, ...]]:
        """The mean kernels of a run by the displaced bytes before it; None: in a walk."""
        every: dict[int | None, list[Round]] = {}
        for taken in self.rounds:
            if taken.kernels:
                every.setdefault(taken.displaced_bytes, []).append(taken)
        return {
            displaced: _Used(tuple(r for r in of if not r.disturbed) or tuple(of)).kernels
            for displaced, of in every.items()
        }

    @cached_property
    def throttled(self) -> AcceleratorState | None:
        """The state of the device over the rounds in use whose clock was lowered; None: none."""
        return joined(r.device_state for r in self.used_rounds() if r.throttled)

    def runs(self, state_s: float | None = None) -> RunVariation:
        """The variation of single runs in the rounds in use, relative to :meth:`latency_s`."""
        return self._used(state_s).runs

    def mean_s(self, state_s: float | None = None) -> float:
        """The mean seconds of a run: its part in a sum of many; see ``RunVariation``."""
        return self.latency_s(state_s) * self.runs(state_s).mean

    @cached_property
    def _used_by_state(self) -> dict[float | None, _Used]:
        return {}

    def _used(self, state_s: float | None) -> _Used:
        if state_s not in self._used_by_state:
            near = self._near(state_s)
            used = near if self._enough(near) else self._near(self.state_s)
            self._used_by_state[state_s] = _Used(used)
        return self._used_by_state[state_s]

    @cached_property
    def _by_state(self) -> dict[float | None, tuple[Round, ...]]:
        return {}

    @cached_property
    def _walked(self) -> tuple[Round, ...]:
        """The rounds of walks; all, if there are none."""
        return tuple(r for r in self.rounds if r.displaced_bytes is None) or self.rounds

    def _near(self, state_s: float | None) -> tuple[Round, ...]:
        target_state_s = self.state_s if state_s is None else state_s
        if target_state_s not in self._by_state:
            near = (r for r in self.quiet_rounds if same_state(r.state_s, target_state_s))
            self._by_state[target_state_s] = tuple(near)
        return self._by_state[target_state_s]

    def _enough(self, rounds: tuple[Round, ...]) -> bool:
        return len(rounds) >= min(ENOUGH, len(self.quiet_rounds))


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
    """The rounds of a measurement that count in some state."""

    rounds: tuple[Round, ...]

    @cached_property
    def latency_s(self) -> float:
        return median([r.latency_s for r in self.rounds])

    @cached_property
    def device_s(self) -> float:
        known = [r.device_s for r in self.rounds if r.kernels]
        return median(known) if known else 0.0

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        samples = [sample for r in self.rounds if r.kernels for sample in r.samples]
        return weighted_mean(samples, [1.0] * len(samples)).kernels if samples else ()

    @cached_property
    def runs(self) -> RunVariation:
        most_s = _MOST_OF_A_RUN * self.latency_s
        rounds = [[min(s, most_s) for s in r.host_s] for r in self.rounds]
        counted = [s for samples in rounds for s in samples]
        if len(counted) < _ENOUGH_SAMPLES:
            return RunVariation(1.0, 0.0)
        own, every = pooled_variance(rounds), pooled_variance([counted])
        share = min(1.0, own / every) if every > 0 else 1.0
        more_s = share * (sum(counted) / len(counted) - self.latency_s)
        return RunVariation(1.0 + more_s / self.latency_s, own / self.latency_s**2)

    @cached_property
    def state_s(self) -> float | None:
        return dominant_state(r.state_s for r in self.rounds)


def common_state(
    anchors: Iterable[Measurement], parts: Mapping[str, Measurement], counts: Mapping[str, int]
) -> float | None:
    """The state in which ``anchors`` are known, and most of the latency of ``parts`` is known.

    ``counts`` is how often each part occurs; negative counts are weighed by their magnitude. Among
    equals, the state with the most rounds wins.
    """
    anchors = list(anchors)
    every = states(r.state_s for anchor in anchors for r in anchor.quiet_rounds)
    candidates = [s for s in every if any(anchor.known_in(s) for anchor in anchors)] or every
    if len(candidates) == 1:
        return candidates[0]
    weights = {key: abs(counts.get(key, 1)) * part.latency_s() for key, part in parts.items()}

    def known_s(state_s: float | None) -> float:
        return sum(weights[key] for key, part in parts.items() if part.known_in(state_s))

    return max(candidates, key=known_s)


@dataclass(frozen=True, slots=True)
class Failure:
    """A brick, model or probe that could not be measured on a target, and why, in one line."""

    FACTS: ClassVar = (("key", "brick"), "reason")

    key: str
    reason: str


def round_spread(measurement: Measurement, state_s: float | None = None) -> Interval:
    """The median latency over rounds and its interval; samples of a round are not independent.

    Uses the rounds of ``state_s``, if there are enough, else of the most frequent state.
    """
    return spread([r.latency_s for r in measurement.used_rounds(state_s)])
