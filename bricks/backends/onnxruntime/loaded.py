"""Loaded sessions: with inputs bound before they run, profiled, standalone, or generating text.

A profiled session records when it runs each node (``SessionOptions.enable_profiling``). The runtime
records whole microseconds. It records a node when the node ends, after the nodes of its body, and a
run after all of its nodes. Recording takes a microsecond or two per node.

A standalone one is a whole model in files of its own, loaded and run as users do: for its memory,
not its latency. Timed sessions share an arena and get their weights as OrtValues, so that the
memory of a single one says little. Here a model is a file with its weights, and its session has the
runtime's default settings.

A generating one is a greedy loop: a decoder generates token by token, with all its inputs and
outputs bound. Keys and values lie in two blocks of memory, which a step reads and writes in turn,
so that nothing is copied between two steps. All memory is kept from one text to the next, as a
server keeps it: the system hands out new memory page by page, when it is written to.

Must not know bricks, nor how sessions are created or memory is measured.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from bricks.backends.base import Binding, NodeEvent, RotatingInputs
from bricks.backends.input_values import Own, Rotation, Turns
from bricks.backends.onnxruntime.sessions import at, default_options, static_type
from bricks.backends.onnxruntime.synthetic_data import Inputs
from bricks.backends.onnxruntime.values import DTYPES, PROVIDERS, to_value, translated
from bricks.errors import BackendError
from bricks.graph.decoder import IDS, MASK, POSITIONS, Decoder
from bricks.graph.payload import WeightReference, is_referenced, set_reference, store_inline
from bricks.graph.synthesis import numpy_dtype
from bricks.graph.types import ELEMENT_BITS, TensorType, ValueType
from bricks.units.sample import Sample

# The runtime's message about an output that is bound to memory of another shape.
_MISINFERRED = "but the computed output shape"

_NODE, _RUN, _SUFFIX = "Node", "model_run", "_kernel_time"

# Nodes that the runtime adds where layouts change; their numbered names differ in each session.
_ADDED = frozenset(("ReorderInput", "ReorderOutput"))

_MODEL, _WEIGHTS = "model.onnx", "model.onnx.data"

# As onnx.save_model does: smaller weights stay in the model's file, others begin with a page.
_MIN_BYTES, _PAGE_BYTES = 1024, 4096


class LoadedSession:
    """A session that can be bound several times; it keeps the memory of its weights alive."""

    def __init__(
        self, session: ort.InferenceSession, weights: Mapping[str, np.ndarray], inputs: Inputs
    ) -> None:
        self.session = session
        self._weights, self._inputs = weights, inputs
        self._rotation = Rotation()
        self._own: dict[str, Any] = {}  # created on demand: most bindings need none

    def bind(self, binding: Binding, region: np.ndarray) -> BoundSession:
        """Bind every input and output before the runs, so that a run allocates nothing."""
        io_binding = self.session.io_binding()
        keep: list[object] = [self.session, io_binding, self._weights]
        own: dict[str, Any] = {}
        for (name, (make, type_)), offset in zip(self._inputs.items(), binding.inputs, strict=True):
            if offset is not None:
                assert isinstance(type_, TensorType)  # only tensors are bound in the region
                buffer = at(region, offset, type_)
            else:
                if name not in self._own:
                    self._own[name] = make()
                buffer = self._own[name]
                own[name] = buffer, make
            value = to_value(buffer, type_)
            keep += (buffer, value)
            io_binding.bind_ortvalue_input(name, value)
        unbound = []
        for output, offset in zip(self.session.get_outputs(), binding.outputs, strict=True):
            output_type = static_type(output)
            if output_type is None or ELEMENT_BITS[output_type.dtype] < 8:
                unbound.append(output.name)  # the runtime allocates data-dependent outputs
                continue
            memory = np.zeros(output_type.size_bytes, np.uint8) if offset is None else region
            buffer = at(memory, offset or 0, output_type)
            value = to_value(buffer, output_type)
            keep += (buffer, value)
            io_binding.bind_ortvalue_output(output.name, value)
        return BoundSession(self.session, io_binding, unbound, self._rotation, own, keep)


class BoundSession(RotatingInputs):
    """A session bound to its memory, except outputs ``unbound`` until their shapes are known.

    Inputs in ``own`` have buffers of their own, in which values of ``rotation`` take turns.
    ``keep`` is kept alive.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        binding: ort.IOBinding,
        unbound: Sequence[str],
        rotation: Rotation,
        own: Own,
        keep: list[object],
    ) -> None:
        # The public wrapper adds Python calls to each run: microseconds that would count towards
        # the latency of a small brick.
        self._run = session._sess.run_with_iobinding
        self._binding = binding._iobinding
        self._bind_output = binding.bind_output
        self._unbound = unbound
        self._outputs = [output.name for output in session.get_outputs()]
        self._rotation, self._own, self._keep = rotation, own, keep

    def rotation(self, turns: Turns) -> Callable[[], None] | None:
        """What copies the next values to the buffers of these inputs."""
        return self._rotation.of(self._own, turns)

    def sample(self) -> Sample:
        """Run once, and return the latency."""
        for name in self._unbound:  # the last run's buffer may have another shape
            self._bind_output(name)
        run, binding, clock = self._run, self._binding, time.perf_counter_ns
        try:
            start = clock()
            run(binding, None)
            return Sample((clock() - start) * 1e-9)
        except Exception as exc:  # translated here: a context manager would add to the latency
            if _MISINFERRED in str(exc) and len(self._unbound) < len(self._outputs):
                # The runtime makes a shape that it did not infer: it allocates from now on.
                self._binding.clear_binding_outputs()
                self._unbound = self._outputs
                return self.sample()
            with translated("running it"):
                raise


def profiling(options: ort.SessionOptions, folder: str) -> ort.SessionOptions:
    """``options`` for a session that writes its profile into ``folder``."""
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(folder) / "profile")
    return options


class ProfiledSession:
    """A session created with :func:`profiling`; every value has memory of its own.

    If its nodes were renamed to their positions, ``names`` are their original names.
    ``folder`` is removed at the end.
    """

    def __init__(
        self,
        loaded: LoadedSession,
        folder: tempfile.TemporaryDirectory[str],
        names: Sequence[str] = (),
    ) -> None:
        self._session, self._folder, self._names = loaded.session, folder, names
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        separate = Binding.separate(len(inputs), len(outputs))
        self._bound = loaded.bind(separate, np.zeros(0, np.uint8))

    def sample(self) -> float:
        """Run once; the latency in seconds."""
        return self._bound.sample().host_s

    def runs(self) -> list[list[NodeEvent]]:
        """The nodes of each run so far; ends the profile."""
        with translated("ending its profile"):
            file = Path(self._session.end_profiling())
        try:
            entries = json.loads(file.read_bytes())
            return [[*self._events(run, nodes)] for run, nodes in _by_run(entries)]
        except (OSError, ValueError, LookupError, TypeError) as exc:
            raise BackendError(
                f"the runtime's profile cannot be read ({type(exc).__name__}): there is none"
            ) from exc
        finally:
            self._folder.cleanup()

    def _events(
        self, run: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]
    ) -> Iterator[NodeEvent]:
        for entry, inner in zip(nodes, _inner(nodes), strict=True):
            name, operator = str(entry["name"]).removesuffix(_SUFFIX), str(entry["args"]["op_name"])
            if self._names and not inner:
                name = self._names[int(name)]
            begin_us = entry["ts"] - run["ts"]
            yield NodeEvent(
                name="" if operator in _ADDED else name,
                operator=operator,
                begin_s=begin_us * 1e-6,
                end_s=(begin_us + entry["dur"]) * 1e-6,
                thread=int(entry["tid"]),
                inner=inner,
            )


def _by_run(
    entries: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    nodes: list[Mapping[str, Any]] = []
    for entry in entries:
        if entry.get("cat") == _NODE and str(entry["name"]).endswith(_SUFFIX):
            nodes.append(entry)
        elif entry.get("name") == _RUN:
            yield entry, nodes
            nodes = []


def _inner(nodes: Sequence[Mapping[str, Any]]) -> list[bool]:
    """For each node, whether it ran inside another node on the same thread.

    In reverse order, an outer node precedes its inner ones. A node that ended before the outer one
    began is outside of it.
    """
    outer_us: dict[int, int] = {}  # start of the latest outermost node, by thread
    are_inner = []
    for entry in reversed(nodes):
        thread, end_us = entry["tid"], entry["ts"] + entry["dur"]
        inner = thread in outer_us and end_us > outer_us[thread]
        if not inner:
            outer_us[thread] = entry["ts"]
        are_inner.append(inner)
    return are_inner[::-1]


def write_standalone(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray], folder: Path, *, inline: bool
) -> Path:
    """Write a model and its weights to ``folder``; return the path of the model's file.

    With ``inline``, the weights are in that file too.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    with (folder / _WEIGHTS).open("wb") as file:
        for tensor in copy.graph.initializer:
            if not is_referenced(tensor):
                continue
            values = weights[tensor.name]
            if inline or values.nbytes < _MIN_BYTES:
                store_inline(tensor, values)
                continue
            file.seek(-(-file.tell() // _PAGE_BYTES) * _PAGE_BYTES)
            set_reference(tensor, WeightReference(_WEIGHTS, file.tell(), values.nbytes))
            file.write(np.ascontiguousarray(values).data)
    path = folder / _MODEL
    path.write_bytes(copy.SerializeToString())
    return path


class StandaloneSession:
    """A session for the model in the file ``path``, optimised at ``level``, and its inputs."""

    def __init__(self, path: Path, inputs: Inputs, level: str) -> None:
        self._path, self._inputs, self._level = path, inputs, level
        self._session: ort.InferenceSession | None = None
        self._values: dict[str, ort.OrtValue] = {}

    def load(self) -> None:
        """Create its session."""
        with translated("creating a session"):
            self._session = ort.InferenceSession(
                str(self._path), default_options(self._level), providers=PROVIDERS
            )

    def run(self) -> None:
        """Run it once; the runtime allocates the outputs."""
        session = self._session
        assert session is not None, "load it first"
        if not self._values:
            self._values = {n: to_value(make(), type_) for n, (make, type_) in self._inputs.items()}
        binding = session.io_binding()
        for name, value in self._values.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name)
        with translated("running it"):
            session.run_with_iobinding(binding)


class GeneratingSession:
    """A session of a decoder; ``types`` are those of one step's inputs and outputs."""

    def __init__(
        self,
        session: ort.InferenceSession,
        decoder: Decoder,
        types: Mapping[str, ValueType],
        weights: Mapping[str, np.ndarray],
    ) -> None:
        self._session, self._decoder = session, decoder
        self._types = {name: t for name, t in types.items() if isinstance(t, TensorType)}
        self._weights = weights  # the session may refer to them
        (logits,) = (out for out in session.get_outputs() if out.name == decoder.logits)
        self._logits_dtype, self._vocabulary = DTYPES[logits.type], logits.shape[-1]
        if not isinstance(self._vocabulary, int):
            raise BackendError(f"{decoder.name}: how many tokens there are is left open")
        self._memory: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(0)

    def generate(
        self, batch: int, prompt_tokens: int, new_tokens: int
    ) -> tuple[list[float], list[float]]:
        """See :class:`~bricks.backends.base.LoadedDecoder`."""
        decoder, clock = self._decoder, time.perf_counter
        shapes = decoder.shapes(batch, 1, prompt_tokens + new_tokens)
        blocks = [
            {
                name: self._reserved(f"{name} {half}", self._typed(name, shapes[name]))
                for name, _ in decoder.cache
            }
            for half in range(2)
        ]
        cached = self._values_in(blocks[1], decoder.shapes(batch, prompt_tokens, 0))
        ids = self._random.integers(0, self._vocabulary, (batch, prompt_tokens))
        runs_s: list[float] = []
        between_s: list[float] = []
        past, tokens = 0, prompt_tokens
        ended = clock()
        for step in range(new_tokens):
            binding = self._session.io_binding()
            values = {IDS: ids, **decoder.values(batch, tokens, past)}
            for name in (IDS, MASK, POSITIONS):
                if name in decoder.dims:
                    type_ = self._typed(name, values[name].shape)
                    array = np.ascontiguousarray(values[name], numpy_dtype(type_.dtype))
                    binding.bind_ortvalue_input(name, to_value(array, type_))
            grown = self._values_in(blocks[step % 2], decoder.shapes(batch, 1, past + tokens))
            for before, after in decoder.cache:
                binding.bind_ortvalue_input(before, cached[before])
                binding.bind_ortvalue_output(after, grown[before])
            logit_tokens = 1 if decoder.last_only else tokens
            type_ = TensorType(self._logits_dtype, (batch, logit_tokens, self._vocabulary))
            logits = at(self._reserved(decoder.logits, type_), 0, type_)
            binding.bind_ortvalue_output(decoder.logits, to_value(logits, type_))
            began = clock()
            with translated("generating text"):
                self._session.run_with_iobinding(binding)
            between_s.append(began - ended)
            ended = clock()
            runs_s.append(ended - began)
            ids = logits[:, -1:].argmax(axis=-1)
            past, tokens, cached = past + tokens, 1, grown
        return runs_s, between_s

    def _reserved(self, name: str, type_: TensorType) -> np.ndarray:
        if len(self._memory.get(name, ())) < type_.size_bytes:
            self._memory[name] = np.zeros(type_.size_bytes, np.uint8)
        return self._memory[name]

    def _typed(self, name: str, shape: tuple[int, ...]) -> TensorType:
        return TensorType(self._types[name].dtype, shape)

    def _values_in(
        self, block: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, ort.OrtValue]:
        """By name, values of these shapes at the beginning of each part of a block."""
        types = {name: self._typed(name, shapes[name]) for name in block}
        return {n: to_value(at(memory, 0, types[n]), types[n]) for n, memory in block.items()}
