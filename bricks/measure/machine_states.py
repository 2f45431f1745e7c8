"""The machine states that a campaign meets: which one it is now, and how latencies change between.

Must not know how a state is found, nor what is done about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bricks.decompose.plan import Brick
from bricks.measure.state_panel import learn_states, several_states, size_facts
from bricks.samples.machine_state import same_state
from bricks.samples.measurement import Round
from bricks.samples.state_model import StateModel
from bricks.store import Store


class MachineStates:
    """States of the machine while a target is measured."""

    def __init__(self, store: Store, target_key: str) -> None:
        self._store, self._target = store, target_key
        self._counts: dict[float, int] | None = None  # of rounds by reference, on this target
        self._now_s: float | None = None  # of the last steady round
        self._panel_s: list[float] = []  # those in which the panel is known
        self._model: StateModel | None = None

    def note(self, rounds: Sequence[Round]) -> None:
        """Note the state that rounds of one walk were taken in, if it was steady."""
        steady = [taken for taken in rounds if not taken.disturbed]
        if not steady or steady[0].state_s is None:
            return
        self._now_s = state_s = steady[0].state_s
        if self._counts is not None:
            self._counts[state_s] = self._counts.get(state_s, 0) + len(steady)

    def wanting_panel(self) -> float | None:
        """The present state, the first time that it is met on a machine of several; else None.

        Not on a machine of one state: the first state's panel is measured when it comes back. So
        most machines never measure one, and those of two states within minutes.
        """
        state_s = self._now_s
        if state_s is None or any(same_state(state_s, each) for each in self._panel_s):
            return None
        if self._counts is None:
            self._counts = self._store.measurements.reference_counts(self._target)
        if not several_states(self._counts, state_s):
            return None
        self._panel_s.append(state_s)
        return state_s

    def model(self, bricks: Mapping[str, Brick]) -> StateModel:
        """How latencies change between states, with the facts of ``bricks``."""
        if self._model is None:
            self._model = learn_states(self._store, self._target)
        return self._model.with_facts(size_facts(bricks))

    def forget_model(self) -> None:
        """Learn anew how latencies change, next time."""
        self._model = None
