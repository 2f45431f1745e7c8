"""The interface that a runtime implements to be measured, used inside the worker process.

A backend loads models and bricks and times single runs. No object of the runtime leaves its
backend. What only some backends can do is a :class:`Capability`, a class that callers ask for by
type. Must not know the store, plans, or the number of samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from bricks.errors import BackendError

if TYPE_CHECKING:
    from typing import Self  # workers run on Python 3.10, which has none

    import numpy as np
    import onnx

    from bricks.backends.input_values import Turns
    from bricks.graph.decoder import Decoder
    from bricks.graph.types import ValueType
    from bricks.units.sample import Sample


class Capability(ABC):
    """An optional interface of a backend.

    ``lacking`` is the error text of a runtime without it; ``{name}`` stands for the runtime.
    """

    lacking: ClassVar[str]


C = TypeVar("C", bound=Capability)


def capability(backend: object, kind: type[C], name: str) -> C:
    """Return the ``backend`` of the runtime ``name`` as a ``kind``.

    Raises :class:`BackendError` if it lacks the capability.
    """
    if not isinstance(backend, kind):
        raise BackendError(kind.lacking.format(name=name))
    return backend


@dataclass(frozen=True, slots=True)
class ExecutedGraph:
    """The graph that a runtime executes for a model, after its own optimisation.

    ``proto`` holds no weights; ``types`` are the types of all values; ``observed`` names the values
    whose types depend on data and were observed in a run. ``in_place`` maps a value to the value
    whose memory the runtime reuses for it. ``groups`` are positions of nodes that the runtime
    executes as one, in a valid execution order, where ONNX cannot represent its fused nodes; None:
    each node is separate. ``layouts`` are the runtime's names of layouts other than ONNX's, in
    which an isolated brick has these inputs and outputs. ``other_kernels`` are, by its first node,
    the kernels of a group for which an isolated run has different ones: it is no measurable brick.
    ``notes`` are sentences about the graph for its user. ``rewritten_bytes`` is the size of weights
    that the runtime rewrites while loading, before they get their final form; None: unknown.
    ``rule`` is the version of the backend's rule for grouping (see ``Offer.revised``).
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
    rule: int = 0


@dataclass(frozen=True, slots=True)
class Binding:
    """Memory locations of the inputs and outputs of a loaded model while it runs.

    One entry per graph input (output), in order: an offset in bytes into the shared activation
    region, or None for a buffer of its own. For calls that allocate their results it is a tensor
    handle, see :class:`~bricks.backends.programs.Recorder`.
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
        """Run once; return the times."""


class RotatingInputs(ABC):
    """An optional interface of a bound model: its synthetic inputs can change from run to run."""

    @abstractmethod
    def rotation(self, turns: Turns) -> Callable[[], None] | None:
        """Return a function that writes the next set of ``turns`` to these inputs.

        It writes to inputs with buffers of their own alone, and takes as long as copying the
        values. None if there is nothing to write.
        """


class FusedRun(Protocol):
    """Steps of a walk that run in one call of the runtime, like the nodes of a model."""

    def sample(self) -> Sequence[Sample]:
        """Run all steps once, in order; return the times of each, as if it were a call."""


class FusedRunner(ABC):
    """An optional interface of a backend: fused runs of steps of a walk.

    For runtimes whose kernels depend on the work between them, and which report their times.
    """

    @abstractmethod
    def fused(self, bound: Sequence[BoundModel]) -> FusedRun | None:
        """Fuse ``bound`` to one call; None for steps that the runtime does not fuse.

        Raises :class:`BackendError` or :class:`MemoryError` if they cannot run together.
        """


class BindableModel(Protocol):
    """A loaded model or brick, which may be bound several times."""

    def bind(self, binding: Binding, region: np.ndarray) -> BoundModel:
        """Bind inputs and outputs; offsets of ``binding`` are into ``region`` (bytes)."""


class OwnMemory:
    """A loaded model with memory of its own: binding changes nothing."""

    def bind(self, binding: Binding, region: object) -> Self:
        """Return the model itself."""
        return self


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One execution of a node on ``thread``; times are seconds from the beginning of the run.

    ``name`` is the name in the :class:`ExecutedGraph`; empty if the runtime renames the node in
    each session. ``inner`` marks nodes that ran inside another node.
    """

    name: str
    operator: str
    begin_s: float
    end_s: float
    thread: int
    inner: bool = False


class ProfiledModel(Protocol):
    """A whole model under the runtime's own profiler of nodes."""

    def sample(self) -> float:
        """Run once; return the latency in seconds."""

    def runs(self) -> Sequence[Sequence[NodeEvent]]:
        """End the profile; return the nodes of each run, per thread in order of their ends."""


class Profiler(Capability):
    """An optional interface of a backend: profiles from the runtime's own profiler."""

    lacking: ClassVar[str] = "{name} has no profile of its own that could be shown"

    @abstractmethod
    def profiled(
        self, proto: onnx.ModelProto, *, key: str, streams: Sequence[int] = ()
    ) -> ProfiledModel:
        """Load ``proto`` as by :meth:`Backend.load`, optimised, with buffers of its own."""


class ValueObserver(ABC):
    """An optional interface of a backend: values that operators read in a run of a model.

    Without it, operators whose time depends on values (see ``operators.dependence``) read random
    ones.
    """

    @abstractmethod
    def branching_on(self, operator: str) -> Collection[str]:
        """Return the facts of ``graph.sketch`` on which the time of ``operator`` depends.

        Only facts of its first input that no other runtime depends on; most operators have none.
        """

    @abstractmethod
    def observe(
        self,
        proto: onnx.ModelProto,
        names: Sequence[str],
        *,
        key: str,
        turning: Collection[str] = (),
        turns: Iterable[int] = (0,),
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield the tensors ``names`` of a run for each of ``turns``, as asked for.

        Runs have the data of :meth:`Backend.load`; the inputs ``turning`` have those of the turn.
        """


class WeightObserver(ABC):
    """An optional interface of a backend: the weights after its optimisation.

    Without it, no brick has weights that are folded into denormals.
    """

    @abstractmethod
    def executed_weights(self, proto: onnx.ModelProto, *, key: str) -> Mapping[str, np.ndarray]:
        """Return the weights of the executed graph by name, as :meth:`Backend.load` fills them."""


class StandaloneModel(Protocol):
    """A whole model in files of its own, as users of the runtime have it, before loading."""

    def load(self) -> None:
        """Load the model as users do by default, in a session that shares nothing."""

    def run(self) -> None:
        """Run once on synthetic inputs, which exist from the first run on; drop the outputs."""


class StandaloneLoader(Capability):
    """An optional interface of a backend: isolated whole models, to measure their memory."""

    lacking: ClassVar[str] = "{name} loads no model by itself: its memory is not measured"

    @abstractmethod
    def standalone(
        self, proto: onnx.ModelProto, *, key: str, folder: Path, inline: bool = False
    ) -> StandaloneModel:
        """Write ``proto`` and synthetic weights to ``folder``.

        The weights are in a second file, or with ``inline`` in that of the model.
        """


class SizeLoader(Capability):
    """An optional interface of a backend: one session that takes inputs of several sizes."""

    lacking: ClassVar[str] = "{name} has no session that takes several sizes"

    @abstractmethod
    def load_sizes(
        self, opened: onnx.ModelProto, sizes: Sequence[onnx.ModelProto], *, key: str
    ) -> Sequence[BoundModel]:
        """Load ``opened``, a model with open dimensions, once, as users do by default.

        Return it bound to synthetic inputs of each of ``sizes``, the same model with closed ones.
        """


class LoadedDecoder(Protocol):
    """A decoder that is loaded for any number of tokens."""

    def generate(
        self, batch: int, prompt_tokens: int, new_tokens: int
    ) -> tuple[Sequence[float], Sequence[float]]:
        """Generate greedily after a random prompt.

        Return the seconds of each step of the model, and the seconds before each, which choose
        tokens and bind the inputs and outputs of the step.
        """


class TextGenerator(Capability):
    """An optional interface of a backend: decoders that generate text."""

    lacking: ClassVar[str] = "{name} cannot be made to generate text: leave out --check"

    @abstractmethod
    def load_decoder(self, proto: onnx.ModelProto, decoder: Decoder) -> LoadedDecoder:
        """Load a decoder, of which ``proto`` is a step, with synthetic weights."""


class Backend(ABC):
    """A runtime with a fixed number of threads, in this process.

    ``loaders`` is the number of threads that may call :meth:`load` at the same time. A backend that
    is not ``timed`` computes latencies by formula, without noise.
    """

    loaders: ClassVar[int]
    timed: ClassVar[bool] = True

    @abstractmethod
    def sign_sensitive(self, operator: str) -> bool:
        """Whether an operator takes longer if the signs of its input are unpredictable."""

    @abstractmethod
    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """Return the graph that the runtime executes for ``proto`` (a model without weights)."""

    @abstractmethod
    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """Return the types of all values, and the values whose type a run has shown."""

    @abstractmethod
    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """Return the flattened contents of the values ``names`` in a run of ``proto``."""

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

        ``optimize`` selects all graph optimisations of the runtime or none; runtimes without this
        choice ignore it. Inputs take their values from the metadata of ``proto``
        (:mod:`bricks.graph.model_metadata`); all others are synthetic.

        ``streams`` holds a number for each node of the graph that is executed for ``proto``. Nodes
        with different numbers run in parallel, those with the same number in order.
        """


class Evaluator(Backend, Capability):
    """A backend that returns the results of a graph."""

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
        """Compute the outputs of ``proto`` with these weights and inputs, in their order.

        Tensors are arrays; sequences are lists, maps are dicts, an absent optional is None.
        """

    @abstractmethod
    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[ExecutedGraph, Mapping[str, np.ndarray]]:
        """As :meth:`Backend.executed`, with the weights of the executed graph: fused, reordered."""
