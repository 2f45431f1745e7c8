"""Capabilities for programs: recording, real steps, training, double precision, accelerators.

Backends have most of them, used inside the worker process; see :mod:`bricks.backends.base`. Two are
of offers, since they need no runtime: programs that were recorded on a host without an accelerator
get the calls of one, and steps of published decoders are written as such calls. Must not know any
runtime.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from bricks.backends.base import Capability

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from bricks.architectures.architecture import Architecture
    from bricks.backends.training_checks import (
        GradientDeviations,
        ItemOrders,
        OptimizerTrajectories,
    )


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
        """Run a step of the program that was recorded as ``proto``."""


class ReplayableStep(Protocol):
    """A real step of a program with its initial state, from which its calls can be replayed.

    ``expected`` are its results by the names of values in the graph; ``deterministic`` is whether
    two runs gave the same bits. Tensors are the runtime's own.
    """

    expected: Mapping[str, np.ndarray]
    deterministic: bool

    def begin(self) -> Mapping[str, Any]:
        """Restore the initial state; return its tensors by name."""

    def call(self, brick: onnx.ModelProto, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replay a brick on its inputs and weights; return all values by name."""


class DoublePrecision(Capability):
    """An optional interface of a recorder: steps in double precision."""

    lacking: ClassVar[str] = "{name} has no step in double to compare with"

    @abstractmethod
    def in_double(self, proto: onnx.ModelProto) -> DoubleStep:
        """Return the step of the program recorded as ``proto``, as it is and in double."""


class DoubleStep(Protocol):
    """A step of a program, as it is and in double precision; results by name."""

    def reference(self) -> Mapping[str, np.ndarray]:
        """Return the results in double; :class:`~bricks.errors.BackendError` if impossible."""

    def run(self) -> Mapping[str, np.ndarray]:
        """Return the results of a step as it is, from the initial state of the program."""

    def gradients(self) -> Sequence[Mapping[str, Any]]:
        """Differentiate in double along one random direction of each tensor, last layer first.

        ``of`` names the tensor, ``analytic`` is the result of automatic differentiation,
        ``numeric`` the central difference. Raises :class:`~bricks.errors.BackendError` without
        derivatives.
        """


@dataclass(frozen=True, slots=True)
class TrainedEpoch:
    """One measured epoch of a training; times are in seconds.

    ``losses``, ``step_s`` and ``loading_s`` have an entry for each step: its loss, its time, and
    the time of loading its batch and copying it to inputs and targets. ``begin_s`` is the time of
    starting and ending the iteration over the data. ``accuracy`` of the module after the epoch is
    from 0 to 1, and ``evaluation_s`` the time of computing it.
    """

    losses: tuple[float, ...]
    step_s: tuple[float, ...]
    loading_s: tuple[float, ...]
    begin_s: float
    accuracy: float
    evaluation_s: float

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> TrainedEpoch:
        """Invert ``dataclasses.asdict`` after JSON, which has lists in place of tuples."""
        lists = {name: tuple(facts[name]) for name in ("losses", "step_s", "loading_s")}
        return cls(**{**facts, **lists})


@dataclass(frozen=True, slots=True)
class LoadingTimes:
    """Seconds of loading without training: ``begin_s`` of each epoch, ``batch_s`` of each batch.

    See :class:`TrainedEpoch`. ``processes`` is the number of processes that load for the one that
    trains.
    """

    begin_s: tuple[float, ...]
    batch_s: tuple[float, ...]
    processes: int = 0


class Training(Protocol):
    """A training of a program from one seed, epoch by epoch."""

    identity: str  # a digest of the code, the optimiser's options and the initial parameters

    @property
    def history(self) -> Sequence[TrainedEpoch]:
        """The epochs so far."""

    def epoch(self, on_step: Callable[[int], None]) -> TrainedEpoch:
        """Train for one epoch and evaluate; ``on_step`` is called with each step's number."""

    def save(self, path: Path) -> None:
        """Write a checkpoint with the history, atomically."""

    def load(self, path: Path) -> None:
        """Restore a checkpoint of :meth:`save`."""

    def time_loading(self, batches: int, read_bytes: int) -> LoadingTimes:
        """Load at least ``batches`` batches, in whole epochs, without training.

        ``read_bytes`` of memory are read before each, so that caches are as cold as after a step.
        """

    def time_evaluation(self, repeats: int, read_bytes: int) -> Sequence[float]:
        """Compute the accuracy ``repeats`` times; seconds of each, after reading memory."""


class Trainer(Capability):
    """An optional interface of a backend: trainings of programs, and checks of them.

    Each call makes a new program.
    """

    lacking: ClassVar[str] = "this runtime trains no programs: choose --runtime torch"

    @abstractmethod
    def training(self, program: SeededProgram) -> Training:
        """Return a training; :class:`~bricks.errors.BackendError` for untrainable programs."""

    @abstractmethod
    def gradients(self, program: SeededProgram) -> GradientDeviations:
        """Compare gradients of the loss with finite differences."""

    @abstractmethod
    def trajectories(self, program: SeededProgram, steps: int) -> OptimizerTrajectories:
        """Trace the optimiser on functions with known gradients for ``steps`` steps."""

    @abstractmethod
    def item_orders(self, program: SeededProgram, epochs: int) -> ItemOrders:
        """Return the items of each of ``epochs`` epochs in their order."""


class DecoderWriter(Capability):
    """An optional interface of an offer: it writes decoders as the calls that it would make."""

    lacking: ClassVar[str] = "{name} does not know the calls of a decoder on an accelerator"

    @abstractmethod
    def decoder_step(
        self, name: str, of: Architecture, *, batch: int, tokens: int, past: int, cards: int = 1
    ) -> onnx.ModelProto:
        """Return the program of a step of ``batch`` texts with new ``tokens`` after ``past``.

        Weights and values have 16 bits. If several ``cards`` divide the decoder, the program is
        that of one of them. Does not import the runtime. Raises
        :class:`~bricks.errors.ModelError` for an architecture whose calls are not known, and for
        cards that cannot divide it.
        """


@dataclass(frozen=True, slots=True)
class TranslatedProgram:
    """A program with the calls of another provider; ``notes`` say what was assumed, in lines.

    ``untranslated`` are calls that the provider does not make, in words: no rule has theirs.
    """

    proto: onnx.ModelProto
    notes: tuple[str, ...] = ()
    untranslated: tuple[str, ...] = ()


class ProgramTranslator(Capability):
    """An optional interface of an offer: it knows the calls of programs on other providers."""

    lacking: ClassVar[str] = "{name} does not know the calls of a program on an accelerator"

    @abstractmethod
    def calls_on(self, provider: str, proto: onnx.ModelProto) -> TranslatedProgram:
        """Return the recorded program ``proto`` with the calls that it makes on ``provider``.

        Does not import the runtime. Raises :class:`~bricks.errors.BackendError` for a provider
        whose calls are not known.
        """
