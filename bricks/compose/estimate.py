"""The result of recomposing: an estimate, or an incomplete one that names its missing bricks.

Plain data, here so that reports need not import the calculation: also the uncertainty by source,
what a step takes on each lane of a host with a device, and the comparison of an edited model with
its original. A brick's latency is as uncertain as its samples or its prediction. Must not know how
an estimate is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from bricks.samples.statistics import NORMAL_95
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.system.accelerator import AcceleratorState

# Bricks without a latency that a message names.
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Share:
    """The contribution of all occurrences of one brick to a model, call overhead subtracted.

    Where bricks overlap, ``occurrences`` is a net count; it and the other numbers are negative for
    a brick whose latency is subtracted. ``predicted`` says that the brick was not measured but
    predicted from similar ones, ``published`` that others measured it, on a host of the same kind.
    ``device_s`` are the seconds of its kernels, None without a device.
    """

    brick: str
    occurrences: int
    latency_s: float
    share: float
    predicted: bool = False
    published: bool = False
    device_s: float | None = None

    @property
    def measured(self) -> bool:
        """Whether the user measured the brick."""
        return not (self.predicted or self.published)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a latency comes from: three shares of the latency, which add up to 1.

    ``measured_share`` is from measurements of the user's cache, ``published_share`` from published
    measurements of other hosts, and ``predicted_share`` from predictions.
    """

    measured_share: float = 1.0
    published_share: float = 0.0
    predicted_share: float = 0.0

    @property
    def origin(self) -> str:
        """The least certain part: ``predicted``, else ``published``, else ``measured``."""
        if self.predicted_share:
            return "predicted"
        return "published" if self.published_share else "measured"


MEASURED = Provenance()


def provenance_facts(path: str) -> tuple[tuple[str, str], ...]:
    """Entries of ``FACTS``: the three shares of the :class:`Provenance` at ``path``."""
    return tuple((f"{path}.{field.name}", field.name) for field in fields(Provenance))


@dataclass(frozen=True, slots=True)
class Gap:
    """A brick without a latency: its occurrences in the model, and why it has none.

    ``operators`` are its operators in words, where these say more than its key.
    """

    FACTS: ClassVar = ("brick", "occurrences", ("named_reason", "reason"))

    brick: str
    occurrences: int
    reason: str
    operators: str | None = None

    @property
    def named_reason(self) -> str:
        """The reason, with the operators."""
        return self.reason if self.operators is None else f"{self.operators}: {self.reason}"

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.brick if self.operators is None else self.operators


@dataclass(frozen=True, slots=True)
class PhaseShare:
    """The share of one phase of a recorded program in its latency, in seconds.

    ``estimate_s`` includes ``overhead_s``, the call overhead of the phase's ``calls`` in Python and
    in the autograd engine. It is negative where the engine calls an operator faster than the
    replay of a brick does.
    """

    FACTS: ClassVar = ("phase", "calls", "estimate_s", ("overhead_s", "around_s"))

    phase: str
    calls: int
    estimate_s: float
    overhead_s: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A model's latency in seconds, recomposed from its bricks' latencies.

    ``low_s`` and ``high_s`` are the ends of a 95 % interval, from the spread of samples, the error
    of predictions, and the error of recomposition. ``critical_path_s`` is the longest chain of
    occurrences that depend on each other. Shares of the latency: ``predicted_share`` of unmeasured
    bricks, ``published_share`` of bricks that only other hosts measured. ``unmeasurable`` are the
    keys of predicted bricks that cannot be measured; ``coverage`` is the share of the occurrences
    whose brick is measured. ``uncertainty`` is half the interval's width by source. ``phases`` are
    the phases of a recorded program, empty for other models. With several ``workers`` the interval
    spans from the critical path to the latency without any overlap, and shares are of the total
    working time of all workers. ``device`` are the seconds on a host and its device, None without
    one; shares are then of the lane that limits the step. The estimate is for the usual conditions
    of its host, which was watched for ``watched_s`` seconds. ``own_runs`` is how many whole models
    that it ran show its error of recomposition; None where that is not asked. ``assumed`` says what
    synthetic data decided, such as branches, one a line.
    """

    model: str
    granularity: str
    estimate_s: float
    low_s: float
    high_s: float
    critical_path_s: float
    call_overhead_s: float
    predicted_share: float
    coverage: float
    shares: tuple[Share, ...]
    uncertainty: Uncertainty
    workers: int = 1
    phases: tuple[PhaseShare, ...] = ()
    published_share: float = 0.0
    unmeasurable: frozenset[str] = frozenset()
    device: DeviceTimes | None = None
    watched_s: float = 0.0
    own_runs: int | None = None
    assumed: tuple[str, ...] = ()

    @property
    def latency_s(self) -> Interval:
        """The estimate with its interval."""
        return Interval(self.estimate_s, self.low_s, self.high_s)

    @property
    def conditions_sd(self) -> float:
        """How much a run at another time differs: a standard deviation relative to the estimate."""
        of = self.uncertainty  # parts are in proportion to squares
        half_s = math.sqrt(of.conditions_s * of.half_width_s)
        return half_s / NORMAL_95 / self.estimate_s if self.estimate_s else 0.0

    @property
    def comparable_s(self) -> Interval:
        """The estimate with the errors that other models on this host do not share with it.

        At another time, all are slower or faster together.
        """
        half_s = self.uncertainty.half_width_s
        share = self.uncertainty.conditions_s / half_s if half_s else 0.0
        kept = math.sqrt(max(0.0, 1.0 - share))  # squares of independent errors add up
        middle_s = self.estimate_s
        low_s = middle_s - kept * (middle_s - self.low_s)
        return Interval(middle_s, low_s, middle_s + kept * (self.high_s - middle_s))

    @property
    def measured_share(self) -> float:
        """The share of the latency from measurements of the user's own cache."""
        return max(0.0, 1.0 - self.predicted_share - self.published_share)

    @property
    def provenance(self) -> Provenance:
        """The shares of the latency that are measured, published by others, and predicted."""
        return Provenance(self.measured_share, self.published_share, self.predicted_share)

    @property
    def relative_uncertainty(self) -> float:
        """Half the interval's width, relative to the estimate; infinite for an estimate of zero."""
        return self.latency_s.relative


@dataclass(frozen=True, slots=True)
class IncompleteEstimate:
    """No estimate, since bricks lack a latency; ``measured_s`` sums the bricks that have one."""

    model: str
    granularity: str
    measured_s: float
    coverage: float
    gaps: tuple[Gap, ...]
    shares: tuple[Share, ...]

    @property
    def lacks(self) -> str:
        """The first bricks without a latency, each reason once, and the number of the others."""
        titles: dict[str, list[str]] = {}
        for gap in self.gaps[:_MOST_NAMED]:
            titles.setdefault(gap.reason, []).append(gap.title)
        named = ", ".join(f"{', '.join(of)} ({reason})" for reason, of in titles.items())
        more = len(self.gaps) - _MOST_NAMED
        return f"{named} and {more} more" if more > 0 else named


class ErrorSource(StrEnum):
    """A source of an estimate's uncertainty.

    ``PREDICTED``: bricks that were not measured. ``CONDITIONS``: how the host's conditions differ
    at another time, and corrections to them. ``OTHER_HOST``: bricks that another host of the same
    kind measured. ``SAMPLES``: the spread of all other measurements. ``CALLS``: the cost of a call,
    which is subtracted from each brick. ``LAUNCHING``: the cost of launching kernels on a device.
    ``RECOMPOSITION``: the state of the caches. ``WORKERS``: interference between bricks that run in
    parallel.
    """

    PREDICTED = "predicted"
    CONDITIONS = "conditions"
    OTHER_HOST = "other_host"
    SAMPLES = "samples"
    CALLS = "calls"
    LAUNCHING = "launching"
    RECOMPOSITION = "recomposition"
    WORKERS = "workers"


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Half the width of an estimate's interval in seconds, by :class:`ErrorSource`.

    The parts add up to half the width. Independent errors add as squares in the interval; each
    has here the part of their sum that is in proportion to its square.
    """

    predicted_s: float = 0.0
    conditions_s: float = 0.0
    other_host_s: float = 0.0
    samples_s: float = 0.0
    calls_s: float = 0.0
    launching_s: float = 0.0
    recomposition_s: float = 0.0
    workers_s: float = 0.0

    @classmethod
    def of(cls, parts_s: Mapping[ErrorSource, float]) -> Uncertainty:
        """The uncertainty with these seconds by source; a source without any has 0."""
        return cls(**{f"{source}_s": part_s for source, part_s in parts_s.items()})

    @property
    def by_source(self) -> dict[ErrorSource, float]:
        """The parts in seconds, by source."""
        return {source: getattr(self, f"{source}_s") for source in ErrorSource}

    @property
    def half_width_s(self) -> float:
        """Half the width of the interval."""
        return sum(self.by_source.values())

    def scaled_to(self, half_width_s: float) -> Uncertainty:
        """These parts, scaled to an interval of half the width ``half_width_s``."""
        total_s = self.half_width_s
        factor = half_width_s / total_s if total_s else 0.0
        return Uncertainty.of({source: factor * s for source, s in self.by_source.items()})


class HalfWidth:
    """The distance from an estimate to one end of its interval, from the errors of single bricks.

    The errors are independent: their squares add up.
    """

    def __init__(self) -> None:
        self._squares = dict.fromkeys(ErrorSource, 0.0)

    def add(self, source: ErrorSource, part_s: float) -> None:
        """Add the uncertainty of one brick, in seconds."""
        self._squares[source] += part_s**2

    @property
    def total_s(self) -> float:
        """The distance in seconds."""
        return math.sqrt(sum(self._squares.values()))

    @property
    def by_source(self) -> dict[ErrorSource, float]:
        """The part of each source in seconds; they add up to the distance."""
        total_s = self.total_s
        return {s: square / total_s if total_s else 0.0 for s, square in self._squares.items()}


# Origins of the costs of launching.
LAUNCHING_MEASURED, LAUNCHING_ASSUMED = "measured", "assumed"


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """Seconds of a step: of its kernels on the device, and of its calls on the host.

    ``limited_by`` is the lane that has more to do, ``host`` or ``device``. ``pipelined_s`` is a
    step of many that are not waited for, as in a loop of training steps; ``graph_s`` one whose
    kernels are launched together as a CUDA graph, None for a step that cannot be one: it waits for
    values. ``kernels`` is the number of kernels. ``throttled`` is the state of the device while
    ``throttled_share`` of the kernels' seconds was measured with its clock lowered; None: none was.
    ``launching`` says where the costs of launching kernels are from, ``LAUNCHING_MEASURED`` or
    ``LAUNCHING_ASSUMED`` as on other cards.
    """

    FACTS: ClassVar = (
        ("device_s", "device_s", "device_low_s", "device_high_s"),
        ("host_s", "host_s", "host_low_s", "host_high_s"), "limited_by",
        ("pipelined_s", "pipelined_s", "pipelined_low_s", "pipelined_high_s"),
        ("graph_s", "graph_s", "graph_low_s", "graph_high_s"), "kernels",
        "throttled_share", "throttled_by", "launching",
    )  # fmt: skip

    device_s: Interval
    host_s: Interval
    limited_by: str
    pipelined_s: Interval
    graph_s: Interval | None
    kernels: int
    throttled_share: float = 0.0
    throttled: AcceleratorState | None = None
    launching: str = LAUNCHING_MEASURED

    @property
    def throttled_by(self) -> tuple[str, ...]:
        """What lowered the clock."""
        return () if self.throttled is None else self.throttled.throttled_by


def device_facts(path: str) -> tuple[tuple[str, ...], ...]:
    """Entries of ``FACTS``: those of the :class:`DeviceTimes` at ``path``."""
    entries = ((of, of) if isinstance(of, str) else of for of in DeviceTimes.FACTS)
    return tuple((f"{path}.{name}", *keys) for name, *keys in entries)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The latencies of a model and of its ``edited`` form; ``gain`` is the difference in seconds.

    The gain is negative if the edited model takes longer.
    """

    FACTS: ClassVar = (
        ("original.latency_s", "estimate_s", "low_s", "high_s"),
        ("edited.latency_s", "edited_s", "edited_low_s", "edited_high_s"),
        ("gain", "gain_s", "gain_low_s", "gain_high_s"),
    )  # fmt: skip

    original: Estimate
    edited: Estimate
    gain: Interval
