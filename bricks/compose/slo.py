"""Whether a latency meets an SLO: yes or no, or uncertain where its interval holds the bound.

Must not know what the latency is of.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.units.interval import Interval


class MeetsSlo(StrEnum):
    """Whether an SLO is met."""

    YES = "yes"
    NO = "no"
    UNCERTAIN = "uncertain"


def meets_slo(latency_s: Interval, slo_s: float) -> MeetsSlo:
    """Whether a latency is at most ``slo_s`` seconds, wherever in its interval it is."""
    if latency_s.high <= slo_s:
        return MeetsSlo.YES
    return MeetsSlo.UNCERTAIN if latency_s.low <= slo_s else MeetsSlo.NO
