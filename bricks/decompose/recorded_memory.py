"""Make the memory of a plan: for a recorded program from the recorder's notes at its calls.

Must not import PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from bricks.decompose.allocated import Allocated
from bricks.decompose.memory import Memory, Phase
from bricks.decompose.planned import Planned
from bricks.graph.program import FREED, PHASE, call_of, is_call, origin_of, state_of
from bricks.graph.program_traffic import evicted_share, touched_bytes
from bricks.graph.view import parse_model

if TYPE_CHECKING:
    import onnx

    from bricks.decompose.overlap import Window
    from bricks.graph.graph import Graph
    from bricks.graph.model import Model


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
        shares = (sum(map(_displacement_in(graph), window.nodes)) for window in windows)
        calls = sum(len(window.nodes) for window in windows)
        phases.append(Phase(name, len(windows), calls, round(sum(shares), 3)))
    return tuple(phases)


def _displacement_in(graph: Graph) -> Callable[[int], float]:
    """A function from a node position to the share of a core's caches that its call evicts."""
    return lambda node: evicted_share(touched_bytes(graph.nodes[node], graph.types))


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
        for name, source in _aliased(node):
            root[name] = name if source is None else root.get(source)
    first_values = [-1] * values
    for name, number in numbers.items():
        first = root.get(name)
        # The first value with this memory may be inside a brick of several calls.
        first_values[number] = -1 if first is None else numbers.get(first, number)
    return tuple(first_values)


def _aliased(node: onnx.NodeProto) -> list[tuple[str, str | None]]:
    """Pairs of an output of a call and the input whose memory it shares, or None."""
    aliases = call_of(node).aliases
    sources = [*aliases, *(-1 for _ in node.output[len(aliases) :])]
    return [
        (name, None if source < 0 else node.input[source])
        for name, source in zip(node.output, sources, strict=False)
        if name
    ]
