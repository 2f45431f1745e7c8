"""Outputs of repeated runs of a model, and the file that keeps those of the first.

Must not know what they are compared with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

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
