"""Build the plan of a graph: cut it, identify each piece, number the values.

It serves both the executed graph and the source graph.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bricks.decompose.context import weight_bound
from bricks.decompose.identity import Cutter
from bricks.decompose.lowering import AS_WRITTEN, UNKNOWN, Contents, Lowering
from bricks.decompose.numbering import Numbering
from bricks.decompose.overlap import windows
from bricks.decompose.plan import Brick, Decomposition, Plan
from bricks.decompose.recorded_memory import memory_of
from bricks.errors import ModelError
from bricks.graph.topology import label

if TYPE_CHECKING:
    import onnx

    from bricks.decompose.granularity import Granularity
    from bricks.decompose.occurrence import Occurrence
    from bricks.graph.graph import Graph
    from bricks.graph.model import Model


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
    """Raise :class:`ModelError` if one of the values ``names`` is larger than any host's memory."""
    for name in names:
        if not graph.types[name].sensible:
            raise ModelError(
                f"{model.name}: value '{name}' ({graph.types[name]}) is larger than any host can"
                " hold: refused"
            )
