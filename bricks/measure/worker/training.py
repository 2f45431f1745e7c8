"""Handles requests about a training: begin it, train an epoch, time loading, check it; of ranks.

One program is trained at a time; beginning another one drops it. A request trains one epoch, so
that an interrupted run loses no more. A rank joins others, and times collectives and data-parallel
steps with them. Must not know when a training ends.
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

from bricks.backends.programs import LoadingTimes, TrainedEpoch, Trainer, Training
from bricks.backends.ranks import (
    Collectives,
    CollectiveTimes,
    Communicator,
    DistributedStep,
    DistributedTrainer,
)
from bricks.backends.training_checks import GradientDeviations, ItemOrders, OptimizerTrajectories
from bricks.errors import WorkerError
from bricks.measure.protocol.request import Announce
from bricks.measure.protocol.training import (
    BeginSteps,
    BeginTraining,
    CheckGradients,
    CheckItemOrders,
    CheckTrajectories,
    JoinGroup,
    LeaveGroup,
    LoadTraining,
    OpenGroup,
    ReadInterface,
    TimeCollective,
    TimeEvaluation,
    TimeLoading,
    TimeSteps,
    TrainEpoch,
)
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.system.interface import InterfaceFacts, interface_facts

# Seconds between announcements: each delays the steps.
_ANNOUNCE_S = 1.0


class TrainingRequests:
    """Trains with the backend of ``runtime``; announces some of the steps."""

    def __init__(self, runtime: WorkerRuntime, announce: Announce) -> None:
        self._runtime, self._announce = runtime, announce
        self._begun: Training | None = None

    @property
    def _trainer(self) -> Trainer:
        return self._runtime.capable(Trainer)

    @property
    def _training(self) -> Training:
        if self._begun is None:
            raise WorkerError("no training was begun")
        return self._begun

    def begin(self, request: BeginTraining) -> str:
        """Make the program; its identity."""
        self._begun = None
        gc.collect()
        self._begun = self._trainer.training(request.program)
        return self._begun.identity

    def load(self, request: LoadTraining) -> tuple[TrainedEpoch, ...]:
        """Resume from a checkpoint; all epochs before it."""
        self._training.load(Path(request.path))
        return tuple(self._training.history)

    def train(self, request: TrainEpoch) -> TrainedEpoch:
        """Train for one epoch, and save a checkpoint."""
        announced_s = time.monotonic()

        def on_step(number: int) -> None:
            nonlocal announced_s
            now_s = time.monotonic()
            if now_s - announced_s >= _ANNOUNCE_S:
                announced_s = now_s
                self._announce(number)

        epoch = self._training.epoch(on_step)
        self._training.save(Path(request.path))
        return epoch

    def time_loading(self, request: TimeLoading) -> LoadingTimes:
        """Time loading of batches."""
        return self._training.time_loading(request.batches, request.read_bytes)

    def time_evaluation(self, request: TimeEvaluation) -> tuple[float, ...]:
        """Time evaluations; seconds of each."""
        return tuple(self._training.time_evaluation(request.repeats, request.read_bytes))

    def check_gradients(self, request: CheckGradients) -> GradientDeviations:
        """See :class:`Trainer`."""
        return self._trainer.gradients(request.program)

    def check_trajectories(self, request: CheckTrajectories) -> OptimizerTrajectories:
        """See :class:`Trainer`."""
        return self._trainer.trajectories(request.program, request.steps)

    def check_item_orders(self, request: CheckItemOrders) -> ItemOrders:
        """See :class:`Trainer`."""
        return self._trainer.item_orders(request.program, request.epochs)


class RankRequests:
    """This process as one of several ranks, with the backend of ``runtime``."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime
        self._group: Collectives | None = None
        self._step: DistributedStep | None = None

    @property
    def _collectives(self) -> Collectives:
        if self._group is None:
            self._group = self._runtime.capable(Communicator).collectives()
        return self._group

    def read_interface(self, request: ReadInterface) -> InterfaceFacts:
        """Read facts about an interface in this process's namespace."""
        return interface_facts(request.name)

    def open_group(self, request: OpenGroup) -> int:
        """Open the rendezvous of a group; its port."""
        return self._collectives.open_store(request.address, request.patience_s)

    def join_group(self, request: JoinGroup) -> None:
        """Join the group; from now on, this process is pinned to its cores."""
        if request.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, request.cores)
        self._collectives.join(
            request.rank, request.ranks, request.address, request.port, request.interface,
            request.patience_s,
        )  # fmt: skip

    def leave_group(self, request: LeaveGroup) -> None:
        """Leave the group."""
        self._step = None
        self._collectives.leave()
        self._group = None

    def time_collective(self, request: TimeCollective) -> CollectiveTimes:
        """Time a collective; see :class:`Collectives`."""
        return self._collectives.time(
            request.operation, request.num_bytes, request.passes, request.computing
        )

    def begin_steps(self, request: BeginSteps) -> None:
        """Make the program that all ranks train."""
        trainer = self._runtime.capable(DistributedTrainer)
        self._step = None
        gc.collect()
        self._step = trainer.distributed_step(
            request.program,
            synchronised=request.synchronised,
            bucket_cap_mb=request.bucket_cap_mb,
            accumulation=request.accumulation,
        )

    def time_steps(self, request: TimeSteps) -> float:
        """Time steps; seconds of one."""
        if self._step is None:
            raise WorkerError("no data-parallel training was begun")
        return self._step.time(request.steps, request.delay_s)
