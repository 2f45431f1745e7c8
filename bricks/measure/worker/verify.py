"""Verifies that a decomposition is exact: chains its bricks, and compares with the whole model.

Both run in the worker process on the same synthetic inputs, with the model's own weights where its
files have them and synthetic ones elsewhere. Chaining the nodes of the executed graph
must give bitwise the same outputs. Pieces of the source graph are optimised one by one, so their
floating-point sums may be in another order, and so may those of nodes that a runtime fuses. It must
not know how bricks are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from bricks.backends.base import Evaluator
from bricks.backends.programs import Recorder, ReplayableStep
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.identity import Cutter, Piece
from bricks.decompose.lowering import AS_WRITTEN, Contents, Lowering
from bricks.decompose.overlap import windows
from bricks.decompose.plan import Plan
from bricks.graph.graph import Graph
from bricks.graph.model import Model
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.topology import subgraphs
from bricks.graph.view import graph_of, parse_model, upstream, without_values
from bricks.measure.worker.chaining import Bricks, chain, output_of, weights_of_pieces
from bricks.measure.worker.model_data import ModelData, model_data
from bricks.measure.worker.output_difference import difference_of
from bricks.measure.worker.plan_fit import fitting
from bricks.measure.worker.random_values import random_values, read_by_random
from bricks.measure.worker.source_graphs import source_of
from bricks.operators.integer_ranges import steering_values
from bricks.samples.verification import Verification


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
        weights = weights_of_pieces(pieces.cutter, pieces.pieces, arrays)
        chained = chain(backend, plan, bricks, weights, data.inputs)
        constants = pieces.cutter.graph.initializers
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
