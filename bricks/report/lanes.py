"""Where to draw the nodes of a graph that has one row for each, in the order they are executed.

As histories of versions are drawn: a node stands in a lane, and its lane goes on to the last row
that needs what it made. Must not know what nodes are.
"""

from __future__ import annotations

from collections.abc import Sequence


def lanes(producers: Sequence[Sequence[int]]) -> list[int]:
    """The lane of each node, from 0; ``producers`` are the rows of those that it needs.

    A node goes on in the first lane that ends with it, else it begins in the first that is free.
    """
    last_use = list(range(len(producers)))
    for row, needed in enumerate(producers):
        for producer in needed:
            last_use[producer] = row
    until: list[int] = []  # by lane, the row up to which it is taken
    found: list[int] = []
    for row, needed in enumerate(producers):
        ending = [found[p] for p in needed if last_use[p] == row]
        free = [lane for lane, end in enumerate(until) if end < row]
        if ending or free:
            lane = min(ending or free)
        else:
            lane = len(until)
            until.append(0)
        until[lane] = last_use[row]
        found.append(lane)
    return found
