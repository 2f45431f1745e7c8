"""OpenVINO on CPU: the runtime of Intel, with oneDNN and kernels of its own.

It has an environment of its own, so that a lock file pins its version. OpenVINO compiles models
into kernels that ONNX cannot represent. The executed graph is therefore a list of groups of source
nodes, from OpenVINO's own description of a compiled model; each group is a brick, which is compiled
again in isolation, with inputs and outputs in the layouts that they have in the model. Decomposing
a model checks that each brick runs the same kernels.

It measures the overhead of a call, and the time of a kernel that its counter omits.

Must not know plans or the store.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import onnx
import openvino as ov
from openvino import opset13 as ops

from bricks.backends.base import BoundModel, ExecutedGraph, FusedRunner, SizeLoader
from bricks.backends.kernel_counters import CallOverhead
from bricks.backends.openvino.compiled import (
    BoundRequest,
    Compiler,
    LoadedModel,
    SizedRequest,
    translated,
)
from bricks.backends.openvino.executed import executed_graph, operators
from bricks.backends.openvino.execution import kernels
from bricks.backends.openvino.models import OpenvinoModels
from bricks.backends.openvino.parts import BoundBrick, LoadedBrick, OpenvinoFusedRun
from bricks.decompose.identity import is_brick
from bricks.errors import BackendError
from bricks.graph.model_metadata import noted_other_kernels
from bricks.graph.view import graph_of

_RUNS, _WARM_UP = 200, 10
# Widths of the products in a row: kernels of many latencies, so that rounding down to whole
# microseconds takes as much as usual, and of weights that exceed the innermost caches.
_WIDTHS = tuple(32 + 16 * (7 * i % 32) for i in range(33))


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
        return measured(self.compiler)


def measured(compiler: Compiler) -> CallOverhead:
    """Measure with the threads of ``compiler``; takes about a tenth of a second."""
    with translated("measuring what a call costs"):
        value = ops.parameter([1], np.float32)
        trivial = _bound(compiler.compile(ov.Model([ops.relu(value)], [value], "call")))
        value = row = ops.parameter([1, _WIDTHS[0]], np.float32)
        for inputs, outputs in pairwise(_WIDTHS):
            weights = np.full((inputs, outputs), 1 / inputs, np.float32)
            row = ops.matmul(row, ops.constant(weights), False, False)
        compiled = compiler.compile(ov.Model([row], [value], "products"), counted=True)
        products = _bound(compiled)
    call_s = statistics.median(trivial.sample().host_s for _ in range(_RUNS))
    for _ in range(_WARM_UP):
        products.sample()
    before_s = sum(products.counters().values()) * _WARM_UP
    # Runs of one request: kernels of two requests differ by more than the result.
    run_s = statistics.mean(products.sample().host_s for _ in range(_RUNS))
    after_s = sum(products.counters().values()) * (_WARM_UP + _RUNS)
    outside_s = run_s - call_s - (after_s - before_s) / _RUNS
    count = sum(kernel.computes for kernel in kernels(compiled))
    return CallOverhead(call_s, max(0.0, outside_s / count))


def _bound(compiled: ov.CompiledModel) -> BoundRequest:
    request = compiled.create_infer_request()
    shape = list(compiled.inputs[0].get_shape())
    request.set_input_tensor(ov.Tensor(np.ones(shape, np.float32)))
    return BoundRequest(request, [], 1)
