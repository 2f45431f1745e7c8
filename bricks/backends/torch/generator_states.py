"""Where a step puts the generator of random numbers back to an earlier state, or into a new one.

Dropout draws the same mask when activations are computed again, since the state of the generator is
saved before and restored. No dispatcher sees that, but the state tells: it changes between two
calls. Saving and restoring are recorded as calls of their own, so that those who make the calls
again draw the same numbers. Must not know how calls are recorded.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

# The namespace of these calls, and their operators.
GENERATOR = "generator"
GET_STATE, SET_STATE = "get_state", "set_state"

OPERATORS = {GET_STATE: torch.get_rng_state, SET_STATE: torch.set_rng_state}


@dataclass(frozen=True, slots=True)
class Change:
    """A ``state`` into which the generator was put, and its digest.

    ``known`` is whether the step has been in it before, and ``call`` the one after which it was;
    None: since the step began.
    """

    state: torch.Tensor
    digest: str
    known: bool
    call: Any


class GeneratorStates:
    """The states in which the default generator was in a step, and after which call it was so."""

    def __init__(self) -> None:
        self._latest = _digest(torch.get_rng_state())
        self._since: dict[str, Any] = {self._latest: None}

    def drawn(self, call: Any) -> None:
        """``call`` has been made: note the state that it left, if that is a new one."""
        found = _digest(torch.get_rng_state())
        if found != self._latest:
            self._latest = found
            self._since[found] = call

    def change(self) -> Change | None:
        """How the state has changed since the last call; None if it has not."""
        state = torch.get_rng_state()
        found = _digest(state)
        if found == self._latest:
            return None
        self._latest = found
        known = found in self._since
        return Change(state, found, known, self._since.get(found))


def _digest(state: torch.Tensor) -> str:
    return hashlib.sha256(state.numpy().tobytes()).hexdigest()
