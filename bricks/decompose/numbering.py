"""Numbers for the values and weights of a graph, in the order of their first use.

Must not know how pieces are identified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.decompose.occurrence import Occurrence
from bricks.graph.topology import used_values

if TYPE_CHECKING:
    from bricks.decompose.identity import Piece
    from bricks.decompose.overlap import Window
    from bricks.graph.containers import ValueType
    from bricks.graph.graph import Graph


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
        self._read_by_shared = _read_by_shared_layers(graph, cut)

    def values(self, names: Iterable[str]) -> tuple[int, ...]:
        """The numbers of the values ``names``, in order."""
        return tuple(map(self._number, names))

    def occurrence(self, window: Window, piece: Piece) -> Occurrence:
        """Return the occurrence of the brick of ``piece``, which was cut at ``window``."""
        occurrence = Occurrence(
            brick=piece.brick.key,
            inputs=self.values(piece.inputs),
            outputs=tuple(self._output(name) for name in piece.outputs),
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

    def _output(self, name: str) -> int:
        return self._new(name) if name in self._made else self._number(name)

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


def _read_by_shared_layers(graph: Graph, cut: Sequence[Window]) -> set[str]:
    """Values read by layers that belong to two bricks: one of the two may hide such a value."""
    shared = (i for window in cut if window.repeats is not None for i in window.nodes)
    return {name for i in shared for name in used_values(graph.nodes[i])}
