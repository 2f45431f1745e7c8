"""Assigns lanes to the nodes of a graph drawn with one row per node, in execution order.

The layout is that of version histories: a node is in a lane, and its lane continues to the last row
that needs its output. Must not know what nodes are.
"""

from __future__ import annotations

from collections.abc import Sequence


def lanes(producers: Sequence[Sequence[int]]) -> list[int]:
    """The lane of each node, from 0; ``producers`` are the rows of its inputs.

    A node continues the first lane that ends with it, else it begins in the first free one.
    """
    last_use = list(range(len(producers)))
    for row, needed in enumerate(producers):
        for producer in needed:
            last_use[producer] = row
    until: list[int] = []  # by lane, the last row in which it is in use
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
