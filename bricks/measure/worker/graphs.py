"""Handles requests for graphs of models: executed, recorded, with shapes, with values, quantised.

The graph as written has types from a run where inference finds none. Values that operators read are
observed, if their time depends on the values: one run on the model's inputs shows the distribution
of each (see ``graph.sketch``), and the iterations of loops whose condition is computed. To
quantise, the process must not have made the backend of the tool's runtime, whose sessions share
threads. Must not know how a graph is cut, nor which pieces a worker has loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from bricks import backends
from bricks.backends.base import Backend, ExecutedGraph, ValueObserver, WeightObserver, capability
from bricks.backends.input_values import Turns, joined
from bricks.backends.programs import ProgramSource, Recorder
from bricks.backends.quantising import QuantisationMethod, Quantiser
from bricks.backends.synthetic_data import synthetic_data
from bricks.decompose.lowering import UNKNOWN, Contents, Lowering
from bricks.errors import BackendError
from bricks.graph.distributions import quantiles_of
from bricks.graph.model import Graph, Model
from bricks.graph.model_metadata import noted_sketches, noted_weights
from bricks.graph.payload import value_dtype
from bricks.graph.sketch import COLUMNS, DENORMALS, SIGNS, Sketch
from bricks.graph.subgraphs import (
    conditional_loops,
    counter_name,
    first_output,
    with_iteration_counters,
)
from bricks.graph.suppression import OPERATOR as SUPPRESSION
from bricks.graph.suppression import suppression_sketch
from bricks.graph.synthesis import Pool, Range
from bricks.graph.types import ELEMENT_BITS, TensorType
from bricks.graph.view import OpenShapes, graph_of, parse_model, source_graph, without_values
from bricks.graph.weights import stored_sketch, with_own_weights, with_values
from bricks.measure.protocol.models import (
    QuantiseModel,
    ReadExecuted,
    ReadSource,
    ReadValues,
    RecordProgram,
    TypedGraph,
)
from bricks.measure.worker.input_turns import turns_of
from bricks.measure.worker.runtime import WorkerRuntime, memory_limited_for, release_freed_memory
from bricks.operators.dependence import data_decides, dependent_inputs
from bricks.operators.integer_ranges import integer_ranges
from bricks.operators.rotated_inputs import rotated_inputs

# Inputs with which the scales of activations are calibrated.
_SAMPLES = 2

# Most bytes of weights: the tool holds them several times, in messages of protobuf.
_MOST_BYTES = 1 << 30

# So many rows show the distribution in the columns of a table.
_LEAST_ROWS = 64
_EIGHT_BITS = 8


class GraphRequests:
    """Reads graphs with the backend of ``runtime``."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime

    def read_executed(self, request: ReadExecuted) -> TypedGraph:
        """Read the graph that the runtime executes for a model, and the types of its values."""
        proto = parse_model(request.model)
        with memory_limited_for(proto):
            backend = self._runtime.backend
            executed = backend.executed(proto)
            deciding = _with_deciding(proto, request.folder)
            rotated = rotated_inputs(deciding, backend.sign_sensitive)
            turns = turns_of(backend, deciding, request.key, rotated)
            if isinstance(backend, ValueObserver):
                contents = contents_of(backend, deciding, executed, request.key, turns)
            else:
                contents = Contents(sketches=noted_sketches(deciding))
        if self._runtime.settings.timing:  # else the next model needs the memory
            release_freed_memory()
        lowering = Lowering(
            executed.groups,
            executed.layouts,
            executed.other_kernels,
            executed.in_place,
            executed.rewritten_bytes,
            executed.rule,
        )
        skeleton = executed.proto.SerializeToString()
        repeating = (
            f"input {name!r} has the same values in all runs of the whole model, which a processor"
            " learns: no other synthetic ones were found with which it does the same"
            for name in sorted(rotated.names - turns.keys())
        )
        observed, notes = tuple(executed.observed), (*executed.notes, *repeating)
        return TypedGraph(skeleton, executed.types, observed, lowering, contents, notes)

    def read_source(self, request: ReadSource) -> TypedGraph:
        """Read a model's graph as written, with the types of its values."""
        proto = parse_model(request.model)
        written = graph_of(proto)
        inputs = tuple((name, written.types[name]) for name in written.inputs)
        with memory_limited_for(proto):
            model = Model(request.name, Path(), request.model, inputs, "")
            graph, observed = source_of(self._runtime.backend, model, proto)
        del proto.graph.node[:]
        proto.graph.node.extend(graph.nodes)
        return TypedGraph(
            proto.SerializeToString(),
            graph.types,
            observed=tuple(observed),
            contents=Contents(sketches=noted_sketches(proto)),
        )

    def read_values(self, request: ReadValues) -> Mapping[str, tuple[float, ...]]:
        """Read the contents of some values, with the data that the whole model runs on."""
        proto, source, backend = (
            parse_model(request.model), parse_model(request.source), self._runtime.backend
        )  # fmt: skip
        made = set[str]()  # by the source graph, whose weights are its own where they decide
        if data_decides(source):
            made.update(info.name for info in source.graph.input)
            made.update(name for node in source.graph.node for name in node.output)
        written = [name for name in request.names if name in made]
        others = [name for name in request.names if name not in made]
        with memory_limited_for(proto):
            values = dict(backend.values(proto, others)) if others else {}
            if written:
                values |= backend.values(_with_deciding(source, request.folder), written)
        return {name: tuple(contents) for name, contents in values.items()}

    def record(self, request: RecordProgram) -> bytes:
        """Record a program."""
        recorder = self._runtime.capable(Recorder)
        proto = recorder.record(ProgramSource(request.entry, request.folder, request.options))
        return bytes(proto.SerializeToString())


def _with_deciding(proto: onnx.ModelProto, folder: str) -> onnx.ModelProto:
    """``proto`` with its own weights, where these decide what it does."""
    return with_own_weights(proto, Path(folder)) if folder and data_decides(proto) else proto


def source_of(
    backend: Backend, model: Model, proto: onnx.ModelProto
) -> tuple[Graph, Sequence[str]]:
    """The source graph of ``model``, with skeleton ``proto``; and values that one run observed."""
    try:
        return source_graph(model), ()
    except OpenShapes:
        types, observed = backend.types(proto)
        return source_graph(model, types), observed


class QuantisingRequests:
    """Quantises models in the process of ``runtime``, with data of its seed."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime

    def quantise(self, request: QuantiseModel) -> None:
        """Write the quantised model."""
        tool = capability(backends.offer(request.tool, request.location), Quantiser, request.tool)
        proto = parse_model(request.model)
        size_bytes = sum(
            t.size_bytes for t in without_values(proto).values() if t.dtype != "STRING"
        )
        if size_bytes > _MOST_BYTES:
            raise BackendError(
                f"its weights take {size_bytes / (1 << 30):.1f} GiB, and models of up to 1 GiB are"
                " quantised here: quantise it yourself, and give that file"
            )
        pool, whole = Pool(self._runtime.settings.seed), graph_of(proto)
        proto = with_own_weights(proto, Path(request.folder))
        weights, _ = synthetic_data(pool, proto, whole, "weights")
        inputs = (synthetic_data(pool, proto, whole, f"sample {n}")[1] for n in range(_SAMPLES))
        samples = [{name: make() for name, make in makers.items()} for makers in inputs]
        target = Path(request.target)
        with TemporaryDirectory(dir=target.parent) as folder:
            source = Path(folder) / "model.onnx"
            onnx.save(with_values(proto, weights), source)
            tool.quantise(source, target, QuantisationMethod(request.method), samples)


@dataclass(frozen=True, slots=True)
class _ObservedValue:
    """A value that ``node`` reads, and the ``facts`` on which the node's time depends."""

    node: onnx.NodeProto
    name: str
    facts: frozenset[str]


def contents_of(
    observer: ValueObserver,
    model: onnx.ModelProto,
    executed: ExecutedGraph,
    key: str,
    turns: Turns,
) -> Contents:
    """Observe the values that nodes of the ``executed`` graph read in one run of ``model``.

    The model has the weights that it is loaded with under ``key``, and ``turns`` are those of its
    inputs. Values that only the executed graph has are observed in a run of that graph.
    """
    graph = graph_of(executed.proto, executed.types)
    unusual = _unusual_weights(observer, model, graph, key)
    # Eight-bit floats become ordinary numbers; denormals of wider types pass from node to node.
    weights = {
        n: values for n, (values, of) in unusual.items() if of.denormals and _float(graph, n)
    }
    products = any(sketch.quantiles for sketch in noted_weights(model).values())
    floats = _all_floats(graph) if weights or products else ()
    to_observe = _merged([*_dependent(observer, graph), *floats])
    loops = conditional_loops(graph.nodes)
    of_weights = {name: sketch for name, (_, sketch) in unusual.items()}
    sketches = {name: sketch for name, sketch in of_weights.items() if sketch.denormals}
    if not to_observe and not loops:
        return Contents(sketches=sketches, weights=of_weights) if of_weights else UNKNOWN
    names = {counter_name(loop) for loop in loops}
    for observed in to_observe:
        inputs = observed.node.input if observed.node.op_type == SUPPRESSION else ()
        names.update((observed.name, *(name for name in inputs if name)))
    proto = with_values(executed.proto, weights) if weights else executed.proto
    values = _values(observer, model, proto, names, key)
    values |= _constants(graph, names - values.keys())
    spread = _of_several_runs(observer, model, to_observe, values, key, turns)
    for observed in to_observe:
        sketch = _sketch(observed, graph, values, spread)
        if sketch is not None:
            sketches[observed.name] = sketch
    iterations = {first_output(loop): values[counter_name(loop)].size for loop in loops}
    return Contents(sketches=sketches, iterations=iterations, weights=of_weights)


def _unusual_weights(
    observer: ValueObserver, model: onnx.ModelProto, graph: Graph, key: str
) -> dict[str, tuple[np.ndarray, Sketch]]:
    """Weights of the executed graph whose values decide latencies, and the sketch of each, by name.

    None unless the model notes weights. Eight-bit weights that the runtime has moved, such as
    transposed ones, are sketched as those of the model.
    """
    noted = noted_weights(model)
    if not noted or not isinstance(observer, WeightObserver):
        return {}
    products = any(sketch.quantiles for sketch in noted.values())
    own = {tensor.name for tensor in model.graph.initializer}
    unusual: dict[str, tuple[np.ndarray, Sketch]] = {}
    for name, values in observer.executed_weights(model, key=key).items():
        type_ = graph.types.get(name)
        if not isinstance(type_, TensorType):
            continue
        sketch = stored_sketch([values], type_.dtype)
        if name in noted and noted[name].quantiles:
            sketch = noted[name]
        elif products and name not in own and ELEMENT_BITS[type_.dtype] == _EIGHT_BITS:
            wide = values.view(value_dtype(type_.dtype)).astype(np.float32)
            sketch = Sketch(quantiles=quantiles_of(np.ravel(wide)))
        if sketch is not None:
            unusual[name] = values, sketch
    return unusual


def _all_floats(graph: Graph) -> Iterator[_ObservedValue]:
    """All computed floats that nodes read: denormal numbers pass from node to node."""
    for node in graph.nodes:
        for name in node.input:
            if name and name not in graph.initializers and _float(graph, name):
                yield _ObservedValue(node, name, frozenset((DENORMALS,)))


def _float(graph: Graph, name: str) -> bool:
    type_ = graph.types.get(name)
    return isinstance(type_, TensorType) and type_.dtype in ("FLOAT", "DOUBLE")


def _dependent(observer: ValueObserver, graph: Graph) -> Iterator[_ObservedValue]:
    for node in graph.nodes:
        first = graph.types.get(node.input[0]) if node.input else None
        known = isinstance(first, TensorType) and first.dtype != "STRING"
        own = observer.branching_on(node.op_type)
        if own and known and first is not None and first.dtype == "FLOAT":
            yield _ObservedValue(node, node.input[0], frozenset(own))
        for name, facts in dependent_inputs(node, first.size_bytes if known and first else None):
            type_ = graph.types.get(name)
            if name not in graph.initializers and _numbers(type_):
                yield _ObservedValue(node, name, frozenset(facts))


def _merged(values: Iterable[_ObservedValue]) -> list[_ObservedValue]:
    """One entry for each value, with the facts that matter to any node."""
    merged: dict[str, _ObservedValue] = {}
    for value in values:
        before = merged.setdefault(value.name, value)
        merged[value.name] = replace(before, facts=before.facts | value.facts)
    return list(merged.values())


def _numbers(type_: object) -> bool:
    if not isinstance(type_, TensorType) or not type_.elements:
        return False
    return (
        type_.dtype == "BOOL"
        or type_.dtype in ("FLOAT", "DOUBLE", "FLOAT16")
        or ("INT" in type_.dtype and value_dtype(type_.dtype).kind in "iu")
    )


def _values(
    observer: ValueObserver,
    model: onnx.ModelProto,
    executed: onnx.ModelProto,
    names: set[str],
    key: str,
) -> dict[str, np.ndarray]:
    """The values called ``names`` that are computed in a run, or are its inputs."""
    values: dict[str, np.ndarray] = {}
    for proto in (model, executed):
        loops = [first_output(loop) for loop in conditional_loops(proto.graph.node)]
        proto = with_iteration_counters(proto, loops) if loops else proto
        made = {name for node in proto.graph.node for name in node.output}
        made |= {info.name for info in proto.graph.input}
        here = sorted(names.intersection(made) - values.keys())
        if here:
            values |= next(observer.observe(proto, here, key=key))
    return values


def _constants(graph: Graph, names: set[str]) -> dict[str, np.ndarray]:
    tensors = (graph.initializers[name] for name in names if name in graph.initializers)
    return {t.name: onnx.numpy_helper.to_array(t) for t in tensors if t.data_location == t.DEFAULT}


def _of_several_runs(
    observer: ValueObserver,
    model: onnx.ModelProto,
    to_observe: Iterable[_ObservedValue],
    values: Mapping[str, np.ndarray],
    key: str,
    turns: Turns,
) -> dict[str, np.ndarray]:
    """Values whose few rows in one run show no distribution, joined over several runs, by name.

    Only those that ``model`` has, and that depend on inputs which change from run to run.
    """
    names = {name for node in model.graph.node for name in node.output}
    names |= {info.name for info in model.graph.input}
    few = sorted(
        of.name
        for of in to_observe
        if COLUMNS in of.facts and of.name in names and 0 < _rows(values.get(of.name)) < _LEAST_ROWS
    )
    if not few or not turns:
        return {}
    # Numbers of sets with which all inputs do what the first do: a branch has its own values.
    common = sorted(set.intersection(*map(set, turns.values())))
    count = max(-(-_LEAST_ROWS // _rows(values[name])) for name in few)
    runs = observer.observe(model, few, key=key, turning=turns.keys(), turns=common[:count])
    tensors = joined([*runs])
    return {name: tensors[name] for name in few}


def _rows(values: np.ndarray | None) -> int:
    """The number of rows of a table; 0 for values that are none."""
    if values is None or values.ndim < 2 or not values.size:
        return 0
    return int(values.size // values.shape[-1])


def _sketch(
    observed: _ObservedValue,
    graph: Graph,
    values: Mapping[str, np.ndarray],
    spread: Mapping[str, np.ndarray],
) -> Sketch | None:
    if observed.node.op_type == SUPPRESSION and observed.name == observed.node.input[0]:
        return suppression_sketch(observed.node, values)
    if observed.name not in values:
        return None
    value = spread.get(observed.name, values[observed.name])
    sketch = Sketch.of(value, observed.facts)
    if SIGNS in observed.facts:
        return sketch
    single = replace(graph, nodes=(observed.node,), inputs=(observed.name,))
    range_ = integer_ranges(single, [observed.name]).get(observed.name)
    return sketch.differing_from(_random(value, range_))


def _random(like: np.ndarray, range_: Range | None) -> np.ndarray:
    """Random values as a brick reads without a sketch, of the shape and type of ``like``."""
    rng = np.random.default_rng(0)
    if like.dtype == bool:
        return np.ones(like.shape, bool)
    if like.dtype.kind in "iu":
        low, high = (range_.low, range_.high) if range_ else (0, 2)
        return rng.integers(low, high, like.shape)
    return rng.uniform(-1, 1, like.shape)
