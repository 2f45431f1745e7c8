"""The policy of dynamic batching: a free instance runs the waiting samples, or waits for more.

Must not know what a batch is of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.compose.queueing.arrivals import Queue
    from bricks.compose.queueing.simulation import Log

# Seconds of a batch, by its size, its number in the run of the server, the idle depth of the
# processor (see ``IdleModel``), and how many instances are busy, its own included.
BatchSeconds = Callable[[int, int, float, int], float]


def batch_sizes(most: int) -> list[int]:
    """The sizes whose latencies are estimated: powers of two up to ``most``, and ``most``."""
    powers = [1 << power for power in range(most.bit_length())]
    return sorted({*(size for size in powers if size < most), most})


class BatchPolicy:
    """An instance that runs batches of up to ``most`` samples, which take ``batch_s`` seconds.

    The instance waits for a batch to be filled, but no longer than ``timeout_s`` after the first of
    its samples arrived. A sample that arrives just when a batch begins is part of the batch.
    """

    __slots__ = ("_batch", "_batch_s", "_most", "_timeout_s")

    unfinished = False  # all samples of a batch are done when its run ends

    def __init__(self, most: int, timeout_s: float, batch_s: BatchSeconds) -> None:
        self._most, self._timeout_s, self._batch_s = most, timeout_s, batch_s
        self._batch: list[int] = []

    def begin(self, queue: Queue, free_s: float) -> float:
        """See :class:`~bricks.compose.queueing.simulation.InstancePolicy`."""
        first_s = queue.first_s()
        begin_s = max(free_s, first_s)
        queue.enqueue_until(begin_s)
        if len(queue) < self._most and begin_s < first_s + self._timeout_s:
            begin_s = queue.fill(self._most, first_s + self._timeout_s)
        self._batch = queue.take(self._most)
        return begin_s

    def seconds(self, number: int, idle_depth: float, busy: int) -> float:
        """See :class:`~bricks.compose.queueing.simulation.InstancePolicy`."""
        return self._batch_s(len(self._batch), number, idle_depth, busy)

    def end(self, end_s: float, log: Log) -> None:
        """Log that all samples of the batch are done."""
        ends = [end_s] * len(self._batch)
        log.first += self._batch
        log.first_s += ends
        log.done += self._batch
        log.done_s += ends
        log.batches.append(len(self._batch))
