"""Why an interval is wide, and what would narrow it.

Here so that commands, reports and programs give the same reasons. Must not know how these are
worded, nor by which command they are remedied.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bricks.compose.estimate import Estimate
from bricks.compose.uncertainty import ErrorSource

# An interval is wide if half of it is more than this share of the estimate.
WIDE = 0.25

# A source that contributes at least this share of the width is a reason; the largest always is.
NAMED_SHARE = 0.25


class Remedy(StrEnum):
    """What narrows an interval.

    ``MEASURE``: to measure the bricks that are predicted, or that others measured.
    ``MEASURE_AGAIN``: to take further rounds of what is measured. ``NOTHING``: no measurement of
    bricks does.
    """

    MEASURE = "measure"
    MEASURE_AGAIN = "measure again"
    NOTHING = "nothing"


_REMEDIES = {
    ErrorSource.PREDICTED: Remedy.MEASURE,
    ErrorSource.OTHER_HOST: Remedy.MEASURE,
    ErrorSource.OTHER_STATE: Remedy.MEASURE_AGAIN,
    ErrorSource.SAMPLES: Remedy.MEASURE_AGAIN,
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A source of uncertainty, and the share of the interval's width that it contributes."""

    source: ErrorSource
    share: float


@dataclass(frozen=True, slots=True)
class WideInterval:
    """Why an interval is wide: ``reasons``, the largest first, and what would narrow it."""

    reasons: tuple[Reason, ...]
    remedy: Remedy


def wide_interval(estimate: Estimate) -> WideInterval | None:
    """Why the interval of ``estimate`` is wide; None if it is not.

    The remedy is that of the largest reason that has one: bricks that are predicted since they are
    unmeasurable have none.
    """
    parts_s = estimate.uncertainty.by_source
    total_s = sum(parts_s.values())
    if estimate.relative_uncertainty <= WIDE or not total_s:
        return None
    shares = sorted(((s / total_s, source) for source, s in parts_s.items()), reverse=True)
    first, *others = (Reason(source, share) for share, source in shares)
    reasons = (first, *(reason for reason in others if reason.share >= NAMED_SHARE))
    known = _REMEDIES
    predicted = {each.brick for each in estimate.shares if each.predicted}
    if estimate.unmeasurable and predicted <= estimate.unmeasurable:
        known = {
            source: remedy for source, remedy in known.items() if source != ErrorSource.PREDICTED
        }
    remedies = [known[reason.source] for reason in reasons if reason.source in known]
    return WideInterval(reasons, remedies[0] if remedies else Remedy.NOTHING)
