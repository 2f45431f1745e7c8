"""Verifies that a decomposition is exact: chains its bricks, and compares with the whole model.

Both run in the worker process on the same synthetic inputs, with the model's own weights where its
files have them and synthetic ones elsewhere. Bricks run one after the other, each on the outputs of
the bricks before it. Chaining the nodes of the executed graph must give bitwise the same outputs.
Pieces of the source graph are optimised one by one, so their floating-point sums may be in another
order, and so may those of nodes that a runtime fuses. Newly cut pieces are chained by the stored
plan, or by one cut with equal weights. It must not know how bricks are measured.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bricks.backends.base import Evaluator
from bricks.backends.programs import Recorder, ReplayableStep
from bricks.decompose.build import build
from bricks.decompose.granularity import EXECUTED, Granularity
from bricks.decompose.identity import Cutter, Piece
from bricks.decompose.lowering import AS_WRITTEN, Contents, Lowering
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.overlap import windows
from bricks.decompose.plan import Plan
from bricks.errors import BackendError
from bricks.graph.model import Graph, Model
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.payload import is_referenced, read_inline, type_of, unpacked
from bricks.graph.topology import subgraphs
from bricks.graph.types import ELEMENT_BITS
from bricks.graph.view import graph_of, parse_model, upstream, without_shapes, without_values
from bricks.measure.worker.double_model import random_values, read_by_random
from bricks.measure.worker.graphs import source_of
from bricks.measure.worker.outputs import difference_of
from bricks.measure.worker.reference import ModelData, model_data
from bricks.operators.integer_ranges import steering_values
from bricks.samples.evaluation import Verification


def verify_model(
    backend: Evaluator, *, seed: int, model: Model, plan: Plan, bricks: Bricks
) -> Verification:
    """Chain ``bricks`` (protos by key) along ``plan`` and compare with the whole ``model``.

    In place of outputs that depend on random numbers, the inputs of random operators are compared.
    Optimisations may compute with fewer digits (products with quantised weights, say), which no
    chain of pieces can do; then pieces of the source graph are compared with the unoptimised model.
    Raises :class:`~bricks.errors.BackendError` where the pieces do not fit the plan.
    """
    data = model_data(model, seed)
    whole = backend.evaluate(data.proto, data.weights, data.inputs, optimize=True)
    lowered = _lowered(backend, model, data, Granularity.parse(plan.granularity))
    compared = _Compared.of(lowered, _Pieces.of(backend, lowered, model, plan))
    actual = compared.chained(backend, bricks, data)
    read = _evaluated(backend, lowered, data, compared.read)
    difference = difference_of(compared.expected(whole, read), actual, bitwise=lowered.bitwise)
    random = tuple(sorted(compared.random.intersection(lowered.graph.outputs)))
    if not lowered.cut.executed and not difference.within_tolerance:
        skeleton = parse_model(model.skeleton)
        plain_run = backend.evaluate(skeleton, data.weights, data.inputs, optimize=False)
        plain = difference_of(compared.expected(plain_run, read), actual, bitwise=False)
        if plain.within_tolerance:
            return Verification(plain, data.own_weights, optimised=False, random=random)
    return Verification(difference, data.own_weights, optimised=True, random=random)


@dataclass(frozen=True, slots=True)
class _Lowered:
    """A model's graph before it is cut, and its weights (``arrays``) in the form that it needs."""

    cut: Granularity
    proto: onnx.ModelProto
    graph: Graph
    arrays: Mapping[str, np.ndarray]
    lowering: Lowering

    @property
    def bitwise(self) -> bool:
        """Whether chained pieces of the graph compute the same outputs in all bits.

        A runtime packs a constant that it folds inside a subgraph for its kernels, unlike the same
        constant outside, in a brick: sums may then be in another order.
        """
        packed = any(subgraphs(node) for node in self.graph.nodes)
        return self.cut.executed and self.lowering.groups is None and not packed


def _lowered(backend: Evaluator, model: Model, data: ModelData, cut: Granularity) -> _Lowered:
    if not cut.executed:
        graph, _ = source_of(backend, model, data.proto)
        return _Lowered(cut, data.proto, graph, data.weights, AS_WRITTEN)
    executed, arrays = backend.materialised(data.proto, data.weights)
    graph = graph_of(executed.proto, executed.types)
    lowering = Lowering(executed.groups, executed.layouts, executed.other_kernels)
    return _Lowered(cut, executed.proto, graph, arrays, lowering)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The pieces of a graph as cut with these weights, and a plan that fits them."""

    cutter: Cutter
    pieces: Sequence[Piece]
    plan: Plan

    @classmethod
    def of(cls, backend: Evaluator, lowered: _Lowered, model: Model, plan: Plan) -> _Pieces:
        """Cut ``lowered``; :class:`BackendError` if no plan fits."""
        graph, lowering = lowered.graph, lowered.lowering
        names = steering_values(graph)
        contents = Contents(steering=backend.values(lowered.proto, names) if names else {})
        cutter = Cutter(graph, contents=contents, lowering=lowering)
        pieces = [cutter.cut(w.nodes) for w in windows(graph, lowered.cut, lowering.groups)]
        again = build(model, graph, lowered.cut, lowering=lowering, contents=contents).plan
        return cls(cutter, pieces, fitting(plan, again, pieces))

    @property
    def numbers(self) -> dict[str, int]:
        """The plan's numbers of the values that pieces make, by name."""
        return {
            name: number
            for occurrence, piece in zip(self.plan.occurrences, self.pieces, strict=True)
            for name, number in zip(piece.outputs, occurrence.outputs, strict=True)
        }


@dataclass(frozen=True, slots=True)
class _Compared:
    """The compared values: outputs that are not ``random``, and values that random ones ``read``.

    ``kept`` are the positions of the compared outputs among all outputs.
    """

    lowered: _Lowered
    pieces: _Pieces
    random: frozenset[str]
    kept: Sequence[int]
    read: Sequence[str]

    @classmethod
    def of(cls, lowered: _Lowered, pieces: _Pieces) -> _Compared:
        graph, numbers = lowered.graph, pieces.numbers
        random = random_values(graph)
        read = read_by_random(graph, random) if lowered.lowering.groups is None else []
        kept = [i for i, name in enumerate(graph.outputs) if name not in random]
        known = [name for name in read if name in numbers]
        return cls(lowered, pieces, frozenset(random), kept, known)

    def expected(self, outputs: Sequence[Any], read: Sequence[Any]) -> list[Any]:
        """The compared values among all ``outputs`` and the values that are ``read``."""
        return [*(outputs[i] for i in self.kept), *read]

    def chained(self, backend: Evaluator, bricks: Bricks, data: ModelData) -> list[Any]:
        """The same values as the chained ``bricks`` compute them."""
        pieces, arrays = self.pieces, self.lowered.arrays
        outputs, numbers = pieces.plan.outputs, pieces.numbers
        read = [numbers[name] for name in self.read]
        plan = replace(pieces.plan, outputs=(*outputs, *read))
        constants = pieces.cutter.graph.initializers
        weights = [
            [array_of(constants[name], name, arrays) for name in piece.weights]
            for piece in pieces.pieces
        ]
        chained = chain(backend, plan, bricks, weights, data.inputs)
        computed = [
            chained[number] if number in chained else output_of(constants[name], name, arrays)
            for name, number in zip(self.lowered.graph.outputs, outputs, strict=True)
        ]
        return self.expected(computed, [chained[number] for number in read])


def _evaluated(
    backend: Evaluator, lowered: _Lowered, data: ModelData, names: Sequence[str]
) -> list[Any]:
    """The values called ``names`` in a run of the graph that is cut."""
    if not names:
        return []
    part = upstream(lowered.proto, names)
    inputs, weights = {info.name for info in part.graph.input}, without_values(part)
    values = backend.evaluate(
        part,
        {name: array for name, array in lowered.arrays.items() if name in weights},
        {name: value for name, value in data.inputs.items() if name in inputs},
        optimize=False,
    )
    by_name = dict(zip((output.name for output in part.graph.output), values, strict=True))
    return [by_name[name] for name in names]


def verify_program(backend: Recorder, *, model: Model, plan: Plan, bricks: Bricks) -> Verification:
    """Chain the calls of a recorded program, and compare with a real step from the same state.

    Loss or outputs, gradients, parameters and the optimiser's state are compared, bit by bit if two
    real steps from that state agree in all bits. The result is that of :func:`verify_model`.
    """
    proto = parse_model(model.skeleton)
    step = backend.real_step(proto)
    graph = graph_of(proto)
    cut = Granularity.parse(plan.granularity)
    contents = Contents(sketches=noted_sketches(proto))
    cutter = Cutter(graph, contents=contents, context=cut.executed)
    pieces = [cutter.cut(window.nodes) for window in windows(graph, cut, None)]
    plan = fitting(plan, build(model, graph, cut, contents=contents).plan, pieces)
    made = _called(step, graph, plan, pieces, bricks)
    names = list(step.expected)
    actual = [_as_array(made[name], step.expected[name]) for name in names]
    expected = [step.expected[name] for name in names]
    difference = difference_of(expected, actual, bitwise=step.deterministic)
    return Verification(difference, own_weights=True, optimised=True)


def _called(
    step: ReplayableStep, graph: Graph, plan: Plan, pieces: Sequence[Piece], bricks: Bricks
) -> dict[str, Any]:
    """Run the calls of a program from the initial state of the step; all their tensors by name."""
    begins = step.begin()
    values = {n: begins[name] for name, n in zip(graph.inputs, plan.inputs, strict=True)}
    made: dict[str, Any] = {}
    for occurrence, piece in zip(plan.occurrences, pieces, strict=True):
        brick = bricks[occurrence.brick]
        ports = [info.name for info in brick.graph.input]
        tensors = dict(zip(ports, (values[n] for n in occurrence.inputs), strict=True))
        weights = (begins[name] for name in piece.weights)
        called = step.call(brick, tensors | dict(zip(without_values(brick), weights, strict=True)))
        outputs = [called[info.name] for info in brick.graph.output]
        values |= dict(zip(occurrence.outputs, outputs, strict=True))
        made |= dict(zip(piece.outputs, outputs, strict=True))
    return made


def _as_array(tensor: Any, like: np.ndarray) -> np.ndarray:
    """A tensor of the runtime as an array of the type of ``like``."""
    plain = tensor.detach()
    return np.asarray(plain.float() if like.dtype == np.float32 else plain)


def fitting(plan: Plan, again: Plan, pieces: Sequence[Piece]) -> Plan:
    """The plan to chain ``pieces`` by: ``plan`` if it fits, or the plan cut ``again`` with them.

    A runtime may execute the same nodes in another order in each session. Some optimisations depend
    on values: a plan made without values may not fit at all.
    """
    if sorted(o.brick for o in again.occurrences) == sorted(o.brick for o in plan.occurrences):
        # If the plan computes something else, the outputs must show it.
        return again if _computes(again) == _computes(plan) else plan
    planned, cut = len(plan.occurrences), len(pieces)
    other = f"{cut} pieces, where the plan, made without their values, has {planned}"
    if planned == cut:
        ports = [(len(p.inputs), len(p.weights), len(p.outputs)) for p in pieces]
        plan_ports = [(len(o.inputs), len(o.weights), len(o.outputs)) for o in plan.occurrences]
        if ports == plan_ports:
            return plan
        other = "some of its pieces have other inputs than in the plan"
    raise BackendError(f"with these weights the runtime executes another graph: {other}")


def _computes(plan: Plan) -> tuple[Counter[str], list[str]]:
    """Digests of each occurrence with all that it depends on, in any order, and the outputs."""
    values = {number: f"input {i}" for i, number in enumerate(plan.inputs)}
    digests: Counter[str] = Counter()
    for o in plan.occurrences:
        dependencies = "\n".join((o.brick, *(values.get(number, "unknown") for number in o.inputs)))
        digest = hashlib.sha256(dependencies.encode()).hexdigest()
        digests[digest] += 1
        values |= {number: f"{digest} {port}" for port, number in enumerate(o.outputs)}
        values |= {number: f"{digest} v{k}" for k, number in o.hidden}
    return digests, [values.get(number, "constant") for number in plan.outputs]


# Bricks without weights, by key.
Bricks = Mapping[str, onnx.ModelProto]


def chain(
    backend: Evaluator,
    plan: Plan,
    bricks: Bricks,
    weights: Sequence[Sequence[np.ndarray]],
    inputs: Mapping[str, Any],
) -> dict[int, Any]:
    """The plan's outputs by value number, computed brick by brick.

    ``weights`` has each occurrence's weights in its brick's order. Each occurrence runs the brick
    of its key, on the inputs that the plan names: nothing else connects the pieces. A brick that
    overlaps with the brick before it computes the shared layer again. An input of the shared layer
    may be hidden in the brick before, which gets it as a further output here.
    """
    readers = Counter(value for o in plan.occurrences for value in o.inputs)
    readers.update(plan.outputs)
    values = dict(zip(plan.inputs, inputs.values(), strict=True))
    for occurrence, arrays in zip(plan.occurrences, weights, strict=True):
        proto = without_shapes(_open(bricks[occurrence.brick], occurrence))
        inputs_of = [values[number] for number in occurrence.inputs]
        _set_input_shapes(proto, inputs_of)
        by_name = dict(zip(without_values(proto), arrays, strict=True))
        feeds = dict(zip((info.name for info in proto.graph.input), inputs_of, strict=True))
        results = backend.evaluate(proto, by_name, feeds, optimize=plan.granularity != EXECUTED)
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


def _set_input_shapes(proto: onnx.ModelProto, inputs: Sequence[Any]) -> None:
    """Set the shapes of a brick's inputs: those that depend on data are others in the plan."""
    for info, array in zip(proto.graph.input, inputs, strict=True):
        if not info.type.tensor_type.HasField("shape"):
            continue
        shape = info.type.tensor_type.shape
        del shape.dim[:]
        for size in array.shape:
            shape.dim.add().dim_value = size


def array_of(tensor: onnx.TensorProto, name: str, weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of a constant called ``name``, from ``weights`` if it only refers to them.

    Numbers are in their storage type, as weights are: elements of fewer than 8 bits are packed.
    """
    if is_referenced(tensor):
        return weights[name]
    strings = tensor.data_type == onnx.TensorProto.STRING
    return numpy_helper.to_array(tensor) if strings else read_inline(tensor)


def output_of(tensor: onnx.TensorProto, name: str, weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """The same values as a run returns them: packed elements each as a value of ml_dtypes' type."""
    values, type_ = array_of(tensor, name, weights), type_of(tensor)
    return unpacked(values, type_) if ELEMENT_BITS.get(type_.dtype, 8) < 8 else values
