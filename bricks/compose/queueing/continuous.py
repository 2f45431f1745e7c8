"""The policy of continuous batching: texts join a running batch between two steps, and leave it.

It is iteration-level scheduling (Yu et al., Orca, OSDI 2022): before each step, one request that
waits is admitted while fewer than the most are worked on; its prompt is a step of its own, which
the others wait for. Then one step makes a token of each text. The caches of a batch are padded to
the longest. Must not know models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bricks.compose.queueing.arrivals import Queue
from bricks.compose.queueing.simulation import Log

# Seconds of a prompt's step, by its number from 1 on; and of a step by texts, length of the cache,
# number.
PromptSeconds = Callable[[int], float]
StepSeconds = Callable[[int, int, int], float]


@dataclass(frozen=True, slots=True)
class TextLengths:
    """Tokens of each prompt, and those that are made of it."""

    prompt_tokens: int
    new_tokens: int


@dataclass(slots=True)
class _Text:
    """A text that is worked on: its request's number, tokens in the cache, tokens made."""

    request: int
    past: int
    made: int


class ContinuousPolicy:
    """An instance that works on ``most`` texts at once."""

    def __init__(
        self, lengths: TextLengths, most: int, prompt_s: PromptSeconds, step_s: StepSeconds
    ) -> None:
        self._lengths, self._most = lengths, most
        self._prompt_s, self._step_s = prompt_s, step_s
        self._running: list[_Text] = []
        self._admitted: _Text | None = None

    @property
    def holds(self) -> bool:
        """See :class:`~bricks.compose.queueing.simulation.InstancePolicy`."""
        return bool(self._running)

    def begin(self, queue: Queue, free_s: float) -> float:
        """Admit a request if there is room, or go on with those that are worked on."""
        begin_s = free_s if self._running else max(free_s, queue.first_s())
        room = len(self._running) < self._most
        if room and queue and queue.first_s() <= begin_s:
            (request,) = queue.take(1)
            self._admitted = _Text(request, self._lengths.prompt_tokens, 1)
        return begin_s

    def seconds(self, number: int, sleep: float) -> float:
        """See :class:`~bricks.compose.queueing.simulation.InstancePolicy`; an awake processor's."""
        if self._admitted is not None:
            return self._prompt_s(number + 1)
        longest = max(text.past for text in self._running)
        return self._step_s(len(self._running), longest, number + 1)

    def end(self, end_s: float, log: Log) -> None:
        """A prompt gives the first token of its text, a step a further one of each."""
        if (text := self._admitted) is not None:
            log.first.append(text.request)
            log.first_s.append(end_s)
            self._admitted = None
            self._running.append(text)
        else:
            log.batches.append(len(self._running))
            for text in self._running:
                text.past, text.made = text.past + 1, text.made + 1
        for text in self._running:
            if text.made == self._lengths.new_tokens:
                log.done.append(text.request)
                log.done_s.append(end_s)
        self._running = [t for t in self._running if t.made < self._lengths.new_tokens]
