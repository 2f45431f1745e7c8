"""Assigns tracks to the nodes of a graph drawn with one row per node, in execution order.

The layout is that of version histories: a node is in a track, and its track continues to the last
row that needs its output. Must not know what nodes are.
"""

from __future__ import annotations

from collections.abc import Sequence


def tracks(producers: Sequence[Sequence[int]]) -> list[int]:
    """The track of each node, from 0; ``producers`` are the rows of its inputs.

    A node continues the first track that ends with it, else it begins in the first free one.
    """
    last_use = list(range(len(producers)))
    for row, needed in enumerate(producers):
        for producer in needed:
            last_use[producer] = row
    until: list[int] = []  # by track, the last row in which it is in use
    assigned: list[int] = []
    for row, needed in enumerate(producers):
        ending = [assigned[p] for p in needed if last_use[p] == row]
        free = [track for track, end in enumerate(until) if end < row]
        if ending or free:
            track = min(ending or free)
        else:
            track = len(until)
            until.append(0)
        until[track] = last_use[row]
        assigned.append(track)
    return assigned
