"""A rank's own training step: how long its phases take, and when each gradient is ready.

From the recorded step's plan and the latencies of its bricks. In the backward pass, the call that
makes a parameter's gradient is known, so its place in time is too.

All ranks of a synchronous step wait for each other, so it takes as long as the slowest solo step;
the variation of solo steps follows from the samples of their bricks.

Gradients are reduced in buckets, as PyTorch's DistributedDataParallel makes them from its second
step on (``c10d/reducer.cpp``, ``rebuild_buckets`` and ``compute_bucket_assignment_by_size``; Li et
al., VLDB 2020). A bucket takes gradients in the order in which they become ready, and is full once
it holds at least its limit: no parameter is split, so buckets overshoot. Each dtype has buckets of
its own. Must not know the messages of ranks, nor what they cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

from bricks.compose.estimate import MEASURED, Estimate, Provenance
from bricks.compose.latencies import phase_ends_s
from bricks.compose.timeline import OccurrenceRun, timeline
from bricks.errors import UsageError
from bricks.graph.call import BACKWARD, OPTIMIZER, TRAINING
from bricks.graph.program import TORCH_DTYPES, ModuleTensors, module_of
from bricks.graph.types import TensorType
from bricks.graph.view import parse_model
from bricks.samples.measurement import Failure, Measurement
from bricks.samples.statistics import pooled_variance
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.decompose.plan import Plan
    from bricks.graph.model import Model

_EXACT = Interval.exact(1.0)
MIB = 1 << 20

# Of the first bucket of each type, so that communication begins early, and of the others
# (``_DEFAULT_FIRST_BUCKET_BYTES`` in ``c10d/reducer.hpp``, ``bucket_cap_mb`` of DDP).
FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 * MIB, 25 * MIB


@dataclass(frozen=True, slots=True)
class Unevenness:
    """Standard deviations of a step in seconds, as two bounds.

    ``independent_s`` if the noise of bricks is independent, ``correlated_s`` if it is fully
    correlated.
    """

    independent_s: float
    correlated_s: float

    @property
    def deviation_s(self) -> Interval:
        """The standard deviation: independent noise, at most fully correlated noise."""
        return Interval(self.independent_s, self.independent_s, self.correlated_s)

    def times(self, ratio: float) -> Unevenness:
        """The variation of a rank that is ``ratio`` times slower."""
        return Unevenness(ratio * self.independent_s, ratio * self.correlated_s)

    def repeated(self, batches: int) -> Unevenness:
        """The variation of the sum of ``batches`` steps."""
        return Unevenness(math.sqrt(batches) * self.independent_s, batches * self.correlated_s)


EVEN = Unevenness(0.0, 0.0)


def unevenness(
    counts: Mapping[str, int], results: Mapping[str, Measurement | Failure]
) -> Unevenness:
    """The variation of a step with ``counts`` occurrences of each brick, from measured bricks.

    Only variation within rounds counts, since the speed of a host drifts from round to round.
    """
    measured = [(counts[key], results[key]) for key in counts if key in results]
    squares = [
        (count, pooled_variance(round_.host_s for round_ in result.rounds))
        for count, result in measured
        if isinstance(result, Measurement)
    ]
    variance = sum(count * square for count, square in squares)
    return Unevenness(
        math.sqrt(variance), sum(count * math.sqrt(square) for count, square in squares)
    )


def slowest(ranks: int) -> float:
    """The expected maximum of ``ranks`` standard normal deviations: the slowest rank's.

    As if deviations were normal; after Blom, *Statistical estimates and transformed
    beta-variables*, 1958.
    """
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A step of one rank, in seconds.

    ``gradients`` are in the order in which they become ready, ``ready_s`` seconds after the begin
    of the backward pass. ``buffers_bytes`` are the bytes of the module's buffers by dtype.
    ``relative`` is the step's interval relative to its value. ``unevenness`` is the variation from
    step to step.
    """

    forward_s: float
    backward_s: float
    optimizer_s: float
    gradients: tuple[Gradient, ...]
    ready_s: tuple[float, ...]
    buffers_bytes: Mapping[str, int]
    relative: Interval = _EXACT
    provenance: Provenance = MEASURED
    unevenness: Unevenness = EVEN

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.forward_s + self.backward_s + self.optimizer_s

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(gradient.size_bytes for gradient in self.gradients)

    def times(self, ratio: float) -> TrainingStep:
        """This step on a rank that computes ``ratio`` times slower."""
        return replace(
            self,
            forward_s=ratio * self.forward_s,
            backward_s=ratio * self.backward_s,
            optimizer_s=ratio * self.optimizer_s,
            ready_s=tuple(ratio * seconds for seconds in self.ready_s),
            unevenness=self.unevenness.times(ratio),
        )


def module_tensors(model: Model) -> ModuleTensors | None:
    """The module's tensors of a recorded program; None if an earlier version recorded it."""
    return module_of(parse_model(model.skeleton))


def training_step(model: Model, basis: Basis, estimate: Estimate) -> TrainingStep:
    """The step of ``model``, whose ``estimate`` was made from ``basis``.

    Raises :class:`~bricks.errors.UsageError` for a model that is no training step, whose recording
    lacks what is needed, or that DDP would refuse.
    """
    plan = basis.plan
    made, module = ready_gradients(model, plan)
    phases = {phase.phase: phase.estimate_s for phase in estimate.phases}
    backward_s, optimizer_s = phases.get(BACKWARD, 0.0), phases.get(OPTIMIZER, 0.0)
    ends_s, whole_s = _backward_ends_s(basis, estimate), estimate.estimate_s
    step_s = Interval(whole_s, estimate.low_s, estimate.high_s)
    return TrainingStep(
        forward_s=max(0.0, whole_s - backward_s - optimizer_s),
        backward_s=backward_s,
        optimizer_s=optimizer_s,
        gradients=tuple(gradient for _, gradient in made),
        ready_s=tuple(ends_s[position] for position, _ in made),
        buffers_bytes=dict(module.buffers_bytes),
        relative=step_s.map(lambda s: s / whole_s) if whole_s else _EXACT,
        provenance=estimate.provenance,
        unevenness=unevenness(plan.counts, basis.results),
    )


def ready_gradients(
    model: Model, plan: Plan
) -> tuple[tuple[tuple[int, Gradient], ...], ModuleTensors]:
    """The gradients of ``model`` in the order in which they become ready, and its module's tensors.

    Each gradient is paired with the position in ``plan`` of the occurrence that makes it. Raises
    :class:`~bricks.errors.UsageError` as :func:`training_step` does.
    """
    module, gradients = module_tensors(model), plan.memory.gradients
    if plan.kind != TRAINING:
        raise UsageError(
            f"{plan.model} is no training step: give a function that returns a loss and an"
            " optimizer, see docs/guides/training.md"
        )
    used = () if module is None else tuple(name for name, used in module.parameters if used)
    if module is None or len(used) != len(gradients):
        raise UsageError(
            f"{plan.model}: its recording does not tell its parameters and buffers: record it again"
        )
    if module.unused:
        raise UsageError(
            f"{plan.model}: its parameter {module.unused[0]!r} gets no gradient, which"
            " DistributedDataParallel refuses: use it, or freeze it (requires_grad_(False))"
        )
    made = sorted(
        (_made_at(plan, value, name), number)
        for number, (name, value) in enumerate(zip(used, gradients, strict=True))
    )
    return tuple(
        (position, Gradient(used[number], *_size_of(plan, gradients[number])))
        for position, number in made
    ), module


def _made_at(plan: Plan, value: int, name: str) -> int:
    """The position of the occurrence of the backward pass after which a gradient is final.

    An optimiser may work in place, so that the value that is left is its own: then the last value
    of the backward pass in the same memory counts.
    """
    storage, names = plan.memory.storage(value), plan.memory.phase_names
    last = -1
    for position, occurrence in enumerate(plan.occurrences):
        if names[position] == BACKWARD:
            if value in occurrence.made:
                return position
            if storage >= 0 and any(plan.memory.storage(v) == storage for v in occurrence.made):
                last = position
    if last < 0:
        raise UsageError(
            f"{plan.model}: no call of its backward pass makes the gradient of {name!r}: let"
            " loss.backward() make all gradients"
        )
    return last


def _size_of(plan: Plan, value: int) -> tuple[int, str]:
    type_ = plan.types[value]
    assert isinstance(type_, TensorType), "a gradient is a tensor"
    return type_.size_bytes, TORCH_DTYPES[type_.dtype]


def _backward_ends_s(basis: Basis, estimate: Estimate) -> dict[int, float]:
    """When each occurrence of the backward pass ends, by position, since that pass began."""
    plan = basis.plan
    phase = next((share for share in estimate.phases if share.phase == BACKWARD), None)
    if phase is None:
        return {}
    names = plan.memory.phase_names
    occurrence_s = {
        entry.position: entry.span.length_s if isinstance(entry, OccurrenceRun) else 0.0
        for entry in timeline(basis).entries
        if names[entry.position] == BACKWARD
    }
    return phase_ends_s(plan, phase, occurrence_s)


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of a parameter: ``size_bytes`` in numbers of type ``dtype``."""

    parameter: str
    size_bytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together, by their positions in the order of becoming ready."""

    members: tuple[int, ...]
    size_bytes: int
    dtype: str

    @property
    def complete_at(self) -> int:
        """The position of the last gradient: with it, the bucket is complete."""
        return max(self.members)


def bucket_limits(cap_bytes: int | None = None) -> tuple[int, ...]:
    """The limits of the first bucket of a type and of further ones.

    DDP makes the first bucket smaller unless a size is asked for.
    """
    return (FIRST_BUCKET_BYTES, BUCKET_BYTES) if cap_bytes is None else (cap_bytes,)


def assign(gradients: Sequence[Gradient], limits: Sequence[int]) -> tuple[Bucket, ...]:
    """The buckets of ``gradients``, which are in the order in which they become ready.

    ``limits`` are bytes of the first bucket of a dtype, of the second, and so on; the last limit
    holds for all further buckets. Buckets are in the order in which they are reduced: full buckets
    as they fill up, then one of each dtype that is not full, the latest dtype first, as PyTorch's
    table of types gives them.
    """
    full: list[Bucket] = []
    open_: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    made: dict[str, int] = {}
    for position, gradient in enumerate(gradients):
        dtype = gradient.dtype
        open_.setdefault(dtype, []).append(position)
        sizes[dtype] = sizes.get(dtype, 0) + gradient.size_bytes
        number = made.setdefault(dtype, 0)
        if sizes[dtype] >= limits[min(number, len(limits) - 1)]:
            full.append(Bucket(tuple(open_[dtype]), sizes[dtype], dtype))
            open_[dtype], sizes[dtype], made[dtype] = [], 0, number + 1
    rest = [
        Bucket(tuple(members), sizes[dtype], dtype)
        for dtype, members in reversed(open_.items())
        if members
    ]
    return (*full, *rest)
