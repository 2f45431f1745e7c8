"""From a graph to its plan: cut, identify each piece, number the values.

The same for the graph that a runtime executes and for the source graph.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from bricks.decompose.granularity import Granularity, split
from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick, Decomposition, Occurrence, Plan
from bricks.errors import ModelError
from bricks.graph.graph import Graph
from bricks.graph.model import Model


def build(
    model: Model,
    graph: Graph,
    granularity: Granularity,
    *,
    groups: Sequence[tuple[int, ...]] | None = None,
    in_place: Mapping[str, str] | None = None,
    steering: Mapping[str, Sequence[float]] | None = None,
    assumed: Sequence[str] = (),
    started: float | None = None,
) -> Decomposition:
    """Decompose ``graph``, the source or executed graph of ``model``.

    ``groups`` are nodes that the runtime executes as one, by position. ``in_place`` maps values to
    the values whose memory they take, ``steering`` those that steer the work to what they hold in
    this model. ``assumed`` is what to say of types that depend on data.
    ``started`` is when the work on this model began (``time.perf_counter()``), for the wall time
    that is recorded.
    """
    started = time.perf_counter() if started is None else started
    cutter = Cutter(graph, steering=steering)
    shared = in_place or {}
    numbers: dict[str, int] = {}
    weights: dict[str, int] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    inputs = tuple(number(name) for name in graph.inputs)
    bricks: dict[str, Brick] = {}
    occurrences = []
    for nodes in split(graph, granularity, groups):
        piece = cutter.cut(nodes)
        bricks.setdefault(piece.brick.key, piece.brick)
        occurrences.append(
            Occurrence(
                brick=piece.brick.key,
                inputs=tuple(map(number, piece.inputs)),
                outputs=tuple(map(number, piece.outputs)),
                nodes=len(nodes),
                in_place=_in_place(piece.inputs, piece.outputs, shared),
                weights=tuple(weights.setdefault(name, len(weights)) for name in piece.weights),
            )
        )
    for name in numbers:
        if not graph.types[name].sensible:
            raise ModelError(
                f"{model.name}: value '{name}' ({graph.types[name]}) is larger than any host can"
                " hold: refused"
            )
    plan = Plan(
        model=model.name,
        digest=model.digest,
        granularity=str(granularity),
        inputs=inputs,
        outputs=tuple(number(name) for name in graph.outputs),
        types=tuple(graph.types[name] for name in numbers),
        occurrences=tuple(occurrences),
        assumed=tuple(assumed),
    )
    return Decomposition(plan, bricks, time.perf_counter() - started)


def _in_place(
    inputs: tuple[str, ...], outputs: tuple[str, ...], shared: Mapping[str, str]
) -> int | None:
    source = shared.get(outputs[0]) if outputs else None
    return inputs.index(source) if source in inputs else None
