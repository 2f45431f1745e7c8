"""What a backend may offer for recorded programs: record and step them, train them, double them.

All of it is used inside the worker process; see :mod:`bricks.backends.base`. Must not know how a
runtime does it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import onnx

from bricks.backends.capability import Capability
from bricks.backends.training_checks import GradientDeviations, ItemOrders, OptimizerTrajectories


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """The function ``entry`` (``FILE.py:FUNCTION`` or ``module:FUNCTION``) that makes a program.

    A relative file starts from ``folder``, that of the zoo if empty; ``options`` are the arguments
    of the function.
    """

    entry: str
    folder: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SeededProgram(ProgramSource):
    """A program that is made from ``seed``."""

    seed: int


class Recorder(Capability):
    """The interface of a backend for recorded programs, whose calls allocate their results.

    Calls pass tensors to each other by numbered handles. An input with an empty handle is a
    synthetic tensor of its own.
    """

    lacking: ClassVar[str] = "{name} runs ONNX models, not programs: choose --runtime torch"

    @abstractmethod
    def record(self, program: ProgramSource) -> onnx.ModelProto:
        """Record one step of a program as a graph of calls without weights."""

    @abstractmethod
    def pre_touch(self, events: Sequence[tuple[int, int]]) -> None:
        """Bind tensor handles to new memory of some bytes, or release them where it is 0.

        An event is (handle, bytes); the handle -1 stands for all.
        """

    @abstractmethod
    def real_step(self, proto: onnx.ModelProto) -> ReplayableStep:
        """A real step of the program that was recorded as ``proto``."""


class ReplayableStep(Protocol):
    """A step that was really run, and the state that it began with.

    ``expected`` are its results, by the names of values in the graph; ``deterministic`` is whether
    running it twice gave the same bits. Tensors are the runtime's own.
    """

    expected: Mapping[str, np.ndarray]
    deterministic: bool

    def begin(self) -> Mapping[str, Any]:
        """Go back to where the step began; the tensors that are there, by name."""
        ...

    def call(self, brick: onnx.ModelProto, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """All values of a brick, by name, from its inputs and weights."""
        ...


class DoublePrecision(Capability):
    """An optional interface of a recorder: the accuracy of a program's step."""

    lacking: ClassVar[str] = "{name} has no step in double to compare with"

    @abstractmethod
    def in_double(self, proto: onnx.ModelProto) -> DoubleStep:
        """The step of the program that was recorded as ``proto``, and the same in double."""


class DoubleStep(Protocol):
    """A step of a program as it is, and the same step in double precision, by names of results."""

    def reference(self) -> Mapping[str, np.ndarray]:
        """The results in double; :class:`~bricks.errors.BackendError` if there are none."""
        ...

    def run(self) -> Mapping[str, np.ndarray]:
        """The results of a step as it is, always from the state that the program begins with."""
        ...

    def gradients(self) -> Sequence[Mapping[str, Any]]:
        """Derivatives in double along one random direction of each tensor, the last layer's first.

        ``of`` names the tensor, ``analytic`` is automatic differentiation's, ``numeric`` the
        central difference. Raises :class:`~bricks.errors.BackendError` if there are none.
        """
        ...


@dataclass(frozen=True, slots=True)
class TrainedEpoch:
    """One epoch of a training, as it was measured; times are in seconds.

    ``losses``, ``step_s`` and ``loading_s`` have an entry for each step: its loss, the time of the
    step, and that of taking its batch and copying it into the inputs and targets. ``begin_s`` is
    the time of beginning to iterate the data and of noticing their end. ``accuracy``, from 0 to 1,
    is that of the module at the end of the epoch, and ``evaluation_s`` the time of computing it.
    """

    losses: tuple[float, ...]
    step_s: tuple[float, ...]
    loading_s: tuple[float, ...]
    begin_s: float
    accuracy: float
    evaluation_s: float

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> TrainedEpoch:
        """The inverse of ``dataclasses.asdict``, after JSON."""
        lists = {name: tuple(facts[name]) for name in ("losses", "step_s", "loading_s")}
        return cls(**{**facts, **lists})


@dataclass(frozen=True, slots=True)
class LoadingTimes:
    """Batches taken and copied without training: ``begin_s`` for each epoch that was begun.

    ``batch_s`` is for each batch; see :class:`TrainedEpoch`. ``processes`` is the number of
    processes that load beside the one that trains.
    """

    begin_s: tuple[float, ...]
    batch_s: tuple[float, ...]
    processes: int = 0


class Training(Protocol):
    """A program that is trained epoch by epoch, from one seed."""

    identity: str  # a digest of the code, the optimiser's options and the initial parameters

    @property
    def history(self) -> Sequence[TrainedEpoch]:
        """The epochs so far."""
        ...

    def epoch(self, on_step: Callable[[int], None]) -> TrainedEpoch:
        """Train for one epoch, evaluate, and return what was measured.

        ``on_step`` is called before each step, with its number.
        """
        ...

    def save(self, path: Path) -> None:
        """Write everything that the next epoch depends on, and the history, or nothing at all."""
        ...

    def load(self, path: Path) -> None:
        """Go back to where :meth:`save` was called."""
        ...

    def time_loading(self, batches: int, read_bytes: int) -> LoadingTimes:
        """Take so many ``batches`` at least, in whole epochs, without training.

        Before each, so much memory is read: caches are as cold then as after a step that holds it.
        """
        ...

    def time_evaluation(self, repeats: int, read_bytes: int) -> Sequence[float]:
        """Seconds of computing the accuracy, ``repeats`` times; memory is read before each."""
        ...


class Trainer(Capability):
    """An optional interface of a backend for recorded programs: it trains them, and checks them.

    Each call makes a program anew.
    """

    lacking: ClassVar[str] = "this runtime trains no programs: choose --runtime torch"

    @abstractmethod
    def training(self, program: SeededProgram) -> Training:
        """The program, ready to be trained; raises where it cannot be."""

    @abstractmethod
    def gradients(self, program: SeededProgram) -> GradientDeviations:
        """The gradients of the loss beside finite differences; see ``backends/torch/gradients``."""

    @abstractmethod
    def trajectories(self, program: SeededProgram, steps: int) -> OptimizerTrajectories:
        """What the optimiser does in so many ``steps``; see ``backends/torch/trajectories``."""

    @abstractmethod
    def item_orders(self, program: SeededProgram, epochs: int) -> ItemOrders:
        """The items of each epoch in the order in which the data yield them."""
