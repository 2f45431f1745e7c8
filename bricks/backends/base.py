"""The interface that a runtime must implement to be measured, used inside the worker process.

A backend loads models and bricks and times single runs of them. No object of the runtime leaves its
backend. It must not know the store, plans, or how many samples are taken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx

from bricks._version import renamed_fields
from bricks.graph.containers import ValueType
from bricks.graph.decoder import Decoder
from bricks.graph.signs import SignPattern


@renamed_fields(real="timed", frugal="bounded_memory")
@dataclass(frozen=True, slots=True)
class BackendInfo:
    """The facts about a backend that are known without starting it.

    ``timed`` says whether it takes real time, ``parallel`` whether it can run nodes in parallel.
    ``brick_optimization`` is the optimisation that it applies to bricks of any granularity, ``all``
    or ``none``; None if the granularity decides. ``python`` is the interpreter that the worker
    needs. ``bounded_memory`` says whether it holds only the memory that the loaded models need;
    otherwise the memory that a model takes cannot be predicted. ``levels`` are its levels of
    optimisation. ``build`` is the package that it was installed from, if known. ``programs`` says
    whether it runs recorded programs (:mod:`bricks.graph.program`), whose calls allocate their
    results, instead of ONNX models, whose activations share memory that is planned ahead.
    ``cutting_times`` is how many times as long as others it may take to tell the graph that it
    executes: more where it compiles bricks for that.
    """

    name: str
    version: str
    provider: str
    timed: bool
    parallel: bool = False
    brick_optimization: str | None = None
    python: str = sys.executable
    bounded_memory: bool = True
    levels: tuple[str, ...] = ("all",)
    build: str | None = None
    programs: bool = False
    cutting_times: int = 1


@dataclass(frozen=True, slots=True)
class Executed:
    """The graph that a runtime executes for a model, after its own optimisation.

    ``proto`` holds no weights; ``types`` has every value's type; ``observed`` names the values
    whose types depend on data and were observed in a run. ``in_place`` maps a value to the value
    whose memory the runtime reuses for it. ``groups`` are the nodes, by position, that the runtime
    executes as one, in a valid execution order: for runtimes whose fused nodes ONNX cannot
    represent. None: each node by itself. ``layouts`` are the runtime's names of the layouts of
    values that are not in ONNX's; such a brick alone gets its inputs, and leaves its outputs, in
    these. ``notes`` are sentences about the graph for its user.
    ``rewritten_bytes`` are those of the weights that the runtime rewrites while it loads the model,
    before they get their final form; None: unknown.
    """

    proto: onnx.ModelProto
    types: Mapping[str, ValueType]
    in_place: Mapping[str, str]
    observed: Sequence[str] = ()
    groups: Sequence[tuple[int, ...]] | None = None
    layouts: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    rewritten_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Memory locations of the inputs and outputs of a loaded model while it runs.

    One entry per graph input (output), in order: an offset in bytes into the shared activation
    region, or None for a buffer of its own. Where calls allocate their results themselves, it is
    the number of a slot that holds the tensor, see :class:`Recorder`.
    """

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]


class Placed(Protocol):
    """A loaded model or brick with its inputs and outputs bound: ready to run."""

    def sample(self) -> float:
        """Run once; the latency in seconds."""
        ...


class Renewable(Protocol):
    """An optional interface of what is placed: its synthetic inputs can be drawn anew."""

    def renew(self) -> None:
        """Write other numbers into the float32 inputs that have buffers of their own."""
        ...


class Joint(Protocol):
    """Steps of a walk that run in one call of the runtime, as the nodes of a model do."""

    def sample(self) -> Sequence[float]:
        """Run all once, in order; the latency of each in seconds, as if each were a call."""
        ...


class Joiner(Protocol):
    """An optional interface of a backend: steps of a walk in one call.

    For runtimes whose kernels depend on what runs between them, and which tell what each takes.
    """

    def joined(self, placed: Sequence[Placed]) -> Joint | None:
        """What runs ``placed`` in one call; None where it joins no steps like these.

        Raises :class:`BackendError` or :class:`MemoryError` where these cannot run together.
        """
        ...


class Loaded(Protocol):
    """A model or brick that a backend has loaded. It may be placed more than once."""

    def place(self, placement: Placement, region: np.ndarray) -> Placed:
        """Bind inputs and outputs, into ``region`` (bytes) where the placement says so."""
        ...


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One execution of a node on ``thread``; times are seconds from the beginning of the run.

    ``name`` is the node's name in the executed graph (see :class:`Executed`); empty if the runtime
    renames the node in each session. ``inner`` marks nodes that ran inside another node.
    """

    name: str
    operator: str
    begin_s: float
    end_s: float
    thread: int
    inner: bool = False


class Profiled(Protocol):
    """A whole model whose runs the runtime's own profiler records, node by node."""

    def sample(self) -> float:
        """Run once; the latency in seconds."""
        ...

    def runs(self) -> Sequence[Sequence[NodeEvent]]:
        """The nodes of each run so far, per thread in order of their ends. Ends the profile."""
        ...


class Profiler(Protocol):
    """An optional interface of a backend: profiles from the runtime's own profiler."""

    def profiled(
        self, proto: onnx.ModelProto, *, key: str, streams: Sequence[int] = ()
    ) -> Profiled:
        """``proto`` loaded as by :meth:`Backend.load`, optimised, with buffers of its own."""
        ...


class SignObserver(Protocol):
    """An optional interface of a backend: what operators that are sign-sensitive read in a model.

    A backend without it leaves these signs random.
    """

    def signs(
        self, proto: onnx.ModelProto, names: Sequence[str], *, key: str
    ) -> Mapping[str, SignPattern]:
        """The signs of the float32 values called ``names`` in a run with weights as in ``load``."""
        ...


class Recorder(Protocol):
    """The interface of a backend for recorded programs, whose calls allocate their results.

    What one call hands to the next is a tensor in a numbered slot. An input whose slot is empty is
    a synthetic tensor of its own.
    """

    def record(self, entry: str, folder: str, options: Mapping[str, Any]) -> onnx.ModelProto:
        """One step of the program ``entry``, a file in ``folder`` or a module, and its function.

        ``options`` are the function's arguments. The result is a graph of calls without weights.
        """
        ...

    def occupy(self, events: Sequence[tuple[int, int]]) -> None:
        """Fill slots with so many bytes of memory that nobody reads, or empty them where it is 0.

        An event is a slot and its bytes; the slot -1 stands for all of them.
        """
        ...

    def stepped(self, proto: onnx.ModelProto) -> Stepped:
        """A real step of the program that was recorded as ``proto``."""
        ...


class Stepped(Protocol):
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
class Loading:
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

    def time_loading(self, batches: int, read_bytes: int) -> Loading:
        """Take so many ``batches`` at least, in whole epochs, without training.

        Before each, so much memory is read: caches are as cold then as after a step that holds it.
        """
        ...

    def time_evaluation(self, repeats: int, read_bytes: int) -> Sequence[float]:
        """Seconds of computing the accuracy, ``repeats`` times; memory is read before each."""
        ...


class Trainer(Protocol):
    """An optional interface of a backend for recorded programs: it trains them, and checks them.

    Programs are named as in :meth:`Recorder.record`. Each call makes a program anew.
    """

    def training(self, entry: str, folder: str, options: Mapping[str, Any], seed: int) -> Training:
        """The program made with this seed, ready to be trained; raises where it cannot be."""
        ...

    def gradients(
        self, entry: str, folder: str, options: Mapping[str, Any], seed: int
    ) -> Mapping[str, Any]:
        """The gradients of the loss beside finite differences; see ``backends/torch/gradients``."""
        ...

    def trajectories(
        self, entry: str, folder: str, options: Mapping[str, Any], seed: int, steps: int
    ) -> Mapping[str, Any]:
        """What the optimiser does in so many ``steps``; see ``backends/torch/trajectories``."""
        ...

    def item_orders(
        self, entry: str, folder: str, options: Mapping[str, Any], seed: int, epochs: int
    ) -> Mapping[str, Any]:
        """The items of each epoch in the order in which the data yield them.

        ``orders`` has a list of numbers for each epoch: equal numbers are equal items. ``data_set``
        has the numbers of all items that there are, or is None where that cannot be told.
        """
        ...


class Collectives(Protocol):
    """This process as one rank of a group of processes that communicate."""

    def open_store(self, address: str, timeout_s: float) -> int:
        """Serve the place where ranks meet at ``address``; the port that it has."""
        ...

    def join(
        self, rank: int, ranks: int, address: str, port: int, interface: str, timeout_s: float
    ) -> None:
        """Become a rank; with the port 0, as the launcher of this process says."""
        ...

    def leave(self) -> None:
        """Leave the group."""
        ...

    def time(
        self, operation: str, num_bytes: int, passes: int, computing: bool
    ) -> Mapping[str, Any]:
        """Lists with an entry for each pass: ``samples``, and beside computing the units of it."""
        ...


class SynchronisedStep(Protocol):
    """A step of a training in this rank, alone and with the gradients of all ranks."""

    def time(self, passes: int, delay_s: float) -> Mapping[str, Any]:
        """``solo_s`` and ``synchronised_s`` of so many passes, in turn."""
        ...

    def buckets(self) -> Sequence[Mapping[str, Any]]:
        """The buckets of gradients in the order in which they are reduced."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What the runtime says of its buckets."""
        ...


class Communicator(Protocol):
    """An optional interface of a backend: processes that are ranks of one job."""

    def collectives(self) -> Collectives:
        """This process as a rank, which has yet to join the others."""
        ...

    def synchronised_step(
        self,
        entry: str,
        folder: str,
        options: Mapping[str, Any],
        seed: int,
        *,
        bucket_cap_mb: float | None,
        accumulation: int,
    ) -> SynchronisedStep:
        """The program as a data-parallel training of all ranks; it has joined them."""
        ...


class InDouble(Protocol):
    """An optional interface of a recorder: the accuracy of a program's step."""

    def in_double(self, proto: onnx.ModelProto) -> DoubleStep:
        """The step of the program that was recorded as ``proto``, and the same in double."""
        ...


class Standalone(Protocol):
    """A whole model in files of its own, as users of the runtime have it; not loaded yet."""

    def load(self) -> None:
        """Load it as users do by default: in a session that shares nothing with others."""
        ...

    def run(self) -> None:
        """Run it once on synthetic inputs, which exist from the first run on; drop the outputs."""
        ...


class Isolated(Protocol):
    """An optional interface of a backend: whole models apart from everything, for their memory."""

    def standalone(
        self, proto: onnx.ModelProto, *, key: str, folder: Path, inline: bool = False
    ) -> Standalone:
        """``proto`` and synthetic weights for it, written to ``folder``.

        The weights are in a file beside the model, or with ``inline`` in the model's own file.
        """
        ...


class Generating(Protocol):
    """A decoder that is loaded for any number of tokens."""

    def generate(
        self, batch: int, prompt_tokens: int, new_tokens: int
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Generate greedily after a random prompt: the seconds of each of the model's steps.

        And those of what is before each: choosing tokens, and binding what the step reads and
        writes.
        """
        ...


class Generator(Protocol):
    """An optional interface of a backend: decoders that really generate text."""

    def generating(self, proto: onnx.ModelProto, decoder: Decoder) -> Generating:
        """A decoder, of which ``proto`` is a step, with synthetic weights."""
        ...


class Backend(Protocol):
    """A runtime with a fixed number of threads, in this process.

    ``loaders`` is the number of threads that may call :meth:`load` at the same time.
    """

    loaders: int

    def sign_sensitive(self, operator: str) -> bool:
        """Whether an operator takes longer when the signs of its input are unpredictable."""
        ...

    def executed(self, proto: onnx.ModelProto) -> Executed:
        """The graph that the runtime executes for ``proto`` (a model without weights)."""
        ...

    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """Every value's type, and the values whose type was observed by running ``proto``."""
        ...

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """The flattened contents of the values called ``names`` in a run of ``proto``."""
        ...

    def load(
        self,
        proto: onnx.ModelProto,
        *,
        key: str,
        optimize: bool,
        streams: Sequence[int] = (),
    ) -> Loaded:
        """Load ``proto`` with synthetic weights; ``key`` and the seed determine their values.

        ``optimize`` selects all of the runtime's graph optimisations or none; runtimes without that
        choice ignore it. Inputs take their values from the metadata of ``proto``
        (:mod:`bricks.graph.model_metadata`); all others are synthetic.

        ``streams`` holds a number for each node of the graph that is executed for ``proto``. Nodes
        with different numbers run in parallel, those with the same number in order.
        """
        ...

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
        *,
        optimize: bool,
    ) -> Sequence[Any]:
        """The outputs of ``proto`` with these weights and inputs, in the order of its outputs.

        Tensors are arrays; sequences are lists, maps are dicts, an absent optional is None.
        """
        ...

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[Executed, Mapping[str, np.ndarray]]:
        """As :meth:`executed`, with the weights in the form that graph needs (fused, reordered)."""
        ...
