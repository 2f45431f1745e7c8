"""Strategies: the actions of ranks and the messages of the network in one data-parallel step.

All strategies are compiled to the same :mod:`simulation`; a strategy decides which gradients travel
together, by which collective, and which action waits for which message. Must not know how a step is
simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from bricks.graph.call import BACKWARD, FORWARD, OPTIMIZER
from bricks.network.times import ALL_GATHER, ALL_REDUCE, BROADCAST, EXTRAPOLATED, Network
from bricks.studies.scaling.simulation import (
    Action,
    Await,
    Compute,
    Fused,
    HandOver,
    NetworkTransfer,
    Transfers,
)
from bricks.studies.scaling.training_step import MIB, assign, bucket_limits
from bricks.units.interval import End, value_of

if TYPE_CHECKING:
    from bricks.studies.scaling.steps import CopyTimes
    from bricks.studies.scaling.training_step import TrainingStep

COPYING, ACCUMULATING, DDP_CODE = "copying gradients", "accumulating gradients", "DDP itself"
SLOWEST = "waiting for the slowest rank"

# The bytes of a bit vector of ready tensors that ranks exchange.
_AGREED_BYTES = 64


@dataclass(slots=True)
class Costs:
    """Seconds of moving bytes between ``ranks`` and within one rank.

    ``network_end`` and ``copies_end`` choose the number of an interval. ``origins`` collects the
    origins of the times of all requested collectives.
    """

    network: Network
    copies: CopyTimes
    ranks: int
    network_end: End = value_of
    copies_end: End = value_of
    origins: set[str] = field(default_factory=set)

    def copy_s(self, size_bytes: int) -> float:
        """A copy within a rank's memory."""
        return self.copies_end(self.copies.copies_s.at(size_bytes))

    def ddp_step_s(self) -> float:
        """The fixed cost of DDP in a step."""
        return self.copies_end(self.copies.ddp_step_s)

    def ddp_gradient_s(self, size_bytes: int) -> float:
        """The cost of DDP for a gradient in one direction: into its bucket, or back."""
        return self.copies_end(self.copies.ddp_gradients_s.at(size_bytes)) / 2

    def collective_s(
        self, operation: str, size_bytes: int, ranks: int | None = None
    ) -> tuple[float, float]:
        """Seconds of a collective while no rank computes, and while ranks compute."""
        among = self.ranks if ranks is None else ranks
        seconds = []
        for computing in (False, True):
            time = self.network.time(operation, size_bytes, among, computing=computing)
            self.origins.add(time.origin)
            seconds.append(self.network_end(time.interval))
        return seconds[0], seconds[1]

    def transfer(
        self, kind: str, operation: str, size_bytes: int, ranks: int | None = None
    ) -> NetworkTransfer:
        """One message, moved by one collective."""
        alone_s, computing_s = self.collective_s(operation, size_bytes, ranks)
        return NetworkTransfer(kind, size_bytes, alone_s, computing_s)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A step: the actions of a rank, and the transfers of its messages.

    ``moved`` may be used once. ``bytes_sent`` is the sum over all nodes, per rank.
    """

    actions: tuple[Action, ...]
    moved: Transfers
    bytes_sent: float


class Strategy(Protocol):
    """A way of keeping the parameters of several ranks equal."""

    @property
    def name(self) -> str:
        """As a command takes it."""

    def schedule(self, step: TrainingStep, costs: Costs, accumulate: int) -> Schedule:
        """One step of the optimiser, of ``accumulate`` batches on each of several ranks."""


def solo(step: TrainingStep, costs: Costs, accumulate: int) -> Schedule:
    """The step of a single rank, without communication."""
    actions = (
        *_passes(step, costs, accumulate),
        *_backward(step, {}),
        Compute(OPTIMIZER, step.optimizer_s),
    )
    return Schedule(actions, (), 0.0)


@dataclass(frozen=True, slots=True)
class DistributedDataParallel:
    """PyTorch's DistributedDataParallel (Li et al., VLDB 2020; ``c10d/reducer.cpp``).

    Rank 0 broadcasts the module's buffers before the forward pass, one message per dtype. In the
    backward pass each gradient is divided by the number of ranks and copied into its bucket. A
    bucket is reduced when all of its gradients are ready, after the previous bucket, in parallel to
    the pass. At the end of the pass each bucket is awaited and copied back. DDP's own code has a
    fixed cost, and a cost per gradient: half when it is ready, half when it is copied back.
    Accumulated steps but the last communicate nothing (``no_sync``).
    """

    cap_bytes: int | None = None
    name: str = "ddp"

    def schedule(self, step: TrainingStep, costs: Costs, accumulate: int) -> Schedule:
        """See :class:`Strategy`."""
        buckets = assign(step.gradients, bucket_limits(self.cap_bytes))
        transfers: list[NetworkTransfer] = []
        actions: list[Action] = [Compute(DDP_CODE, costs.ddp_step_s())]
        for dtype, size_bytes in step.buffers_bytes.items():
            if size_bytes:
                number = len(transfers)
                kind = f"broadcast of {dtype} buffers"
                transfers.append(costs.transfer(kind, BROADCAST, size_bytes))
                # Buffers are packed into one message, and unpacked where it arrives.
                copied = Compute(COPYING, 2 * costs.copy_s(size_bytes))
                actions += [copied, HandOver(number), Await(number)]
        first = len(transfers)
        for number, bucket in enumerate(buckets):
            kind = f"all-reduce of bucket {number + 1}"
            transfers.append(costs.transfer(kind, ALL_REDUCE, bucket.size_bytes))
        actions += _passes(step, costs, accumulate)
        # After each gradient come its copy, and handing over a bucket that is complete.
        after: dict[int, list[Action]] = {
            i: [Compute(COPYING, costs.ddp_gradient_s(gradient.size_bytes))]
            for i, gradient in enumerate(step.gradients)
        }
        for number, bucket in enumerate(buckets):
            after[bucket.complete_at].append(HandOver(first + number))
        actions += _backward(step, after)
        for number, bucket in enumerate(buckets):
            sizes = (step.gradients[i].size_bytes for i in bucket.members)
            back_s = sum(costs.ddp_gradient_s(size_bytes) for size_bytes in sizes)
            actions += [Await(first + number), Compute(COPYING, back_s)]
        actions.append(Compute(OPTIMIZER, step.optimizer_s))
        sent = _ring_bytes(costs.ranks, step.gradient_bytes)
        sent += _broadcast_bytes(costs.ranks, sum(step.buffers_bytes.values()))
        return Schedule(tuple(actions), transfers, sent)


@dataclass(frozen=True, slots=True)
class Horovod:
    """Horovod's ring all-reduce with tensor fusion (Sergeev and Del Balso, arXiv:1802.05799).

    A background thread checks in cycles which gradients are ready on all ranks, fuses gradients of
    one dtype up to a limit in a buffer, and reduces it before the next cycle; in each cycle ranks
    agree by an all-reduce of a few bytes. The optimiser waits for all gradients. Limit and cycle
    are the defaults before version 0.21, which made them 128 MiB and 1 ms (its release notes).
    """

    fusion_bytes: int = 64 * MIB
    cycle_s: float = 5e-3
    name: str = "horovod"

    def schedule(self, step: TrainingStep, costs: Costs, accumulate: int) -> Schedule:
        """See :class:`Strategy`."""
        after: dict[int, list[Action]] = {i: [HandOver(i)] for i in range(len(step.gradients))}
        actions = [*_passes(step, costs, accumulate), *_backward(step, after)]
        actions += [Await(i) for i in range(len(step.gradients))]
        actions.append(Compute(OPTIMIZER, step.optimizer_s))
        sent = _ring_bytes(costs.ranks, step.gradient_bytes)
        return Schedule(tuple(actions), _Cycles(self, step, costs), sent)


class _Cycles:
    """Horovod's thread during one step; its first cycle begins with the step."""

    def __init__(self, of: Horovod, step: TrainingStep, costs: Costs) -> None:
        self._of, self._step, self._costs = of, step, costs
        self._agreeing_s = costs.collective_s(ALL_REDUCE, _AGREED_BYTES)
        self._cycle_at_s = 0.0
        self._moving = False
        self._fused: list[list[int]] = []

    def next(self, ready: Sequence[int], now_s: float) -> Fused | float | None:
        if self._fused:
            return self._transfer(self._fused.pop(0), (0.0, 0.0))
        if self._moving:  # until now; a cycle that took too long delays the next
            self._moving, self._cycle_at_s = False, max(self._cycle_at_s, now_s)
        if not ready:
            return None
        # Cycles that found nothing have passed.
        late_s = max(0.0, now_s - self._cycle_at_s)
        begin_s = self._cycle_at_s + self._of.cycle_s * math.ceil(late_s / self._of.cycle_s - 1e-9)
        if begin_s > now_s + 1e-12:
            return begin_s
        self._moving, self._cycle_at_s = True, begin_s + self._of.cycle_s
        # Gradients of one type are together, in their order, up to the limit.
        groups: list[list[int]] = []
        open_: dict[str, list[int]] = {}
        for number in ready:
            gradient = self._step.gradients[number]
            group = open_.get(gradient.dtype)
            if group is None or self._bytes([*group, number]) > self._of.fusion_bytes:
                group = open_[gradient.dtype] = []
                groups.append(group)
            group.append(number)
        self._fused = groups
        return self._transfer(self._fused.pop(0), self._agreeing_s)

    def _transfer(self, members: Sequence[int], agreeing_s: tuple[float, float]) -> Fused:
        size_bytes = self._bytes(members)
        alone_s, computing_s = self._costs.collective_s(ALL_REDUCE, size_bytes)
        # A single gradient is reduced where it lies.
        copied_s = 2 * self._costs.copy_s(size_bytes) if len(members) > 1 else 0.0
        alone_s += copied_s + agreeing_s[0]
        computing_s += copied_s + agreeing_s[1]
        kind = f"all-reduce of {len(members)} gradients"
        return Fused(tuple(members), NetworkTransfer(kind, size_bytes, alone_s, computing_s))

    def _bytes(self, members: Sequence[int]) -> int:
        return sum(self._step.gradients[i].size_bytes for i in members)


@dataclass(frozen=True, slots=True)
class ParameterServer:
    """A synchronous parameter server (Li et al., OSDI 2014), on a host of its own.

    Each rank sends each gradient to the server when it is ready. The server adds them up as they
    arrive, updates the parameters once it has all, and sends them to every rank. All of it goes
    through the server's one link, which takes as long as an all-gather of as many tensors does
    among ranks and server: every node of a ring receives the tensors of all others.
    """

    name: str = "parameter-server"

    def schedule(self, step: TrainingStep, costs: Costs, accumulate: int) -> Schedule:
        """See :class:`Strategy`."""
        count, nodes = len(step.gradients), costs.ranks + 1
        costs.origins.add(EXTRAPOLATED)  # from a ring to a server
        transfers = [
            costs.transfer(
                f"gradient of {gradient.parameter} to the server", ALL_GATHER,
                nodes * gradient.size_bytes, nodes,
            )
            for gradient in step.gradients
        ]  # fmt: skip
        transfers.append(
            NetworkTransfer("update on the server", 0, step.optimizer_s, step.optimizer_s)
        )
        whole_bytes = nodes * step.gradient_bytes
        transfers.append(
            costs.transfer("parameters from the server", ALL_GATHER, whole_bytes, nodes)
        )
        after: dict[int, list[Action]] = {i: [HandOver(i)] for i in range(count)}
        actions = [*_passes(step, costs, accumulate), *_backward(step, after)]
        actions += [HandOver(count), HandOver(count + 1), Await(count + 1)]
        return Schedule(tuple(actions), transfers, 2.0 * step.gradient_bytes)


def _passes(step: TrainingStep, costs: Costs, accumulate: int) -> list[Action]:
    """All forward and backward passes of a step except the last backward pass.

    Gradients of all batches but the first are accumulated.
    """
    added = Compute(
        ACCUMULATING, sum(costs.copy_s(gradient.size_bytes) for gradient in step.gradients)
    )
    actions: list[Action] = [Compute(FORWARD, step.forward_s)]
    for batch in range(1, accumulate):
        actions.append(Compute(BACKWARD, step.backward_s))
        if batch > 1:
            actions.append(added)
        actions.append(Compute(FORWARD, step.forward_s))
    # The accumulation of the last backward pass precedes it, so that gradients are ready in it.
    return [*actions, added] if accumulate > 1 else actions


def _backward(step: TrainingStep, after: dict[int, list[Action]]) -> list[Action]:
    """A backward pass, with the actions ``after`` each ready gradient."""
    actions: list[Action] = []
    at_s = 0.0
    for number, ready_s in enumerate(step.ready_s):
        if number in after:
            actions += [Compute(BACKWARD, ready_s - at_s), *after[number]]
            at_s = ready_s
    return [*actions, Compute(BACKWARD, step.backward_s - at_s)]


def _ring_bytes(ranks: int, size_bytes: float) -> float:
    """Bytes that each rank of a ring sends in an all-reduce."""
    return 2 * (ranks - 1) / ranks * size_bytes


def _broadcast_bytes(ranks: int, size_bytes: float) -> float:
    """Bytes that all ranks send in a broadcast, for each rank."""
    return (ranks - 1) / ranks * size_bytes


def slowed(actions: Sequence[Action], ratio: float) -> tuple[Action, ...]:
    """The actions of a rank that computes ``ratio`` times slower."""
    return tuple(
        Compute(action.kind, ratio * action.seconds) if isinstance(action, Compute) else action
        for action in actions
    )
