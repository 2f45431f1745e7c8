"""Simulates continuous batching: requests join a running batch between two steps, and leave it.

The policy is that of iteration-level scheduling (Yu et al., Orca, OSDI 2022): before each step, one
request that waits is admitted while fewer than the most are worked on; its prompt is a step of its
own, which the others wait for. Then one step makes a token of each text. The caches of a batch are
as long as the longest. Must not know models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

# Seconds of a prompt's step, by its number; and of a step by texts, length of the cache, number.
PromptSeconds = Callable[[int], float]
StepSeconds = Callable[[int, int, int], float]


@dataclass(frozen=True, slots=True)
class Generated:
    """What a server did, of each request in the order of arrival.

    ``ttft_s`` is the time from its arrival to its first token, ``tpot_s`` the mean time of each
    further token (NaN if there is none). ``batches`` are the texts of each step of one token.
    ``busy_s`` is the time of all steps, ``span_s`` that from the first arrival to the end.
    """

    ttft_s: np.ndarray
    tpot_s: np.ndarray
    batches: np.ndarray
    busy_s: float
    span_s: float


@dataclass(slots=True)
class _Text:
    """A text that is worked on: its request's number, its tokens, and the first one's time."""

    number: int
    past: int
    made: int
    first_s: float


def generate(
    arrivals_s: Sequence[float],
    prompt_tokens: int,
    new_tokens: int,
    most: int,
    prompt_s: PromptSeconds,
    step_s: StepSeconds,
) -> Generated:
    """Serve requests that arrive at ``arrivals_s``, in order, ``most`` of them at once."""
    count = len(arrivals_s)
    ttft_s, tpot_s = np.zeros(count), np.full(count, np.nan)
    waiting = deque(range(count))
    running: list[_Text] = []
    batches: list[int] = []
    now_s, busy_s, number = arrivals_s[0] if count else 0.0, 0.0, 0

    def finish(text: _Text) -> None:
        if new_tokens > 1:
            tpot_s[text.number] = (now_s - text.first_s) / (new_tokens - 1)

    while waiting or running:
        if not running and arrivals_s[waiting[0]] > now_s:
            now_s = arrivals_s[waiting[0]]
        number += 1
        if waiting and len(running) < most and arrivals_s[waiting[0]] <= now_s:
            request = waiting.popleft()
            taken_s = prompt_s(number)
            now_s, busy_s = now_s + taken_s, busy_s + taken_s
            ttft_s[request] = now_s - arrivals_s[request]
            text = _Text(request, prompt_tokens, 1, now_s)
            if new_tokens == 1:
                finish(text)
            else:
                running.append(text)
            continue
        longest = max(text.past for text in running)
        taken_s = step_s(len(running), longest, number)
        now_s, busy_s = now_s + taken_s, busy_s + taken_s
        batches.append(len(running))
        for text in running:
            text.past, text.made = text.past + 1, text.made + 1
            if text.made == new_tokens:
                finish(text)
        running = [text for text in running if text.made < new_tokens]
    span_s = now_s - arrivals_s[0] if count else 0.0
    return Generated(ttft_s, tpot_s, np.asarray(batches), busy_s, span_s)
