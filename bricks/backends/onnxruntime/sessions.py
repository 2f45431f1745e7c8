"""Create sessions with common options and given weights, and bind them to given memory.

Separate so that every session has the same options. Must not know how weights are chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from bricks.backends.base import Binding, BoundModel, RedrawableInputs
from bricks.backends.branch_prediction import sets_in_turn
from bricks.backends.onnxruntime.values import DTYPES, PROVIDERS, to_value, translated
from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.sketch import Sketch
from bricks.graph.synthesis import numpy_dtype
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.graph.view import without_values
from bricks.units.sample import Sample

ALL, NONE = "all", "none"

# What the runtime says of an output that is bound to memory of another shape.
_MISINFERRED = "but the computed output shape"

# The runtime's levels of graph optimisation, from fusions and blocked layouts to none.
_LEVELS = {
    ALL: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    NONE: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def default_options(level: str) -> ort.SessionOptions:
    """Options as users have them: an arena of its own, which also holds weights.

    Only the threads come from the global pool: once there is one, no session may have its own.
    """
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = 4
    options.graph_optimization_level = _LEVELS[level]
    return options


def session_options(level: str) -> ort.SessionOptions:
    """Options for a session on the global pool and the shared arena, optimising at ``level``."""
    options = default_options(level)
    options.add_session_config_entry("session.use_env_allocators", "1")
    # An arena never returns memory, and loading copies weights twice.
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    return options


def create_session(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray], options: ort.SessionOptions
) -> ort.InferenceSession:
    """A session for ``proto``, whose initializers without values take those in ``weights``.

    Without ``weights``, their values must be where ``proto`` says. Where the runtime refuses the
    model with the shapes that ``proto`` states, it is told fewer of them (see :func:`less_stated`):
    a runtime infers shapes of branches that are never taken too, and finds contradictions there.
    """
    if weights:
        types = without_values(proto)
        names = list(types)
        values = [to_value(weights[name], types[name]) for name in names]
        with translated("taking the weights"):
            options.add_external_initializers(names, values)
    try:
        return _session(proto, options)
    except BackendError:
        for less in less_stated(proto):
            with suppress(BackendError):
                return _session(less, options)
        raise


def _session(proto: onnx.ModelProto, options: ort.SessionOptions) -> ort.InferenceSession:
    with translated("creating a session"):
        return ort.InferenceSession(
            proto.SerializeToString(), options, providers=PROVIDERS, enable_fallback=0
        )


def less_stated(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Copies of ``proto`` that state less: first only the ranks of inputs, then no shape at all.

    Nothing, where ``proto`` states no shape of an input.
    """
    if not any(
        value.type.HasField("tensor_type") and value.type.tensor_type.shape.dim
        for value in proto.graph.input
    ):
        return
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.value_info[:]
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    tensors = [i.type.tensor_type for i in copy.graph.input if i.type.HasField("tensor_type")]
    for tensor in tensors:
        for dim in tensor.shape.dim:
            dim.Clear()
    yield copy
    for tensor in tensors:
        tensor.ClearField("shape")
    yield copy


def unstated(proto: onnx.ModelProto, session: ort.InferenceSession) -> list[str]:
    """The inputs of ``proto`` whose shapes ``session`` was not told, because it refuses them."""
    stated = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in proto.graph.input
        if value.type.HasField("tensor_type")
    }
    return [
        found.name
        for found in session.get_inputs()
        if stated.get(found.name) and list(found.shape) != stated[found.name]
    ]


def at(memory: np.ndarray, offset: int, type_: TensorType) -> np.ndarray:
    """The array of ``type_`` that lies at ``offset`` bytes in ``memory``."""
    flat = memory[offset : offset + type_.size_bytes]
    return flat.view(numpy_dtype(type_.dtype)).reshape(type_.shape)


def static_type(value: ort.NodeArg) -> TensorType | None:
    """The type that the runtime has inferred; None if its size in memory is unknown.

    An empty shape may be a scalar or an unknown rank: the runtime doesn't distinguish them.
    """
    dtype = DTYPES.get(value.type)
    if dtype not in ELEMENT_BITS or not value.shape:
        return None
    if not all(isinstance(d, int) for d in value.shape):
        return None
    return TensorType(dtype, tuple(value.shape))


class LoadedSession:
    """A session that can be bound several times; keeps the memory of its weights alive."""

    def __init__(
        self,
        session: ort.InferenceSession,
        weights: Mapping[str, np.ndarray],
        inputs: Mapping[str, tuple[Callable[[], Any], ValueType]],
        given: Collection[str] = (),
        sketches: Mapping[str, Sketch] | None = None,
    ) -> None:
        """``given`` are the inputs whose values are no matter of chance.

        Those in ``sketches`` are drawn anew from these.
        """
        self.session = session
        self._given = frozenset(given)
        self._sketches = sketches or {}
        self._weights = weights
        self._inputs = inputs
        self._own: dict[str, Any] = {}  # created on demand: most bindings need none

    def bind(self, binding: Binding, region: np.ndarray) -> BoundModel:
        """Bind every input and output before the runs, so that a run allocates nothing."""
        ends = self.session.io_binding()
        keep: list[object] = [self.session, ends, self._weights]
        unsure = []
        drawn: list[tuple[np.ndarray, Sketch | None]] = []
        for (name, (make, type_)), offset in zip(self._inputs.items(), binding.inputs, strict=True):
            if offset is None and name not in self._own:
                self._own[name] = make()
            if offset is None:
                buffer = self._own[name]
                sketch = self._sketches.get(name)
                if name not in self._given and (sketch or type_.dtype == "FLOAT"):
                    drawn.append((buffer, sketch))
            else:
                assert isinstance(type_, TensorType)  # only tensors are bound in the region
                buffer = at(region, offset, type_)
            value = to_value(buffer, type_)
            keep += (buffer, value)
            ends.bind_ortvalue_input(name, value)
        for output, offset in zip(self.session.get_outputs(), binding.outputs, strict=True):
            known = static_type(output)
            if known is None or ELEMENT_BITS[known.dtype] < 8:
                unsure.append(output.name)  # the runtime allocates data-dependent outputs
                continue
            memory = np.zeros(known.size_bytes, np.uint8) if offset is None else region
            buffer = at(memory, offset or 0, known)
            value = to_value(buffer, known)
            keep += (buffer, value)
            ends.bind_ortvalue_output(output.name, value)
        return BoundSession(self.session, ends, unsure, drawn, keep)


class BoundSession(RedrawableInputs):
    """A session bound to its memory, except outputs whose shapes are ``unsure`` until it runs."""

    def __init__(
        self,
        session: ort.InferenceSession,
        binding: ort.IOBinding,
        unsure: Sequence[str],
        drawn: Sequence[tuple[np.ndarray, Sketch | None]],
        keep: list[object],
    ) -> None:
        # The public wrapper adds Python calls to each run: microseconds that would count towards
        # the latency of a small brick.
        self._run = session._sess.run_with_iobinding
        self._binding = binding._iobinding
        self._unsure = unsure
        self._bind_output = binding.bind_output
        self._outputs = [output.name for output in session.get_outputs()]
        self._drawn = [buffer for buffer, sketch in drawn if sketch is None]
        self._sketched = [_in_turn(buffer, sketch) for buffer, sketch in drawn if sketch]
        self._random = np.random.default_rng(len(drawn))
        self._keep = keep

    def redraw(self) -> None:
        """Draw the synthetic inputs anew, from the distribution that they are from."""
        for buffer, turns in self._sketched:
            buffer[...] = next(turns)
        for buffer in self._drawn:
            self._random.random(dtype=np.float32, out=buffer)
            buffer *= 2
            buffer -= 1

    def sample(self) -> Sample:
        """Run once; what it took."""
        for name in self._unsure:  # the last run's buffer may have another shape
            self._bind_output(name)
        run, binding, clock = self._run, self._binding, time.perf_counter_ns
        try:
            start = clock()
            run(binding, None)
            return Sample((clock() - start) * 1e-9)
        except Exception as exc:  # translated here: a context manager would add to the latency
            if _MISINFERRED in str(exc) and len(self._unsure) < len(self._outputs):
                # The runtime makes a shape that it did not infer: it allocates from now on.
                self._binding.clear_binding_outputs()
                self._unsure = self._outputs
                return self.sample()
            with translated("running it"):
                raise


def _in_turn(buffer: np.ndarray, sketch: Sketch) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """A buffer, and values of its sketch, others each time as far as a processor may learn them.

    Drawing takes longer than running some operators, so some are drawn once and come in turn.
    """
    sets = range(sets_in_turn(buffer.size))
    return buffer, cycle([sketch.drawn(buffer, seed) for seed in sets])
