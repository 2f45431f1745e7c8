"""The integers that an input may hold for a model to run.

Operators accept any random float, but a random index may crash the process or make the measurement
meaningless. The uses of a value determine its permitted range, so this module follows each value
forward through the operators that pass it on, to the operators that restrict it. Must not know how
values are drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.graph.form import nodes_form
from bricks.graph.payload import is_referenced, read_inline
from bricks.graph.synthesis import Range
from bricks.graph.topology import (
    inner_nodes,
    label,
    used_values,
)
from bricks.graph.types import ContainerType, ValueType
from bricks.operators.dependence import (
    SMALL,
    branches_on_data,
    data_of,
    steered_values,
    steering_inputs,
)
from bricks.operators.node import Node
from bricks.operators.operator import MASKING, STEERING, Restriction
from bricks.operators.registry import operator_of

if TYPE_CHECKING:
    import onnx

    from bricks.graph.model import Graph

_UNRESTRICTED = "nothing in the graph restricts it: assumed 0 or 1"
# Bounds on the uses followed: per value (real ones have a few dozen), per graph, and per value once
# the graph's bound is exhausted.
_MAX_STEPS, _ALL_STEPS, _FEW_STEPS = 10_000, 200_000, 10

# Nodes of one operator that a note names.
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Affine:
    """Bounds of a value computed from x: ``scale * x`` plus an offset.

    The offset is from ``low_offset`` to ``high_offset``, both included.
    """

    scale: int
    low_offset: int
    high_offset: int


def integer_ranges(graph: Graph, names: Collection[str]) -> dict[str, Range]:
    """Return the safe range of each integer or boolean value in ``names``, by name.

    The result omits floats, and values without a safe range (a value that gives a shape, or whose
    uses contradict each other). Raises ``KeyError`` for names without a type in ``graph``.
    """
    integers = [name for name in names if _is_integer(graph.types[name])]
    if not integers:
        return {}
    follower = _UseFollower(graph)
    ranges = ((name, follower.range_of(name, graph.types[name])) for name in integers)
    return {name: range for name, range in ranges if range is not None}


def assumptions(graph: Graph, specified: Collection[str] = ()) -> list[str]:
    """Return notes on the assumed contents of inputs that the graph does not restrict.

    Inputs whose values the user has ``specified`` need no note. Neither do inputs of recorded
    programs, whose contents were recorded.
    """
    if not nodes_form(graph.nodes).synthetic_inputs:
        return []
    names = [name for name in graph.inputs if name not in specified]
    ranges = integer_ranges(graph, names)
    notes = []
    for name in names:
        type = graph.types[name]
        if isinstance(type, ContainerType):
            notes.append(f"input {name!r} is made up: {type}")
        elif type.dtype == "STRING":
            notes.append(f"input {name!r} is text, and is made up")
        elif name not in ranges and type.dtype == "BOOL":
            notes.append(
                f"input {name!r} chooses what is run: assumed true (--value says otherwise)"
            )
        elif name not in ranges and "INT" in type.dtype:
            notes.append(
                f"input {name!r} gives a shape, count or axis, and is made up all the same:"
                " say with --value what it holds"
            )
        elif name in ranges and ranges[name].why == _UNRESTRICTED:
            notes.append(f"input {name!r}: {_UNRESTRICTED}")
    return notes


def synthetic_inputs(graph: Graph, specified: Collection[str] = ()) -> list[str]:
    """Return the integer inputs that have no safe synthetic value, and no ``specified`` value.

    A single integer, such as a sampling rate, may choose a branch.
    """
    names = [n for n in graph.inputs if n not in specified and "INT" in graph.types[n].dtype]
    safe = integer_ranges(graph, names)
    return [n for n in names if n not in safe or graph.types[n].elements == 1]


def observations(
    graph: Graph,
    observed: Collection[str],
    specified: Collection[str] = (),
    values: Mapping[str, Sequence[float]] | None = None,
) -> list[str]:
    """Return notes on the first values of ``observed`` whose types depend on the data of inputs.

    A runtime cannot infer every type that depends only on shapes, or on inputs with specified
    values (``specified``); such types need no note. With the observed ``values`` of conditions,
    there is a note on each branch that data chose.
    """
    # Values that depend on the data of inputs, and values whose type depends on the data too.
    data, dependent = data_of(graph, specified), set[str]()
    sized: dict[tuple[str, str], list[onnx.NodeProto]] = {}
    branching: dict[tuple[str, str], list[onnx.NodeProto]] = {}
    for node in graph.nodes:
        reads = used_values(node)
        outputs = [name for name in node.output if name in observed]
        if dependent.intersection(reads):
            dependent.update(outputs)
        elif outputs and (operator_of(node).sized_by_data or _steered_by(node, data, graph)):
            dependent.update(outputs)
            types = ", ".join(str(graph.types[name]) for name in outputs)
            sized.setdefault((node.op_type, types), []).append(node)
    for node in chosen_by_data(graph, specified, values or {}):
        taken = ("then", "else") if (values or {})[node.input[0]][0] else ("else", "then")
        branching.setdefault(taken, []).append(node)
    return [
        *(_sized(types, nodes, observed, graph) for (_, types), nodes in sized.items()),
        *(_branching(*taken, nodes) for taken, nodes in branching.items()),
    ]


def _sized(
    types: str, nodes: Sequence[onnx.NodeProto], observed: Collection[str], graph: Graph
) -> str:
    if len(nodes) > 1:
        return f"{_labels(nodes)} give each {types}, as on synthetic data"
    names = (name for name in nodes[0].output if name in observed)
    listed = ", ".join(f"'{name}' {graph.types[name]}" for name in names)
    return f"{label(nodes[0])} gives {listed}, as on synthetic data"


def _branching(taken: str, other: str, nodes: Sequence[onnx.NodeProto]) -> str:
    verb, whose = ("takes", "its") if len(nodes) == 1 else ("take", "their")
    return (
        f"{_labels(nodes)} {verb} {whose} {taken}_branch, as on synthetic data: real data may take"
        f" {whose} {other}_branch"
    )


def _labels(nodes: Sequence[onnx.NodeProto]) -> str:
    """The label of a node, or the number of several of one operator, and some of their names."""
    if len(nodes) == 1:
        return label(nodes[0])
    operator = nodes[0].op_type
    named = ", ".join(label(node).removeprefix(f"{operator} ") for node in nodes[:_MOST_NAMED])
    more = len(nodes) - _MOST_NAMED
    return f"{len(nodes)} {operator} ({named}{f' and {more} more' if more > 0 else ''})"


def chosen_by_data(
    graph: Graph, specified: Collection[str], values: Mapping[str, Sequence[float]]
) -> list[onnx.NodeProto]:
    """Return the If nodes whose branch data chose, with their conditions among ``values``.

    A condition that is an input of the graph itself is the user's to specify.
    """
    return [
        node
        for node in branches_on_data(graph, specified)
        if values.get(node.input[0]) and node.input[0] not in graph.inputs
    ]


def _steered_by(node: onnx.NodeProto, data: Collection[str], graph: Graph) -> bool:
    view = Node(node, graph.types, graph.initializers)
    return any(
        name in data and (restricted := restriction(view, port)) and restricted.kind == STEERING
        for port, name in enumerate(node.input)
    )


def restriction(node: Node, port: int) -> Restriction | None:
    """Return the restriction of ``node`` on its input ``port``; None if it has none."""
    rule = operator_of(node.proto).restrict
    return None if rule is None else rule(node, port)


def passes_on(node: onnx.NodeProto, port: int) -> Iterator[str]:
    """Yield the names of the values to which ``node`` passes on its input ``port``."""
    rule = operator_of(node).passes
    return iter(()) if rule is None else rule(node, port)


def steering_values(graph: Graph) -> list[str]:
    """Return the small inputs and computed values of ``graph`` without a safe synthetic value.

    They are integers that give shapes, counts or axes, booleans that choose a branch, and floats at
    steering inputs (see :mod:`bricks.operators.dependence`).
    """
    made = [name for node in graph.nodes for name in node.output if name]
    small = [
        name
        for name in (*graph.inputs, *made)
        if graph.types[name].elements <= SMALL and name not in graph.initializers
    ]
    integers = [name for name in small if _is_integer(graph.types[name])]
    safe = integer_ranges(graph, integers)
    ports = (port for node in graph.nodes for port in steering_inputs(node))
    steered = set(steered_values(ports, graph.types))
    return [
        name
        for name in small
        if (_is_integer(graph.types[name]) and name not in safe)
        or (graph.types[name].floating and name in steered)
    ]


def _is_integer(type: ValueType) -> bool:
    return "INT" in type.dtype or type.dtype == "BOOL"


class _UseFollower:
    """Follows values of ``graph`` to the uses that restrict them, within bounds on the steps."""

    def __init__(self, graph: Graph) -> None:
        self._uses: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for outer in graph.nodes:
            for node in (outer, *inner_nodes(outer)):
                for index, name in enumerate(node.input):
                    self._uses.setdefault(name, []).append((node, index))
        self._graph = graph
        self._steps_left = _ALL_STEPS

    def range_of(self, name: str, type: ValueType) -> Range | None:
        if type.dtype == "BOOL":
            chooses = any(
                restriction.kind == STEERING for _, restriction in self._restrictions(name)
            )
            return None if chooses else Range(1, 2, "a boolean: everything valid")
        bits = int(type.dtype.removeprefix("U").removeprefix("INT"))
        low, high = (
            (0, 1 << bits) if type.dtype.startswith("U") else (-(1 << bits - 1), 1 << bits - 1)
        )
        why: list[str] = []
        masks: list[str] = []
        for affine, restriction in self._restrictions(name):
            if restriction.kind == STEERING:
                return None
            if restriction.kind == MASKING:
                masks.append(restriction.why)
                continue
            # low ≤ scale·x + least and scale·x + most < high, solved for x
            low = max(low, -((affine.low_offset - restriction.low) // affine.scale))
            high = min(high, (restriction.high - 1 - affine.high_offset) // affine.scale + 1)
            why.append(restriction.why)
        if why:
            return Range(low, high, "; ".join(dict.fromkeys(why))) if low < high else None
        if masks:
            if type.dtype in ("INT8", "UINT8"):
                return Range(low, high, f"{masks[0]}: any {type.dtype} will do")
            return Range(1, 2, f"{masks[0]}: everything valid")
        return Range(0, 2, _UNRESTRICTED)

    def _restrictions(self, start: str) -> Iterator[tuple[_Affine, Restriction]]:
        queue = [(start, _Affine(1, 0, 0))]
        seen: set[tuple[str, _Affine]] = set()
        max_steps = min(_MAX_STEPS, max(_FEW_STEPS, self._steps_left))
        while queue and len(seen) < max_steps:
            name, affine = queue.pop()
            if (name, affine) in seen:
                continue
            seen.add((name, affine))
            self._steps_left -= 1
            for node, index in self._uses.get(name, ()):
                view = Node(node, self._graph.types, self._graph.initializers)
                restricted = restriction(view, index)
                if restricted is not None:
                    yield affine, restricted
                queue.extend((out, affine) for out in passes_on(node, index))
                shifted = self._moved(node, index, affine)
                if shifted is not None:
                    queue.append((node.output[0], shifted))

    def _moved(self, node: onnx.NodeProto, index: int, affine: _Affine) -> _Affine | None:
        """``affine`` after arithmetic with a constant; None if it cannot be followed."""
        if node.domain or node.op_type not in ("Add", "Sub", "Mul") or len(node.input) != 2:
            return None
        if node.op_type == "Sub" and index == 1:
            return None  # a constant minus the value: an inverted mask, see `uses`
        bounds = self._constant_bounds(node.input[1 - index])
        if bounds is None:
            return None
        low_offset, high_offset = bounds
        if node.op_type == "Add":
            return _Affine(
                affine.scale, affine.low_offset + low_offset, affine.high_offset + high_offset
            )
        if node.op_type == "Sub":
            return _Affine(
                affine.scale, affine.low_offset - high_offset, affine.high_offset - low_offset
            )
        if low_offset != high_offset or low_offset < 1:
            return None
        return _Affine(
            affine.scale * low_offset,
            affine.low_offset * low_offset,
            affine.high_offset * low_offset,
        )

    def _constant_bounds(self, name: str) -> tuple[int, int] | None:
        tensor = self._graph.initializers.get(name)
        if tensor is None or is_referenced(tensor):
            return None
        values = read_inline(tensor)
        if values.dtype.kind not in "iu" or not values.size:
            return None
        return int(values.min()), int(values.max())
