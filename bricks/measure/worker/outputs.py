"""Outputs of runs: the difference of two, be they tensors, sequences or maps; repeated runs.

Repeated runs keep the outputs of the first in a file. Must not know which programs computed them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bricks.samples.evaluation import OutputDifference

# The largest difference of floating-point outputs between two orders of summation, relative to the
# greatest magnitude of an output.
TOLERANCE = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-9}


def difference_of(
    expected: Sequence[Any], actual: Sequence[Any], *, bitwise: bool
) -> OutputDifference:
    """The difference of ``actual`` from ``expected`` over all outputs.

    Unless ``bitwise``, sums may be in another order.
    """
    pairs = [pair for a, b in zip(expected, actual, strict=True) for pair in _flat(a, b)]
    distances = [_distance(a, b) for a, b in pairs]
    absolute = max((distance.absolute for distance in distances), default=0.0)
    relative = max((distance.relative for distance in distances), default=0.0)
    tolerances = [0.0 if bitwise else TOLERANCE.get(a.dtype.name, 0.0) for a, _ in pairs]
    return OutputDifference(
        exact=all(_same_kind(a, b) and _equal(a, b) for a, b in pairs),
        max_abs=absolute if np.isfinite(absolute) else None,
        max_rel=relative if np.isfinite(relative) else None,
        tolerance=max(tolerances, default=0.0),
        finite=all(distance.finite for distance in distances),
    )


@dataclass(frozen=True, slots=True)
class _Distance:
    """The greatest difference of two tensors; ``finite`` is whether any of their numbers is."""

    absolute: float = 0.0
    relative: float = 0.0
    finite: bool = True


_IN_KIND = _Distance(float("inf"), float("inf"))


def _distance(a: np.ndarray, b: np.ndarray) -> _Distance:
    if not _same_kind(a, b):
        return _IN_KIND
    if a.dtype.kind == "O":
        return _Distance() if _equal(a, b) else _IN_KIND
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    finite_at = np.isfinite(x)
    finite = bool(finite_at.any()) or not x.size
    if not np.array_equal(finite_at, np.isfinite(y)):
        return replace(_IN_KIND, finite=finite)
    if not finite_at.any():
        return _Distance(finite=finite)
    difference = float(np.abs(x[finite_at] - y[finite_at]).max())
    return _Distance(difference, difference / max(float(np.abs(x[finite_at]).max()), 1e-30))


def _same_kind(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _flat(a: Any, b: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The pairs of corresponding tensors in two values; values that differ in kind are one pair."""
    if isinstance(a, dict) and isinstance(b, dict):
        a, b = list(a.items()), list(b.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        for pair in zip(a, b, strict=True):
            yield from _flat(*pair)
    else:
        yield _tensor(a), _tensor(b)


def _tensor(value: Any) -> np.ndarray:
    if isinstance(value, list | tuple | dict) or value is None:
        value = str(value)
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "UST" else array


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b) if a.dtype.kind == "O" else a.tobytes() == b.tobytes()


Arrays = Mapping[str, np.ndarray]


@dataclass(slots=True)
class Runs:
    """Outputs of repeated runs: the first outputs, and how others differ from them.

    ``distinct`` counts runs that differ from each other in any bit. ``max_variance`` is the
    greatest variance of an element over the runs; None if some runs cannot be compared.
    """

    first: dict[str, np.ndarray] = field(default_factory=dict)
    count: int = 0
    _digests: set[bytes] = field(default_factory=set)
    _moments: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    _comparable: bool = True

    def add(self, outputs: Arrays) -> None:
        """Add a run."""
        self.count += 1
        digest = hashlib.sha256()
        for array in outputs.values():
            digest.update(np.ascontiguousarray(array).tobytes())
        self._digests.add(digest.digest())
        if not self.first:
            self.first = {name: array.copy() for name, array in outputs.items()}
        for name, array in outputs.items():
            if array.dtype.kind not in "biuf":
                continue
            value = array.astype(np.float64)
            mean, square = self._moments.get(name, (np.zeros_like(value), np.zeros_like(value)))
            if mean.shape != value.shape:
                self._comparable = False
                continue
            with np.errstate(invalid="ignore"):  # of infinities
                step = value - mean
                mean = mean + step / self.count
                self._moments[name] = mean, square + step * (value - mean)

    @property
    def distinct(self) -> int:
        """The number of runs whose outputs differ in any bit."""
        return len(self._digests)

    def variance(self, name: str) -> np.ndarray | None:
        """The variance of each element of an output over the runs; None if it is undefined."""
        if name not in self._moments or not self._comparable:
            return None
        variance: np.ndarray = self._moments[name][1] / self.count
        return variance if np.isfinite(variance).all() else None

    @property
    def max_variance(self) -> float | None:
        """See the class."""
        if self.distinct <= 1:
            return 0.0
        variances = [self.variance(name) for name in self._moments]
        known = [float(v.max(initial=0.0)) for v in variances if v is not None]
        return max(known) if known and len(known) == len(variances) else None

    def save(self, file: Path) -> None:
        """Write the outputs of the first run, for :func:`outputs_in`."""
        arrays: dict[str, Any] = {f"value{n}": array for n, array in enumerate(self.first.values())}
        np.savez(file, **arrays)


def outputs_in(file: Path) -> Iterator[np.ndarray]:
    """The outputs that :meth:`Runs.save` wrote to ``file``, in the model's order."""
    with np.load(file, allow_pickle=False) as arrays:
        for number in range(len(arrays.files)):
            yield arrays[f"value{number}"]
