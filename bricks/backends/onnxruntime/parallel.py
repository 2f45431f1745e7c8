"""Sessions that run nodes side by side, along given streams.

``ORT_PARALLEL`` alone does nothing on a processor: the runtime makes one stream of all nodes of one
kind of device, and runs it in order (microsoft/onnxruntime #21259, #29817). Several streams are had
through a file that names the nodes of each (``session.node_partition_config_file``). The runtime
names nodes that it adds itself, otherwise each time: so the graph must be the executed one, and is
given names. Streams are tasks of the inter-op pool, and the calling thread spins until the last has
ended.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from bricks.backends.onnxruntime.sessions import NONE, create_session, session_options
from bricks.errors import BackendError

_PARTITION = "session.node_partition_config_file"


def create_parallel_session(
    executed: onnx.ModelProto,
    weights: Mapping[str, np.ndarray],
    streams: Sequence[int],
    options: ort.SessionOptions | None = None,
) -> ort.InferenceSession:
    """A session for a graph that is already optimised, whose node i runs in ``streams[i]``.

    It is called by its position there. ``weights`` are those of its initializers that hold no
    values; ``options`` are to leave the graph as it is. Raises :class:`BackendError` if
    there is not a stream for each node.
    """
    nodes = executed.graph.node
    if len(nodes) != len(streams):
        raise BackendError(
            f"the runtime executes {len(nodes)} nodes where {len(streams)} were planned:"
            " decompose the model with another --cache, and compare it there"
        )
    options = session_options(NONE) if options is None else options
    named = onnx.ModelProto()
    named.CopyFrom(executed)
    by_stream: dict[int, list[str]] = {}  # a stream without nodes crashes the runtime
    for position, (node, stream) in enumerate(zip(named.graph.node, streams, strict=True)):
        node.name = str(position)
        by_stream.setdefault(stream, []).append(node.name)
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    # The nodes stand in the order in which they are executed; the default would find another.
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    with tempfile.TemporaryDirectory(prefix="bricks-") as folder:
        file = Path(folder) / "streams.json"
        content = {
            "type": "DeviceBasedPartitioner",
            "streams": list(by_stream.values()),
            "devices": ["0"] * len(by_stream),  # by the runtime's numbers, the processor
        }
        file.write_text(json.dumps(content), encoding="utf-8")
        options.add_session_config_entry(_PARTITION, str(file))
        return create_session(named, weights, options)
