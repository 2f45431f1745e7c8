"""The policy of continuous batching: sequences join and leave a running batch between steps.

It is iteration-level scheduling (Yu et al., Orca, OSDI 2022): before each step, one waiting request
is admitted if the batch has room. Its prompt is a step of its own (prefill), for which the other
sequences wait. Then one step makes a token of each sequence. KV caches are padded to the longest in
the batch. Must not know models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.compose.queueing.arrivals import Queue
    from bricks.compose.queueing.simulation import Log

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
