"""States of the random number generator in a recorded step, which calls save and restore.

Dropout draws the same mask when activations are recomputed, since checkpointing saves the state of
the generator and restores it. No dispatcher sees that, but the state changes between two calls. So
saving and restoring are recorded as calls of their own, and a replay draws the same numbers. Must
not know how other calls are recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bricks.backends.torch.namespaces import GENERATOR, GET_STATE
from bricks.graph.program import PHASE, Call

if TYPE_CHECKING:
    import onnx


@dataclass(slots=True)
class GeneratorState:
    """A state that the step was in ``after`` the call with this number; -1: when it began.

    ``external`` states were made outside of the step. ``name`` is the recorded value of a restored
    state, ``restored`` the number of the last call that restores it.
    """

    after: int = -1
    external: bool = False
    name: str = ""
    restored: int = -1

    @property
    def saved(self) -> bool:
        """Whether a call of the step saves the state."""
        return bool(self.name) and not self.external


class GeneratorStates:
    """The states of PyTorch's default generator in a step, by their digests."""

    def __init__(self) -> None:
        self._latest = _digest(torch.get_rng_state())
        self._states = {self._latest: GeneratorState()}

    def note_drawn(self, call: int) -> None:
        """Note the state after the call with this number, if the call has drawn numbers."""
        digest = _digest(torch.get_rng_state())
        if digest == self._latest:
            return
        self._latest = digest
        if digest not in self._states or not self._states[digest].name:
            self._states[digest] = GeneratorState(call)

    def changed(self) -> GeneratorState | None:
        """Return the state that the generator was put into since the last call; None if none."""
        digest = _digest(torch.get_rng_state())
        if digest == self._latest:
            return None
        self._latest = digest
        return self._states.setdefault(digest, GeneratorState(external=True))

    @property
    def saved(self) -> list[GeneratorState]:
        """The states that calls of the step save and restore."""
        return [state for state in self._states.values() if state.saved]

    def with_saves(self, calls: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Return ``calls`` with those that save a state, each after the call that leads to it."""
        nodes = list(calls)
        for state in sorted(self.saved, key=lambda each: -each.after):
            nodes.insert(state.after + 1, _save(state.name, calls[max(0, state.after)]))
        return nodes


def _save(name: str, before: onnx.NodeProto) -> onnx.NodeProto:
    """Return the call that saves a state as the value ``name``, in the phase of another call."""
    phase = next(note.value for note in before.metadata_props if note.key == PHASE)
    node = Call(GENERATOR, GET_STATE, ([], {})).node([], [name])
    node.metadata_props.add(key=PHASE, value=phase)
    return node


def _digest(state: torch.Tensor) -> str:
    return hashlib.sha256(state.numpy().tobytes()).hexdigest()
