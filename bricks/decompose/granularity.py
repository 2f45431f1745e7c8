"""Cut a graph at every node, or into sequences of at most G layers.

The second is the benchmark generation of DLBricks (Li, Dakkak, Xiong, Hwu; ICPE 2020;
arXiv:1911.07967, section 3.1): ``FindModelSubgraphs`` walks the topologically sorted layers with a
window of G; ``SplitModel`` makes a runnable network of the window, or, where it cannot, a
one-layer network of the first layer, and recurses on the rest.

Must not know operators, only which node feeds which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.errors import UsageError, nearest

if TYPE_CHECKING:
    from bricks.graph.model import Graph

EXECUTED = "executed"
_OVERLAP = "+1"


@dataclass(frozen=True, slots=True)
class Granularity:
    """The size of bricks: nodes of the executed graph, or up to ``layers`` of the source graph.

    ``layers`` is None for the executed graph. With ``overlap``, each brick also begins with the
    layer before it (see ``overlap``).
    """

    layers: int | None = None
    overlap: bool = False

    @classmethod
    def parse(cls, text: str) -> Granularity:
        """Read ``executed``, a number of at least 1, or such a number and ``+1`` for overlap.

        Raises :class:`UsageError` for other texts.
        """
        if text == EXECUTED:
            return cls(None)
        layers = text.removesuffix(_OVERLAP)
        if layers.isdecimal() and int(layers) >= 1:
            return cls(int(layers), overlap=layers != text)
        raise UsageError(
            f"granularity {text!r} is neither 'executed' nor a number of at least 1,"
            f" which {_OVERLAP} may follow"
            f"{f': did you mean {EXECUTED}?' if nearest(text, [EXECUTED]) else ''}"
        )

    @property
    def executed(self) -> bool:
        """Whether bricks are the nodes of the graph that the runtime executes."""
        return self.layers is None

    def __str__(self) -> str:
        return EXECUTED if self.layers is None else f"{self.layers}{_OVERLAP * self.overlap}"


def split(
    graph: Graph,
    granularity: Granularity,
    groups: Sequence[tuple[int, ...]] | None = None,
) -> list[tuple[int, ...]]:
    """Cut ``graph`` into runs of node positions; every node is in exactly one of them.

    The runs do not overlap; ``overlap`` adds shared layers later. For the executed graph,
    ``groups`` are the nodes that the runtime executes as one.
    """
    if granularity.executed and groups is not None:
        return list(groups)
    if granularity.layers is None:
        from bricks.decompose.stretches import stretches

        return stretches(graph)
    if granularity.layers == 1:
        return [(i,) for i in range(len(graph.nodes))]
    return find_model_subgraphs(graph, granularity.layers)


def find_model_subgraphs(graph: Graph, layers: int) -> list[tuple[int, ...]]:
    """``FindModelSubgraphs`` of the paper, over nodes that are already in topological order."""
    pieces: list[tuple[int, ...]] = []
    for begin in range(0, len(graph.nodes), layers):
        window = range(begin, min(begin + layers, len(graph.nodes)))
        pieces.extend(split_model(graph, window))
    return pieces


def split_model(graph: Graph, window: range) -> list[tuple[int, ...]]:
    """``SplitModel`` of the paper: runnable networks that cover the window.

    A window is a valid network if only its first layer takes activations from outside the window: a
    Concat without all of its inputs, or the start of a parallel branch, is a piece of its own.
    """
    pieces: list[tuple[int, ...]] = []
    while len(window):
        if _valid(graph, window):
            return [*pieces, tuple(window)]
        pieces.append((window[0],))
        window = window[1:]
    return pieces


def _valid(graph: Graph, window: range) -> bool:
    from bricks.graph.topology import used_values

    inside: set[str] = set()
    for position in window:
        node = graph.nodes[position]
        if position != window[0]:
            for name in used_values(node):
                if name not in inside and name not in graph.initializers:
                    return False
        inside.update(node.output)
    return True
