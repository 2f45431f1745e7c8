"""The graph that OpenVINO executes for a model: its source nodes in groups, one for each kernel.

The source graph is simplified as OpenVINO does, compiled, divided into groups by its kernels, and
groups are merged until each runs the same kernels in isolation. Must not know how models are run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import openvino as ov

from bricks.backends.base import ExecutedGraph
from bricks.backends.node_groups import Group
from bricks.backends.openvino import grouping
from bricks.backends.openvino.execution import (
    CONSTANT_NODES,
    CompiledKernel,
    kernels,
    named,
    own_shapes,
)
from bricks.backends.openvino.folding import (
    folded,
    proto_of,
    simplified_around,
    uniform_values,
    with_constant_nodes,
)
from bricks.backends.openvino.grouping import Execution, GroupedModel, Merging
from bricks.backends.openvino.models import OpenvinoModels
from bricks.backends.openvino.parts import kernels_of_each
from bricks.backends.openvino.precision import (
    BFLOAT16,
    as_float32,
    dequantised_by_readers,
    has_dequantised_activations,
    in_float32,
    passed_as_floats,
    with_bfloat16_casts,
)
from bricks.backends.openvino.rule import RULE
from bricks.decompose.identity import Cutter
from bricks.decompose.lowering import Contents, Lowering
from bricks.graph.model import Graph
from bricks.graph.topology import label
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of, parse_model
from bricks.operators.integer_ranges import steering_values

# Bricks are compiled together until their weights take so many bytes.
_COMPILED_AT_ONCE_BYTES = 1 << 28

Arrays = Mapping[str, np.ndarray]


def executed_graph(
    models: OpenvinoModels, proto: onnx.ModelProto, weights: Arrays | None = None
) -> tuple[ExecutedGraph, dict[str, np.ndarray]]:
    """The executed graph of ``proto``, and the values of its initializers that are known.

    ``weights`` are values of all initializers without values, or None.
    """
    source, observed = models.typed(proto)
    executing = _Executing(models, proto)
    graph, values, computed = folded(
        in_float32(source),
        lambda model, feeds: models.evaluate(model, {}, feeds, optimize=True),
        as_float32(weights or {}, source),
    )
    if has_dequantised_activations(graph):
        first, _ = executing.kernels(graph, values)
        graph = dequantised_by_readers(graph, passed_as_floats(graph, first))
    graph = with_constant_nodes(graph, uniform_values(graph, computed))
    model = executing.grouped(graph, values)
    simplified = simplified_around(graph, model.differing_nodes())
    if simplified is not None:
        other = executing.grouped(simplified, values)
        model = min(model, other, key=lambda each: len(each.differing))
    execution = model.merging.execution
    groups, other_kernels = model.merging.merged(model.groups)
    nodes = execution.graph.nodes
    result = ExecutedGraph(
        model.proto,
        execution.graph.types,
        grouping.in_place(execution),
        observed,
        groups,
        model.layouts,
        other_kernels,
        _misshapen(graph, execution.graph)
        + [
            "not measured, since OpenVINO runs other kernels for them alone:"
            f" {_listed([nodes[i] for i in group])}"
            for group in groups
            if group[0] in other_kernels
        ],
        rule=RULE,
    )
    return result, values


def operators(nodes: Iterable[onnx.NodeProto]) -> str:
    """The operators of ``nodes`` in order, for messages, without constants."""
    names = dict.fromkeys(node.op_type for node in nodes)
    return ", ".join(name for name in names if name not in CONSTANT_NODES)


class _Executing:
    """Finds the groups of one model, ``proto``."""

    def __init__(self, models: OpenvinoModels, proto: onnx.ModelProto) -> None:
        self._models, self._compiler, self._proto = models, models.compiler, proto

    def grouped(self, graph: Graph, values: Arrays) -> GroupedModel:
        compiled, shapes = self.kernels(graph, values)
        graph = replace(graph, types={**graph.types, **shapes})
        if self._compiler.precision == BFLOAT16:
            graph, compiled = with_bfloat16_casts(graph, compiled)
        proto = proto_of(graph, self._proto)
        execution = Execution.of(graph, compiled)
        layouts = grouping.layouts(execution)
        names = steering_values(graph)
        contents = Contents(steering=self._models.values(proto, names) if names else {})
        cutter = Cutter(graph, contents=contents, lowering=Lowering(layouts=layouts))
        known: dict[str, Sequence[CompiledKernel]] = {}

        def compile_groups(groups: Sequence[Group]) -> list[Sequence[CompiledKernel]]:
            bricks = [cutter.cut(group).brick for group in groups]
            new = {b.key: parse_model(b.model) for b in bricks if b.key not in known}
            known.update(zip(new, self._isolated([*new.values()]), strict=True))
            return [known[brick.key] for brick in bricks]

        return GroupedModel.of(proto, Merging(execution, compile_groups), layouts)

    def kernels(
        self, graph: Graph, values: Arrays
    ) -> tuple[list[CompiledKernel], dict[str, TensorType]]:
        """The kernels of the whole ``graph``, where these ``values`` of weights are known.

        And the types of values to which OpenVINO gives another shape than ONNX.
        """
        proto = proto_of(graph, self._proto)
        synthetic, _ = self._models.synthesised(proto, graph, "executed")
        model = self._compiler.read(named(proto), {**synthetic, **values})
        shapes = own_shapes(model, graph)  # compiling changes the model
        return kernels(self._compiler.compile(model)), shapes

    def _isolated(self, bricks: Sequence[onnx.ModelProto]) -> list[list[CompiledKernel]]:
        result: list[list[CompiledKernel]] = []
        models: list[ov.Model] = []
        keep: list[Arrays] = []  # the weights, to which the models refer
        weight_bytes = 0
        for number, brick in enumerate(bricks, 1):
            weights, inputs = self._models.synthesised(brick, graph_of(brick), "alone")
            models.append(self._models.read(brick, weights, inputs)[0])
            keep.append(weights)
            weight_bytes += sum(array.nbytes for array in weights.values())
            if weight_bytes > _COMPILED_AT_ONCE_BYTES or number == len(bricks):
                result += kernels_of_each(self._compiler, models)
                models, keep, weight_bytes = [], [], 0
        return result


def _misshapen(specified: Graph, executed: Graph) -> list[str]:
    """A line if a value has another shape than ONNX specifies, but for axes of one element."""
    for node in executed.nodes:
        for name in node.output:
            own, meant = (graph.types.get(name) for graph in (executed, specified))
            if isinstance(own, TensorType) and isinstance(meant, TensorType):
                shapes = [[size for size in type_.shape if size != 1] for type_ in (own, meant)]
                if shapes[0] != shapes[1]:
                    return [
                        f"OpenVINO computes something else than the model: {label(node)} makes"
                        f" {_shown(own)}, where ONNX specifies {_shown(meant)}"
                    ]
    return []


def _shown(type_: TensorType) -> str:
    return "×".join(map(str, type_.shape))


def _listed(nodes: Sequence[onnx.NodeProto]) -> str:
    """``nodes`` as messages name them: the first one, and the operators of all."""
    first = next((node for node in nodes if node.op_type not in CONSTANT_NODES), nodes[0])
    return label(first) if len(nodes) == 1 else f"{operators(nodes)} from {label(first)} on"
