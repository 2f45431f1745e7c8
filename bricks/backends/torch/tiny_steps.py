"""Steps of a tiny program, and its calls one by one, both timed by phase.

Must not know how calls were recorded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from bricks.backends.torch.devices.device import PROCESSOR, Device

if TYPE_CHECKING:
    import torch

    from bricks.backends.torch.entry import Program

# Steps before the timed one, which so begins with its own code in the caches.
_SETTLE = 1


class TimedCall(Protocol):
    """A call that reads and writes values by name."""

    def run(self, values: Any) -> int:
        """Make the call on ``values``; nanoseconds of the operator."""


# The phase of a call, the call, and the names of values that are freed after it.
PhasedCall = tuple[str, TimedCall, Sequence[Hashable]]


class TinySteps:
    """Steps of ``program``, and its ``phased`` calls on values that ``begin`` a step.

    ``calls`` is the number of calls of each phase, ``displaced`` the sum of the shares of the
    caches that they evict.
    """

    def __init__(
        self,
        program: Program,
        phased: Sequence[PhasedCall],
        begins: Mapping[Any, torch.Tensor],
        displaced: Mapping[str, float],
        device: Device = PROCESSOR,
    ) -> None:
        self._program, self._device = program, device
        self._replayed, self._begins = phased, begins
        self.calls = Counter(phase for phase, _, _ in phased)
        self.displaced = displaced

    def step_s(self) -> Mapping[str, float]:
        """Time each phase of a real step in seconds, with its code in the caches."""
        for _ in range(_SETTLE):
            self._program.step()
        self._device.synchronise()
        marks: list[tuple[str, int]] = []
        clock = time.perf_counter_ns
        self._program.step(lambda phase: marks.append((phase, clock())))
        ends = [at for _, at in marks[1:]] + [clock()]
        return {phase: (end - at) * 1e-9 for (phase, at), end in zip(marks, ends, strict=True)}

    def calls_s(self) -> Mapping[str, float]:
        """Time the calls of each phase one by one; seconds by phase."""
        for _ in range(_SETTLE):
            self._one_by_one()
        self._device.synchronise()
        return {phase: ns * 1e-9 for phase, ns in self._one_by_one().items()}

    def _one_by_one(self) -> Mapping[str, int]:
        """Nanoseconds of the calls of each phase; values live as long as in a real step."""
        values = dict(self._begins)
        taken_ns = dict.fromkeys(self.calls, 0)
        for phase, call, freed in self._replayed:
            taken_ns[phase] += call.run(values)
            for name in freed:
                values.pop(name, None)
        return taken_ns
