"""OpenVINO on CPU: the runtime of Intel, with oneDNN and kernels of its own.

It has an environment of its own, so that a lock file pins its version. OpenVINO compiles models
into kernels that ONNX cannot represent. The executed graph is therefore a list of groups of source
nodes, as OpenVINO's own description of a compiled model tells them; each group is a brick, which is
compiled again alone, with inputs and outputs in the layouts that they have in the model. That a
brick runs the same kernels is checked when a model is decomposed.

Must not know plans or the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import openvino as ov

from bricks.backends.base import (
    Binding,
    BoundModel,
    Evaluator,
    ExecutedGraph,
    FusedRunner,
    ValueObserver,
)
from bricks.backends.kernel_counters import CallOverhead
from bricks.backends.openvino import grouping
from bricks.backends.openvino.around import measured
from bricks.backends.openvino.batch import kernels_of_each
from bricks.backends.openvino.bfloat16 import BFLOAT16, stored_in_bfloat16
from bricks.backends.openvino.compiling import Compiler
from bricks.backends.openvino.execution import MADE_CONSTANTS, Kernel, kernels, named
from bricks.backends.openvino.folding import (
    as_compiled,
    folded,
    proto_of,
    uniform,
    with_numbers,
)
from bricks.backends.openvino.grouping import Execution, Group
from bricks.backends.openvino.integers import (
    dequantised_by_reader,
    dequantises,
    passed_as_numbers,
    quantised_inputs,
)
from bricks.backends.openvino.joint import BoundBrick, LoadedBrick, OpenvinoFusedRun
from bricks.backends.openvino.loaded import Ends, LoadedModel
from bricks.backends.openvino.precision import as_float32, in_float32
from bricks.backends.openvino.settling import Cut, settled
from bricks.backends.openvino.wrapping import moved, moved_back, wrapped
from bricks.backends.synthetic_data import synthetic_data
from bricks.decompose.identity import Cutter, is_brick
from bricks.decompose.lowering import Contents, Lowering
from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.domains import steering_values
from bricks.graph.graph import Graph
from bricks.graph.model_metadata import (
    natural,
    noted_layouts,
    noted_other_kernels,
    steered_inputs,
)
from bricks.graph.source import OpenShapes, typed_graph
from bricks.graph.synthesis import Pool
from bricks.graph.tensor import TensorType
from bricks.graph.topology import label
from bricks.graph.view import graph_of, parse_model, upstream

# Bricks are compiled together until their weights take so many bytes.
_AT_ONCE_BYTES = 1 << 28


class OpenvinoBackend(Evaluator, ValueObserver, FusedRunner):
    """OpenVINO's CPU plugin with a fixed number of threads, computing in ``precision``."""

    loaders = 1  # compiling uses all processors

    def __init__(self, *, threads: int, seed: int, precision: str) -> None:
        self._compiler = Compiler(threads, precision)
        self._pool = Pool(seed)
        self._known_around: CallOverhead | None = None

    def sign_sensitive(self, operator: str) -> bool:
        """False for all operators: its kernels have no branches on single values."""
        return False

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """The source graph without constant nodes, and the groups of nodes in each kernel."""
        graph, observed = self._typed(proto)
        return self._described(proto, graph, observed)[0]

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[ExecutedGraph, Mapping[str, np.ndarray]]:
        """The same, and the weights that it needs."""
        graph, observed = self._typed(proto)
        return self._described(proto, graph, observed, weights)

    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """The types that ``onnx.shape_inference`` infers, or that occur in one run."""
        graph, observed = self._typed(proto)
        return graph.types, observed

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> dict[str, list[float]]:
        """The contents of small values in one run on synthetic data."""
        found = self._run(proto, names, "observed")
        return {name: array.ravel().tolist() for name, array in found.items()}

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> LoadedModel | LoadedBrick:
        """A model with synthetic weights and inputs; ``streams`` are not supported.

        Raises :class:`BackendError` for a brick that would run as other kernels than in its model.
        """
        if in_model := noted_other_kernels(proto):
            raise BackendError(
                f"OpenVINO runs other kernels for {_operators(proto.graph.node)} alone than in the"
                f" model, where they are {', '.join(dict.fromkeys(in_model))}"
            )
        weights, makers = self._synthesised(proto, graph_of(proto), key)
        model, ends, _ = self._wrapped(proto, weights, makers)
        if is_brick(proto):
            return LoadedBrick(model, ends, weights, self._compiler, self._around)
        return LoadedModel(self._compiler.compile(model), ends, weights)

    def fused(self, bound: Sequence[BoundModel]) -> OpenvinoFusedRun | None:
        """What runs bricks in one call; None for anything else."""
        bricks = [each for each in bound if isinstance(each, BoundBrick)]
        return OpenvinoFusedRun(bricks) if len(bricks) == len(bound) else None

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
        *,
        optimize: bool,
    ) -> Sequence[Any]:
        """One run with given weights and inputs."""
        last = noted_layouts(proto)
        graph = graph_of(proto)
        makers = {
            name: (
                (lambda n=name: moved(feeds[n]) if n in last else feeds[n]),
                _tensor_type(graph.types, name),
            )
            for name in graph.inputs
        }
        own = {name: np.ascontiguousarray(values) for name, values in weights.items()}
        model, ends, shapes = self._wrapped(proto, own, makers)
        nowhere = Binding((None,) * len(graph.inputs), (None,) * len(graph.outputs))
        loaded = LoadedModel(self._compiler.compile(model), ends, own)
        bound = loaded.bind(nowhere, np.zeros(0, np.uint8))
        bound.sample()
        return [
            array
            if shape is None
            else moved_back(array, shape)
            if name in last
            else array.reshape(shape)
            for name, array, shape in zip(graph.outputs, bound.results(), shapes, strict=True)
        ]

    def _wrapped(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray], makers: Mapping[str, Any]
    ) -> tuple[ov.Model, Ends, list[tuple[int, ...] | None]]:
        """A model to compile, its ends, and the shapes of its outputs, None where one is open."""
        model = self._compiler.read(quantised_inputs(proto) if is_brick(proto) else proto, weights)
        shapes = [
            None if output.get_partial_shape().is_dynamic else tuple(output.shape)
            for output in model.outputs
        ]
        types = {name: type_ for name, (_, type_) in makers.items()}
        fixed = {n: natural(held, types[n]) for n, held in steered_inputs(proto).items()}
        if is_brick(proto):
            model = wrapped(model, noted_layouts(proto), fixed)
        return model, Ends(makers, fixed), shapes

    def _around(self) -> CallOverhead:
        """What runs around kernels; measured when it is first needed."""
        if self._known_around is None:
            self._known_around = measured(self._compiler)
        return self._known_around

    def _described(
        self,
        proto: onnx.ModelProto,
        source: Graph,
        observed: Sequence[str],
        weights: Mapping[str, np.ndarray] | None = None,
    ) -> tuple[ExecutedGraph, dict[str, np.ndarray]]:
        """The executed graph, and the values of its initializers, as far as they are known."""
        graph, values, told = folded(
            in_float32(source), self._computed, as_float32(weights or {}, source)
        )
        if dequantises(graph):
            first = self._kernels(proto_of(graph, proto), graph, values)
            graph = dequantised_by_reader(graph, passed_as_numbers(graph, first))
        graph = with_numbers(graph, uniform(graph, told))
        cut = self._cut(graph, proto, values)
        closer = as_compiled(graph, cut.nodes_of_differing())
        if closer is not None:
            other = self._cut(closer, proto, values)
            cut = min(cut, other, key=lambda each: len(each.differing))
        execution = cut.execution
        found = settled(execution, cut.groups, cut.alone)
        executed = ExecutedGraph(
            cut.proto,
            execution.graph.types,
            grouping.in_place(execution),
            observed,
            found.groups,
            cut.layouts,
            found.other_kernels,
            [
                f"not measured, since OpenVINO runs other kernels for them alone: {_listed(nodes)}"
                for group in found.groups
                if group[0] in found.other_kernels
                for nodes in [[execution.graph.nodes[i] for i in group]]
            ],
        )
        return executed, values

    def _cut(self, graph: Graph, proto: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> Cut:
        """``graph``, of whose weights these ``values`` are known, as OpenVINO executes it."""
        found = proto_of(graph, proto)
        executed = self._kernels(found, graph, values)
        if self._compiler.precision == BFLOAT16:
            graph, executed = stored_in_bfloat16(graph, executed)
            found = proto_of(graph, proto)
        execution = Execution.of(graph, executed)
        layouts = grouping.layouts(execution)
        names = steering_values(graph)
        contents = Contents(steering=self.values(found, names) if names else {})
        cutter = Cutter(graph, contents=contents, lowering=Lowering(layouts=layouts))
        known: dict[str, Sequence[Kernel]] = {}

        def alone(groups: Sequence[Group]) -> list[Sequence[Kernel]]:
            bricks = [cutter.cut(group).brick for group in groups]
            new = {b.key: parse_model(b.model) for b in bricks if b.key not in known}
            known.update(zip(new, self._alone([*new.values()]), strict=True))
            return [known[brick.key] for brick in bricks]

        return Cut.of(found, execution, layouts, alone)

    def _computed(
        self, model: onnx.ModelProto, given: Mapping[str, np.ndarray]
    ) -> Sequence[np.ndarray]:
        return self.evaluate(model, {}, given, optimize=True)

    def _kernels(
        self, proto: onnx.ModelProto, graph: Graph, values: Mapping[str, np.ndarray]
    ) -> list[Kernel]:
        """The kernels of a whole model, of whose weights these ``values`` are known."""
        made, _ = self._synthesised(proto, graph, "executed")
        return kernels(
            self._compiler.compile(self._compiler.read(named(proto), {**made, **values}))
        )

    def _alone(self, bricks: Sequence[onnx.ModelProto]) -> list[list[Kernel]]:
        """The kernels of each brick when it is compiled alone."""
        found: list[list[Kernel]] = []
        models: list[ov.Model] = []
        keep: list[Mapping[str, np.ndarray]] = []  # which the models refer to
        held = 0
        for number, brick in enumerate(bricks, 1):
            weights, makers = self._synthesised(brick, graph_of(brick), "alone")
            models.append(self._wrapped(brick, weights, makers)[0])
            keep.append(weights)
            held += sum(array.nbytes for array in weights.values())
            if held > _AT_ONCE_BYTES or number == len(bricks):
                found += kernels_of_each(self._compiler, models)
                models, keep, held = [], [], 0
        return found

    def _typed(self, proto: onnx.ModelProto) -> tuple[Graph, Sequence[str]]:
        """The source graph with all types, and the values whose type was observed in one run."""
        try:
            return typed_graph(proto), ()
        except OpenShapes as exc:
            names = exc.open_values
            if not names:
                raise BackendError(f"OpenVINO needs all types, but {exc}") from exc
            found = self._run(proto, names, "observed")
        known: dict[str, ValueType] = {
            name: TensorType(_dtype(array), array.shape) for name, array in found.items()
        }
        return typed_graph(proto, known), names

    def branching_on(self, operator: str) -> Collection[str]:
        """Nothing: its own loops are vectorised."""
        return ()

    def observe(
        self, proto: onnx.ModelProto, names: Sequence[str], *, key: str
    ) -> dict[str, np.ndarray]:
        """These tensors in one run on synthetic data."""
        return self._run(proto, names, key)

    def _run(self, proto: onnx.ModelProto, names: Sequence[str], key: str) -> dict[str, np.ndarray]:
        """Values in one run on synthetic data; only the nodes that they depend on run."""
        part = upstream(proto, names)
        graph = graph_of(part)
        weights, makers = self._synthesised(part, graph, key, graph_of(proto))
        given = {name: make() for name, (make, _) in makers.items()}
        found = {name: given[name] for name in names if name in given}
        if part.graph.node:
            results = self.evaluate(part, weights, given, optimize=False)
            found |= dict(zip(graph.outputs, results, strict=True))
        return found

    def _synthesised(
        self, proto: onnx.ModelProto, graph: Graph, key: str, whole: Graph | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Weights, and makers of inputs, by name; ``whole`` is the graph that it is a part of."""
        weights, makers = synthetic_data(self._pool, proto, graph, key, whole=whole)
        return weights, {
            name: (make, _tensor_type(graph.types, name)) for name, make in makers.items()
        }


def _tensor_type(types: Mapping[str, ValueType], name: str) -> TensorType:
    """The type of a value that must be a tensor."""
    type_ = types.get(name)
    if not isinstance(type_, TensorType):
        raise BackendError(
            f"OpenVINO takes tensors alone: '{name}' is none; choose another --runtime"
        )
    return type_


def _operators(nodes: Iterable[onnx.NodeProto]) -> str:
    """Their operators in order, without those that make constants."""
    found = dict.fromkeys(node.op_type for node in nodes)
    return ", ".join(name for name in found if name not in MADE_CONSTANTS)


def _listed(nodes: Sequence[onnx.NodeProto]) -> str:
    """How messages name ``nodes``: the first, and the operators of all."""
    first = next((node for node in nodes if node.op_type not in MADE_CONSTANTS), nodes[0])
    return label(first) if len(nodes) == 1 else f"{_operators(nodes)} from {label(first)} on"


def _dtype(array: np.ndarray) -> str:
    return str(onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)))
