"""Observes values that operators read in a run of the model, if their time depends on the values.

One run on the model's inputs shows the distribution of each such value (see ``graph.sketch``), and
the iterations of loops whose condition is computed. Must not know how a graph is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx

from bricks.backends.base import ExecutedGraph, ValueObserver, WeightObserver
from bricks.backends.input_values import Turns, joined
from bricks.decompose.lowering import UNKNOWN, Contents
from bricks.graph.denormals import stored_sketch
from bricks.graph.distributions import quantiles_of
from bricks.graph.graph import Graph
from bricks.graph.loops import (
    conditional_loops,
    counter_name,
    first_output,
    with_iteration_counters,
)
from bricks.graph.model_metadata import noted_weights
from bricks.graph.payload import value_dtype
from bricks.graph.sketch import COLUMNS, DENORMALS, SIGNS, Sketch
from bricks.graph.suppression import OPERATOR as SUPPRESSION
from bricks.graph.suppression import suppression_sketch
from bricks.graph.synthesis import Range
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.graph.view import graph_of
from bricks.graph.weights import with_values
from bricks.operators.dependence import dependent_inputs
from bricks.operators.integer_ranges import integer_ranges

# So many rows show the distribution in the columns of a table.
_LEAST_ROWS = 64
_EIGHT_BITS = 8


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
    inputs. Values that only the executed
    graph has are observed in a run of that graph.
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
    names = _names_of(to_observe) | {counter_name(loop) for loop in loops}
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


def _names_of(to_observe: Iterable[_ObservedValue]) -> set[str]:
    """The names of all values that their sketches are computed from."""
    names: set[str] = set()
    for observed in to_observe:
        inputs = observed.node.input if observed.node.op_type == SUPPRESSION else ()
        names.update((observed.name, *(name for name in inputs if name)))
    return names


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
    """Constants called ``names`` whose values are in the graph."""
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
