"""The peak rates of a target: operations and bytes per second that measured bricks have reached.

Peaks of this host are measured on request. Must not know how peaks are used.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.basis import IN_WALK_CALL_FACTOR
from bricks.compose.call_overhead import call_cost
from bricks.measure.peaks import RULE, at_best, compute_peaks, memory_peaks, peak_bricks
from bricks.samples.call_overhead import PROBES
from bricks.samples.measurement import Measurement
from bricks.session.measuring import measure_isolated

if TYPE_CHECKING:
    from bricks.compose.parts import Results
    from bricks.session.workspace import Workspace
    from bricks.system import Target


@dataclass(frozen=True, slots=True)
class Level:
    """The best bandwidth of bricks that read and write ``size_bytes`` in all."""

    size_bytes: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Peaks:
    """The best rates of a target, in operations and in bytes per second; None: not measured.

    ``bytes_per_s`` is the bandwidth of memory, beyond all caches. ``levels`` are bandwidths from
    the smallest size to the largest; empty unless all of them were measured.
    """

    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    levels: tuple[Level, ...] = ()

    def bandwidth(self, size_bytes: float) -> float | None:
        """The best bandwidth for moving ``size_bytes``; None if it was not measured.

        The best of the next smaller size and all larger ones, so it is never too low.
        """
        after = bisect_right(self.levels, size_bytes, key=lambda level: level.size_bytes)
        reachable = self.levels[max(0, after - 1) :]
        return max((level.bytes_per_s for level in reachable), default=None)


def measured_peaks(
    workspace: Workspace, target: Target | None = None, *, measure: bool = False
) -> Peaks:
    """The highest measured rate of each kind on ``target``, by default the workspace's own.

    With ``measure``, missing rates of the workspace's own target are measured first.
    """
    target = workspace.target if target is None else target
    missing = {brick.key for brick in peak_bricks()} - _results(workspace, target).keys()
    if measure and missing and target.key == workspace.target.key:
        measure_isolated(workspace, at_best(str(workspace.granularity)), rule=RULE)
    runs = _runs_per_s(workspace, target)
    flops_per_s = [
        brick.flops * runs[brick.key]
        for brick in compute_peaks()
        if brick.flops is not None and brick.key in runs
    ]
    bandwidths = _bandwidths(runs)
    sizes = sorted({stream.size_bytes for stream in memory_peaks()})
    whole = bandwidths.keys() == set(sizes)
    return Peaks(
        max(flops_per_s, default=None),
        bandwidths.get(sizes[-1]),
        tuple(Level(size, bandwidths[size]) for size in sizes) if whole else (),
    )


def call_s(workspace: Workspace, target: Target) -> float:
    """The call cost in seconds that is subtracted from each brick on ``target``."""
    results = _results(workspace, target)
    if not all(isinstance(results.get(key), Measurement) for key in PROBES.values()):
        return 0.0  # without probes, bricks seem slower, never faster than others
    return IN_WALK_CALL_FACTOR * call_cost(results).value


def _results(workspace: Workspace, target: Target) -> Results:
    """The measurements of peaks and of calls on ``target``."""
    keys = sorted({*PROBES.values(), *(brick.key for brick in peak_bricks())})
    return workspace.known.measurements.results(target.key, keys)


def _runs_per_s(workspace: Workspace, target: Target) -> dict[str, float]:
    """The highest rate, in runs per second, of each measured peak brick.

    The fastest sample and not the median: a peak is the rate without any disturbance.
    """
    results, overhead_s = _results(workspace, target), call_s(workspace, target)
    rates = {}
    for brick in peak_bricks():
        measured = results.get(brick.key)
        if isinstance(measured, Measurement):
            net_s = min(measured.host_s) - overhead_s
            if net_s > 0:
                rates[brick.key] = 1 / net_s
    return rates


def _bandwidths(runs_per_s: dict[str, float]) -> dict[int, float]:
    """The highest bandwidth in bytes per second by the bytes that a stream moves."""
    bandwidths: dict[int, float] = {}
    for stream in memory_peaks():
        if stream.brick.key in runs_per_s:
            rate = stream.brick.bytes_moved * runs_per_s[stream.brick.key]
            bandwidths[stream.size_bytes] = max(rate, bandwidths.get(stream.size_bytes, 0.0))
    return bandwidths
