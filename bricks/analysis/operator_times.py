"""The time that a model spends in each operator, and what replacing the costliest would gain.

Operators of one name count together, whatever their domain. Pure arithmetic on an explanation.

Three replacements: the fastest other implementation of the same work that was measured on the
system, 8-bit integers, and a perfect implementation, whose time is the machine's roofline. The
first is measured; a roofline is a bound. Converting layouts for a replacement counts as nothing.
Must not know how latencies were measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from bricks.backends.quantising import is_quantised
from bricks.compose.estimate import Estimate
from bricks.graph.form import operator_title
from bricks.predict.features import CONVOLUTION, PRODUCT
from bricks.session.machine_peaks import Peaks
from bricks.units.interval import Interval, independent_sum

if TYPE_CHECKING:
    from bricks.analysis.explanation import Explanation, Part
    from bricks.system import System

# Nodes that stand for constants.
_CONSTANTS = frozenset(("Constant", "ConstantOfShape"))

# Operators that are looked at, and the least share of the model of one of them.
_MOST, _LEAST_SHARE = 3, 0.05

# A vector of 8-bit numbers has four times the elements of one of 32-bit floats, and a tile of AMX
# computes 32 times as many products per cycle as two units of AVX-512 do.
_VECTORS, _TILES, _TILE_SET = 4.0, 32.0, "amx_int8"
_BYTES_OF_FLOAT = 4

# How the name of a kernel of the same runtime begins.
OWN = "another kernel of"


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


class Replacement(StrEnum):
    """What takes the place of an operator's implementation."""

    IMPLEMENTATION = "implementation"
    INT8 = "int8"
    ROOFLINE = "roofline"


@dataclass(frozen=True, slots=True)
class Gain:
    """The seconds of a run that replacing the implementation of ``operator`` would gain.

    ``operator`` is None for the whole model. ``name`` names the replacement, such as a runtime with
    its version. If it is a ``bound``, ``seconds`` has it as its value and its high end: the gain is
    at most that.
    """

    FACTS: ClassVar = (
        "operator", "replacement", "name", ("seconds", "gain_s", "low_s", "high_s"), "bound",
    )  # fmt: skip

    operator: str | None
    replacement: Replacement
    name: str | None
    seconds: Interval
    bound: bool


def gains(
    explanation: Explanation, system: System, runtimes: Mapping[str, str]
) -> tuple[Gain, ...]:
    """The gains of replacing the costliest operators on ``system``, operator by operator.

    ``runtimes`` are names of runtimes with their versions, by the key of a target. Empty for an
    incomplete estimate.
    """
    if not isinstance(explanation.estimate, Estimate):
        return ()
    costly = [time for time in operator_times(explanation) if time.share >= _LEAST_SHARE]
    found: list[Gain] = []
    for time in costly[:_MOST]:
        faster = [part for part in time.parts if part.fastest is not None and part.lost_s > 0]
        if faster:
            found.append(_measured(time, faster, runtimes))
        for kind, roofs_s in (
            (Replacement.INT8, [_int8_s(part, system) for part in time.parts]),
            (Replacement.ROOFLINE, [part.roof_s for part in time.parts]),
        ):
            if any(roof_s is not None for roof_s in roofs_s):
                most_s = sum(map(_above, time.parts, roofs_s))
                found.append(
                    Gain(time.operator, kind, None, Interval(most_s, 0.0, most_s), bound=True)
                )
    return tuple(found)


def largest(of: Sequence[Gain]) -> Gain | None:
    """The largest gain among the known ones; among bounds only where nothing else is known."""
    known = [gain for gain in of if not gain.bound and gain.seconds.low > 0]
    bounds = [gain for gain in of if gain.replacement is Replacement.ROOFLINE]
    return max(known or bounds, key=lambda gain: gain.seconds.value, default=None)


def _measured(time: OperatorTime, faster: Sequence[Part], runtimes: Mapping[str, str]) -> Gain:
    """The gain of the fastest measured implementations, which may be of several runtimes."""
    lost_s = sum(part.lost_s for part in faster)
    widths_s = [part.occurrences * _widths_s(part) for part in faster]
    names = dict.fromkeys(
        runtimes.get(part.fastest.target, "") for part in faster if part.fastest is not None
    )
    title = " and ".join(filter(None, names)) or None
    seconds = Interval.around(lost_s, math.hypot(*widths_s))
    return Gain(time.operator, Replacement.IMPLEMENTATION, title, seconds, bound=False)


def _widths_s(part: Part) -> float:
    """Half the width of the error of one occurrence's latency, and of the faster one's."""
    assert part.fastest is not None
    own_s = 0.0 if part.net is None else part.net.half_width
    return math.hypot(own_s, part.fastest.half_width_s)


def _above(part: Part, roof_s: float | None) -> float:
    """The seconds of a part above its roof; all of them if it has none: it might take no time."""
    return max(0.0, part.total_s - part.occurrences * (roof_s or 0.0))


def _int8_s(part: Part, system: System) -> float | None:
    """The least seconds of one occurrence in 8-bit integers; None for other than products.

    Operations as fast as the widest instructions of 8 bits allow relative to those of floats, and a
    quarter of the bytes.
    """
    peaks, moved = part.peaks, part.moved_bytes
    if part.kind not in (CONVOLUTION, PRODUCT) or part.roof_s is None or moved is None:
        return None
    if any(map(is_quantised, titles_of(part))):
        return None  # it computes in integers
    faster = _TILES if _TILE_SET in (system.identity.get("instruction_sets") or ()) else _VECTORS
    assert peaks.flops_per_s is not None  # as the part has a roof
    quicker = Peaks(peaks.flops_per_s * faster, peaks.bytes_per_s, peaks.levels)
    return replace(part, peaks=quicker, moved_bytes=moved / _BYTES_OF_FLOAT).roof_s
