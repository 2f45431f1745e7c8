"""Which worker runs which occurrence, where several are run at the same time.

ONNX Runtime runs nodes side by side only along *streams* that it is given: lists of nodes, each run
in the model's order, which wait for each other where one needs what another has made. They are
decided here before anything is measured, from the work in the graph: so a plan has one division,
and a whole model is measured once for each number of workers. Knows nothing of latencies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from bricks.decompose.plan import Brick, Plan, work_of

# The work in whose time another worker takes over: waking it takes some microseconds. Less than
# this is not worth running elsewhere.
_HANDOVER = 1e5


def streams_of(plan: Plan, bricks: Mapping[str, Brick], workers: int) -> tuple[int, ...]:
    """The stream of each occurrence, by position; at most ``workers``, numbered by first use.

    List scheduling with the model's order as the list: each occurrence goes to the worker that
    could begin with it first, if every one took as long as there is work in it.
    """
    work = {key: work_of(bricks[key]) for key in plan.keys}
    free = [0.0] * workers
    done: list[float] = []
    chosen: list[int] = []
    for i, producers in enumerate(plan.producers()):

        def begin(worker: int, producers: Sequence[int] = producers) -> float:
            waits = [done[p] + (_HANDOVER if chosen[p] != worker else 0.0) for p in producers]
            return max([free[worker], *waits])

        worker = min(range(workers), key=begin)  # of equals the first
        done.append(begin(worker) + work[plan.occurrences[i].brick])
        free[worker] = done[-1]
        chosen.append(worker)
    numbers = {worker: number for number, worker in enumerate(dict.fromkeys(chosen))}
    return tuple(numbers[worker] for worker in chosen)


def whole_key(plan: Plan, streams: Sequence[int], workers: int) -> str:
    """The key of the whole model run along ``streams``; run in sequence, its digest alone.

    The number of workers counts too: those that have nothing to do still spin.
    """
    if not streams:
        return plan.digest
    text = json.dumps(list(streams), separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plan.digest}-w{workers}-{digest}"
