"""Assign occurrences to workers, for models whose nodes run in parallel.

ONNX Runtime runs nodes in parallel only along *streams* that the caller defines: lists of nodes,
each run in the model's order, which wait for each other where one reads another's results. This
module derives the streams from the work in the graph before anything is measured. So each plan has
one division, and a whole model is measured once per number of workers. Must not know latencies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from bricks.decompose.plan import Brick, Plan, work_of

# The cost of a handover to another worker, in units of work: waking it takes some microseconds.
# An occurrence with less work than this is not worth moving.
_HANDOVER = 1e5


def streams_of(plan: Plan, bricks: Mapping[str, Brick], workers: int) -> tuple[int, ...]:
    """Return the stream number of each occurrence, by position; at most ``workers`` streams.

    Streams are numbered by first use. This is list scheduling with the model's order as the list:
    each occurrence goes to the worker that could begin it first, if the duration of each occurrence
    were proportional to its work.
    """
    work = {key: work_of(bricks[key]) for key in plan.keys}
    free = [0.0] * workers
    done: list[float] = []
    chosen: list[int] = []
    for i, producers in enumerate(plan.producers()):

        def begin(worker: int, producers: Sequence[int] = producers) -> float:
            waits = [done[p] + (_HANDOVER if chosen[p] != worker else 0.0) for p in producers]
            return max([free[worker], *waits])

        worker = min(range(workers), key=begin)  # the first of equals
        done.append(begin(worker) + work[plan.occurrences[i].brick])
        free[worker] = done[-1]
        chosen.append(worker)
    numbers = {worker: number for number, worker in enumerate(dict.fromkeys(chosen))}
    return tuple(numbers[worker] for worker in chosen)


def whole_key(plan: Plan, streams: Sequence[int], workers: int) -> str:
    """Return the key of the whole model run along ``streams``; its digest if there are none.

    The number of workers is part of the key, because idle workers still spin.
    """
    if not streams:
        return plan.digest
    text = json.dumps(list(streams), separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plan.digest}-w{workers}-{digest}"
