"""Cut a brick out of a graph: its canonical form, its key, and the graph's names of its values.

This module defines when two bricks are equal. It must not know why a graph is cut where it is, nor
anything of runtimes and measurements.

The identity rule, version 1
----------------------------
The key is ``b1-`` and the first 32 hexadecimal digits of the SHA-256 of the canonical model,
serialised without its ``ir_version``. ``key_of`` computes it again from a brick's model.

What counts:

* of each node: operator, domain, version of the domain, number of ports and which are left empty,
  explicit attributes with their values; an attribute that states its default differs from an
  omitted one. A tensor in an attribute counts with its values, since operators are built from
  them (the splits of a tree, for example); if no values are stored, its type and shape count;
* topology: which value feeds which port, so that one value at two ports isn't two values; and which
  values leave the brick: values used outside, outputs of the graph, and values without a reader;
* element type and shape of each input, weight, constant and output, and of each value in between
  (listed in the model's ``metadata_props``, where no runtime reads them); of sequences, optionals
  and maps the types of their items (also in ``metadata_props``);
* whether a value is an input, computed elsewhere or fed, or an initializer;
* the contents of an input of at most 64 elements that gives a shape, a count, an axis or a branch
  in the model it was cut from, or that feeds an input in ``STEERING`` (also listed in the model's
  ``metadata_props``): a computed trip count of a Loop determines its work as a constant would;
* of a brick of the executed graph that is bound by reading its weights: the size of all weights of
  its model, to a factor of two (see below; also listed in ``metadata_props``). They decide
  whether the brick finds its weights in a cache, and so how long it takes;
* of an input or output that its runtime keeps in another layout than ONNX's: that layout, by the
  runtime's name (also listed in ``metadata_props``);
* of a brick that its runtime would run in isolation as other kernels: its kernels in the model
  (also listed in ``metadata_props``). It cannot be measured, unlike the same nodes elsewhere;
* of an input whose values decide the latency of an operator: a sketch of its values in the model
  (see ``graph.sketch``; also listed in ``metadata_props``), without facts that the usual synthetic
  values share; and of a loop with a computed condition: the number of iterations;
* of a weight with many denormals, folded by the runtime or not, and of an input with many: their
  share, in steps of an eighth; of an eight-bit float with many zeros: their share; and of weights
  whose products are denormal: their distribution (all listed in ``metadata_props``);
* values of constants: initializers of at most 64 elements that are INT16, INT32, INT64, the same
  unsigned, or BOOL; those at steering inputs (see ``operators.dependence``), also as
  floating-point numbers; strings; and empty tensors. The initializer must be the input itself: a
  path through other nodes isn't followed;
* of subgraphs (If, Loop, Scan): the same, nodes and wiring, and the declared types of their inputs
  and outputs. Captured values are inputs, weights or constants of the brick; initializers of
  subgraphs are moved outside first, and then captured. Types of inner values don't count.

What doesn't count: names of any kind (values, nodes, graphs, dimensions), order of nodes,
attributes, initializers, inputs and outputs, doc strings, metadata, values of weights (8-bit and
smaller integers among them: quantised data and zero points), how a tensor is written, and the
version of the file format.

The context of a brick
----------------------
A runtime reads all of a model's weights in every run. If they exceed the caches, each brick reads
its own from memory; if not, from a cache. For a brick that does little work for each byte of its
weights, the difference is a factor of two and more: a matrix product with one row takes 52 µs for
4 MiB of weights in a model half as large as a cache of 32 MiB, and 126 µs in a model sixteen times
larger than the cache. So such bricks have different keys in models of different sizes. All other
bricks have keys without a context, so that models of a family share them. This must not know
caches: a brick must have the same key on every host.

The canonical form
------------------
Nodes are in a canonical order; inputs ``i0…``, weights ``w0…``, constants ``c0…`` and node outputs
``v0…`` (``s0…`` in subgraphs) are numbered by first use in this order. Different pieces never have
the same form, since the form holds everything that counts. Equal pieces have the same form, except
when so many nodes are interchangeable that the search for the order hits its bound: ties then keep
source order, and at worst a brick is measured twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx

from bricks.decompose.canonical import ALL_VISITS, VISITS, SearchBudget
from bricks.decompose.lowering import AS_WRITTEN, UNKNOWN, Contents, Lowering
from bricks.decompose.piece_writer import BRICK_NAME, PieceContent, PieceWriter
from bricks.decompose.plan import SURROUNDING_BYTES, Brick
from bricks.decompose.structure import Path, ranks
from bricks.errors import ModelError
from bricks.graph.model_metadata import (
    CONTEXT,
    ITERATIONS,
    LAYOUTS,
    LOG_WEIGHT_BYTES,
    STEERING,
    note,
    note_other_kernels,
    note_sketches,
    note_weights,
    noted_weight_bytes,
)
from bricks.graph.payload import is_referenced, type_of
from bricks.graph.subgraphs import holds_initializers
from bricks.graph.topology import label, subgraphs, used_values
from bricks.graph.view import graph_of, parse_model, without_values
from bricks.operators.dependence import sketched_values, steered_values, steering_inputs
from bricks.operators.registry import flops

if TYPE_CHECKING:
    from bricks.graph.model import Graph
    from bricks.graph.sketch import Sketch
    from bricks.graph.types import ValueType


@dataclass(frozen=True, slots=True)
class Piece:
    """A brick, and the graph's names of its values in the brick's canonical order.

    ``constants`` are initializers whose values are part of the brick. ``values`` are all values
    that its nodes produce, outputs or not: the value at position k has the canonical name ``v<k>``.
    """

    brick: Brick
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    values: tuple[str, ...]


def key_of(model: bytes) -> str:
    """The key of a brick, from its canonical model."""
    return _key(onnx.ModelProto.FromString(model))


def with_other_branch(brick: Brick) -> Brick | None:
    """The brick whose only If takes its other branch; None if no example steers a single If."""
    model = parse_model(brick.model)
    conditions = [node.input[0] for node in model.graph.node if node.op_type == "If"]
    if len(conditions) != 1 or conditions[0] not in brick.examples:
        return None
    (condition,) = conditions
    flipped = tuple(type(value)(not value) for value in brick.examples[condition])
    examples = {**brick.examples, condition: flipped}
    (noted,) = (entry for entry in model.metadata_props if entry.key == STEERING)
    noted.value = json.dumps(examples)
    content = model.SerializeToString(deterministic=True)
    return replace(brick, key=_key(model), model=content, examples=examples)


def is_brick(proto: onnx.ModelProto) -> bool:
    """Whether ``proto`` is a brick, and not a whole model."""
    return proto.graph.name == BRICK_NAME


def mismatch(brick: Brick) -> str | None:
    """Return a contradiction between an imported brick's fields and its model; None if they agree.

    ``flops`` are not checked. Raises :class:`ModelError` for bytes that are not a model.
    """
    proto = parse_model(brick.model)
    graph = graph_of(proto)
    claims = {
        "key": (brick.key, _key(proto)),
        "operators": (brick.operators, tuple(map(_qualified, proto.graph.node))),
        "inputs": ([*brick.inputs.items()], [(n, graph.types.get(n)) for n in graph.inputs]),
        "outputs": ([*brick.outputs.items()], [(n, graph.types.get(n)) for n in graph.outputs]),
        "weights": (dict(brick.weights), without_values(proto)),
    }
    contradicted = [name for name, (stated, actual) in claims.items() if stated != actual]
    unknown = sorted(brick.examples.keys() - brick.inputs.keys())
    if unknown:
        return f"it has examples of {unknown[0]}, which is no input"
    return f"its {contradicted[0]} are others than its model's" if contradicted else None


class Cutter:
    """Cuts pieces out of one graph.

    The contents of values (``contents``) and the graph's lowering by a runtime (``lowering``:
    layouts and other kernels) are part of pieces. With ``context``, the size of all weights of the
    graph is part of each brick that is bound by reading its weights. Raises ``ModelError`` for
    initializers in subgraphs: reading moves them outside.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        contents: Contents = UNKNOWN,
        lowering: Lowering = AS_WRITTEN,
        context: bool = False,
    ) -> None:
        for node in graph.nodes:
            if holds_initializers(node):
                raise ModelError(f"a subgraph of {label(node)} holds initializers: hoist them")
        self.graph = graph
        self._sketches, self._iterations = contents.sketches, contents.iterations
        self._weights = contents.weights
        self._layouts, self._other_kernels = lowering.layouts, lowering.other_kernels
        self._context = context_of(graph) if context else None
        self._visits_left = ALL_VISITS
        self._values = {name: tuple(values) for name, values in contents.steering.items()}
        self._steering = [tuple(steering_inputs(node)) for node in self.graph.nodes]
        self._readers: dict[str, list[int]] = {name: [-1] for name in graph.outputs}
        for i, node in enumerate(self.graph.nodes):
            for name in used_values(node):
                self._readers.setdefault(name, []).append(i)

    def cut(self, nodes: Sequence[int]) -> Piece:
        """Return the piece made of the nodes at these positions, which must be convex.

        Raises ``ModelError`` for values of unknown type, constants that count but store no values,
        and domains without a version.
        """
        chosen = sorted(set(nodes))
        if not chosen:
            raise ValueError("a piece has at least one node")
        protos = [self.graph.nodes[i] for i in chosen]
        content = PieceContent(
            self.graph,
            self._outputs(chosen),
            {n for i in chosen for n in steered_values(self._steering[i], self.graph.types)},
            self._values,
        )
        rank: dict[Path, int] = {}
        if len(chosen) > 1 or any(True for _ in subgraphs(protos[0])):
            budget = SearchBudget(min(VISITS, self._visits_left))
            visits = budget.left
            rank = ranks(protos, content.label, budget)
            self._visits_left -= visits - budget.left
        writer = PieceWriter(content, rank)
        model = writer.write(protos)
        operators = tuple(_qualified(node) for node in model.graph.node)
        weights, work = writer.types("w"), flops(self.graph, chosen)
        self._note(model, writer, chosen)
        if self._context is not None and weight_bound(weights, work):
            note(model, CONTEXT, self._context)
        brick = Brick(
            key=_key(model),
            model=model.SerializeToString(deterministic=True),
            inputs=writer.types("i"),
            weights=weights,
            outputs={writer.names[name]: content.type(name) for name in writer.outputs},
            operators=operators,
            flops=work,
            examples=writer.steering,
        )
        return Piece(
            brick,
            inputs=tuple(writer.by_kind["i"]),
            weights=tuple(writer.by_kind["w"]),
            constants=tuple(writer.by_kind["c"]),
            outputs=tuple(writer.outputs),
            values=tuple(writer.by_kind["v"]),
        )

    def _note(self, model: onnx.ModelProto, writer: PieceWriter, chosen: Sequence[int]) -> None:
        protos = [self.graph.nodes[i] for i in chosen]
        # Denormals slow down any arithmetic; other values decide the latency of some operators.
        sketches = dict(self._denormal(writer.outside))
        sketches |= sketched_values(protos, self.graph.types, self._sketches)
        inputs = [name for name in writer.outside if name in sketches]
        note_sketches(model, {writer.names[name]: sketches[name] for name in inputs})
        read = writer.by_kind["w"]
        weights = dict(self._denormal(read)) | {n: w for n, w in self._weights.items() if n in read}
        note_weights(model, {writer.names[n]: sketch for n, sketch in weights.items()})
        firsts = (next(filter(None, node.output), "") for node in protos)
        loops = [name for name in firsts if name in self._iterations]
        note(model, ITERATIONS, {writer.names[name]: self._iterations[name] for name in loops})
        ends = {*writer.by_kind["i"], *writer.outputs}.intersection(self._layouts)
        note(model, LAYOUTS, dict(sorted((writer.names[n], self._layouts[n]) for n in ends)))
        note_other_kernels(model, self._other_kernels.get(chosen[0], ()))

    def _denormal(self, names: Sequence[str]) -> Iterator[tuple[str, Sketch]]:
        sketches = ((name, self._sketches[name]) for name in names if name in self._sketches)
        return ((name, sketch) for name, sketch in sketches if sketch.denormals)

    def _outputs(self, chosen: Sequence[int]) -> dict[str, bool]:
        inside = set(chosen)
        outputs: dict[str, bool] = {}
        for i in chosen:
            for name in self.graph.nodes[i].output:
                if name:
                    readers = self._readers.get(name, ())
                    outputs[name] = not readers or any(r not in inside for r in readers)
        return outputs


def _key(model: onnx.ModelProto) -> str:
    """The key of a canonical model; leaves it as it was."""
    ir_version = model.ir_version
    model.ClearField("ir_version")
    digest = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    model.ir_version = ir_version
    return f"b1-{digest[:32]}"


def _qualified(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


# Fewer bytes of weights are cached in models of any size.
_HEAVY_BYTES = 1 << 16

# Operations for each byte of weights. With more, computing takes ten times as long as reading the
# weights from memory. With fewer, an operator selects from its weights, and reads hardly any.
_MIN_INTENSITY, _MAX_INTENSITY = 0.1, 16.0

# Binary logarithms of bytes of weights: a model below the first fits into any processor's
# second-level cache, and one above the second into no cache.
_MIN_LOG, _MAX_LOG = 20, 30


def weight_bound(weights: Mapping[str, ValueType], flops: int | None) -> bool:
    """Whether a brick may take longer where its weights are in no cache."""
    size_bytes = sum(t.size_bytes for t in weights.values() if t.dtype != "STRING")
    if flops is None or size_bytes < _HEAVY_BYTES:
        return False
    return _MIN_INTENSITY * size_bytes <= flops <= _MAX_INTENSITY * size_bytes


def context_of(graph: Graph) -> dict[str, int]:
    """Return the note of a brick's context: the binary logarithm of the bytes of all weights."""
    types = (type_of(t) for t in graph.initializers.values() if is_referenced(t))
    size_bytes = sum(type_.size_bytes for type_ in types if type_.dtype != "STRING")
    return {LOG_WEIGHT_BYTES: min(_MAX_LOG, max(_MIN_LOG, int(size_bytes).bit_length() - 1))}


def surrounding_bytes(brick: Brick) -> int:
    """Return the bytes of other weights to read before ``brick``, if it is measured by itself."""
    noted = noted_weight_bytes(parse_model(brick.model))
    return (
        SURROUNDING_BYTES
        if noted is None
        else max(SURROUNDING_BYTES, int(noted) - brick.weight_bytes)
    )
