"""Which integers an input may hold for the model to run: indices, lengths, masks.

Random floats run everywhere; a random integer that is an index crashes or measures nothing. What a
value is used for says what it may be, so each one is followed forward through the operators that
hand it on, to those that restrict it (table in :mod:`bricks.graph.uses`). Must not know how values
are drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import onnx

from bricks.graph.graph import Graph
from bricks.graph.payload import is_referenced, read_inline
from bricks.graph.steering import SMALL
from bricks.graph.tensor import TensorType
from bricks.graph.topology import inner_nodes
from bricks.graph.uses import MASKING, STEERING, Restriction, Scene, passes_on, restriction

_UNRESTRICTED = "nothing in the graph restricts it: assumed 0 or 1"
# Bounds on the uses followed: for one value, where real ones have a few dozen; for all of a graph;
# and for one value once that is used up.
_MAX_STEPS, _ALL_STEPS, _FEW_STEPS = 10_000, 200_000, 10


@dataclass(frozen=True, slots=True)
class Range:
    """Integers from ``low`` up to, not including, ``high``; ``why`` says what asks for that."""

    low: int
    high: int
    why: str


@dataclass(frozen=True, slots=True)
class _Affine:
    """A value followed from x: it lies between ``scale * x + least`` and ``scale * x + most``."""

    scale: int
    least: int
    most: int


def integer_ranges(graph: Graph, names: Collection[str]) -> dict[str, Range]:
    """For each integer or boolean value in ``names``, the values that are safe to give it.

    A value for which none is safe to assume (it gives a shape, or its uses contradict each other)
    is left out, as are floats. Raises ``KeyError`` for names that ``graph`` has no type for.
    """
    follower = _Follower(graph)
    ranges = {}
    for name in names:
        type = graph.types[name]
        if "INT" not in type.dtype and type.dtype != "BOOL":
            continue
        found = follower.range_of(name, type)
        if found is not None:
            ranges[name] = found
    return ranges


def assumptions(graph: Graph) -> list[str]:
    """What is assumed of integer inputs where the graph doesn't say what they may hold."""
    names = [name for name in graph.inputs if "INT" in graph.types[name].dtype]
    ranges = integer_ranges(graph, names)
    said = []
    for name in names:
        if name not in ranges:
            said.append(f"input {name!r} gives a shape, count or axis, and is made up all the same")
        elif ranges[name].why == _UNRESTRICTED:
            said.append(f"input {name!r}: {_UNRESTRICTED}")
    return said


def steering_values(graph: Graph) -> list[str]:
    """Computed integers that give shapes, counts or axes, so that no value is safe to assume."""
    names = (name for node in graph.nodes for name in node.output if name)
    small = [
        name
        for name in names
        if "INT" in graph.types[name].dtype and graph.types[name].elements <= SMALL
    ]
    safe = integer_ranges(graph, small)
    return [name for name in small if name not in safe]


class _Follower:
    def __init__(self, graph: Graph) -> None:
        self._uses: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for node in _with_inner(graph.nodes):
            for index, name in enumerate(node.input):
                self._uses.setdefault(name, []).append((node, index))
        self._scene = Scene(graph.types, graph.initializers)
        self._steps_left = _ALL_STEPS

    def range_of(self, name: str, type: TensorType) -> Range | None:
        if type.dtype == "BOOL":
            return Range(1, 2, "a boolean: everything valid")
        low, high = _limits(type.dtype)
        why: list[str] = []
        masks: list[str] = []
        for affine, found in self._restrictions(name):
            if found.kind == STEERING:
                return None
            if found.kind == MASKING:
                masks.append(found.why)
                continue
            # low ≤ scale·x + least and scale·x + most < high, solved for x
            low = max(low, -((affine.least - found.low) // affine.scale))
            high = min(high, (found.high - 1 - affine.most) // affine.scale + 1)
            why.append(found.why)
        if why:
            return Range(low, high, "; ".join(dict.fromkeys(why))) if low < high else None
        if masks:
            if type.dtype in ("INT8", "UINT8"):
                return Range(low, high, f"{masks[0]}: any {type.dtype} will do")
            return Range(1, 2, f"{masks[0]}: everything valid")
        return Range(0, 2, _UNRESTRICTED)

    def _restrictions(self, start: str) -> Iterator[tuple[_Affine, Restriction]]:
        waiting = [(start, _Affine(1, 0, 0))]
        seen: set[tuple[str, _Affine]] = set()
        most = min(_MAX_STEPS, max(_FEW_STEPS, self._steps_left))
        while waiting and len(seen) < most:
            name, affine = waiting.pop()
            if (name, affine) in seen:
                continue
            seen.add((name, affine))
            self._steps_left -= 1
            for node, index in self._uses.get(name, ()):
                found = restriction(node, index, self._scene)
                if found is not None:
                    yield affine, found
                waiting.extend((out, affine) for out in passes_on(node, index))
                moved = self._moved(node, index, affine)
                if moved is not None:
                    waiting.append((node.output[0], moved))

    def _moved(self, node: onnx.NodeProto, index: int, affine: _Affine) -> _Affine | None:
        """What ``affine`` becomes by arithmetic with a constant, where that can be followed."""
        if node.domain or node.op_type not in ("Add", "Sub", "Mul") or len(node.input) != 2:
            return None
        if node.op_type == "Sub" and index == 1:
            return None  # from a constant: a mask turned round, see `uses`
        bounds = self._constant_bounds(node.input[1 - index])
        if bounds is None:
            return None
        least, most = bounds
        if node.op_type == "Add":
            return _Affine(affine.scale, affine.least + least, affine.most + most)
        if node.op_type == "Sub":
            return _Affine(affine.scale, affine.least - most, affine.most - least)
        if least != most or least < 1:
            return None
        return _Affine(affine.scale * least, affine.least * least, affine.most * least)

    def _constant_bounds(self, name: str) -> tuple[int, int] | None:
        tensor = self._scene.constants.get(name)
        if tensor is None or is_referenced(tensor):
            return None
        values = read_inline(tensor)
        if values.dtype.kind not in "iu" or not values.size:
            return None
        return int(values.min()), int(values.max())


def _with_inner(nodes: Collection[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        yield from inner_nodes(node)


def _limits(dtype: str) -> tuple[int, int]:
    bits = int(dtype.removeprefix("U").removeprefix("INT"))
    return (0, 1 << bits) if dtype.startswith("U") else (-(1 << bits - 1), 1 << bits - 1)
