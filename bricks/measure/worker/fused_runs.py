"""Steps that run together in a call of the runtime, kept from walk to walk, in the worker.

It must not know what is walked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bricks.backends.base import Backend, BoundModel, FusedRunner
from bricks.errors import BackendError
from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the runtime, which runs the steps at ``places``: a sample of each."""

    places: Sequence[str]
    sample: Callable[[], Sequence[Sample]]


class FusedSteps:
    """Steps in as few calls as the runtime allows, and the bytes to read before the first.

    Those at the places ``apart`` have calls of their own.
    """

    def __init__(self, calls: Sequence[_Call], eviction_bytes: int) -> None:
        self._calls, self.eviction_bytes = calls, eviction_bytes
        self.apart = frozenset(call.places[0] for call in calls if len(call.places) == 1)
        places = [place for call in calls for place in call.places]
        self._numbers = {place: number for number, place in enumerate(places)}

    def covers(self, places: Sequence[str]) -> bool:
        """Whether all of ``places`` are run."""
        return self._numbers.keys() >= set(places)

    def sample(self, places: Sequence[str]) -> list[Sample]:
        """Run all steps once; samples of those at ``places``."""
        taken = [sample for call in self._calls for sample in call.sample()]
        return [taken[self._numbers[place]] for place in places]


class FusedRuns:
    """All that was joined since something was last loaded or bound.

    Joining takes as long as loading a model, and running more steps than asked for does not. So a
    walk over some of the steps of an earlier one runs all of that.
    """

    def __init__(self) -> None:
        self._found: list[FusedSteps] = []
        self._refused: set[tuple[str, ...]] = set()

    def forget(self) -> None:
        """Give up everything: steps are no longer where they were."""
        self._found.clear()
        self._refused.clear()

    def of(
        self,
        backend: Backend,
        bound: Mapping[str, BoundModel],
        places: Sequence[str],
        eviction_bytes: int,
    ) -> FusedSteps | None:
        """The steps at ``places`` in few calls; None where the runtime has a call for each."""
        if not isinstance(backend, FusedRunner) or tuple(places) in self._refused:
            return None
        for known in self._found:
            if known.covers(places):
                return known
        calls = _calls(backend, bound, places) if len(places) > 1 else None
        if calls is None:
            self._refused.add(tuple(places))
            return None
        self._found.append(FusedSteps(calls, eviction_bytes))
        return self._found[-1]


def _calls(
    joiner: FusedRunner, bound: Mapping[str, BoundModel], places: Sequence[str]
) -> list[_Call] | None:
    """The calls that run the steps at ``places``; None where the runtime joins no such steps.

    Steps that do not run in one call are halved, until those are apart that cannot be joined.
    """
    if len(places) == 1:
        (place,) = places
        return [_Call(places, lambda: [bound[place].sample()])]
    try:
        joint = joiner.fused([bound[place] for place in places])
    except (BackendError, MemoryError):  # a step that fails by itself says so when it runs alone
        middle = len(places) // 2
        halves = [_calls(joiner, bound, part) for part in (places[:middle], places[middle:])]
        return None if None in halves else [call for half in halves for call in half or ()]
    return None if joint is None else [_Call(places, joint.sample)]
