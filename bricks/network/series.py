"""Times of one collective with one number of ranks over sizes: medians, and their α–β fit.

The fit is t = α + S/β, piecewise linear: backends change algorithm with the size, and small
messages stay in buffers, so one line does not fit all sizes. Between two measured sizes, times are
interpolated instead. Must not know which operation the times are of.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bricks.samples.statistics import NORMAL_95, median, pooled_deviation, pooled_spread
from bricks.units.curve import Curve, Extrapolation
from bricks.units.interval import Interval

# Fewer points have no leave-one-out error.
_MIN_POINTS = 3

# The lowest relative deviation, of rounds and of medians, and that residuals of few points show.
_MIN_DEVIATION = 0.01

# The relative standard deviation for each doubling of a size beyond the measured ones.
PER_DOUBLED_SIZE = 0.05

# A segment needs more points than a line has parameters.
_MIN_SEGMENT_POINTS, _MAX_SEGMENTS = 3, 4

# The relative uncertainty of medians: a closer fit follows the noise.
_NOISE = 0.02


@dataclass(frozen=True)  # without slots: cached properties
class SizeSeries:
    """Seconds of each round, by the bytes of the tensor."""

    rounds_s: Mapping[int, Sequence[float]]

    @cached_property
    def medians_s(self) -> Sequence[tuple[int, float]]:
        """Bytes with the median over rounds in seconds."""
        return [(num_bytes, median(times_s)) for num_bytes, times_s in self.rounds_s.items()]

    @cached_property
    def fit(self) -> Fit:
        """The α–β fit of the medians."""
        return fit(self.medians_s)

    def measured(self, num_bytes: int) -> Interval:
        """The median of a measured size in seconds; its deviation is pooled over all sizes."""
        deviation = max(_MIN_DEVIATION, pooled_deviation(self.rounds_s.values()))
        return pooled_spread(self.rounds_s[num_bytes], deviation)

    def estimate(self, num_bytes: int) -> tuple[float, float]:
        """Seconds of a size that was not measured, and their relative standard deviation.

        They are interpolated; below all sizes, or with few sizes, they are those of the fit.
        """
        if len(self.rounds_s) < _MIN_POINTS or num_bytes < min(self.rounds_s):
            return self.fit.estimate(num_bytes)
        curve = rising_curve(self.medians_s)
        beyond = PER_DOUBLED_SIZE * max(0.0, math.log2(num_bytes / max(self.rounds_s)))
        return curve.at(num_bytes).value, math.hypot(deviation_at(curve, num_bytes), beyond)


def deviation_at(curve: Curve, num_bytes: int) -> float:
    """The relative standard deviation between points: the leave-one-out error of the neighbours."""
    above = min(max(1, bisect_left(curve.sizes, num_bytes)), len(curve.sizes) - 1)
    inner = {min(max(1, at), len(curve.sizes) - 2) for at in (above - 1, above)}
    return max(_MIN_DEVIATION, *(abs(math.log(curve.left_out[at - 1])) for at in inner))


@dataclass(frozen=True, slots=True)
class Segment:
    """One line: sizes up to ``max_bytes`` take ``alpha_s`` + bytes / ``beta_bytes_per_s``.

    ``alpha_s`` is negative where the line is steeper than the one before it.
    """

    max_bytes: int
    alpha_s: float
    beta_bytes_per_s: float

    def time_s(self, num_bytes: float) -> float:
        """Seconds for ``num_bytes``."""
        return self.alpha_s + num_bytes / self.beta_bytes_per_s


@dataclass(frozen=True)  # without slots: a cached property
class Fit:
    """Line segments in order of size, and the distance of the points from them.

    ``residuals`` are relative, point by point in order of ``sizes``; ``deviation`` is the relative
    standard deviation of a new point.
    """

    segments: tuple[Segment, ...]
    sizes: tuple[int, ...]
    residuals: tuple[float, ...]
    deviation: float

    def segment(self, num_bytes: int) -> Segment:
        """Return the segment of a size; beyond the last point, the last one."""
        return _segment(self.segments, num_bytes)

    def time_s(self, num_bytes: int) -> float:
        """Seconds for ``num_bytes``; a straight line joins the ends of two segments."""
        return self._curve.at(num_bytes).value

    def estimate(self, num_bytes: int) -> tuple[float, float]:
        """Return seconds, and their relative standard deviation.

        Between two segments the time may be that of either. Beyond the points the deviation grows
        with each doubling of the size.
        """
        time_s = self.time_s(num_bytes)
        if not self.covers(num_bytes):
            edge = self.sizes[0] if num_bytes < self.sizes[0] else self.sizes[-1]
            doublings = abs(math.log2(max(1, num_bytes) / edge))
            return time_s, math.hypot(self.deviation, PER_DOUBLED_SIZE * doublings)
        number = self.segments.index(self.segment(num_bytes))
        if not number or num_bytes >= self._first_size(self.segments[number]):
            return time_s, self.deviation
        either = (segment.time_s(num_bytes) for segment in self.segments[number - 1 : number + 1])
        distance = max((abs(math.log(t / time_s)) for t in either if t > 0), default=0.0)
        return time_s, math.hypot(self.deviation, distance / NORMAL_95)

    def covers(self, num_bytes: int) -> bool:
        """Whether sizes on both sides were measured."""
        return self.sizes[0] <= num_bytes <= self.sizes[-1]

    @cached_property
    def _curve(self) -> Curve:
        """Seconds by bytes from 0 on: each segment from its first to its last size."""
        ends = [(0, self.segments[0])]
        ends += [(self._first_size(segment), segment) for segment in self.segments[1:]]
        ends += [(segment.max_bytes, segment) for segment in self.segments]
        return rising_curve((size, segment.time_s(size)) for size, segment in ends)

    def _first_size(self, segment: Segment) -> int:
        return min(size for size in self.sizes if self.segment(size) is segment)


def rising_curve(points: Iterable[tuple[int, float]]) -> Curve:
    """Return seconds by bytes through ``points``; the last line continues if it rises."""
    exact = ((size, Interval.exact(time_s)) for size, time_s in points)
    return Curve.through(exact, above=Extrapolation.RISING, widens=False)


def fit(points: Sequence[tuple[int, float]]) -> Fit:
    """Fit ``points`` (bytes, seconds): at least one, all sizes distinct.

    The number of segments minimises the Bayesian information criterion (Schwarz, 1978) of the
    relative residuals.
    """
    ordered = sorted(points)
    segments = min(_divisions(ordered), key=lambda each: _criterion(each, ordered))
    residuals = _residuals(segments, ordered)
    free = max(1, len(ordered) - _parameters(segments))
    deviation = max(_MIN_DEVIATION, math.sqrt(sum(r * r for r in residuals) / free))
    return Fit(segments, tuple(size for size, _ in ordered), residuals, deviation)


def _segment(segments: Sequence[Segment], size: int) -> Segment:
    return next((each for each in segments if size <= each.max_bytes), segments[-1])


def _residuals(
    segments: Sequence[Segment], points: Sequence[tuple[int, float]]
) -> tuple[float, ...]:
    return tuple(_segment(segments, size).time_s(size) / time_s - 1 for size, time_s in points)


def _parameters(segments: Sequence[Segment]) -> int:
    """The number of fitted parameters: two for each line, and the boundaries."""
    return 3 * len(segments) - 1


def _criterion(segments: Sequence[Segment], points: Sequence[tuple[int, float]]) -> float:
    count, parameters = len(points), _parameters(segments) + 1  # and the variance
    squares = sum(r**2 for r in _residuals(segments, points))
    variance = max(squares / count, _NOISE**2)
    return count * math.log(variance) + parameters * math.log(count)


def _divisions(points: Sequence[tuple[int, float]]) -> list[tuple[Segment, ...]]:
    """For each number of segments, the division with the smallest sum of squared residuals."""
    count = len(points)
    most = max(1, min(_MAX_SEGMENTS, count // _MIN_SEGMENT_POINTS))
    best: dict[tuple[int, int], tuple[float, tuple[Segment, ...]]] = {(0, 0): (0.0, ())}
    for number in range(1, most + 1):
        for end in range(1, count + 1):
            for begin in range(end):
                short = end - begin < _MIN_SEGMENT_POINTS and not (number == 1 and end == count)
                if (number - 1, begin) not in best or short:
                    continue
                squares, before = best[number - 1, begin]
                line, more = _line(points[begin:end], steeper=begin > 0)
                if (number, end) not in best or squares + more < best[number, end][0]:
                    best[number, end] = squares + more, (*before, line)
    return [best[n, count][1] for n in range(1, most + 1) if (n, count) in best]


def _line(points: Sequence[tuple[int, float]], *, steeper: bool) -> tuple[Segment, float]:
    """Fit one line by least squares of the relative residuals; return it with their sum.

    Its slope is not negative. Nor is ``alpha_s``, unless the line is ``steeper`` than one before
    it, as where larger sizes leave the caches. A single point gives a line through the origin.
    """
    last = points[-1][0]
    candidates = []
    # Weighted by 1/t: minimise the sum of (a/t + b·S/t - 1)².
    u = [1 / t for _, t in points]
    v = [size / t for size, t in points]
    uu, vv, uv = _dot(u, u), _dot(v, v), _dot(u, v)
    determinant = uu * vv - uv * uv
    if len(points) > 1 and determinant > 1e-12 * uu * vv:
        a = (sum(u) * vv - sum(v) * uv) / determinant
        b = (sum(v) * uu - sum(u) * uv) / determinant
        if b > 0 and (a >= 0 or (steeper and a + b * points[0][0] > 0)):
            candidates.append((a, b))
    if not candidates:
        candidates.append((0.0, sum(v) / vv))
        if len(points) > 1:
            candidates.append((sum(u) / uu, 0.0))
    scored = [
        (sum((a * p + b * q - 1) ** 2 for p, q in zip(u, v, strict=True)), a, b)
        for a, b in candidates
    ]
    squares, a, b = min(scored)
    return Segment(last, a, 1 / b if b else math.inf), squares


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))
