"""Policies of batching: dynamic, continuous, and batches that never wait to be filled.

Dynamic batching: a free instance runs the waiting samples, or waits for more.

Continuous batching: sequences join and leave a running batch between steps.

It is iteration-level scheduling (Yu et al., Orca, OSDI 2022): before each step, one waiting request
is admitted if the batch has room. Its prompt is a step of its own (prefill), for which the other
sequences wait. Then one step makes a token of each sequence. KV caches are padded to the longest in
the batch.

For batches that never wait to be filled, first in, first out, latencies of requests are fast to
compute.

It simulates what :func:`~bricks.compose.queueing.simulation.simulate` does for batches that never
wait to be filled, an unbounded queue and processors that stay active. A search over many settings
needs thousands of such runs. Must not know what a batch is of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapreplace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bricks.compose.queueing.simulation import Log, Queue

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


# Seconds of a prompt's step, by its number from 1 on; and of a step that makes tokens, by batch
# size, cache length and number.
PromptSeconds = Callable[[int], float]
StepSeconds = Callable[[int, int, int], float]


@dataclass(frozen=True, slots=True)
class TextLengths:
    """Tokens of each prompt, and new tokens of each sequence."""

    prompt_tokens: int
    new_tokens: int


@dataclass(slots=True)
class _RunningSequence:
    """A running sequence: the number of its request, tokens in its cache, tokens made."""

    request: int
    past: int
    made: int


class ContinuousPolicy:
    """An instance that runs batches of up to ``most`` sequences."""

    def __init__(
        self, lengths: TextLengths, most: int, prompt_s: PromptSeconds, step_s: StepSeconds
    ) -> None:
        self._lengths, self._most = lengths, most
        self._prompt_s, self._step_s = prompt_s, step_s
        self._running: list[_RunningSequence] = []
        self._prompt: _RunningSequence | None = None

    @property
    def unfinished(self) -> bool:
        """See :class:`~bricks.compose.queueing.simulation.InstancePolicy`."""
        return bool(self._running)

    def begin(self, queue: Queue, free_s: float) -> float:
        """Admit a waiting request if the batch has room; else go on with the running ones."""
        begin_s = free_s if self._running else max(free_s, queue.first_s())
        room = len(self._running) < self._most
        if room and queue and queue.first_s() <= begin_s:
            (request,) = queue.take(1)
            self._prompt = _RunningSequence(request, self._lengths.prompt_tokens, 1)
        return begin_s

    def seconds(self, number: int, idle_depth: float, busy: int) -> float:
        """See :class:`~bricks.compose.queueing.simulation.InstancePolicy`; no idle penalty."""
        if self._prompt is not None:
            return self._prompt_s(number + 1)
        longest = max(sequence.past for sequence in self._running)
        return self._step_s(len(self._running), longest, number + 1)

    def end(self, end_s: float, log: Log) -> None:
        """Log the first token of an admitted request, or a further token of each sequence."""
        if (prompt := self._prompt) is not None:
            log.first.append(prompt.request)
            log.first_s.append(end_s)
            self._prompt = None
            self._running.append(prompt)
        else:
            log.batches.append(len(self._running))
            for sequence in self._running:
                sequence.past, sequence.made = sequence.past + 1, sequence.made + 1
        for sequence in self._running:
            if sequence.made == self._lengths.new_tokens:
                log.done.append(sequence.request)
                log.done_s.append(end_s)
        self._running = [t for t in self._running if t.made < self._lengths.new_tokens]


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
    if instances == 1:
        # Lindley's recursion as a running maximum.
        work_s = np.cumsum(run_s)
        return np.asarray(work_s + np.maximum.accumulate(arrivals_s - (work_s - run_s)))
    free_s = [0.0] * instances
    done_s = []
    for arrived_s, seconds in zip(arrivals_s.tolist(), run_s.tolist(), strict=True):
        first_s = free_s[0]  # a comparison, since max takes twice as long
        end_s = (arrived_s if arrived_s > first_s else first_s) + seconds
        heapreplace(free_s, end_s)
        done_s.append(end_s)
    return np.asarray(done_s)


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
