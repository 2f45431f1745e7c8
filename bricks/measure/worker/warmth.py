"""How warm the steps of a walk are, and passes until they are as warm as they get, in the worker.

What a walk leaves in the caches of each core settles within some passes. Must not know what is
walked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

# Untimed passes before those that count, unless they take so many seconds for each step, or all
# together: long walks keep little from pass to pass, and long steps hardly mind. After others,
# BERT mini's second pass takes 17 % more than its last ones, the sixth 3 %, the tenth 1 %.
_WARM_UPS, _WARMING_STEP_S, _WARMING_S = 10, 0.2e-3, 0.03


class Warmth:
    """Remembers which steps were run last: they need one pass, others several."""

    def __init__(self) -> None:
        self._steps: Sequence[Any] = []
        self._rehearsed_s: float | None = None  # what running them took, if that was announced

    def forget(self) -> None:
        """Nothing was run last."""
        self._steps, self._rehearsed_s = [], None

    def rehearse(self, steps: Sequence[Any], one_pass: Callable[[], object]) -> None:
        """Run the steps once, which warms up as well."""
        started = time.perf_counter()
        one_pass()
        self._steps, self._rehearsed_s = steps, time.perf_counter() - started

    def warm_up(self, steps: Sequence[Any], one_pass: Callable[[], object]) -> None:
        """Run the steps until a pass finds in the caches what one of many would find there."""
        enough_s = _WARMING_S
        if len(steps) > 1:  # a single one may be a whole model, with many steps of its own
            enough_s = min(enough_s, _WARMING_STEP_S * len(steps))
        passes, spent_s = 0, 0.0
        if steps == self._steps and self._rehearsed_s is not None:
            passes, spent_s = 1, self._rehearsed_s
        elif steps == self._steps:
            passes = _WARM_UPS - 1
        self._steps, self._rehearsed_s = steps, None
        while passes < _WARM_UPS and spent_s < enough_s:
            started = time.perf_counter()
            one_pass()
            passes, spent_s = passes + 1, spent_s + time.perf_counter() - started
