"""Build the plan of a graph: cut it, identify each piece, number the values.

It serves both the executed graph and the source graph. Values and weights are numbered in the order
of their first use. The memory of a recorded program's plan is made from the recorder's notes at its
calls. A brick of one call needs no program. Must not import PyTorch.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from onnx import TensorProto, ValueInfoProto, helper

from bricks.decompose.allocated import Allocated
from bricks.decompose.granularity import Granularity
from bricks.decompose.identity import Cutter, weight_bound
from bricks.decompose.lowering import AS_WRITTEN, UNKNOWN, Contents, Lowering
from bricks.decompose.memory import Memory, Phase
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.overlap import windows
from bricks.decompose.plan import Brick, Decomposition, Plan
from bricks.decompose.planned_memory import Planned
from bricks.errors import ModelError
from bricks.graph.form import DOMAIN
from bricks.graph.model import Model
from bricks.graph.program import (
    FREED,
    PHASE,
    call_of,
    evicted_share,
    is_call,
    origin_of,
    state_of,
    touched_bytes,
)
from bricks.graph.topology import label, used_values
from bricks.graph.view import graph_of, parse_model

if TYPE_CHECKING:
    import onnx

    from bricks.decompose.identity import Piece
    from bricks.decompose.overlap import Window
    from bricks.graph.model import Graph
    from bricks.graph.program import Call
    from bricks.graph.types import TensorType, ValueType


def build(
    model: Model,
    graph: Graph,
    granularity: Granularity,
    *,
    lowering: Lowering = AS_WRITTEN,
    contents: Contents = UNKNOWN,
    assumed: Sequence[str] = (),
    chosen: Sequence[onnx.NodeProto] = (),
) -> Decomposition:
    """Decompose ``graph``, the source or executed graph of ``model``.

    ``lowering`` is the graph's lowering by a runtime, ``contents`` the observed contents of its
    values. ``assumed`` are the plan's notes on types that depend on data and on unmeasured parts,
    ``chosen`` the If nodes whose branch data chose.
    Raises :class:`ModelError` for a value that is larger than the memory of any host.
    """
    started = time.perf_counter()
    cut = windows(graph, granularity, lowering.groups)
    cutter = Cutter(graph, contents=contents, lowering=lowering, context=granularity.executed)
    numbering = Numbering(graph, cut, lowering.in_place)
    inputs = numbering.values(graph.inputs)
    bricks: dict[str, Brick] = {}
    occurrences: list[Occurrence] = []
    results = {node.output[0]: label(node) for node in chosen}
    choices: dict[tuple[str, str], None] = {}
    for window in cut:
        piece = cutter.cut(window.nodes)
        bricks.setdefault(piece.brick.key, piece.brick)
        occurrences.append(numbering.occurrence(window, piece))
        titles = (results[name] for name in piece.values if name in results)
        choices |= dict.fromkeys((piece.brick.key, title) for title in titles)
    _refuse_oversized(model, graph, numbering.numbers)
    plan = Plan(
        model=model.name,
        digest=model.digest,
        granularity=str(granularity),
        inputs=inputs,
        outputs=numbering.values(graph.outputs),
        types=tuple(numbering.types),
        occurrences=tuple(occurrences),
        assumed=tuple(assumed),
        choices=tuple(choices),
        rewritten_bytes=lowering.rewritten_bytes,
        rule=lowering.rule,
        weight_bound=tuple(k for k, b in bricks.items() if weight_bound(b.weights, b.flops)),
        memory=memory_of(model, graph, cut, numbering.numbers, len(numbering.types)),
    )
    return Decomposition(plan, bricks, time.perf_counter() - started)


def _refuse_oversized(model: Model, graph: Graph, names: Iterable[str]) -> None:
    for name in names:
        if not graph.types[name].sensible:
            raise ModelError(
                f"{model.name}: value '{name}' ({graph.types[name]}) is larger than any host can"
                " hold: refused"
            )


class Numbering:
    """The numbers of the values of ``graph`` in its plan; ``cut`` are the windows.

    ``in_place`` maps a value to the value whose memory it reuses. A value that overlapping bricks
    compute twice has a number for each.
    """

    def __init__(self, graph: Graph, cut: Sequence[Window], in_place: Mapping[str, str]) -> None:
        self.types: list[ValueType] = []
        self.numbers: dict[str, int] = {}
        self._graph, self._in_place = graph, in_place
        self._weights: dict[str, int] = {}
        self._made: set[str] = set()
        shared = (i for window in cut if window.repeats is not None for i in window.nodes)
        self._read_by_shared = {name for i in shared for name in used_values(graph.nodes[i])}

    def values(self, names: Iterable[str]) -> tuple[int, ...]:
        """The numbers of the values ``names``, in order."""
        return tuple(map(self._number, names))

    def occurrence(self, window: Window, piece: Piece) -> Occurrence:
        """Return the occurrence of the brick of ``piece``, which was cut at ``window``."""
        occurrence = Occurrence(
            brick=piece.brick.key,
            inputs=self.values(piece.inputs),
            outputs=tuple(
                (self._new(name) if name in self._made else self._number(name))
                for name in piece.outputs
            ),
            nodes=len(window.nodes),
            in_place=self._overwritten(piece),
            weights=tuple(map(self._weight, piece.weights)),
            repeats=window.repeats,
            hidden=tuple(self._hidden(piece)),
        )
        self._made.update(piece.values)
        return occurrence

    def _number(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers[name] = self._new(name)
        return self.numbers[name]

    def _new(self, name: str) -> int:
        self.types.append(self._graph.types[name])
        return len(self.types) - 1

    def _weight(self, name: str) -> int:
        return self._weights.setdefault(name, len(self._weights))

    def _overwritten(self, piece: Piece) -> int | None:
        """The position of the input whose memory the first output overwrites; None for none."""
        source = self._in_place.get(piece.outputs[0]) if piece.outputs else None
        return piece.inputs.index(source) if source in piece.inputs else None

    def _hidden(self, piece: Piece) -> Iterable[tuple[int, int]]:
        """The values inside the piece that an overlapping brick reads, by position and number."""
        hidden = self._read_by_shared.intersection(piece.values).difference(piece.outputs)
        for position, name in enumerate(piece.values):
            if name in hidden and name not in self._made:
                yield position, self._number(name)


def memory_of(
    model: Model, graph: Graph, cut: Sequence[Window], numbers: Mapping[str, int], values: int
) -> Memory:
    """Return the memory of ``graph``, the executed graph of ``model``.

    The graph was cut into windows; its plan has this number of ``values``, and ``numbers`` maps
    their names to them. A recorded program allocates as it was recorded; memory is planned ahead
    for all other graphs.
    """
    if not graph.nodes or not all(map(is_call, graph.nodes)):
        return Planned()
    proto = parse_model(model.skeleton)
    origin, state = origin_of(proto), state_of(proto)
    if origin is None:
        return Planned()
    notes = [{p.key: p.value for p in node.metadata_props} for node in graph.nodes]
    return Allocated(
        kind=origin.kind,
        phases=_phases(graph, cut, notes),
        freed=_freed(cut, notes, numbers, values),
        storages=_storages(graph, numbers, values),
        gradients=tuple(numbers[name] for name in state.gradients if name in numbers),
        state_bytes=dict(state.sizes_bytes),
    )


def _phases(
    graph: Graph, cut: Sequence[Window], notes: Sequence[Mapping[str, str]]
) -> tuple[Phase, ...]:
    """The phases: consecutive windows whose calls are noted with the same phase are one."""
    phases = []
    for name, group in groupby(cut, lambda window: notes[window.nodes[0]].get(PHASE, "")):
        windows = list(group)
        # The shares of a core's caches that the calls evict.
        shares = (
            sum(evicted_share(touched_bytes(graph.nodes[n], graph.types)) for n in window.nodes)
            for window in windows
        )
        calls = sum(len(window.nodes) for window in windows)
        phases.append(Phase(name, len(windows), calls, round(sum(shares), 3)))
    return tuple(phases)


def _freed(
    cut: Sequence[Window],
    notes: Sequence[Mapping[str, str]],
    numbers: Mapping[str, int],
    values: int,
) -> tuple[int | None, ...]:
    """For each value, the window after which its memory is free; None if it stays."""
    position = {node: i for i, window in enumerate(cut) for node in window.nodes}
    freed: list[int | None] = [None] * values
    for node, note in enumerate(notes):
        for name in json.loads(note.get(FREED, "[]")):
            if name in numbers:
                freed[numbers[name]] = position[node]
    return tuple(freed)


def _storages(graph: Graph, numbers: Mapping[str, int], values: int) -> tuple[int, ...]:
    """For each value, the first value with the same memory; -1 for memory of inputs and weights."""
    root: dict[str, str | None] = dict.fromkeys((*graph.inputs, *graph.initializers))
    for node in graph.nodes:
        aliases = call_of(node).aliases
        sources = [*aliases, *(-1 for _ in node.output[len(aliases) :])]
        for name, source in zip(node.output, sources, strict=False):
            if name:
                root[name] = name if source < 0 else root.get(node.input[source])
    first_values = [-1] * values
    for name, number in numbers.items():
        first = root.get(name)
        # The first value with this memory may be inside a brick of several calls.
        first_values[number] = -1 if first is None else numbers.get(first, number)
    return tuple(first_values)


def single_call(call: Call, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Brick:
    """The brick of ``call`` with tensors of these types; none of its inputs is a weight."""
    reads, writes = _names("i", inputs), _names("o", outputs)
    graph = helper.make_graph(
        [call.node(list(reads), list(writes))],
        call.operator,
        [_value(name, type_) for name, type_ in reads.items()],
        [_value(name, type_) for name, type_ in writes.items()],
    )
    opset = helper.make_opsetid(DOMAIN + call.namespace, 1)
    proto = helper.make_model(graph, opset_imports=[opset])
    skeleton = proto.SerializeToString(deterministic=True)
    digest = "m1-" + hashlib.sha256(skeleton).hexdigest()[:16]
    model = Model(call.operator, Path(), skeleton, (), digest)
    (brick,) = build(model, graph_of(proto), Granularity.parse("executed")).bricks.values()
    return brick


def _names(prefix: str, types: Sequence[TensorType]) -> dict[str, TensorType]:
    return {f"{prefix}{at}": type_ for at, type_ in enumerate(types)}


def _value(name: str, type_: TensorType) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.DataType.Value(type_.dtype), type_.shape)
