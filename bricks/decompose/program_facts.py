"""The facts of a recorded program, for its plan, from the recorder's notes at its calls.

Must not import PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import onnx

from bricks.decompose.allocated import Phase, Program
from bricks.decompose.overlap import Window
from bricks.graph.containers import ValueType
from bricks.graph.graph import Graph
from bricks.graph.program import FREED, PHASE, call_of, is_call, origin_of, state_of
from bricks.graph.program_traffic import displacement, touched_bytes


def program_of(
    proto: onnx.ModelProto,
    graph: Graph,
    cut: Sequence[Window],
    numbers: Mapping[str, int],
    types: Sequence[ValueType],
) -> Program | None:
    """The facts of a recorded program that was cut into windows; None for other models.

    ``proto`` is the program with its metadata, ``graph`` the same as it is executed, and
    ``numbers`` are those of its values by name.
    """
    origin = origin_of(proto)
    if origin is None or not all(map(is_call, graph.nodes)):
        return None
    position = {node: i for i, window in enumerate(cut) for node in window.nodes}
    notes = [{p.key: p.value for p in node.metadata_props} for node in graph.nodes]
    names = [notes[window.nodes[0]].get(PHASE, "") for window in cut]
    sizes = [len(window.nodes) for window in cut]
    displaced = [
        sum(displacement(touched_bytes(graph.nodes[n], graph.types)) for n in window.nodes)
        for window in cut
    ]
    freed: list[int | None] = [None] * len(types)
    for node, note in enumerate(notes):
        for name in json.loads(note.get(FREED, "[]")):
            if name in numbers:
                freed[numbers[name]] = position[node]
    phases, begin = [], 0
    for name, group in groupby(names):
        end = begin + len(list(group))
        calls, share = sum(sizes[begin:end]), sum(displaced[begin:end])
        phases.append(Phase(name, end - begin, calls, round(share, 3)))
        begin = end
    state = state_of(proto)
    return Program(
        kind=origin.kind,
        phases=tuple(phases),
        freed=tuple(freed),
        storages=_storages(graph, numbers, len(types)),
        gradients=tuple(numbers[name] for name in state.gradients if name in numbers),
        state_bytes=dict(state.sizes_bytes),
    )


def _storages(graph: Graph, numbers: Mapping[str, int], values: int) -> tuple[int, ...]:
    """For each value, the first one with the same memory; -1 for that of inputs and weights."""
    root: dict[str, str | None] = dict.fromkeys((*graph.inputs, *graph.initializers))
    for node in graph.nodes:
        aliases: Callable[[int], int] = _aliases(call_of(node).aliases)
        for place, name in enumerate(node.output):
            if name:
                source = aliases(place)
                root[name] = name if source < 0 else root.get(node.input[source])
    found = [-1] * values
    for name, number in numbers.items():
        first = root.get(name)
        # The first value with this memory may be inside a brick of several calls.
        found[number] = -1 if first is None else numbers.get(first, number)
    return tuple(found)


def _aliases(of: Sequence[int]) -> Callable[[int], int]:
    return lambda place: of[place] if place < len(of) else -1
