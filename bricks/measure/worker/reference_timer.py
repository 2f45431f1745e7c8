"""Times the reference workload, in the worker: see ``backends/reference``.

Must not know what is measured beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import onnx

from bricks.backends.base import Placed
from bricks.backends.reference import REFERENCE, reference

# Runs of the reference workload: at first a thread of the pool may be asleep.
_WARM_UPS, _RUNS = 2, 5

# What was timed so recently is so still: the end of a walk is the beginning of the next.
_JUST_NOW_S = 0.01

# Loads a model with memory of its own; by its key.
Load = Callable[[onnx.ModelProto, str], Placed]


class ReferenceTimer:
    """The reference workload, loaded when it is first asked for, and what it took last."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._reference: Placed | None = None
        self._last_s = 0.0
        self._at_s = -math.inf

    def now_s(self) -> float:
        """Seconds that it takes now, all threads awake and undisturbed."""
        if self._reference is None:
            self._reference = self._load(reference(), REFERENCE)
        for _ in range(_WARM_UPS):
            self._reference.sample()
        self._last_s = min(self._reference.sample() for _ in range(_RUNS))
        self._at_s = time.perf_counter()
        return self._last_s

    def just_now_s(self) -> float:
        """The same, or what it took when it was last timed, if that was just now."""
        recent = time.perf_counter() - self._at_s < _JUST_NOW_S
        return self._last_s if recent else self.now_s()
