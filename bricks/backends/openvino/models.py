"""Models and their values as OpenVINO's own graphs, and single runs of them.

Must not know which nodes become a brick.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import openvino as ov

from bricks.backends.openvino.boundary import (
    from_channels_last,
    to_channels_last,
    with_model_layouts,
)
from bricks.backends.openvino.compiled import Compiler, LoadedModel, Ports
from bricks.backends.openvino.precision import with_fake_quantised_inputs
from bricks.backends.synthetic_data import OBSERVED, TensorInputs, TensorRuntime, results_of
from bricks.decompose.identity import is_brick
from bricks.errors import BackendError
from bricks.graph.model import Graph
from bricks.graph.model_metadata import noted_layouts, runtime_value, steering_values_of
from bricks.graph.types import TensorType, ValueType
from bricks.graph.view import OpenShapes, graph_of, typed_graph


class OpenvinoModels(TensorRuntime):
    """Reads, types and runs models with a fixed number of threads, computing in ``precision``."""

    title = "OpenVINO"
    loaders = 1  # compiling uses all processors

    def __init__(self, *, threads: int, seed: int, precision: str) -> None:
        super().__init__(seed)
        self.compiler = Compiler(threads, precision)

    def sign_sensitive(self, operator: str) -> bool:
        """False for all operators: its kernels have no branches on single values."""
        return False

    def branching_on(self, operator: str) -> Collection[str]:
        """Nothing: its own loops are vectorised."""
        return ()

    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """The types that ``onnx.shape_inference`` infers, or that occur in one run."""
        graph, observed = self.typed(proto)
        return graph.types, observed

    def typed(self, proto: onnx.ModelProto) -> tuple[Graph, Sequence[str]]:
        """The source graph with all types, and the values whose type was observed in one run."""
        try:
            return typed_graph(proto), ()
        except OpenShapes as exc:
            names = exc.open_values
            if not names:
                raise BackendError(f"OpenVINO needs all types, but {exc}") from exc
            arrays = next(self.observe(proto, names, key=OBSERVED))
        known: dict[str, ValueType] = {
            name: TensorType(_dtype(array), array.shape) for name, array in arrays.items()
        }
        return typed_graph(proto, known), names

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
        *,
        optimize: bool,
    ) -> Sequence[Any]:
        """One run with given weights and inputs."""
        return self.run_once(proto, graph_of(proto), weights, feeds)

    def run_once(
        self,
        proto: onnx.ModelProto,
        graph: Graph,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
    ) -> list[np.ndarray]:
        """The outputs of one run of ``proto``, whose graph is known."""
        layouts = noted_layouts(proto)

        def value(name: str, turn: int = 0) -> Any:
            return to_channels_last(feeds[name]) if name in layouts else feeds[name]

        inputs = {
            name: (partial(value, name), self.tensor_type(graph, name)) for name in graph.inputs
        }
        own = {name: np.ascontiguousarray(values) for name, values in weights.items()}
        model, ports, shapes = self.read(proto, own, inputs)
        results = results_of(LoadedModel(self.compiler.compile(model), ports, own), graph)
        return [
            array
            if shape is None
            else from_channels_last(array, shape)
            if name in layouts
            else array.reshape(shape)
            for name, array, shape in zip(graph.outputs, results, shapes, strict=True)
        ]

    def read(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray], inputs: TensorInputs
    ) -> tuple[ov.Model, Ports, list[tuple[int, ...] | None]]:
        """OpenVINO's graph of ``proto``, its ports, and the shapes of its outputs, None if open.

        A brick has its inputs and outputs in the layouts of its model.
        """
        piece = is_brick(proto)
        source = with_fake_quantised_inputs(proto) if piece else proto
        model = self.compiler.read(source, weights)
        shapes = [
            None if output.get_partial_shape().is_dynamic else tuple(output.shape)
            for output in model.outputs
        ]
        fixed = {
            n: runtime_value(values, inputs[n][1])
            for n, values in steering_values_of(proto).items()
        }
        if piece:
            model = with_model_layouts(model, noted_layouts(proto), fixed)
        return model, Ports(inputs, fixed), shapes


def _dtype(array: np.ndarray) -> str:
    return str(onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)))
