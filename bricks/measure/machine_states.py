"""Machine states during a campaign: the present one, and how latencies change between states.

Must not know how a state is identified, nor who corrects latencies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.measure.probe_set import probe_set_keys
from bricks.samples.machine_state import SAME_STATE_FACTOR, same_state
from bricks.samples.measurement import Measurement, Round
from bricks.samples.state_model import MAX_LEARNED, SizeFacts, StateModel

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.store import Reading, Store

# Fewer rounds than these, or a smaller share of all, may be a moment of drift, and no state.
_MIN_ROUNDS, _MIN_SHARE = 30, 0.02


class MachineStates:
    """States of the machine while a target is measured."""

    def __init__(self, store: Store, target_key: str) -> None:
        self._store, self._target = store, target_key
        self._counts: dict[float, int] | None = None  # of rounds by reference, on this target
        self._now_s: float | None = None  # of the last steady round
        self._probed_s: list[float] = []  # states in which the probe set is known
        self._model: StateModel | None = None

    def note(self, rounds: Sequence[Round]) -> None:
        """Record the machine state of the rounds of one walk, if it was steady."""
        steady = [one for one in rounds if not one.disturbed]
        if not steady or steady[0].state_s is None:
            return
        self._now_s = state_s = steady[0].state_s
        if self._counts is not None:
            self._counts[state_s] = self._counts.get(state_s, 0) + len(steady)

    def state_without_probes(self) -> float | None:
        """The present state at its first encounter on a machine of several states; else None.

        On a machine of one state it is None: the first state is returned when it comes back. So
        most machines never measure the probe set, and those of two states within minutes.
        """
        state_s = self._now_s
        if state_s is None or any(same_state(state_s, known_s) for known_s in self._probed_s):
            return None
        if self._counts is None:
            self._counts = self._store.measurements.reference_counts(self._target)
        if not several_states(self._counts, state_s):
            return None
        self._probed_s.append(state_s)
        return state_s

    def model(self, bricks: Mapping[str, Brick]) -> StateModel:
        """How latencies change between states, with the facts of ``bricks``."""
        if self._model is None:
            self._model = learn_states(self._store, self._target)
        return self._model.with_facts(size_facts(bricks))

    def forget_model(self) -> None:
        """Learn anew how latencies change, next time."""
        self._model = None


def several_states(counts: Mapping[float, int], state_s: float) -> bool:
    """Whether a machine has other states than ``state_s``; ``counts`` has rounds by reference."""
    others = sum(n for reference_s, n in counts.items() if not same_state(reference_s, state_s))
    return others >= max(_MIN_ROUNDS, _MIN_SHARE * sum(counts.values()))


def learn_states(store: Reading, target_key: str) -> StateModel:
    """How latencies change on a target: from all bricks that were measured in several states."""
    known = set(store.measurements.keys_in_states(target_key, SAME_STATE_FACTOR))
    first = [key for key in probe_set_keys() if key in known] if known else []
    # Keys are digests: the first of them are a random sample.
    others = sorted(key for key in known.difference(first) if key.startswith("b1-"))
    keys = [*first, *others][:MAX_LEARNED]
    results = store.measurements.results(target_key, keys)
    measured = [m for m in results.values() if isinstance(m, Measurement)]
    return StateModel(measured, size_facts(store.plans.load_bricks(keys)))


def size_facts(bricks: Mapping[str, Brick]) -> dict[str, SizeFacts]:
    """The facts of bricks that decide how their latencies change."""
    # Imported here: a machine of one state does not need it.
    from bricks.predict.features import extract_features

    return {key: extract_features(brick).size_facts for key, brick in bricks.items()}
