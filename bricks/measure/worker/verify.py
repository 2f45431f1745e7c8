"""Verifies that a decomposition is exact: chains its bricks, and compares with the whole model.

Runs in the worker process, on the same synthetic inputs for both, with the model's own weights
where its files have them and synthetic ones elsewhere. Chaining the nodes of the executed graph
must give bitwise the same outputs. Pieces of the source graph are optimised one by one, so their
floating-point sums may be in another order, and so may those of nodes that a runtime fuses. It must
not know how bricks are measured.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bricks.backends.base import Backend, Evaluator
from bricks.backends.programs import Recorder
from bricks.decompose.build import build
from bricks.decompose.granularity import EXECUTED, Granularity
from bricks.decompose.identity import Cutter, Piece
from bricks.decompose.lowering import AS_WRITTEN, Contents, Lowering
from bricks.decompose.overlap import windows
from bricks.decompose.plan import Occurrence, Plan
from bricks.errors import BackendError
from bricks.graph.domains import steering_values
from bricks.graph.graph import Graph
from bricks.graph.model import Model
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.source import OpenShapes, source_graph
from bricks.graph.topology import inner_nodes, subgraphs, used_values
from bricks.graph.view import (
    graph_of,
    parse_model,
    unsure,
    upstream,
    without_values,
)
from bricks.measure.worker.model_data import model_data

Bricks = Mapping[str, onnx.ModelProto]
Facts = dict[str, Any]


# Operators that give other numbers at each run.
_RANDOM = {
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Bernoulli", "Multinomial"),
}

# The largest difference of floating-point outputs where sums are in another order, relative to the
# greatest magnitude of an output.
TOLERANCE = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-9}


def verify_model(
    backend: Evaluator, *, seed: int, model: Model, plan: Plan, bricks: Bricks
) -> Facts:
    """Chain ``bricks`` (protos by key) along ``plan`` and compare with the whole ``model``.

    Returns ``exact`` (bitwise equal), ``max_abs_difference``, ``max_rel_difference`` (relative to
    the greatest magnitude of the output; None where outputs differ in kind), ``tolerance`` (its
    largest allowed value), ``own_weights``, ``finite`` (whether each output has a finite number in
    it), ``random`` (the outputs that depend on random numbers), and ``optimised`` (whether the
    whole model was optimised). Where numbers are random, what they are computed with is compared
    instead of what is computed from them. Optimisations may compute with
    fewer digits (products with quantised weights, say), which no chain of pieces can do; then
    pieces of the source graph are compared with the model as it is written. Raises
    :class:`~bricks.errors.BackendError` where the pieces do not fit the plan.
    """
    data = model_data(model, seed)
    proto, weights, given, own = data.proto, data.weights, data.inputs, data.own_weights
    expected = backend.evaluate(proto, weights, given, optimize=True)
    cut = Granularity.parse(plan.granularity)
    lowering = AS_WRITTEN
    if cut.executed:
        executed, arrays = backend.materialised(proto, weights)
        proto, graph = executed.proto, graph_of(executed.proto, executed.types)
        lowering = Lowering(executed.groups, executed.layouts, executed.other_kernels)
    else:
        (graph, _), arrays = source_of(backend, model, proto), weights
    names = steering_values(graph)
    contents = Contents(steering=backend.values(proto, names) if names else {})
    cutter = Cutter(graph, contents=contents, lowering=lowering)
    pieces = [cutter.cut(window.nodes) for window in windows(graph, cut, lowering.groups)]
    again = build(model, graph, cut, lowering=lowering, contents=contents).plan
    plan = _fitting(plan, again, pieces)
    random = random_values(graph)
    read = _read_beside(graph, random) if lowering.groups is None else []
    numbers = {
        name: number
        for occurrence, piece in zip(plan.occurrences, pieces, strict=True)
        for name, number in zip(piece.outputs, occurrence.outputs, strict=True)
    }
    read = [name for name in read if name in numbers]
    outputs = plan.outputs
    plan = replace(plan, outputs=(*outputs, *(numbers[name] for name in read)))
    chained = chain(backend, plan, bricks, _weights_by_place(cutter, pieces, arrays), given)
    constants = cutter.graph.initializers
    actual = [
        chained[number] if number in chained else _array(constants[name], name, arrays)
        for name, number in zip(graph.outputs, outputs, strict=True)
    ]
    kept = [i for i, name in enumerate(graph.outputs) if name not in random]
    actual = [*(actual[i] for i in kept), *(chained[numbers[name]] for name in read)]
    beside = _evaluated(backend, proto, arrays, given, read)
    expected = [*(expected[i] for i in kept), *beside]
    # What a runtime folds inside a subgraph it packs for its kernels, unlike the same constant in a
    # brick, where it is outside: sums may then be in another order.
    packed = any(subgraphs(node) for node in graph.nodes)
    facts = compare(
        expected, actual, bitwise=cut.executed and lowering.groups is None and not packed
    )
    facts["random"] = sorted(random.intersection(graph.outputs))
    if not cut.executed and not within_tolerance(facts):
        plain_run = backend.evaluate(parse_model(model.skeleton), weights, given, optimize=False)
        expected = [*(plain_run[i] for i in kept), *beside]
        plain = compare(expected, actual, bitwise=False)
        if within_tolerance(plain):
            return {"own_weights": own, "optimised": False, **facts, **plain}
    return {"own_weights": own, "optimised": True, **facts}


def random_values(graph: Graph) -> set[str]:
    """The names of values that are other ones in each run: random numbers, and what reads them."""
    found: set[str] = set()
    for node in graph.nodes:
        within = {each.op_type for each in (node, *inner_nodes(node))}
        if within & _RANDOM or found.intersection(used_values(node)):
            found.update(name for name in node.output if name)
    return found


def _read_beside(graph: Graph, random: set[str]) -> list[str]:
    """What nodes that compute random values read that is not random, by name; all numbers."""
    read = (
        n for node in graph.nodes if random.intersection(node.output) for n in used_values(node)
    )
    made = {name for node in graph.nodes for name in node.output} - random
    return [name for name in dict.fromkeys(read) if name in made]


def _evaluated(
    backend: Evaluator,
    proto: onnx.ModelProto,
    arrays: Mapping[str, np.ndarray],
    given: Mapping[str, Any],
    names: Sequence[str],
) -> list[Any]:
    """The values called ``names`` in a run of ``proto``."""
    if not names:
        return []
    part = upstream(proto, names)
    inputs = {info.name for info in part.graph.input}
    found = backend.evaluate(
        part,
        {name: array for name, array in arrays.items() if name in without_values(part)},
        {name: value for name, value in given.items() if name in inputs},
        optimize=False,
    )
    by_name = dict(zip((output.name for output in part.graph.output), found, strict=True))
    return [by_name[name] for name in names]


def verify_program(backend: Recorder, *, model: Model, plan: Plan, bricks: Bricks) -> Facts:
    """Chain the calls of a recorded program, and compare with a real step from the same state.

    Loss or outputs, gradients, parameters and the optimiser's state are compared, bit by bit if two
    real steps from that state agree in all bits. The result is that of :func:`verify_model`.
    """
    proto = parse_model(model.skeleton)
    step = backend.stepped(proto)
    graph = graph_of(proto)
    cut = Granularity.parse(plan.granularity)
    contents = Contents(sketches=noted_sketches(proto))
    cutter = Cutter(graph, contents=contents, context=cut.executed)
    pieces = [cutter.cut(window.nodes) for window in windows(graph, cut, None)]
    plan = _fitting(plan, build(model, graph, cut, contents=contents).plan, pieces)
    begins = step.begin()
    values = {n: begins[name] for name, n in zip(graph.inputs, plan.inputs, strict=True)}
    made: dict[str, Any] = {}
    for occurrence, piece in zip(plan.occurrences, pieces, strict=True):
        brick = bricks[occurrence.brick]
        ports = [info.name for info in brick.graph.input]
        given = dict(zip(ports, (values[n] for n in occurrence.inputs), strict=True))
        weights = (begins[name] for name in piece.weights)
        found = step.call(brick, given | dict(zip(without_values(brick), weights, strict=True)))
        outputs = [found[info.name] for info in brick.graph.output]
        values |= dict(zip(occurrence.outputs, outputs, strict=True))
        made |= dict(zip(piece.outputs, outputs, strict=True))
    names = list(step.expected)
    actual = [_as_array(made[name], step.expected[name]) for name in names]
    expected = [step.expected[name] for name in names]
    facts = compare(expected, actual, bitwise=step.deterministic)
    return {"own_weights": True, "optimised": True, **facts}


def _as_array(tensor: Any, like: np.ndarray) -> np.ndarray:
    """A tensor of the runtime as an array of the type of ``like``."""
    plain = tensor.detach()
    return np.asarray(plain.float() if like.dtype == np.float32 else plain)


def within_tolerance(facts: Mapping[str, Any]) -> bool:
    """Whether outputs that were compared are equal, except for the order of sums."""
    relative = facts["max_rel_difference"]
    return bool(facts["exact"]) or (relative is not None and relative <= facts["tolerance"])


def chain(
    backend: Evaluator,
    plan: Plan,
    bricks: Bricks,
    weights: Sequence[Sequence[np.ndarray]],
    inputs: Mapping[str, Any],
) -> dict[int, Any]:
    """The plan's outputs by value number, computed brick by brick.

    ``weights`` holds each occurrence's weights in its brick's order. Each occurrence runs the brick
    that its key names, on the inputs that the plan names: nothing else connects the pieces. A brick
    that overlaps with the one before it computes the shared layer again. An input of that layer may
    be hidden in the brick before, and is made an output of it here.
    """
    readers = Counter(value for o in plan.occurrences for value in o.inputs)
    readers.update(plan.outputs)
    values = dict(zip(plan.inputs, inputs.values(), strict=True))
    for occurrence, arrays in zip(plan.occurrences, weights, strict=True):
        proto = unsure(_open(bricks[occurrence.brick], occurrence))
        given = [values[number] for number in occurrence.inputs]
        _set_input_shapes(proto, given)
        results = backend.evaluate(
            proto,
            dict(zip(without_values(proto), arrays, strict=True)),
            dict(zip((i.name for i in proto.graph.input), given, strict=True)),
            optimize=plan.granularity != EXECUTED,
        )
        values.update(zip(occurrence.made, results, strict=True))
        readers.subtract(occurrence.inputs)
        for number in (*occurrence.inputs, *occurrence.made):
            if not readers[number]:
                values.pop(number, None)
    return {number: values[number] for number in plan.outputs if number in values}


def _open(brick: onnx.ModelProto, occurrence: Occurrence) -> onnx.ModelProto:
    """``brick``, with the hidden values that overlapping bricks need as further outputs."""
    if not occurrence.hidden:
        return brick
    copy = onnx.ModelProto()
    copy.CopyFrom(brick)
    copy.graph.output.extend(onnx.ValueInfoProto(name=f"v{k}") for k, _ in occurrence.hidden)
    return copy


def _fitting(plan: Plan, again: Plan, pieces: Sequence[Piece]) -> Plan:
    """The plan to chain the ``pieces`` by, cut ``again`` with these weights: ``plan`` if it fits.

    A runtime may execute the same nodes in another order from one session to the next. Sometimes
    optimisations depend on values: a plan made without them may not fit at all.
    """
    if sorted(o.brick for o in again.occurrences) == sorted(o.brick for o in plan.occurrences):
        # If the plan computes something else, the outputs must show it.
        return again if _computes(again) == _computes(plan) else plan
    planned, found = len(plan.occurrences), len(pieces)
    other = f"{found} pieces, where the plan, made without their values, has {planned}"
    if planned == found:
        ports = [(len(p.inputs), len(p.weights), len(p.outputs)) for p in pieces]
        wanted = [(len(o.inputs), len(o.weights), len(o.outputs)) for o in plan.occurrences]
        if ports == wanted:
            return plan
        other = "some of its pieces have other inputs than in the plan"
    raise BackendError(f"with these weights the runtime executes another graph: {other}")


def _computes(plan: Plan) -> tuple[Counter[str], list[str]]:
    """Digests of each occurrence with all that it depends on, in any order, and the outputs."""
    values = {number: f"input {i}" for i, number in enumerate(plan.inputs)}
    found: Counter[str] = Counter()
    for o in plan.occurrences:
        what = "\n".join((o.brick, *(values.get(number, "unknown") for number in o.inputs)))
        digest = hashlib.sha256(what.encode()).hexdigest()
        found[digest] += 1
        values |= {number: f"{digest} {port}" for port, number in enumerate(o.outputs)}
        values |= {number: f"{digest} v{k}" for k, number in o.hidden}
    return found, [values.get(number, "constant") for number in plan.outputs]


def _weights_by_place(
    cutter: Cutter, pieces: Sequence[Piece], arrays: Mapping[str, np.ndarray]
) -> list[list[np.ndarray]]:
    constants = cutter.graph.initializers
    return [[_array(constants[name], name, arrays) for name in p.weights] for p in pieces]


def _set_input_shapes(proto: onnx.ModelProto, given: Sequence[Any]) -> None:
    """Give the brick the shapes of ``given``: where they depend on data, the plan has others."""
    for info, array in zip(proto.graph.input, given, strict=True):
        if not info.type.tensor_type.HasField("shape"):
            continue
        shape = info.type.tensor_type.shape
        del shape.dim[:]
        for size in array.shape:
            shape.dim.add().dim_value = size


def compare(expected: Sequence[Any], actual: Sequence[Any], *, bitwise: bool) -> Facts:
    """The difference of ``actual`` from ``expected`` over all outputs; see :func:`verify_model`."""
    exact, finite, absolute, relative, tolerance = True, True, 0.0, 0.0, 0.0
    pairs = [pair for a, b in zip(expected, actual, strict=True) for pair in _flat(a, b)]
    for a, b in pairs:
        same = a.shape == b.shape and a.dtype == b.dtype
        exact &= same and _equal(a, b)
        if not bitwise:
            tolerance = max(tolerance, TOLERANCE.get(a.dtype.name, 0.0))
        if not same or (a.dtype.kind == "O" and not _equal(a, b)):
            absolute = relative = float("inf")
            continue
        if a.dtype.kind == "O":
            continue
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        good = np.isfinite(x)
        finite &= bool(good.any()) or not x.size
        if not np.array_equal(good, np.isfinite(y)):
            absolute = relative = float("inf")
        elif good.any():
            difference = float(np.abs(x[good] - y[good]).max())
            absolute = max(absolute, difference)
            relative = max(relative, difference / max(float(np.abs(x[good]).max()), 1e-30))
    return {
        "exact": exact,
        "max_abs_difference": absolute if np.isfinite(absolute) else None,
        "max_rel_difference": relative if np.isfinite(relative) else None,
        "tolerance": tolerance,
        "finite": finite,
    }


def _flat(a: Any, b: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The pairs of corresponding tensors in two values; values that differ in kind are one pair."""
    if isinstance(a, dict) and isinstance(b, dict):
        a, b = list(a.items()), list(b.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        for pair in zip(a, b, strict=True):
            yield from _flat(*pair)
    else:
        yield _tensor(a), _tensor(b)


def _tensor(value: Any) -> np.ndarray:
    if isinstance(value, list | tuple | dict) or value is None:
        value = str(value)
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "UST" else array


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b) if a.dtype.kind == "O" else a.tobytes() == b.tobytes()


def source_of(
    backend: Backend, model: Model, proto: onnx.ModelProto
) -> tuple[Graph, Sequence[str]]:
    """The source graph of ``model``, with skeleton ``proto``; and values that one run observed."""
    try:
        return source_graph(model), ()
    except OpenShapes:
        types, observed = backend.types(proto)
        return source_graph(model, types), observed


def _array(tensor: onnx.TensorProto, name: str, weights: Mapping[str, np.ndarray]) -> np.ndarray:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return weights[name]
    return numpy_helper.to_array(tensor)
