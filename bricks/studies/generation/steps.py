"""Latencies of a decoder's steps at any cache length: estimates at some, interpolated between.

Bricks that do not depend on the length are the same for all lengths, so further lengths cost little
to measure. Must not know how estimates are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bricks.compose.device.collectives import StepCollectives, collective_facts
from bricks.compose.device.times import device_facts
from bricks.compose.estimate import provenance_facts
from bricks.units.curve import Curve
from bricks.units.facts import with_ends
from bricks.units.interval import Interval, common_sum

if TYPE_CHECKING:
    from bricks.compose.queueing.run import RunLatency
    from bricks.studies.generation.texts import Generation

# Cache lengths at which steps are estimated.
_LENGTHS = 4

# Half the width, relative to a step of one token, of an error that all its bricks share. Such a
# step reads all weights, so the bandwidth of memory bounds it. Other users of a shared host change
# that bandwidth within minutes, and samples of a few seconds do not show it (docs/guides/llm.md).
MEMORY_DRIFT = 0.3


def lengths_between(first: int, last: int) -> list[int]:
    """Cache lengths at which steps are estimated: both ends, and evenly spaced lengths between."""
    return sorted({round(length) for length in np.linspace(first, last, _LENGTHS)})


@dataclass(frozen=True, slots=True)
class DecoderStep:
    """A run of a decoder on ``batch`` sequences, each of ``tokens`` new tokens after ``past``.

    ``collectives`` are those of cards that divide the decoder, None on one card.
    """

    FACTS: ClassVar = (
        "batch", "tokens", ("past", "past_tokens"), with_ends("run.latency_s", "latency_s"),
        *device_facts("run.device"), *collective_facts("collectives"),
        *provenance_facts("run.provenance"),
    )  # fmt: skip

    batch: int
    tokens: int
    past: int
    run: RunLatency
    collectives: StepCollectives | None = None


@dataclass(frozen=True)  # without slots, for the cached curves
class StepTimes:
    """Estimated steps: ``prompts`` by the batch, ``steps`` of one token by batch and length.

    ``steps`` have the same ascending lengths for each batch.
    """

    prompts: Mapping[int, DecoderStep]
    steps: Mapping[int, Sequence[DecoderStep]]

    def at(self, batch: int, past: float) -> Interval:
        """The latency of a step of one token of ``batch`` sequences; linear in the length.

        ``batch`` is one of the estimated batch sizes.
        """
        return self._curves[batch].at(past)

    def graph_step_s(self, of: Generation) -> Interval | None:
        """The mean step of one token as a CUDA graph, for one batch of texts; None if unknown."""
        steps = self.steps[of.batch if of.qps is None else 1]
        known = [
            (step.past, step.run.device.graph_s)
            for step in steps
            if step.run.device is not None and step.run.device.graph_s is not None
        ]
        if not known or len(known) < len(steps):
            return None
        curve = Curve.through(known)
        pasts = range(of.prompt_tokens, of.prompt_tokens + of.new_tokens - 1)
        return common_sum(map(curve.at, pasts)).scaled(1 / len(pasts))

    def interpolation_error(self, batch: int) -> float:
        """The worst error of a length that is interpolated from its neighbours, relative to it."""
        return self._curves[batch].error if batch in self._curves else 0.0

    def by_batch(self, past: float) -> Curve:
        """Steps of one token after ``past`` others, by the number of sequences."""
        known = ((batch, curve.at(past)) for batch, curve in self._curves.items())
        return Curve.through(known, widens=False)

    @cached_property
    def _curves(self) -> Mapping[int, Curve]:
        """By the batch, seconds by the length of the cache."""
        return {
            batch: Curve.through((step.past, step.run.latency_s) for step in steps)
            for batch, steps in self.steps.items()
            if steps
        }
