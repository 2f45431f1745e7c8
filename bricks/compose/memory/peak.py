"""The peak memory of a model, recomposed from its plan: nothing is measured, loaded or allocated.

It is the sum of the memory that a process needs beyond the imported runtime: weights in the form
that kernels keep, values and workspaces as the runtime's arena lays them out, the runtime's own
data, and the surplus of loading over running. research/memory.md has the definition and its errors.
Must not know latencies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.backends import MemoryUse, offers
from bricks.decompose.granularity import EXECUTED
from bricks.graph.form import operator_title

if TYPE_CHECKING:
    from bricks.decompose.memory import LiveMemory
    from bricks.decompose.plan import Brick, Plan
    from bricks.system import Runtime

# The runtime's own data in a session: code and tables, which the first session loads, and the
# graph, by node and by weight. Fitted to every second family of the zoo (benchmarks/memory.py).
SESSION_BYTES = 10_060_000
NODE_BYTES = 5_750
WEIGHT_BYTES = 17_200


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The most memory, in bytes, that a process needs to load a model and to run it.

    The memory of a process that has only imported the runtime is not included.

    ``weight_bytes`` are weights as kernels keep them, each once. ``activation_bytes`` are inputs,
    outputs and all values between; ``workspace_bytes`` are buffers of kernels while they run.
    ``runtime_bytes`` are the session's own data. ``loading_bytes`` is the surplus of loading over
    all of these, 0 if running needs more. In a training step, ``activation_bytes`` are the values
    that the backward pass reads; further parts are ``gradient_bytes``, the optimiser's state
    (``optimizer_bytes``) and ``temporary_bytes``, which their own phase frees. ``unknown`` has a
    reason for each part that is not included: if there are any, the peak is a lower bound.
    """

    model: str
    weight_bytes: int
    activation_bytes: int
    workspace_bytes: int
    runtime_bytes: int
    loading_bytes: int
    unknown: tuple[str, ...] = ()
    gradient_bytes: int = 0
    optimizer_bytes: int = 0
    temporary_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """The sum of the parts."""
        running = self.weight_bytes + self.activation_bytes + self.workspace_bytes
        training = self.gradient_bytes + self.optimizer_bytes + self.temporary_bytes
        return running + training + self.runtime_bytes + self.loading_bytes


@dataclass(frozen=True, slots=True)
class UnknownMemory:
    """The ``reason`` for which a model's memory is not predicted."""

    model: str
    reason: str


def peak_memory(
    plan: Plan, bricks: Mapping[str, Brick], runtime: Runtime, *, workers: int = 1
) -> PeakMemory | UnknownMemory:
    """Predict the peak memory of ``plan`` on ``runtime``; ``bricks`` are the plan's, by key."""
    live = plan.memory.peak(plan) if plan.granularity == EXECUTED else None
    if live is not None:
        return _recorded(plan, live)
    reason = _refusal(plan, runtime, workers)
    return _planned(plan, bricks, runtime) if reason is None else UnknownMemory(plan.model, reason)


def _planned(plan: Plan, bricks: Mapping[str, Brick], runtime: Runtime) -> PeakMemory:
    """The peak of a session, whose runtime plans offsets and keeps weights in its own form."""
    from bricks.compose.memory.activations import Activations, input_bytes, sizeless
    from bricks.compose.memory.weights import weight_memory, workspace

    weights = weight_memory(plan, bricks)
    reasons = []
    if not weights.rewriting_known:
        reasons.append("what loading needs: an earlier version decomposed the model")
    texts = sizeless(plan) + weights.sizeless
    if texts:
        reasons.append(f"{texts} values that hold texts")
    unknown = tuple(reasons)
    workspaces: dict[str, tuple[int, ...]] = {}
    activations = Activations(plan)
    run_bytes, session_bytes = activations.resident_bytes(weights=weights.in_arena), 0
    if _memory_use(runtime.backend) is MemoryUse.SESSION:
        sizes = {key: workspace(bricks[key], runtime.threads) for key in plan.keys}
        workspaces = {key: size for key, size in sizes.items() if size}
        unknown += _unknown_workspaces(plan, bricks, {k for k, s in sizes.items() if s is None})
        session_bytes = session_size_bytes(len(plan.occurrences), weights.count)
    with_workspaces = run_bytes
    if workspaces:
        with_workspaces = activations.resident_bytes(workspaces, weights.in_arena)
    running = weights.kept_bytes + input_bytes(plan) + with_workspaces
    return PeakMemory(
        plan.model,
        weight_bytes=weights.kept_bytes,
        # An arena that has grown for workspaces may suit activations better.
        activation_bytes=input_bytes(plan) + min(run_bytes, with_workspaces),
        workspace_bytes=max(0, with_workspaces - run_bytes),
        runtime_bytes=session_bytes,
        loading_bytes=max(0, weights.loading_bytes - running),
        unknown=unknown,
    )


def _recorded(plan: Plan, live: LiveMemory) -> PeakMemory:
    """The peak of a step whose calls allocate and free as they were recorded."""
    return PeakMemory(
        plan.model,
        weight_bytes=live.parameter_bytes,
        activation_bytes=live.activation_bytes,
        workspace_bytes=0,
        runtime_bytes=0,
        loading_bytes=0,
        unknown=("workspaces of kernels and the runtime's own data",),
        gradient_bytes=live.gradient_bytes,
        optimizer_bytes=live.optimizer_bytes,
        temporary_bytes=live.temporary_bytes,
    )


def session_size_bytes(nodes: int, weights: int) -> int:
    """Return the bytes of a session of ONNX Runtime without weights and values."""
    return SESSION_BYTES + NODE_BYTES * nodes + WEIGHT_BYTES * weights


def _refusal(plan: Plan, runtime: Runtime, workers: int) -> str | None:
    """The reason for which memory is not predicted; None if it is."""
    if _memory_use(runtime.backend) is MemoryUse.UNPREDICTED:
        predicted = (o.name for o in offers() if o.computes and o.memory is MemoryUse.SESSION)
        return f"memory is predicted for {', '.join(predicted)}, not for {runtime.backend}"
    if plan.granularity != EXECUTED:
        return (
            f"memory follows from the graph that is executed, not from bricks of granularity"
            f" {plan.granularity}"
        )
    if workers > 1:
        return f"with {workers} workers, the order in which memory becomes free is not known"
    return None


def _memory_use(runtime: str) -> MemoryUse:
    # It may be installed on other hosts only.
    return next((o.memory for o in offers() if o.name == runtime), MemoryUse.UNPREDICTED)


def _unknown_workspaces(
    plan: Plan, bricks: Mapping[str, Brick], unknown: set[str]
) -> tuple[str, ...]:
    counts: Counter[str] = Counter()
    for occurrence in plan.occurrences:
        if occurrence.brick in unknown:
            operators = bricks[occurrence.brick].operators
            counts["+".join(operator_title(name) for name in operators)] += 1
    several = [f"{count} {name}" for name, count in counts.items()]
    return (f"the workspace of {', '.join(several)}",) if several else ()
