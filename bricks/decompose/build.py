"""Build the plan of a graph: cut it, identify each piece, number the values.

The same for the graph that a runtime executes and for the source graph.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from bricks.decompose.context import weight_bound
from bricks.decompose.granularity import Granularity
from bricks.decompose.identity import Cutter
from bricks.decompose.overlap import Window, windows
from bricks.decompose.plan import Brick, Decomposition, Occurrence, Plan
from bricks.decompose.recorded_memory import memory_of
from bricks.errors import ModelError
from bricks.graph.containers import ValueType
from bricks.graph.graph import Graph
from bricks.graph.model import Model
from bricks.graph.sketch import Sketch
from bricks.graph.topology import used_values


def build(
    model: Model,
    graph: Graph,
    granularity: Granularity,
    *,
    groups: Sequence[tuple[int, ...]] | None = None,
    layouts: Mapping[str, str] | None = None,
    other_kernels: Mapping[int, Sequence[str]] | None = None,
    in_place: Mapping[str, str] | None = None,
    steering: Mapping[str, Sequence[float]] | None = None,
    sketches: Mapping[str, Sketch] | None = None,
    iterations: Mapping[str, int] | None = None,
    assumed: Sequence[str] = (),
    rewritten_bytes: int | None = None,
    started: float | None = None,
) -> Decomposition:
    """Decompose ``graph``, the source or executed graph of ``model``.

    ``groups`` are the nodes, by position, that the runtime executes as one. ``layouts`` maps a
    value to the layout that it has there, if that is not ONNX's, and ``in_place`` to the value
    whose memory it reuses. ``other_kernels`` maps the first node of a group that the runtime would
    run as other kernels alone to its kernels in the model. ``steering`` maps the name of a steering
    value to its contents in this model, ``sketches`` that of a value to its sketch where an
    operator's time depends on it, and ``iterations`` the first output of a loop to how often it
    runs. ``assumed`` holds the plan's notes on types that depend on data, and on what is not
    measured. ``rewritten_bytes`` is the plan's field of that name.
    ``started`` is when the work on this model began (``time.perf_counter()``), for the wall time
    that is recorded.
    """
    started = time.perf_counter() if started is None else started
    cutter = Cutter(
        graph,
        steering=steering,
        sketches=sketches,
        iterations=iterations,
        layouts=layouts,
        other_kernels=other_kernels,
        context=granularity.executed,
    )
    shared = in_place or {}
    numbers: dict[str, int] = {}
    types: list[ValueType] = []
    weights: dict[str, int] = {}
    made: set[str] = set()

    def number(name: str, *, again: bool = False) -> int:
        if again or name not in numbers:
            types.append(graph.types[name])
        return len(types) - 1 if again else numbers.setdefault(name, len(types) - 1)

    inputs = tuple(number(name) for name in graph.inputs)
    bricks: dict[str, Brick] = {}
    occurrences = []
    cut = windows(graph, granularity, groups)
    shared_reads = _read_by_shared_layers(graph, cut)
    for window in cut:
        piece = cutter.cut(window.nodes)
        bricks.setdefault(piece.brick.key, piece.brick)
        taken = shared_reads.intersection(piece.values).difference(piece.outputs)
        occurrences.append(
            Occurrence(
                brick=piece.brick.key,
                inputs=tuple(map(number, piece.inputs)),
                outputs=tuple(number(name, again=name in made) for name in piece.outputs),
                nodes=len(window.nodes),
                in_place=_in_place(piece.inputs, piece.outputs, shared),
                weights=tuple(weights.setdefault(name, len(weights)) for name in piece.weights),
                repeats=window.repeats,
                hidden=tuple(
                    (k, number(name))
                    for k, name in enumerate(piece.values)
                    if name in taken and name not in made
                ),
            )
        )
        made.update(piece.values)
    for name in numbers:
        if not graph.types[name].sensible:
            raise ModelError(
                f"{model.name}: value '{name}' ({graph.types[name]}) is larger than any host can"
                " hold: refused"
            )
    outputs = tuple(number(name) for name in graph.outputs)
    plan = Plan(
        model=model.name,
        digest=model.digest,
        granularity=str(granularity),
        inputs=inputs,
        outputs=outputs,
        types=tuple(types),
        occurrences=tuple(occurrences),
        assumed=tuple(assumed),
        rewritten_bytes=rewritten_bytes,
        weight_bound=tuple(k for k, b in bricks.items() if weight_bound(b.weights, b.flops)),
        memory=memory_of(model, graph, cut, numbers, len(types)),
    )
    return Decomposition(plan, bricks, time.perf_counter() - started)


def _read_by_shared_layers(graph: Graph, cut: Sequence[Window]) -> set[str]:
    """Values read by layers that belong to two bricks: one of the two may hide such a value."""
    shared = (i for window in cut if window.repeats is not None for i in window.nodes)
    return {name for i in shared for name in used_values(graph.nodes[i])}


def _in_place(
    inputs: tuple[str, ...], outputs: tuple[str, ...], shared: Mapping[str, str]
) -> int | None:
    source = shared.get(outputs[0]) if outputs else None
    return inputs.index(source) if source in inputs else None
