"""Latencies of requests that instances serve in batches, first in, first out; fast.

It simulates what :func:`~bricks.compose.queueing.simulation.simulate` does for batches that never
wait to be filled, an unbounded queue and processors that stay active. A search over many settings
needs thousands of such runs. Must not know what is served.
"""

from __future__ import annotations

from heapq import heapreplace

import numpy as np


def latencies_s(arrivals_s: np.ndarray, instances: int, batch_s: np.ndarray) -> np.ndarray:
    """Seconds from the arrival of each request to the end of its batch: shape ``(requests,)``.

    ``arrivals_s`` ascend from 0 or later. ``batch_s`` are the seconds of batches by their size from
    1 on and their number in the run: shape ``(largest, requests)``.
    """
    largest, _ = batch_s.shape
    if largest == 1:
        done_s = _single(arrivals_s, instances, batch_s[0])
    else:
        done_s = _in_batches(arrivals_s.tolist(), instances, batch_s.tolist())
    return np.asarray(done_s - arrivals_s)


def _single(arrivals_s: np.ndarray, instances: int, run_s: np.ndarray) -> np.ndarray:
    """Ends of runs of single requests."""
    if instances == 1:
        return _one_by_one(arrivals_s, run_s)
    free_s = [0.0] * instances
    done_s = []
    for arrived_s, seconds in zip(arrivals_s.tolist(), run_s.tolist(), strict=True):
        first_s = free_s[0]  # a comparison, since max takes twice as long
        end_s = (arrived_s if arrived_s > first_s else first_s) + seconds
        heapreplace(free_s, end_s)
        done_s.append(end_s)
    return np.asarray(done_s)


def _one_by_one(arrivals_s: np.ndarray, run_s: np.ndarray) -> np.ndarray:
    """Ends of runs on one instance: Lindley's recursion as a running maximum."""
    work_s = np.cumsum(run_s)
    return np.asarray(work_s + np.maximum.accumulate(arrivals_s - (work_s - run_s)))


def _in_batches(arrivals_s: list[float], instances: int, batch_s: list[list[float]]) -> np.ndarray:
    """Ends of the batches of requests; the instance that is free first takes all that wait."""
    free_s = [0.0] * instances
    done_s: list[float] = []
    number = first = 0
    while first < len(arrivals_s):
        begin_s = max(free_s[0], arrivals_s[first])
        most = min(first + len(batch_s), len(arrivals_s))
        after = first + 1
        while after < most and arrivals_s[after] <= begin_s:
            after += 1
        end_s = begin_s + batch_s[after - first - 1][number]
        heapreplace(free_s, end_s)
        done_s += [end_s] * (after - first)
        number, first = number + 1, after
    return np.asarray(done_s)
