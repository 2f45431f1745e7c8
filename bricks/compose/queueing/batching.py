"""The policy of serving batches: an instance that is free takes what waits, or waits for more.

Must not know what a batch is of.
"""

from __future__ import annotations

from collections.abc import Callable

from bricks.compose.queueing.arrivals import Queue
from bricks.compose.queueing.simulation import Log

# Seconds that a batch of so many samples takes; the second argument is the number of the batch, the
# third how far the processor sleeps, from 0 to 1.
BatchSeconds = Callable[[int, int, float], float]


def batch_sizes(most: int) -> list[int]:
    """The sizes whose latencies are estimated: powers of two up to ``most``, and that itself."""
    powers = [1 << power for power in range(most.bit_length())]
    return sorted({*(size for size in powers if size < most), most})


class BatchPolicy:
    """Batches of up to ``most`` samples, which take ``batch_s``.

    An instance waits for a batch to be filled, not for more than ``timeout_s`` after the first of
    its samples arrived. Whoever arrives just when a batch begins is part of it.
    """

    __slots__ = ("_batch_s", "_most", "_taken", "_timeout_s")

    holds = False  # a batch that is taken is done when its run ends

    def __init__(self, most: int, timeout_s: float, batch_s: BatchSeconds) -> None:
        self._most, self._timeout_s, self._batch_s = most, timeout_s, batch_s
        self._taken: list[int] = []

    def begin(self, queue: Queue, free_s: float) -> float:
        """See :class:`~bricks.compose.queueing.simulation.InstancePolicy`."""
        first_s = queue.first_s()
        begin_s = max(free_s, first_s)
        queue.join_until(begin_s)
        if len(queue) < self._most and begin_s < first_s + self._timeout_s:
            begin_s = queue.fill(self._most, first_s + self._timeout_s)
        self._taken = queue.take(self._most)
        return begin_s

    def seconds(self, number: int, sleep: float) -> float:
        """See :class:`~bricks.compose.queueing.simulation.InstancePolicy`."""
        return self._batch_s(len(self._taken), number, sleep)

    def end(self, end_s: float, log: Log) -> None:
        """All samples of a batch are answered together."""
        ends = [end_s] * len(self._taken)
        log.first += self._taken
        log.first_s += ends
        log.done += self._taken
        log.done_s += ends
        log.batches.append(len(self._taken))
