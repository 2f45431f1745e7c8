"""The signs of a tensor's elements: how many are negative, and how often they change; their size.

Some operators branch on the sign of each element, and take several times as long where a processor
cannot predict it; others, such as an error function that is not vectorised, on its size, too. In a
model both are what the nodes before make of them; a brick that is measured in another model's
place, or alone, must find the same. Must not know operators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Patterns are told apart in steps of these: a brick is measured for each pattern that it meets.
_NEGATIVE_STEP, _CHANGES_STEP = 1 / 8, 1 / 16
# Of the logarithm of the size to the base of 2. Beyond these sizes one way is taken nearly always.
_SIZE_STEP, _SMALLEST, _LARGEST = 1 / 4, -8, 4


@dataclass(frozen=True, slots=True)
class SignPattern:
    """The share of elements that are ``negative``, and of those whose sign ``changes``.

    The latter is relative to the element before, in the order in which they lie in memory.
    ``log_size`` is the logarithm to the base of 2 of the mean of their absolute values, where that
    counts, too.
    """

    negative: float
    changes: float
    log_size: float | None = None

    @classmethod
    def of(cls, values: np.ndarray, *, sized: bool = False) -> SignPattern:
        """The pattern of ``values``, rounded; zeros count as positive."""
        negative = np.ravel(values) < 0
        changes = negative[1:] != negative[:-1]
        return cls(
            _rounded(negative.mean() if negative.size else 0.0, _NEGATIVE_STEP),
            _rounded(changes.mean() if changes.size else 0.0, _CHANGES_STEP),
            _log_size(values) if sized else None,
        )

    def numbers(self, count: int, seed: int) -> np.ndarray:
        """So many float32 numbers in this pattern, normally distributed; it has a size."""
        if self.log_size is None:
            raise ValueError("a pattern without a size tells signs alone")
        random = np.random.default_rng((seed, 1))
        # The mean of a normal distribution's absolute values is less than its deviation.
        deviation = np.float32(2**self.log_size * np.sqrt(np.pi / 2))
        sizes = np.abs(random.standard_normal(count, np.float32)) * deviation
        return self.signs(count, seed) * sizes

    def signs(self, count: int, seed: int) -> np.ndarray:
        """So many numbers, 1 and -1, in this pattern: runs of random lengths, float32."""
        if not 0 < self.negative < 1 or not self.changes:
            # Rounding has removed one sign, or all changes: one run of each sign is left.
            border = round(count * (1 - self.negative))
            return np.repeat(np.array((1, -1), np.float32), (border, count - border))
        random = np.random.default_rng(seed)
        # A run of either sign ends with such a chance that its share, and that of changes, follow.
        ends = np.minimum(1.0, self.changes / 2 / np.array((1 - self.negative, self.negative)))
        pairs = int(count * self.changes) + 16
        lengths = np.empty(2 * pairs, np.int64)
        lengths[0::2], lengths[1::2] = (random.geometric(end, pairs) for end in ends)
        signs = np.repeat(np.resize(np.array((1, -1), np.float32), 2 * pairs), lengths)
        return np.resize(signs, count)

    def to_json(self) -> list[float]:
        """As a list of two numbers, or three if it has a size."""
        signs = [self.negative, self.changes]
        return signs if self.log_size is None else [*signs, self.log_size]


def _rounded(share: float, step: float) -> float:
    return round(float(share) / step) * step


def _log_size(values: np.ndarray) -> float:
    size = float(np.mean(np.abs(values), dtype=np.float64)) if values.size else 0.0
    smallest, largest = 2.0**_SMALLEST, 2.0**_LARGEST
    if not smallest < size < largest:
        return _SMALLEST if size <= smallest else _LARGEST  # infinite ones are large
    return _rounded(np.log2(size), _SIZE_STEP)
