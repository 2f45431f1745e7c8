"""Memory of a recorded program: calls allocate their results, which are freed after use.

Live memory at a call, and with it the cost of page faults, follows from the recording and not from
a runtime's planner. Frozen data; must not know how calls are recorded or run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bricks.decompose.memory import (
    ACTIVATION,
    GRADIENT,
    TEMPORARY,
    Allocation,
    Flow,
    LiveMemory,
    LiveRange,
    MemoryLayout,
    Phase,
    live_at_peak,
)
from bricks.graph.call import BUFFERS, FORWARD, INFERENCE, INPUTS, OPTIMIZER, PARAMETERS
from bricks.graph.types import TensorType

# The key of this memory in a plan's JSON object.
PROGRAM = "program"


@dataclass(frozen=True, slots=True)
class Allocated:
    """Memory that calls allocate, by the numbers of a plan's values and occurrences.

    :class:`~bricks.decompose.memory.Memory` documents the methods. ``kind`` is ``inference`` or
    ``training step``; ``phases`` are in order. ``freed`` holds for each value the position of the
    occurrence after which its memory is free, or None if it stays to the end of the step.
    ``storages`` holds for each value the number of the first value with the same memory, or -1 for
    memory that was allocated before the step. ``gradients`` are the values that are the parameters'
    gradients. ``state_bytes`` are sizes of memory before the step, by role: ``inputs``,
    ``parameters``, ``buffers`` and ``optimizer``.
    """

    kind: str
    phases: tuple[Phase, ...]
    freed: tuple[int | None, ...]
    storages: tuple[int, ...]
    gradients: tuple[int, ...]
    state_bytes: Mapping[str, int]

    def to_json(self) -> Mapping[str, Any]:
        """An entry of the plan's JSON object, whose value :meth:`from_json` reads."""
        facts = {
            "kind": self.kind,
            "phases": [phase.to_json() for phase in self.phases],
            "freed": list(self.freed),
            "storages": list(self.storages),
            "gradients": list(self.gradients),
            "state_bytes": dict(self.state_bytes),
        }
        return {PROGRAM: facts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Allocated:
        """The inverse of :meth:`to_json`; ValueError, KeyError or TypeError for invalid data."""
        return cls(
            kind=str(data["kind"]),
            phases=tuple(map(Phase.from_json, data["phases"])),
            freed=tuple(None if at is None else int(at) for at in data["freed"]),
            storages=tuple(map(int, data["storages"])),
            gradients=tuple(map(int, data["gradients"])),
            state_bytes={str(role): int(size) for role, size in data["state_bytes"].items()},
        )

    def problem(self, occurrences: int, values: int) -> str | None:
        """The first contradiction to a plan of this many occurrences and values; None if none."""
        if sum(phase.occurrences for phase in self.phases) != occurrences or any(
            not 0 <= (phase.displaced or 0) <= phase.calls or phase.occurrences < 0
            for phase in self.phases
        ):
            return "its phases are not its occurrences"
        if len(self.freed) != values or len(self.storages) != values:
            return "its lifetimes are not those of its values"
        if any(at is not None and at not in range(occurrences) for at in self.freed):
            return "it frees values at no occurrence"
        if any(value not in range(-1, values) for value in (*self.storages, *self.gradients)):
            return "its storages or gradients are no values"
        if any(size < 0 for size in self.state_bytes.values()):
            return "it holds less than no bytes"
        return None

    @property
    def outdated(self) -> bool:
        """Whether an earlier version recorded it, without all facts that estimates need."""
        return any(phase.displaced is None for phase in self.phases)

    @property
    def repeatable(self) -> bool:
        """No: a call that runs again allocates again."""
        return False

    @property
    def processor_specific(self) -> bool:
        """No: every processor makes the program's calls."""
        return False

    @property
    def overheads(self) -> tuple[tuple[str, Phase], ...]:
        """Pairs of the name of the probes of a phase's call overhead, and the phase.

        All phases outside training have the probes of inference: without automatic differentiation,
        a forward pass has another overhead.
        """
        inference = self.kind == INFERENCE
        return tuple((INFERENCE if inference else phase.name, phase) for phase in self.phases)

    @property
    def phase_names(self) -> tuple[str, ...]:
        """The phase of each occurrence, in order."""
        return tuple(phase.name for phase in self.phases for _ in range(phase.occurrences))

    def storage(self, value: int) -> int:
        """The first value in the same memory; -1 for memory that was allocated before the step."""
        return self.storages[value]

    def layout(self, flow: Flow) -> MemoryLayout:
        """A tensor handle for each value, by the value's number."""
        return MemoryLayout(tuple(range(len(flow.types))), 0)

    def allocations(self, flow: Flow) -> tuple[Allocation, ...]:
        """The results of calls, in order; handles are the values' numbers."""
        return tuple(
            self._allocation(value, position, flow)
            for position, occurrence in enumerate(flow.occurrences)
            for value in occurrence.made
        )

    def _allocation(self, value: int, made: int, flow: Flow) -> Allocation:
        """The allocation of ``value`` by the occurrence at position ``made``."""
        size_bytes = _size_bytes(flow, value) if self.storages[value] == value else 0
        freed = self.freed[value]
        # A view may outlive its last reader, but is not freed before it is made.
        return Allocation(value, made, None if freed is None else max(made, freed), size_bytes)

    def spans(self, flow: Flow) -> Iterator[LiveRange]:
        """Each storage that a step allocates, until the last value in it is freed."""
        last, ends = len(flow.occurrences) - 1, dict[int, int]()
        for value, root in enumerate(self.storages):
            freed = self.freed[value]
            ends[root] = max(ends.get(root, 0), last if freed is None else freed)
        gradients = {self.storages[value] for value in self.gradients}
        names, inference = self.phase_names, self.kind == INFERENCE
        for position, occurrence in enumerate(flow.occurrences):
            for value in occurrence.made:
                if self.storages[value] != value:
                    continue  # it shares earlier memory
                end = max(position, ends[value])
                kept = inference or (names[position] == FORWARD and names[end] != FORWARD)
                role = GRADIENT if value in gradients else ACTIVATION if kept else TEMPORARY
                yield LiveRange(_size_bytes(flow, value), position, end, role)

    def peak(self, flow: Flow) -> LiveMemory:
        """Live bytes at the peak of a step, memory from before the step included."""
        at, live_bytes = live_at_peak(self.spans(flow), len(flow.occurrences))
        state, names = self.state_bytes, self.phase_names
        return LiveMemory(
            parameter_bytes=state.get(PARAMETERS, 0) + state.get(BUFFERS, 0),
            activation_bytes=state.get(INPUTS, 0) + live_bytes.get(ACTIVATION, 0),
            gradient_bytes=live_bytes.get(GRADIENT, 0),
            optimizer_bytes=state.get(OPTIMIZER, 0),
            temporary_bytes=live_bytes.get(TEMPORARY, 0),
            phase=names[at] if names else FORWARD,
        )

    def negligible(
        self, flow: Flow, tiny: Callable[[str], bool], computes_nothing: Callable[[str], bool]
    ) -> frozenset[int]:
        """Views and tiny calls, which evict next to nothing from caches."""
        return frozenset(
            position
            for position, occurrence in enumerate(flow.occurrences)
            if tiny(occurrence.brick)
            or (
                computes_nothing(occurrence.brick)
                and all(self.storages[v] != v for v in occurrence.made)
            )
        )


def _size_bytes(flow: Flow, value: int) -> int:
    type_ = flow.types[value]
    return type_.size_bytes if isinstance(type_, TensorType) else 0
