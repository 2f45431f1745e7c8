"""Bricks that overlap by one layer, so that fusions across a boundary are measured.

DLBricks (Li, Dakkak, Xiong, Hwu; ICPE 2020; arXiv:1911.07967) cuts a model into disjoint pieces
and leaves overlapping ones as future work. In a whole model, a runtime fuses layers and passes
blocked layouts also across the boundaries of pieces.

Pieces are cut as without overlap. A piece takes activations from outside only by its first layer
(``granularity``). Of the layers that feed this one, the last in the graph's order is the *shared*
layer: the runtime runs the piece with the shared layer, and separately the shared layer. The
latency is then estimated by inclusion and exclusion along the chain of pieces,

    T  =  sum of T(shared layer and piece)  -  sum of T(shared layer),

in which each layer counts once net. In a chain, the cost of converting a layout at the end of one
piece and at the beginning of the next cancels out. A piece whose first layer reads only inputs of
the model shares no layer.

The last feeding layer is chosen because it always yields a runnable network: the other layers that
feed the piece come before it, so none of them depends on it, and no layer between the two would
have to run inside the brick. Other inputs of the first layer, such as the second summand of a
residual sum, remain inputs, and effects across those boundaries are not measured.

Must not know operators: only which node feeds which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.decompose.granularity import Granularity, split
from bricks.graph.topology import used_values

if TYPE_CHECKING:
    from bricks.graph.model import Graph


@dataclass(frozen=True, slots=True)
class Window:
    """The positions of the nodes of one brick.

    For a window that is only a shared layer, ``repeats`` is the position of the earlier window with
    this layer; None for all others.
    """

    nodes: tuple[int, ...]
    repeats: int | None = None


def windows(
    graph: Graph, granularity: Granularity, groups: Sequence[tuple[int, ...]] | None = None
) -> list[Window]:
    """The windows of ``graph`` in execution order; ``groups`` as in :func:`split`.

    Where bricks overlap, a window of the shared layer comes right before the brick that begins with
    this layer.
    """
    pieces = split(graph, granularity, groups)
    if not granularity.overlap:
        return [Window(piece) for piece in pieces]
    cut: list[Window] = []
    # By value, the layer that makes it and the position of the window that has this layer.
    makers: dict[str, tuple[int, int]] = {}
    for piece in pieces:
        feeding = [makers[name] for name in used_values(graph.nodes[piece[0]]) if name in makers]
        if feeding:
            shared, position = max(feeding)
            cut.append(Window((shared,), repeats=position))
            cut.append(Window((shared, *piece)))
        else:
            cut.append(Window(piece))
        made = ((i, name) for i in piece for name in graph.nodes[i].output if name)
        makers.update((name, (i, len(cut) - 1)) for i, name in made)
    return cut
