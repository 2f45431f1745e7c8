"""The α–β fit of a collective's times over sizes: t = α + S/β, in as many pieces as needed.

One line does not fit all sizes: backends change algorithm with the size, and small messages stay in
buffers. So sizes are divided into pieces, each with a line of its own. Must not know which
operation the times are of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bricks.samples.statistics import NORMAL_95
from bricks.units.curve import Curve, Extrapolation
from bricks.units.interval import Interval

# A piece needs more points than its line has numbers; so many pieces are the most.
_MIN_POINTS, _MAX_PIECES = 3, 4

# Medians are known no better than this, relative to them: a closer fit follows the noise.
_NOISE = 0.02

# Below this the relative residuals of few points say too little of how well a line fits.
_MIN_DEVIATION = 0.01


@dataclass(frozen=True, slots=True)
class Piece:
    """One line: sizes up to ``max_bytes`` take ``alpha_s`` + bytes / ``beta_bytes_per_s``.

    ``alpha_s`` is negative where larger sizes than those of the piece before are slower.
    """

    max_bytes: int
    alpha_s: float
    beta_bytes_per_s: float

    def time_s(self, num_bytes: float) -> float:
        """Seconds for so many bytes."""
        return self.alpha_s + num_bytes / self.beta_bytes_per_s


@dataclass(frozen=True)  # without slots: the curve is kept
class Fit:
    """Lines in order of size, and how far the points are from them.

    ``residuals`` are relative, point by point in order of ``sizes``; ``deviation`` is the standard
    deviation of a new point, relative.
    """

    pieces: tuple[Piece, ...]
    sizes: tuple[int, ...]
    residuals: tuple[float, ...]
    deviation: float

    def piece(self, num_bytes: int) -> Piece:
        """The line for so many bytes; beyond the last point, the last one."""
        return next((p for p in self.pieces if num_bytes <= p.max_bytes), self.pieces[-1])

    def time_s(self, num_bytes: int) -> float:
        """Seconds for so many bytes.

        Between the last size of one piece and the first of the next no line is right alone: they
        are joined by a straight line there.
        """
        return self._curve.at(num_bytes).value

    def deviation_at(self, num_bytes: int) -> float:
        """The relative standard deviation of a time between measured sizes.

        Between two pieces, the time may be that of either.
        """
        before, at = self._around(num_bytes)
        if before is None:
            return self.deviation
        joined_s = self.time_s(num_bytes)
        either = (before.time_s(num_bytes), at.time_s(num_bytes))
        apart = max((abs(math.log(t / joined_s)) for t in either if t > 0), default=0.0)
        return math.hypot(self.deviation, apart / NORMAL_95)

    @cached_property
    def _curve(self) -> Curve:
        """From no bytes on: the lines of the pieces from their first to their last size."""
        ends = [(0, self.pieces[0])]
        ends += [(self._first_of(piece), piece) for piece in self.pieces[1:]]
        ends += [(piece.max_bytes, piece) for piece in self.pieces]
        exact = ((size, Interval.exact(piece.time_s(size))) for size, piece in ends)
        return Curve.through(exact, above=Extrapolation.RISING, widens=False)

    def _around(self, num_bytes: int) -> tuple[Piece | None, Piece]:
        """The piece of so many bytes; with the one before it, if the bytes are between both."""
        at = self.piece(num_bytes)
        number = self.pieces.index(at)
        between = number > 0 and num_bytes < self._first_of(at)
        return (self.pieces[number - 1] if between else None), at

    def _first_of(self, piece: Piece) -> int:
        return min(size for size in self.sizes if self.piece(size) is piece)

    def covers(self, num_bytes: int) -> bool:
        """Whether sizes on both sides were measured."""
        return self.sizes[0] <= num_bytes <= self.sizes[-1]


def fit(points: Sequence[tuple[int, float]]) -> Fit:
    """The fit of ``points``, sizes in bytes with times in seconds; at least one, all sizes unlike.

    The number of pieces is the one with the lowest Bayesian information criterion (Schwarz, 1978),
    on relative residuals.
    """
    ordered = sorted(points)
    divided = _divisions(ordered)
    found = min(divided, key=lambda pieces: _criterion(pieces, ordered))
    residuals = tuple(_of(found, size).time_s(size) / time_s - 1 for size, time_s in ordered)
    free = max(1, len(ordered) - _numbers(found))
    squares = sum(r * r for r in residuals)
    deviation = max(_MIN_DEVIATION, math.sqrt(squares / free))
    return Fit(found, tuple(size for size, _ in ordered), residuals, deviation)


def _of(pieces: Sequence[Piece], size: int) -> Piece:
    return next((p for p in pieces if size <= p.max_bytes), pieces[-1])


def _numbers(pieces: Sequence[Piece]) -> int:
    """How many numbers were fitted: two for each line, and where pieces end."""
    return 3 * len(pieces) - 1


def _criterion(pieces: Sequence[Piece], points: Sequence[tuple[int, float]]) -> float:
    count, numbers = len(points), _numbers(pieces) + 1  # and the variance
    squares = sum((_of(pieces, size).time_s(size) / t - 1) ** 2 for size, t in points)
    variance = max(squares / count, _NOISE**2)
    return count * math.log(variance) + numbers * math.log(count)


def _divisions(points: Sequence[tuple[int, float]]) -> list[tuple[Piece, ...]]:
    """For each number of pieces, the division with the smallest squares of residuals."""
    count = len(points)
    most = max(1, min(_MAX_PIECES, count // _MIN_POINTS))
    best: dict[tuple[int, int], tuple[float, tuple[Piece, ...]]] = {(0, 0): (0.0, ())}
    for pieces in range(1, most + 1):
        for end in range(1, count + 1):
            for begin in range(end):
                short = end - begin < _MIN_POINTS and not (pieces == 1 and end == count)
                if (pieces - 1, begin) not in best or short:
                    continue
                squares, before = best[pieces - 1, begin]
                line, more = _line(points[begin:end], falling=begin > 0)
                if (pieces, end) not in best or squares + more < best[pieces, end][0]:
                    best[pieces, end] = squares + more, (*before, line)
    return [best[n, count][1] for n in range(1, most + 1) if (n, count) in best]


def _line(points: Sequence[tuple[int, float]], *, falling: bool) -> tuple[Piece, float]:
    """The line with the smallest squares of relative residuals, and their sum.

    Times do not fall with the size. Nor is the time of no bytes negative, unless ``falling``: where
    larger sizes are slower, since they leave the caches, say, a line through them begins below.
    A single point gives a line through the origin.
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
        if b > 0 and (a >= 0 or (falling and a + b * points[0][0] > 0)):
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
    return Piece(last, a, 1 / b if b else math.inf), squares


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))
