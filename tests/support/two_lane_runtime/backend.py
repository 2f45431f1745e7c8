"""The host launches a kernel for each node, and the device runs them in order.

Nodes that make a single number run on the host. A run of a model ends once the device has ended; a
brick's ends when its kernels are launched, and says how long these take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from bricks.backends.base import Binding
from bricks.backends.fake.backend import CALL_OVERHEAD_S, FakeBackend, node_latency_s
from bricks.decompose.identity import Cutter, is_brick
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of
from bricks.units.sample import Kernel, Sample

LAUNCH_S = 200e-6


@dataclass(frozen=True)
class Node:
    """Seconds on the host, and of the kernel that it launches, if it does."""

    operator: str
    host_s: float
    device_s: float | None


class TwoLaneBackend(FakeBackend):
    """As the fake runtime, but what that takes for a node is what its kernel takes."""

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> TwoLaneModel:
        executed = self.executed(proto)
        graph = graph_of(executed.proto, executed.types)
        cutter = Cutter(graph)
        nodes = []
        for i, node in enumerate(graph.nodes):
            latency_s = node_latency_s(cutter.cut((i,)).brick.key)
            made = graph.types[node.output[0]]
            launches = isinstance(made, TensorType) and made.elements > 1
            lanes = (LAUNCH_S, latency_s) if launches else (latency_s, None)
            nodes.append(Node(node.op_type, *lanes))
        return TwoLaneModel(nodes, waits=not is_brick(proto))


@dataclass(frozen=True)
class TwoLaneModel:
    """A model in one place; a run ``waits`` for the device, or ends with its last launch."""

    nodes: Sequence[Node]
    waits: bool

    def bind(self, binding: Binding, region: np.ndarray) -> TwoLaneModel:
        return self

    def sample(self) -> Sample:
        host_s = end_s = 0.0
        kernels = []
        for node in self.nodes:
            host_s += node.host_s
            if node.device_s is not None:
                end_s = max(host_s, end_s) + node.device_s
                kernels.append(Kernel(node.operator, node.device_s))
        run_s = max(host_s, end_s) if self.waits else host_s
        return Sample(CALL_OVERHEAD_S + run_s, tuple(kernels))
