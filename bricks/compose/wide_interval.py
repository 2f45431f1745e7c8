"""The reasons of a wide interval, and the remedy that would narrow it.

Commands, reports and programs share these reasons. Must not know their wording, nor the commands
that remedy them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from bricks.compose.uncertainty import ErrorSource

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate

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
