"""Sessions that run nodes in parallel, along streams.

``ORT_PARALLEL`` by itself has no effect on a CPU: the runtime puts all nodes of one device type
into one stream and runs it in order (microsoft/onnxruntime #21259, #29817). A file that lists the
nodes of each stream (``session.node_partition_config_file``) creates several. The runtime gives the
nodes that it adds different names each time, so the caller passes the executed graph, and this
module names its nodes. Streams are tasks of the inter-op pool; the calling thread spins until the
last has ended. Must not know how streams are chosen.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnxruntime as ort

from bricks.backends.onnxruntime.sessions import create_session
from bricks.errors import BackendError

if TYPE_CHECKING:
    import numpy as np

_PARTITION = "session.node_partition_config_file"


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
