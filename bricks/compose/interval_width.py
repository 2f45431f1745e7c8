"""The width of an estimate's interval: its sources, and the remedy that would narrow it.

Sampling errors of different bricks are independent, and so is most of the error of their samples
and predictions: their squares add up. So do the squares of the common errors, since their causes
are independent.

Commands, reports and programs share the reasons of a wide interval. Must not know where latencies
come from, nor the wording of reasons or the commands that remedy them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from bricks.compose.estimate import ErrorSource, HalfWidth, Uncertainty
from bricks.compose.lanes import longest_chain_s, occurrence_tasks
from bricks.compose.schedule import Construction, longest_s
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate
    from bricks.compose.latencies import BrickLatencies
    from bricks.decompose.plan import Plan


@dataclass(frozen=True, slots=True)
class SourcedInterval:
    """Seconds with their interval, and half its width by source."""

    seconds: Interval
    uncertainty: Uncertainty

    def with_seconds(self, seconds: Interval) -> SourcedInterval:
        """The interval ``seconds`` with these sources in proportion."""
        return SourcedInterval(seconds, self.uncertainty.scaled_to(seconds.half_width))

    def scaled(self, factor: float) -> SourcedInterval:
        """This interval times a positive ``factor``."""
        return self.with_seconds(self.seconds.scaled(factor))

    def shifted(self, by_s: float) -> SourcedInterval:
        """This interval, shifted by ``by_s`` seconds; its high end is at least 0."""
        moved = self.seconds.shifted(by_s)
        return replace(self, seconds=replace(moved, high=max(0.0, moved.high)))

    def with_value(self, value_s: float) -> SourcedInterval:
        """This interval with its ends, and another value."""
        return replace(self, seconds=replace(self.seconds, value=value_s))

    def positive(self) -> SourcedInterval:
        """The interval of a latency, which is positive."""
        seconds = self.seconds.positive()
        logarithmic = self.seconds.value - self.seconds.low > self.seconds.value / 2
        return self.with_seconds(seconds) if logarithmic else replace(self, seconds=seconds)

    def widened(self, errors: Sequence[Mapping[ErrorSource, float]]) -> SourcedInterval:
        """This interval, widened by independent ``errors``; each has its seconds by source.

        The squares of errors add up, also to the square of this interval's half width; the parts
        of one error add up linearly.
        """
        return self._with(errors, self.seconds.widened(_together_s(errors)))

    def with_end_errors(self, errors: Sequence[Mapping[ErrorSource, float]]) -> SourcedInterval:
        """This interval between two bounds, each end moved out by independent ``errors``."""
        more_s = _together_s(errors)
        low, high = self.seconds.low - more_s, self.seconds.high + more_s
        return self._with(errors, replace(self.seconds, low=low, high=high))

    def _with(
        self, errors: Sequence[Mapping[ErrorSource, float]], seconds: Interval
    ) -> SourcedInterval:
        """``seconds``, with the sources of this interval and of ``errors``."""
        half_s = self.seconds.half_width
        squares = {s: part_s * half_s for s, part_s in self.uncertainty.by_source.items()}
        for parts_s in errors:
            error_s = sum(parts_s.values())
            for source, part_s in parts_s.items():
                squares[source] += part_s * error_s
        return SourcedInterval(seconds, Uncertainty.of(squares)).with_seconds(seconds)


def _together_s(errors: Sequence[Mapping[ErrorSource, float]]) -> float:
    return math.sqrt(sum(sum(parts_s.values()) ** 2 for parts_s in errors))


def sequential_interval(latencies: BrickLatencies, counts: Mapping[str, int]) -> SourcedInterval:
    """The latency of all bricks one after another, from samples and predictions."""
    net_s, below, above = latencies.net_s, HalfWidth(), HalfWidth()
    for key, of in latencies.gross_s.items():
        n, source = counts[key], latencies.source(key)
        less = net_s[key] - latencies.without_call(of.low)
        more = latencies.without_call(of.high) - net_s[key]
        for width, one_s in ((below, less if n > 0 else more), (above, more if n > 0 else less)):
            width.add(source, abs(n) * one_s)
    middle_s = latencies.call_s.value + sum((counts[key] * s for key, s in net_s.items()), 0.0)
    below_s, above_s = below.by_source, above.by_source
    parts = {s: (below_s[s] + above_s[s]) / 2 for s in ErrorSource}
    seconds = Interval(middle_s, middle_s - below.total_s, middle_s + above.total_s)
    return SourcedInterval(seconds, Uncertainty.of(parts))


def parallel_interval(
    plan: Plan, construction: Construction, latencies: BrickLatencies, sequential: SourcedInterval
) -> SourcedInterval:
    """From the bound that no schedule can beat to the latency without any overlap.

    Measurements of bricks do not show how occurrences that run in parallel affect each other
    (caches, memory, clock).
    """
    call_s, net_s, sum_s = latencies.call_s, latencies.net_s, sequential.seconds
    lows = {
        key: latencies.without_call(s.low - latencies.shared_s.get(key, 0.0), call_s.high)
        for key, s in latencies.gross_s.items()
    }
    spread_out_s = (sum_s.low - call_s.low) / construction.workers
    low_s = call_s.low + max(critical_path(plan, lows), spread_out_s)
    high_s = call_s.high + longest_s(plan, construction, sum_s.high - call_s.high)
    # Half the width of the interval if each brick's latency were exact.
    total_s = sum((n * net_s[key] for key, n in plan.counts.items()), 0.0)
    best_s = max(critical_path(plan, net_s), total_s / construction.workers)
    exact_s = (longest_s(plan, construction, total_s) - best_s) / 2
    workers_s = min(max(0.0, exact_s), (high_s - low_s) / 2)
    others = sequential.uncertainty.scaled_to((high_s - low_s) / 2 - workers_s)
    seconds = Interval(sum_s.value, low_s, high_s)
    return SourcedInterval(seconds, replace(others, workers_s=workers_s))


def critical_path(plan: Plan, latency_s: Mapping[str, float]) -> float:
    """The latency of the longest chain of dependent occurrences, in seconds.

    Layers shared by two bricks are subtracted from the later one.
    """
    return longest_chain_s(occurrence_tasks(plan, latency_s).tasks)


# An interval is wide if half of it is more than this share of the estimate.
WIDE = 0.25

# A source that contributes at least this share of the width is a reason; the largest always is.
NAMED_SHARE = 0.25


class Remedy(StrEnum):
    """An action that narrows an interval.

    ``MEASURE``: measure the predicted bricks, or the bricks that only other hosts measured.
    ``MEASURE_AGAIN``: take further rounds of measured bricks. ``NOW``: ask for the present, since
    the host changes. ``NOTHING``: no measurement of bricks narrows it.
    """

    MEASURE = "measure"
    MEASURE_AGAIN = "measure again"
    NOW = "now"
    NOTHING = "nothing"


_REMEDIES = {
    ErrorSource.PREDICTED: Remedy.MEASURE,
    ErrorSource.OTHER_HOST: Remedy.MEASURE,
    ErrorSource.SAMPLES: Remedy.MEASURE_AGAIN,
    ErrorSource.CONDITIONS: Remedy.NOW,
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A source of uncertainty, and the share of the interval's width that it contributes."""

    source: ErrorSource
    share: float


@dataclass(frozen=True, slots=True)
class WideInterval:
    """The ``reasons`` of a wide interval, the largest first, and the ``remedy`` that narrows it."""

    reasons: tuple[Reason, ...]
    remedy: Remedy


def wide_interval(estimate: Estimate) -> WideInterval | None:
    """The reasons of the width of ``estimate``'s interval; None unless it is wide."""
    return narrowing(estimate) if estimate.relative_uncertainty > WIDE else None


def narrowing(estimate: Estimate) -> WideInterval | None:
    """The reasons of the width of ``estimate``'s interval, wide or not; None without any width.

    The remedy is that of the largest reason with a remedy: unmeasurable bricks, which have to be
    predicted, have none.
    """
    parts_s = estimate.uncertainty.by_source
    total_s = sum(parts_s.values())
    if not total_s:
        return None
    shares = sorted(((s / total_s, source) for source, s in parts_s.items()), reverse=True)
    first, *others = (Reason(source, share) for share, source in shares)
    reasons = (first, *(reason for reason in others if reason.share >= NAMED_SHARE))
    known = remedies(estimate)
    found = [known[reason.source] for reason in reasons if reason.source in known]
    return WideInterval(reasons, found[0] if found else Remedy.NOTHING)


def remedies(estimate: Estimate) -> Mapping[ErrorSource, Remedy]:
    """The remedy for each source of the uncertainty of ``estimate`` that has one."""
    found = dict(_REMEDIES)
    if estimate.device is not None and not any(of.measured for of in estimate.shares):
        found[ErrorSource.CALLS] = Remedy.MEASURE  # calls were timed on another host
    predicted = {share.brick for share in estimate.shares if share.predicted}
    if estimate.unmeasurable and predicted <= estimate.unmeasurable:
        del found[ErrorSource.PREDICTED]
    return found
