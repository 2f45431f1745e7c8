"""The time that a model spends in each operator, and how far that is from the roofline.

Operators of one name count together, whatever their domain. Pure arithmetic on an explanation. Must
not know what would replace them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate
from bricks.graph.form import operator_title
from bricks.units.interval import Interval, independent_sum

if TYPE_CHECKING:
    from bricks.analysis.explanation import Explanation, Part

# Nodes that stand for constants.
_CONSTANTS = frozenset(("Constant", "ConstantOfShape"))


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """All bricks of an operator, or of one sequence of them, the slowest first.

    ``total`` are their seconds in a run, with the interval of the model's estimate where the errors
    are common to all bricks; ``share`` is relative to all bricks of the model.
    """

    operator: str
    parts: tuple[Part, ...]
    total: Interval
    share: float

    @property
    def occurrences(self) -> int:
        """How often its bricks run."""
        return sum(part.occurrences for part in self.parts)

    @property
    def device_s(self) -> float | None:
        """The seconds of its kernels on a device; None without one."""
        known_s = [part.device_s for part in self.parts if part.device_s is not None]
        return sum(known_s) if known_s else None

    @property
    def bound(self) -> str | None:
        """The roof that limits most of its time, ``compute`` or ``memory``; None if not known."""
        seconds: dict[str, float] = defaultdict(float)
        for part in self.parts:
            if part.bound is not None:
                seconds[part.bound] += part.total_s
        return max(seconds, key=lambda roof: seconds[roof], default=None)

    @property
    def roof_s(self) -> float | None:
        """Its seconds at the machine's peaks; bricks without a roof count as nothing.

        None if no brick has a roof.
        """
        roofs = [p.occurrences * p.roof_s for p in self.parts if p.roof_s is not None]
        return sum(roofs) if roofs else None

    @property
    def peak_share(self) -> float | None:
        """The roofline's seconds over its own, of bricks with a roof; above 1 is noise."""
        own_s = sum(part.total_s for part in self.parts if part.roof_s is not None)
        return self.roof_s / own_s if self.roof_s is not None and own_s > 0 else None


def operator_times(explanation: Explanation) -> tuple[OperatorTime, ...]:
    """The operators of a model, the one that takes longest first."""
    groups: dict[str, list[Part]] = defaultdict(list)
    for part in explanation.parts:
        groups["+".join(titles_of(part))].append(part)
    of = explanation.estimate
    common_s = common_error_s(of) if isinstance(of, Estimate) else 0.0
    times = [_time(operator, parts, common_s) for operator, parts in groups.items()]
    return tuple(sorted(times, key=lambda time: (-time.total.value, time.operator)))


def titles_of(part: Part) -> list[str]:
    """The operators of a part without their domains, and without constants next to others."""
    titles = [operator_title(name) for name in part.operators]
    return [title for title in titles if title not in _CONSTANTS] or titles


def _time(operator: str, parts: list[Part], common_s: float) -> OperatorTime:
    share = sum(part.share for part in parts)
    seconds = [
        Interval.exact(part.total_s) if part.net is None else part.net.scaled(part.occurrences)
        for part in parts
    ]
    total = independent_sum(seconds).widened(abs(share) * common_s)
    return OperatorTime(operator, tuple(parts), total, share)


def common_error_s(estimate: Estimate) -> float:
    """Half the width of the error that all bricks of an estimate have in common, in seconds.

    On a host with a device, all errors are those of a lane.
    """
    of = estimate.uncertainty
    if estimate.device is not None:
        return of.half_width_s
    parts_s = of.recomposition_s + of.calls_s + of.other_host_s + of.workers_s
    return math.sqrt(parts_s * of.half_width_s)
