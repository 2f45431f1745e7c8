"""What a plan keeps of a recorded program besides its bricks: phases, lifetimes, what is what.

A program's calls allocate their results, so that the memory which is live at a call, and with it
which memory is fresh, follows from the program and not from a runtime's planner. Frozen data; must
not know how calls are recorded or run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a step: its name, how many occurrences it has, and how many calls these make.

    ``displaced`` is the sum over its calls of the share of a core's caches that each displaces (see
    ``graph/program_traffic``); None in plans of earlier versions, which do not tell.
    """

    name: str
    occurrences: int
    calls: int
    displaced: float | None = 0.0

    def to_json(self) -> list[Any]:
        """A JSON list; the inverse is :meth:`from_json`."""
        return [self.name, self.occurrences, self.calls, self.displaced]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Phase:
        """The inverse of :meth:`to_json`; ValueError or TypeError for invalid data."""
        name, occurrences, calls, *more = data
        (displaced,) = more or (None,)
        told = None if displaced is None else float(displaced)
        return cls(str(name), int(occurrences), int(calls), told)


@dataclass(frozen=True, slots=True)
class Program:
    """Facts of a recorded program, by the numbers of its plan's values and occurrences.

    ``kind`` is ``inference`` or ``training step``. ``phases`` are in order. ``freed`` holds for
    each value the position of the occurrence after which its memory is free, or None if it stays to
    the end of the step. ``storages`` holds for each value the number of the first value with the
    same memory, or -1 where that is memory which was there before the step. ``gradients`` are the
    values that the parameters' gradients are. ``state_bytes`` is the size of what is there before
    the step by its role: ``inputs``, ``parameters``, ``buffers`` and ``optimizer``.
    """

    kind: str
    phases: tuple[Phase, ...]
    freed: tuple[int | None, ...]
    storages: tuple[int, ...]
    gradients: tuple[int, ...]
    state_bytes: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the inverse is :meth:`from_json`."""
        return {
            "kind": self.kind,
            "phases": [phase.to_json() for phase in self.phases],
            "freed": list(self.freed),
            "storages": list(self.storages),
            "gradients": list(self.gradients),
            "state_bytes": dict(self.state_bytes),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Program:
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
        if any(each not in range(-1, values) for each in (*self.storages, *self.gradients)):
            return "its storages or gradients are no values"
        if any(size < 0 for size in self.state_bytes.values()):
            return "it holds less than no bytes"
        return None

    @property
    def outdated(self) -> bool:
        """Whether an earlier version made it, which did not note all that estimates need."""
        return any(phase.displaced is None for phase in self.phases)

    @property
    def phase_names(self) -> tuple[str, ...]:
        """The phase of each occurrence, in order."""
        return tuple(phase.name for phase in self.phases for _ in range(phase.occurrences))
