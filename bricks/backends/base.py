"""The interface that a runtime must implement to be measured, used inside the worker process.

A backend loads models and bricks and times single runs of them. No object of the runtime leaves its
backend. It must not know the store, plans, or how many samples are taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import onnx

from bricks.backends.capability import Capability
from bricks.graph.containers import ValueType
from bricks.graph.decoder import Decoder
from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class ExecutedGraph:
    """The graph that a runtime executes for a model, after its own optimisation.

    ``proto`` holds no weights; ``types`` has every value's type; ``observed`` names the values
    whose types depend on data and were observed in a run. ``in_place`` maps a value to the value
    whose memory the runtime reuses for it. ``groups`` are the nodes, by position, that the runtime
    executes as one, in a valid execution order: for runtimes whose fused nodes ONNX cannot
    represent. None: each node by itself. ``layouts`` are the runtime's names of the layouts of
    values that are not in ONNX's; such a brick alone gets its inputs, and leaves its outputs, in
    these. ``other_kernels`` are, by its first node, the kernels of a group that the runtime would
    run as others alone: it is no measurable brick. ``notes`` are sentences about the graph for its
    user. ``rewritten_bytes`` are those of the weights that the runtime rewrites while it loads the
    model, before they get their final form; None: unknown.
    """

    proto: onnx.ModelProto
    types: Mapping[str, ValueType]
    in_place: Mapping[str, str]
    observed: Sequence[str] = ()
    groups: Sequence[tuple[int, ...]] | None = None
    layouts: Mapping[str, str] = field(default_factory=dict)
    other_kernels: Mapping[int, Sequence[str]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    rewritten_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """Memory locations of the inputs and outputs of a loaded model while it runs.

    One entry per graph input (output), in order: an offset in bytes into the shared activation
    region, or None for a buffer of its own. Where calls allocate their results themselves, it is
    the number of a slot that holds the tensor, see :class:`~bricks.backends.programs.Recorder`.
    """

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]

    @classmethod
    def separate(cls, inputs: int, outputs: int) -> Binding:
        """So many inputs and outputs, each with a buffer of its own."""
        return cls((None,) * inputs, (None,) * outputs)


class BoundModel(Protocol):
    """A loaded model or brick with its inputs and outputs bound: ready to run."""

    def sample(self) -> Sample:
        """Run once; what it took."""
        ...


class RedrawableInputs(ABC):
    """An optional interface of what is bound: its synthetic inputs can be drawn anew."""

    @abstractmethod
    def redraw(self) -> None:
        """Write other numbers into the float32 inputs that have buffers of their own."""


class FusedRun(Protocol):
    """Steps of a walk that run in one call of the runtime, as the nodes of a model do."""

    def sample(self) -> Sequence[Sample]:
        """Run all once, in order; what each took, as if each were a call."""
        ...


class FusedRunner(ABC):
    """An optional interface of a backend: steps of a walk in one call.

    For runtimes whose kernels depend on what runs between them, and which tell what each takes.
    """

    @abstractmethod
    def fused(self, bound: Sequence[BoundModel]) -> FusedRun | None:
        """What runs ``bound`` in one call; None where it joins no steps like these.

        Raises :class:`BackendError` or :class:`MemoryError` where these cannot run together.
        """


class BindableModel(Protocol):
    """A model or brick that a backend has loaded. It may be bound more than once."""

    def bind(self, binding: Binding, region: np.ndarray) -> BoundModel:
        """Bind inputs and outputs, into ``region`` (bytes) where the binding says so."""
        ...


class OwnMemory:
    """A loaded model with memory of its own: binding changes nothing."""

    def bind(self, binding: Binding, region: object) -> Self:
        """Return the model itself."""
        return self


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One execution of a node on ``thread``; times are seconds from the beginning of the run.

    ``name`` is the node's name in the :class:`ExecutedGraph`; empty if the runtime renames the node
    in each session. ``inner`` marks nodes that ran inside another node.
    """

    name: str
    operator: str
    begin_s: float
    end_s: float
    thread: int
    inner: bool = False


class ProfiledModel(Protocol):
    """A whole model whose runs the runtime's own profiler records, node by node."""

    def sample(self) -> float:
        """Run once; the latency in seconds."""
        ...

    def runs(self) -> Sequence[Sequence[NodeEvent]]:
        """The nodes of each run so far, per thread in order of their ends. Ends the profile."""
        ...


class Profiler(Capability):
    """An optional interface of a backend: profiles from the runtime's own profiler."""

    lacking: ClassVar[str] = "{name} has no profile of its own that could be shown"

    @abstractmethod
    def profiled(
        self, proto: onnx.ModelProto, *, key: str, streams: Sequence[int] = ()
    ) -> ProfiledModel:
        """``proto`` loaded as by :meth:`Backend.load`, optimised, with buffers of its own."""


class ValueObserver(ABC):
    """An optional interface of a backend: what operators read in a run of a model.

    Without it, operators whose time depends on values (see ``operators.dependence``) read random
    ones.
    """

    @abstractmethod
    def branching_on(self, operator: str) -> Collection[str]:
        """What the time of ``operator`` depends on in its first input in this runtime alone.

        These are traits of ``graph.sketch``; most operators have none.
        """

    @abstractmethod
    def observe(
        self, proto: onnx.ModelProto, names: Sequence[str], *, key: str
    ) -> Mapping[str, np.ndarray]:
        """Tensors called ``names`` in a run, with weights and inputs as in :meth:`Backend.load`."""


class WeightObserver(ABC):
    """An optional interface of a backend: what its optimisation makes of weights.

    Without it, no brick has weights that are folded into denormals.
    """

    @abstractmethod
    def executed_weights(self, proto: onnx.ModelProto, *, key: str) -> Mapping[str, np.ndarray]:
        """The weights of the executed graph by name, as :meth:`Backend.load` gives them."""


class StandaloneModel(Protocol):
    """A whole model in files of its own, as users of the runtime have it; not loaded yet."""

    def load(self) -> None:
        """Load it as users do by default: in a session that shares nothing with others."""
        ...

    def run(self) -> None:
        """Run it once on synthetic inputs, which exist from the first run on; drop the outputs."""
        ...


class StandaloneLoader(Capability):
    """An optional interface of a backend: whole models apart from everything, for their memory."""

    lacking: ClassVar[str] = "{name} loads no model by itself: its memory is not measured"

    @abstractmethod
    def standalone(
        self, proto: onnx.ModelProto, *, key: str, folder: Path, inline: bool = False
    ) -> StandaloneModel:
        """``proto`` and synthetic weights for it, written to ``folder``.

        The weights are in a file beside the model, or with ``inline`` in the model's own file.
        """


class LoadedDecoder(Protocol):
    """A decoder that is loaded for any number of tokens."""

    def generate(
        self, batch: int, prompt_tokens: int, new_tokens: int
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Generate greedily after a random prompt: the seconds of each of the model's steps.

        And those of what is before each: choosing tokens, and binding what the step reads and
        writes.
        """
        ...


class TextGenerator(Capability):
    """An optional interface of a backend: decoders that really generate text."""

    lacking: ClassVar[str] = "{name} cannot be made to generate text: leave out --check"

    @abstractmethod
    def load_decoder(self, proto: onnx.ModelProto, decoder: Decoder) -> LoadedDecoder:
        """A decoder, of which ``proto`` is a step, with synthetic weights."""


class Backend(ABC):
    """A runtime with a fixed number of threads, in this process.

    ``loaders`` is the number of threads that may call :meth:`load` at the same time. Latencies that
    are not ``timed`` are made up, so nothing on the host disturbs them.
    """

    loaders: ClassVar[int]
    timed: ClassVar[bool] = True

    @abstractmethod
    def sign_sensitive(self, operator: str) -> bool:
        """Whether an operator takes longer when the signs of its input are unpredictable."""

    @abstractmethod
    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """The graph that the runtime executes for ``proto`` (a model without weights)."""

    @abstractmethod
    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """Every value's type, and the values whose type was observed by running ``proto``."""

    @abstractmethod
    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """The flattened contents of the values called ``names`` in a run of ``proto``."""

    @abstractmethod
    def load(
        self,
        proto: onnx.ModelProto,
        *,
        key: str,
        optimize: bool,
        streams: Sequence[int] = (),
    ) -> BindableModel:
        """Load ``proto`` with synthetic weights; ``key`` and the seed determine their values.

        ``optimize`` selects all of the runtime's graph optimisations or none; runtimes without that
        choice ignore it. Inputs take their values from the metadata of ``proto``
        (:mod:`bricks.graph.model_metadata`); all others are synthetic.

        ``streams`` holds a number for each node of the graph that is executed for ``proto``. Nodes
        with different numbers run in parallel, those with the same number in order.
        """


class Evaluator(Backend, Capability):
    """A backend that tells what a graph computes."""

    lacking: ClassVar[str] = "the {name} runtime computes nothing: choose --runtime onnxruntime"

    @abstractmethod
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

    @abstractmethod
    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[ExecutedGraph, Mapping[str, np.ndarray]]:
        """As :meth:`Backend.executed`, with weights as that graph needs them: fused, reordered."""
