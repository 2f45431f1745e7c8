"""Warms up the steps of a walk, in the worker: untimed passes until the caches' contents settle.

The contents that a walk leaves in the caches of each core settle within some passes. It must not
know which bricks the steps run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

# Untimed passes before the timed ones, unless they take this many seconds for each step, or in all:
# long walks keep little in the caches from pass to pass, and long steps depend little on caches.
# After other steps, BERT mini's second pass takes 17 % more than its last ones, the sixth 3 %, the
# tenth 1 %.
_PASSES, _ENOUGH_STEP_S, _ENOUGH_S = 10, 0.2e-3, 0.03


class WarmUp:
    """Remembers which steps ran last: they need one pass to warm up, others need several."""

    def __init__(self) -> None:
        self._steps: Sequence[Any] = []
        self._rehearsed_s: float | None = None  # the time of the last pass, if it was a rehearsal

    def reset(self) -> None:
        """Forget the steps that ran last: other models are loaded."""
        self._steps, self._rehearsed_s = [], None

    def rehearse(self, steps: Sequence[Any], one_pass: Callable[[], object]) -> None:
        """Run the steps once, which warms up as well."""
        started = time.perf_counter()
        one_pass()
        self._steps, self._rehearsed_s = steps, time.perf_counter() - started

    def warm_up(self, steps: Sequence[Any], one_pass: Callable[[], object]) -> None:
        """Run passes until the contents of the caches no longer change from pass to pass."""
        enough_s = _ENOUGH_S
        if len(steps) > 1:  # a single step may be a whole model, which has many nodes
            enough_s = min(enough_s, _ENOUGH_STEP_S * len(steps))
        passes, spent_s = 0, 0.0
        if steps == self._steps and self._rehearsed_s is not None:
            passes, spent_s = 1, self._rehearsed_s
        elif steps == self._steps:
            passes = _PASSES - 1
        self._steps, self._rehearsed_s = steps, None
        while passes < _PASSES and spent_s < enough_s:
            started = time.perf_counter()
            one_pass()
            passes, spent_s = passes + 1, spent_s + time.perf_counter() - started
