"""Steps that run in one call of the runtime, kept from walk to walk, in the worker.

It must not know what is walked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bricks.backends.base import Backend, Joint, Placed


class JointSteps:
    """The steps at ``places`` in one call, and the bytes to read before it."""

    def __init__(self, joint: Joint, places: Sequence[str], eviction_bytes: int) -> None:
        self._joint, self.eviction_bytes = joint, eviction_bytes
        self._numbers = {place: number for number, place in enumerate(places)}

    def covers(self, places: Sequence[str]) -> bool:
        """Whether all of ``places`` are run."""
        return self._numbers.keys() >= set(places)

    def sample(self, places: Sequence[str]) -> list[float]:
        """Run all steps once; the latencies of those at ``places``, in seconds."""
        taken = self._joint.sample()
        return [taken[self._numbers[place]] for place in places]


class Joints:
    """All that was joined since something was last loaded or placed.

    Joining takes as long as loading a model, and running more steps than asked for does not. So a
    walk over some of the steps of an earlier one runs all of that.
    """

    def __init__(self) -> None:
        self._found: list[JointSteps] = []
        self._refused: set[tuple[str, ...]] = set()

    def forget(self) -> None:
        """Give up everything: steps are no longer where they were."""
        self._found.clear()
        self._refused.clear()

    def of(
        self,
        backend: Backend,
        placed: Mapping[str, Placed],
        places: Sequence[str],
        eviction_bytes: int,
    ) -> JointSteps | None:
        """The steps at ``places`` in one call; None where each must run by itself."""
        joiner: Any = backend
        if not hasattr(joiner, "joined") or tuple(places) in self._refused:
            return None
        for known in self._found:
            if known.covers(places):
                return known
        joint = joiner.joined([placed[place] for place in places])
        if joint is None:
            self._refused.add(tuple(places))
            return None
        self._found.append(JointSteps(joint, places, eviction_bytes))
        return self._found[-1]
