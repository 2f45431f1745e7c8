"""Handles requests about a training: begin it, train an epoch, time loading, check it.

One program is trained at a time; beginning another one drops it. A request trains one epoch, so
that an interrupted run loses no more. Must not know when a training ends.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path

from bricks.backends.programs import LoadingTimes, TrainedEpoch, Trainer, Training
from bricks.backends.training_checks import GradientDeviations, ItemOrders, OptimizerTrajectories
from bricks.errors import WorkerError
from bricks.measure.protocol.training import (
    BeginTraining,
    CheckGradients,
    CheckItemOrders,
    CheckTrajectories,
    LoadTraining,
    TimeEvaluation,
    TimeLoading,
    TrainEpoch,
)
from bricks.measure.worker.handlers import Announce
from bricks.measure.worker.runtime import WorkerRuntime

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
