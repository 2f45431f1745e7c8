"""Requests about a training: begin it, train an epoch, time loading and evaluation, check it."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.backends.programs import LoadingTimes, SeededProgram, TrainedEpoch
from bricks.backends.training_checks import GradientDeviations, ItemOrders, OptimizerTrajectories
from bricks.measure.protocol.request import Request


@dataclass(frozen=True, slots=True)
class BeginTraining(Request[str]):
    """Make a program, ready to be trained; the answer is its identity."""

    program: SeededProgram


@dataclass(frozen=True, slots=True)
class LoadTraining(Request[tuple[TrainedEpoch, ...]]):
    """Resume from the checkpoint at ``path``; the answer is all epochs before it."""

    path: str


@dataclass(frozen=True, slots=True)
class TrainEpoch(Request[TrainedEpoch]):
    """Train for one epoch, and save a checkpoint at ``path``; some steps are announced."""

    path: str


@dataclass(frozen=True, slots=True)
class TimeLoading(Request[LoadingTimes]):
    """Load at least ``batches`` batches without training; ``read_bytes`` are read before each."""

    batches: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class TimeEvaluation(Request[tuple[float, ...]]):
    """Evaluate ``repeats`` times, ``read_bytes`` read before each; the answer has their seconds."""

    repeats: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class CheckGradients(Request[GradientDeviations]):
    """Check the gradients of a program; see :class:`bricks.backends.programs.Trainer`."""

    program: SeededProgram


@dataclass(frozen=True, slots=True)
class CheckTrajectories(Request[OptimizerTrajectories]):
    """Check ``steps`` steps of an optimiser; see :class:`bricks.backends.programs.Trainer`."""

    program: SeededProgram
    steps: int


@dataclass(frozen=True, slots=True)
class CheckItemOrders(Request[ItemOrders]):
    """Check the items of ``epochs`` epochs; see :class:`bricks.backends.programs.Trainer`."""

    program: SeededProgram
    epochs: int
