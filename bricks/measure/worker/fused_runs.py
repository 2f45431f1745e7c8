"""Runs several steps of a walk in one call of the runtime, and keeps such calls between walks.

It must not know which walk a step is from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bricks.backends.base import Backend, BoundModel, FusedRunner
from bricks.errors import BackendError
from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class _FusedCall:
    """One call of the runtime that runs the steps called ``names``, with a sample of each."""

    names: Sequence[str]
    sample: Callable[[], Sequence[Sample]]


class FusedSteps:
    """Steps in as few calls as the runtime allows, and the bytes to read before the first call.

    Steps called ``separate`` have calls of their own.
    """

    def __init__(self, calls: Sequence[_FusedCall], eviction_bytes: int) -> None:
        self._calls, self.eviction_bytes = calls, eviction_bytes
        self.separate = frozenset(call.names[0] for call in calls if len(call.names) == 1)
        names = [name for call in calls for name in call.names]
        self._numbers = {name: number for number, name in enumerate(names)}

    def covers(self, names: Sequence[str]) -> bool:
        """Whether all steps called ``names`` are run."""
        return self._numbers.keys() >= set(names)

    def sample(self, names: Sequence[str]) -> list[Sample]:
        """Run all steps once, and return a sample of each step in ``names``."""
        samples = [sample for call in self._calls for sample in call.sample()]
        return [samples[self._numbers[name]] for name in names]


class FusedRuns:
    """Keeps fused steps until other models are loaded or bound.

    Fusing takes as long as loading a model, and running more steps than needed does not. So a walk
    over some of the steps of an earlier walk runs all steps of the earlier one.
    """

    def __init__(self) -> None:
        self._kept: list[FusedSteps] = []
        self._refused: set[tuple[str, ...]] = set()

    def clear(self) -> None:
        """Drop all fused steps: their bindings are no longer valid."""
        self._kept.clear()
        self._refused.clear()

    def of(
        self,
        backend: Backend,
        bound: Mapping[str, BoundModel],
        names: Sequence[str],
        eviction_bytes: int,
    ) -> FusedSteps | None:
        """Fuse the steps called ``names``; None where the runtime fuses none of them."""
        if not isinstance(backend, FusedRunner) or tuple(names) in self._refused:
            return None
        for kept in self._kept:
            if kept.covers(names):
                return kept
        calls = _calls(backend, bound, names) if len(names) > 1 else None
        if calls is None:
            self._refused.add(tuple(names))
            return None
        self._kept.append(FusedSteps(calls, eviction_bytes))
        return self._kept[-1]


def _calls(
    backend: FusedRunner, bound: Mapping[str, BoundModel], names: Sequence[str]
) -> list[_FusedCall] | None:
    """The calls that run the steps called ``names``; None where the runtime fuses no such steps.

    Steps that cannot run in one call are halved, until a step that cannot be fused has its own.
    """
    if len(names) == 1:
        (name,) = names
        return [_FusedCall(names, lambda: [bound[name].sample()])]
    try:
        fused = backend.fused([bound[name] for name in names])
    except (BackendError, MemoryError):  # a step that fails says so when it runs separately
        middle = len(names) // 2
        halves = [_calls(backend, bound, part) for part in (names[:middle], names[middle:])]
        return None if None in halves else [call for half in halves for call in half or ()]
    return None if fused is None else [_FusedCall(names, fused.sample)]
