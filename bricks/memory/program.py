"""The memory of a recorded program over a step: what is live at its peak, by role.

Calls allocate their results when they run, and free them when nothing refers to them any more: both
were recorded. So the peak follows from the plan without any planner. Kernels' own workspaces are
not in it. Must not know how a step is recorded or measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bricks.decompose.allocated import Program
from bricks.decompose.plan import Plan
from bricks.graph.program_phases import FORWARD, INFERENCE, OPTIMIZER
from bricks.graph.tensor import TensorType


@dataclass(frozen=True, slots=True)
class LiveMemory:
    """Bytes that are live at the peak of a step.

    ``activation_bytes`` are results of the forward pass that later phases read, and the inputs;
    ``temporary_bytes`` are results that their own phase frees. ``phase`` is that of the peak.
    """

    parameter_bytes: int
    activation_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    temporary_bytes: int
    phase: str


@dataclass(frozen=True, slots=True)
class _Span:
    """A piece of memory that the step allocates: at which occurrences it is live, and as what."""

    size_bytes: int
    begin: int
    end: int
    role: str


def live_memory(plan: Plan, program: Program) -> LiveMemory:
    """What is live at the peak of a step of ``plan``, whose facts ``program`` are."""
    spans = list(_spans(plan, program))
    changes = [0] * (len(plan.occurrences) + 1)
    for span in spans:
        changes[span.begin] += span.size_bytes
        changes[span.end + 1] -= span.size_bytes
    peak_at, live, most = 0, 0, -1
    for position, change in enumerate(changes[:-1]):
        live += change
        if live > most:
            peak_at, most = position, live
    held = dict.fromkeys(("activation", "gradient", "temporary"), 0)
    for span in spans:
        if span.begin <= peak_at <= span.end:
            held[span.role] += span.size_bytes
    state = program.state_bytes
    names = program.phase_names
    return LiveMemory(
        parameter_bytes=state.get("parameters", 0) + state.get("buffers", 0),
        activation_bytes=state.get("inputs", 0) + held["activation"],
        gradient_bytes=held["gradient"],
        optimizer_bytes=state.get(OPTIMIZER, 0),
        temporary_bytes=held["temporary"],
        phase=names[peak_at] if names else FORWARD,
    )


def _spans(plan: Plan, program: Program) -> Iterator[_Span]:
    """The pieces of memory that a step allocates; those of several values once."""
    last = len(plan.occurrences) - 1
    names = program.phase_names
    inference = program.kind == INFERENCE
    gradients = {program.storages[value] for value in program.gradients}
    ends: dict[int, int] = {}
    for value, root in enumerate(program.storages):
        freed = program.freed[value]
        ends[root] = max(ends.get(root, 0), last if freed is None else freed)
    for position, occurrence in enumerate(plan.occurrences):
        for value in occurrence.made:
            if program.storages[value] != value:
                continue  # it shares the memory of an earlier value, or of what was there before
            type_ = plan.types[value]
            size_bytes = type_.size_bytes if isinstance(type_, TensorType) else 0
            role = "temporary"
            if value in gradients:
                role = "gradient"
            elif inference or (names[position] == FORWARD and names[ends[value]] != FORWARD):
                role = "activation"
            yield _Span(size_bytes, position, max(position, ends[value]), role)
