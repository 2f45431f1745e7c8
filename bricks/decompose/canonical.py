"""Order the vertices of a small labelled graph canonically, independent of their numbers.

Identity uses this order: two pieces of models are the same brick exactly when their canonical forms
are equal bytes. Colours are refined until neighbours distinguish no more vertices. Remaining ties
are broken by individualising each tied vertex in turn and keeping the smallest certificate. Two
facts keep that fast. Vertices with a unique colour can be left out, since equal colours have equal
edges to them; the remaining graph often falls into parts that are ordered one by one. And when two
tied vertices lead to equal certificates, an automorphism maps one to the other, so one is enough.

Vertices are numbers with a label; edges are directed and labelled. Must not know ONNX.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Edge = tuple[int, int, str]
Colours = dict[int, int]
Signature = tuple[tuple[int, int], ...]
Groups = dict[Signature, list[int]]
Certificate = tuple[tuple[int, ...], tuple[Signature, ...]]

# Bounds of the search, in visits of a vertex (some microseconds each): for one piece, and for a
# whole graph. Pieces of real models take hundreds, and their graphs thousands.
VISITS, ALL_VISITS = 100_000, 1_000_000
# Nested choices beyond this depth are made in source order, well below Python's recursion limit.
DEPTH = 150


@dataclass
class SearchBudget:
    """The number of vertex visits left; the search stops when it is negative."""

    left: int = VISITS


def canonical_order(
    labels: Sequence[bytes], edges: Sequence[Edge], budget: SearchBudget | None = None
) -> list[int]:
    """Return the vertices in an order that depends on labels and edges only, not on their numbers.

    Isomorphic graphs yield the same graph when renumbered by this order. When the search exceeds
    ``budget``, vertices that are still tied keep the order of their numbers. Two isomorphic graphs
    may then differ after renumbering; graphs that are not isomorphic always differ.
    """
    search = _Search(len(labels), edges, budget or SearchBudget())
    start: dict[bytes, int] = {}
    position = 0
    for label, size in sorted(Counter(labels).items()):
        start[label] = position
        position += size
    colours = {v: start[label] for v, label in enumerate(labels)}
    return search.order(search.refine(colours, colours), greedy=False, depth=0)


class _Search:
    """Individualisation and refinement over one graph.

    A colour is the position at which its cell starts in the order, so that a cell can be split
    without touching the others. Colourings hold the vertices of the part under consideration;
    the others are already distinguished, or lie in other parts.
    """

    def __init__(self, vertices: int, edges: Sequence[Edge], budget: SearchBudget) -> None:
        rank = {label: r for r, label in enumerate(sorted({label for _, _, label in edges}))}
        # Even numbers are edges that leave the vertex, odd numbers edges that enter it.
        self._adjacent: list[list[tuple[int, int]]] = [[] for _ in range(vertices)]
        for source, target, label in edges:
            self._adjacent[source].append((2 * rank[label], target))
            self._adjacent[target].append((2 * rank[label] + 1, source))
        self._budget = budget

    def refine(self, colours: Colours, dirty: Iterable[int]) -> Colours:
        """Split cells until members of a cell see the same colours; starts at ``dirty``."""
        self._budget.left -= len(colours)
        colours = dict(colours)
        cells = _cells(colours)
        pending = list(dict.fromkeys(dirty))
        while pending:
            splits = []
            for cell, dirty_members in _cells({v: colours[v] for v in pending}).items():
                if len(cells[cell]) > 1:
                    groups = self._groups(cells[cell], dirty_members, colours)
                    if len(groups) > 1:
                        splits.append((cell, groups))
            # All signatures of a round are read before a colour changes: cell order has no effect.
            changed: list[int] = []
            for cell, groups in splits:
                position = cell
                # The largest group keeps the colour, so that few signatures must be recomputed.
                for signature in sorted(groups, key=lambda seen: (-len(groups[seen]), seen)):
                    members = groups[signature]
                    cells[position] = members
                    if position != cell:
                        changed += members
                        colours.update(dict.fromkeys(members, position))
                    position += len(members)
            pending = list(
                dict.fromkeys(u for v in changed for _, u in self._adjacent[v] if u in colours)
            )
        return colours

    def order(self, colours: Colours, *, greedy: bool, depth: int) -> list[int]:
        """The vertices of an equitable colouring in canonical order.

        ``greedy`` takes the first of tied vertices: the order is valid but not canonical.
        """
        sizes = Counter(colours.values())
        singletons = sorted(
            (v for v, c in colours.items() if sizes[c] == 1), key=colours.__getitem__
        )
        tied = {v: c for v, c in colours.items() if sizes[c] > 1}
        parts = self._parts(tied)
        if not parts:
            return singletons
        if len(parts) == 1:
            return singletons + self._branch(parts[0], greedy=greedy, depth=depth)
        orders = [self.order(part, greedy=greedy, depth=depth + 1) for part in parts]
        # Parts with equal certificates are interchangeable.
        orders.sort(key=lambda part: self._certificate(part, colours))
        return singletons + [v for part in orders for v in part]

    def _branch(self, colours: Colours, *, greedy: bool, depth: int) -> list[int]:
        """The canonical order of one connected part in which every cell is tied."""
        cell = min(_cells(colours).items(), key=lambda item: (len(item[1]), item[0]))[1]
        if depth >= DEPTH:
            return sorted(colours, key=lambda v: (colours[v], v))
        first = self._individualised(cell[0], len(cell), colours)
        best = self.order(first, greedy=greedy, depth=depth + 1)
        if greedy or self._budget.left <= 0:
            return best
        smallest = self._certificate(best, colours)
        seen = {self._certificate(self.order(first, greedy=True, depth=depth + 1), colours)}
        for v in cell[1:]:
            if self._budget.left <= 0:
                break
            individualised = self._individualised(v, len(cell), colours)
            leaf = self._certificate(
                self.order(individualised, greedy=True, depth=depth + 1), colours
            )
            if leaf in seen:
                continue
            seen.add(leaf)
            order = self.order(individualised, greedy=False, depth=depth + 1)
            certificate = self._certificate(order, colours)
            if certificate < smallest:
                best, smallest = order, certificate
        return best

    def _individualised(self, v: int, size: int, colours: Colours) -> Colours:
        """The refined colouring after ``v`` is split off from its cell of ``size`` vertices."""
        individualised = colours | {v: colours[v] + size - 1}
        return self.refine(individualised, [u for _, u in self._adjacent[v] if u in individualised])

    def _groups(self, members: Sequence[int], dirty: Sequence[int], colours: Colours) -> Groups:
        """The members of a cell by signature; all that are not ``dirty`` share one signature."""
        same = set(members).difference(dirty) if len(dirty) < len(members) else set()
        self._budget.left -= len(dirty)
        groups: Groups = {}
        if same:
            groups[self._signature(next(iter(same)), colours)] = [v for v in members if v in same]
        for v in dirty:
            groups.setdefault(self._signature(v, colours), []).append(v)
        return groups

    def _signature(self, v: int, colours: Colours) -> Signature:
        return tuple(sorted((label, colours[u]) for label, u in self._adjacent[v] if u in colours))

    def _parts(self, colours: Colours) -> list[Colours]:
        """Connected parts of the vertices that have a colour."""
        parts: list[Colours] = []
        seen: set[int] = set()
        for start in colours:
            if start in seen:
                continue
            seen.add(start)
            members = [start]
            for v in members:
                for _, u in self._adjacent[v]:
                    if u in colours and u not in seen:
                        seen.add(u)
                        members.append(u)
            # Source order within a part, so that an aborted search is at least reproducible.
            parts.append({v: colours[v] for v in sorted(members)})
        return parts

    def _certificate(self, order: Sequence[int], colours: Colours) -> Certificate:
        """The labels and edges of the part when its vertices are numbered by ``order``."""
        self._budget.left -= len(order)
        position = {v: p for p, v in enumerate(order)}
        edges = tuple(
            tuple(
                sorted(
                    (label, position[u])
                    for label, u in self._adjacent[v]
                    if label % 2 == 0 and u in position
                )
            )
            for v in order
        )
        return tuple(colours[v] for v in order), edges


def _cells(colours: Colours) -> dict[int, list[int]]:
    cells: dict[int, list[int]] = {}
    for v, colour in colours.items():
        cells.setdefault(colour, []).append(v)
    return cells
