"""Create sessions for models and weights, all with the same options, or parallel ones.

A parallel session runs nodes along streams. ``ORT_PARALLEL`` by itself has no effect on a CPU: the
runtime puts all nodes of one device type into one stream and runs it in order
(microsoft/onnxruntime #21259, #29817). A file that lists the nodes of each stream
(``session.node_partition_config_file``) creates several. The runtime gives the nodes that it adds
different names each time, so the caller passes the executed graph, and its nodes are named here.
Streams are tasks of the inter-op pool; the calling thread spins until the last has ended.

Must not know how weights and streams are chosen, nor how sessions are run.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from bricks.backends.onnxruntime.values import DTYPES, PROVIDERS, to_value, translated
from bricks.errors import BackendError
from bricks.graph.synthesis import numpy_dtype
from bricks.graph.types import ELEMENT_BITS, TensorType
from bricks.graph.view import without_values

ALL, NONE = "all", "none"

# The runtime's levels of graph optimisation, from fusions and blocked layouts to none.
_LEVELS = {
    ALL: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    NONE: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}

_PARTITION = "session.node_partition_config_file"


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
    """A session for ``proto``, whose initializers without values take the arrays in ``weights``.

    Without ``weights``, their values must be where ``proto`` says. If the runtime refuses the
    model with the shapes that ``proto`` states, fewer shapes are stated (see :func:`less_stated`):
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
    """Copies of ``proto`` that state fewer shapes: first only the ranks of inputs, then none.

    There are no copies if ``proto`` states no shape of an input.
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
    """The inputs of ``proto`` whose shapes were not stated to ``session``: it refuses them."""
    stated = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in proto.graph.input
        if value.type.HasField("tensor_type")
    }
    return [
        value.name
        for value in session.get_inputs()
        if stated.get(value.name) and list(value.shape) != stated[value.name]
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


def create_parallel_session(
    executed: onnx.ModelProto,
    weights: Mapping[str, np.ndarray],
    streams: Sequence[int],
    options: ort.SessionOptions,
) -> ort.InferenceSession:
    """A session of an optimised graph, whose node i runs in ``streams[i]``.

    Nodes are renamed to their positions. ``weights`` holds the values of initializers without
    values; ``options`` must disable graph optimisation. Raises :class:`BackendError` unless there
    is one stream number per node.
    """
    nodes = executed.graph.node
    if len(nodes) != len(streams):
        raise BackendError(
            f"the runtime executes {len(nodes)} nodes where {len(streams)} were planned:"
            " decompose the model with another --cache, and compare it there"
        )
    named = onnx.ModelProto()
    named.CopyFrom(executed)
    by_stream: dict[int, list[str]] = {}  # a stream without nodes crashes the runtime
    for position, (node, stream) in enumerate(zip(named.graph.node, streams, strict=True)):
        node.name = str(position)
        by_stream.setdefault(stream, []).append(node.name)
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    # The nodes are already in execution order; the default would reorder them.
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    with tempfile.TemporaryDirectory(prefix="bricks-") as folder:
        file = Path(folder) / "streams.json"
        content = {
            "type": "DeviceBasedPartitioner",
            "streams": list(by_stream.values()),
            "devices": ["0"] * len(by_stream),  # the runtime's number of the CPU
        }
        file.write_text(json.dumps(content), encoding="utf-8")
        options.add_session_config_entry(_PARTITION, str(file))
        return create_session(named, weights, options)
