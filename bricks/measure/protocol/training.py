"""Requests about a training, of one process or of several: ranks, which join one another.

A training begins, trains an epoch, times loading and evaluation, and is checked; ranks time
collectives and data-parallel steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from bricks.backends.programs import LoadingTimes, SeededProgram, TrainedEpoch
from bricks.backends.ranks import CollectiveTimes
from bricks.backends.training_checks import GradientDeviations, ItemOrders, OptimizerTrajectories
from bricks.measure.protocol.request import Request
from bricks.system.interface import InterfaceFacts


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


@dataclass(frozen=True, slots=True)
class ReadInterface(Request[InterfaceFacts]):
    """Facts about a network interface."""

    name: str


@dataclass(frozen=True, slots=True)
class OpenGroup(Request[int]):
    """Open the rendezvous of the ranks at ``address``; the answer is its port."""

    address: str
    patience_s: float


@dataclass(frozen=True, slots=True)
class JoinGroup(Request[None]):
    """Become rank ``rank`` of ``ranks``, pinned to ``cores``.

    The rendezvous is at ``address`` and ``port``; port 0: where the launcher of the ranks says.
    """

    rank: int
    ranks: int
    address: str
    port: int
    interface: str
    cores: tuple[int, ...]
    patience_s: float


@dataclass(frozen=True, slots=True)
class LeaveGroup(Request[None]):
    """Leave the other ranks."""


@dataclass(frozen=True, slots=True)
class TimeCollective(Request[CollectiveTimes]):
    """Run a collective ``passes`` times, ``computing`` meanwhile or not."""

    operation: str
    num_bytes: int
    passes: int
    computing: bool


@dataclass(frozen=True, slots=True)
class BeginSteps(Request[None]):
    """Make the program that all ranks train, data-parallel if ``synchronised``.

    ``bucket_cap_mb`` is the option of that name of DDP; gradients of ``accumulation`` batches are
    added before they are reduced.
    """

    program: SeededProgram
    synchronised: bool
    bucket_cap_mb: float | None
    accumulation: int


@dataclass(frozen=True, slots=True)
class TimeSteps(Request[float]):
    """Run ``steps`` steps, each ``delay_s`` longer; the answer is the seconds of a step."""

    steps: int
    delay_s: float
