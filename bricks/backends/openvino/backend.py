"""OpenVINO on CPU: the runtime of Intel, with oneDNN and kernels of its own.

It has an environment of its own, so that a lock file pins its version. OpenVINO compiles models
into kernels that ONNX cannot represent. The executed graph is therefore a list of groups of source
nodes, from OpenVINO's own description of a compiled model; each group is a brick, which is compiled
again in isolation, with inputs and outputs in the layouts that they have in the model. Decomposing
a model checks that each brick runs the same kernels.

Must not know plans or the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.backends.base import BoundModel, ExecutedGraph, FusedRunner, SizeLoader
from bricks.backends.openvino.call_overhead import measured
from bricks.backends.openvino.executed import executed_graph, operators
from bricks.backends.openvino.fused_run import BoundBrick, LoadedBrick, OpenvinoFusedRun
from bricks.backends.openvino.loaded import LoadedModel, SizedRequest
from bricks.backends.openvino.models import OpenvinoModels
from bricks.decompose.identity import is_brick
from bricks.errors import BackendError
from bricks.graph.model_metadata import noted_other_kernels
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from bricks.backends.kernel_counters import CallOverhead


class OpenvinoBackend(OpenvinoModels, FusedRunner, SizeLoader):
    """OpenVINO's CPU plugin with a fixed number of threads, computing in ``precision``."""

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """The source graph without constant nodes, and the groups of nodes in each kernel."""
        return executed_graph(self, proto)[0]

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[ExecutedGraph, Mapping[str, np.ndarray]]:
        """The executed graph, and the weights that it needs."""
        return executed_graph(self, proto, weights)

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> LoadedModel | LoadedBrick:
        """A model with synthetic weights and inputs; ``streams`` are not supported.

        Raises :class:`BackendError` for a brick that would run other kernels than in its model.
        """
        if in_model := noted_other_kernels(proto):
            raise BackendError(
                f"OpenVINO runs other kernels for {operators(proto.graph.node)} alone than in the"
                f" model, where they are {', '.join(dict.fromkeys(in_model))}"
            )
        weights, inputs = self.synthesised(proto, graph_of(proto), key)
        model, ports, _ = self.read(proto, weights, inputs)
        if is_brick(proto):
            return LoadedBrick(model, ports, weights, self.compiler, lambda: self._overhead)
        return LoadedModel(self.compiler.compile(model), ports, weights)

    def load_sizes(
        self, opened: onnx.ModelProto, sizes: Sequence[onnx.ModelProto], *, key: str
    ) -> list[SizedRequest]:
        """One request, which OpenVINO prepares for the shapes of the inputs that it gets."""
        weights, inputs = self.synthesised(sizes[0], graph_of(sizes[0]), key)
        model, ports, _ = self.read(opened, weights, inputs)
        loaded = LoadedModel(self.compiler.compile(model), ports, weights)
        request = loaded.request()
        return [
            SizedRequest(
                request, ports.tensors(self.synthesised(size, graph_of(size), key)[1]), loaded
            )
            for size in sizes
        ]

    def fused(self, bound: Sequence[BoundModel]) -> OpenvinoFusedRun | None:
        """Bricks that run in one call; None if anything else is ``bound``."""
        bricks = [model for model in bound if isinstance(model, BoundBrick)]
        return OpenvinoFusedRun(bricks) if len(bricks) == len(bound) else None

    @cached_property
    def _overhead(self) -> CallOverhead:
        """The call overhead, measured when it is first needed."""
        return measured(self.compiler)
