"""Samples of the call overhead of each phase, from steps of tiny programs and their calls.

The same calls one by one, timed as bricks are, are subtracted from real steps. Must not know how
the differences are used.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Protocol

from bricks.backends.torch.tiny_programs import FEW, MANY, WIDE
from bricks.errors import BackendError
from bricks.graph.program_phases import EVICTION, INFERENCE, PER_CALL, PER_PHASE

# Rounds before the first that counts, so that medians are of several; and attempts at a round
# without noise.
_BEFORE, _ATTEMPTS = 4, 20


class TinyProgram(Protocol):
    """Steps of a tiny program, and its calls one by one.

    ``calls`` is the number of calls of each phase, ``displaced`` the sum of the shares of the
    caches that they evict.
    """

    @property
    def calls(self) -> Mapping[str, int]:
        """Calls by phase."""

    @property
    def displaced(self) -> Mapping[str, float]:
        """Shares by phase."""

    def step_s(self) -> Mapping[str, float]:
        """Time each phase of a real step in seconds, with its code in the caches."""

    def calls_s(self) -> Mapping[str, float]:
        """Time the calls of each phase one by one; seconds by phase."""


class PhaseProbes:
    """Samples of the probes of all phases; programs take turns, so that drift affects all."""

    def __init__(self, programs: Mapping[str, TinyProgram], training: bool) -> None:
        self._programs, self._training = programs, training
        self._samples: dict[tuple[str, str, str], float] = {}
        self._overheads_s: dict[tuple[str, str], list[float]] = {}
        for _ in range(_BEFORE):
            self._round()

    def sample(self, phase: str, part: str, kind: str) -> float:
        """Seconds of a probe: of kind ``step`` of a real step, else of the same without ``part``.

        The part ``each`` is per call, ``displaced`` per eviction of the whole caches, both averaged
        over a program; ``once`` is per phase.
        """
        if (phase, part, kind) not in self._samples:
            self._samples |= self._quiet_round()
        return self._samples.pop((phase, part, kind))

    def _quiet_round(self) -> dict[tuple[str, str, str], float]:
        """Take a sample of each probe, again while noise makes one of them negative."""
        for _ in range(_ATTEMPTS):
            samples_s = self._round()
            if min(samples_s.values()) > 0:
                return samples_s
        raise BackendError(
            "other processes disturb the steps of tiny programs so much that they tell nothing:"
            " measure again on a quiet host"
        )

    def _round(self) -> dict[tuple[str, str, str], float]:
        few, many, wide = (self._programs[name] for name in (FEW, MANY, WIDE))
        steps = {name: each.step_s() for name, each in self._programs.items()}
        calls = {name: each.calls_s() for name, each in self._programs.items()}
        samples_s = {}
        for own in many.calls:
            phase = own if self._training else INFERENCE
            real = {name: each[own] for name, each in steps.items()}
            parts = {name: each[own] for name, each in calls.items()}
            # Two programs without evictions separate the overhead per call from the one per phase.
            beyond_s = real[MANY] - parts[MANY] - (real[FEW] - parts[FEW])
            # Optimisers of GPUs make as many calls for few tensors as for many.
            more = max(1, many.calls[own] - few.calls[own])
            each_s = self._median(own, PER_CALL, beyond_s / more)
            begun_s = real[FEW] - parts[FEW] - few.calls[own] * each_s
            once_s = self._median(own, PER_PHASE, begun_s)
            known_s = once_s + wide.calls[own] * each_s
            for part, per, of, without_s in (
                (PER_PHASE, 1, FEW, parts[FEW] + few.calls[own] * each_s),
                (PER_CALL, many.calls[own], MANY, parts[MANY] + once_s),
                (EVICTION, wide.displaced[own], WIDE, parts[WIDE] + known_s),
            ):
                samples_s[phase, part, "step"] = real[of] / per
                samples_s[phase, part, "calls"] = without_s / per
        return samples_s

    def _median(self, phase: str, part: str, overhead_s: float) -> float:
        """The median overhead of a part so far: a single step may be noisy."""
        overheads_s = self._overheads_s.setdefault((phase, part), [])
        overheads_s.append(overhead_s)
        return statistics.median(overheads_s)
