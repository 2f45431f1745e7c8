"""Requests about a training: begin it, train an epoch, time what is around the steps, check it."""

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
    """Go on where the checkpoint at ``path`` was saved; the answer is all epochs until then."""

    path: str


@dataclass(frozen=True, slots=True)
class TrainEpoch(Request[TrainedEpoch]):
    """Train for one epoch, and save a checkpoint at ``path``. Steps are announced now and then."""

    path: str


@dataclass(frozen=True, slots=True)
class TimeLoading(Request[LoadingTimes]):
    """Take so many ``batches`` at least, without training; ``read_bytes`` are read before each."""

    batches: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class TimeEvaluation(Request[tuple[float, ...]]):
    """Evaluate ``repeats`` times: seconds of each. Before each, ``read_bytes`` are read."""

    repeats: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class CheckGradients(Request[GradientDeviations]):
    """The gradients of a program; see :class:`bricks.backends.programs.Trainer`."""

    program: SeededProgram


@dataclass(frozen=True, slots=True)
class CheckTrajectories(Request[OptimizerTrajectories]):
    """So many ``steps`` of a program's optimiser; see :class:`bricks.backends.programs.Trainer`."""

    program: SeededProgram
    steps: int


@dataclass(frozen=True, slots=True)
class CheckItemOrders(Request[ItemOrders]):
    """The items of so many ``epochs``; see :class:`bricks.backends.programs.Trainer`."""

    program: SeededProgram
    epochs: int
