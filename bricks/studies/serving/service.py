"""How long a batch of any size takes: estimates at some sizes, interpolated between them.

Must not know how estimates are made, nor how queries arrive.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bricks.compose.estimate import MEASURED, Provenance
from bricks.compose.figure import Figure
from bricks.studies.serving.idle import AWAKE, ServerState, Waking
from bricks.studies.serving.queueing import BatchSeconds
from bricks.studies.serving.scenario import Serving

_ENDS = ("value", "low", "high")


def batch_sizes(most: int) -> list[int]:
    """The sizes whose latencies are estimated: powers of two up to ``most``, and that itself."""
    powers = [1 << power for power in range(most.bit_length())]
    return sorted({*(size for size in powers if size < most), most})


@dataclass(frozen=True, slots=True)
class BatchLatency:
    """A batch of ``size`` samples: its latency, and single runs relative to their median.

    ``factors`` has the shape ``(draws,)``. A batch takes ``asleep_share`` of its latency longer on
    a processor that sleeps; None: that was not measured.
    """

    size: int
    seconds: Figure
    factors: np.ndarray = field(repr=False)
    provenance: Provenance = MEASURED
    asleep_share: float | None = None

    def in_state(self, state: ServerState | None) -> BatchLatency:
        """The same batch as a server has it; None: in a server it takes as long."""
        if state is None:
            return replace(self, asleep_share=0.0)
        return replace(
            self,
            seconds=Figure(*(state.factor * end_of(self.seconds, end) for end in _ENDS)),
            factors=np.random.default_rng(0).choice(state.spread, len(self.factors)),
            asleep_share=state.asleep_share,
        )

    @property
    def throughput(self) -> Figure:
        """Samples a second of one instance that runs such batches one after another."""
        seconds, mean = self.seconds, float(self.factors.mean())
        ends = (seconds.value, seconds.high, seconds.low)
        return Figure(*(self.size / (mean * end) if end > 0 else 0.0 for end in ends))


@dataclass(frozen=True)  # without slots: what follows is kept
class ServiceTimes:
    """Latencies of batches of ascending sizes, from 1 on; those between are interpolated.

    ``waking`` is how the processor sleeps and wakes.
    """

    batches: Sequence[BatchLatency]
    waking: Waking = AWAKE

    @cached_property
    def _sizes(self) -> list[int]:
        return [batch.size for batch in self.batches]

    @cached_property
    def interpolation_error(self) -> float:
        """The worst error of a size that is interpolated from its neighbours, relative to it."""
        worst = 0.0
        for before, batch, after in zip(
            self.batches, self.batches[1:], self.batches[2:], strict=False
        ):
            told = _between(before, after, batch.size).value
            worst = max(worst, abs(told / batch.seconds.value - 1))
        return worst

    def latency(self, size: int) -> Figure:
        """The latency of a batch of ``size``, which is none above the largest."""
        at = bisect_left(self._sizes, size)
        if self._sizes[at] == size:
            return self.batches[at].seconds
        found = _between(self.batches[at - 1], self.batches[at], size)
        more = self.interpolation_error
        return Figure(found.value, found.low * (1 - min(more, 1.0)), found.high * (1 + more))

    def sampler(self, serving: Serving, end: str, *, seed: int) -> BatchSeconds:
        """Seconds of single batches with all that they cost the server, at an ``end``.

        ``end`` is ``value``, ``low`` or ``high`` of the latencies. The same ``seed`` gives batches
        of the same number the same luck, so that ends and rates are compared with each other.
        """
        sizes = range(1, serving.max_batch + 1)
        middles = [0.0, *(end_of(self.latency(size), end) for size in sizes)]
        own_s: list[float] = serving.own_batches_s(1 << 16).tolist()
        costs = [0.0, *(size * serving.request_s for size in sizes)]
        at = [0, *(bisect_left(self._sizes, size) for size in sizes)]
        factors: list[list[float]] = [batch.factors.tolist() for batch in self.batches]
        asleep = [batch.asleep_share or 0.0 for batch in self.batches]
        draws = len(factors[0])
        luck = np.random.default_rng(seed).integers(0, draws, 1 << 16).tolist()
        mask = len(luck) - 1

        def batch_s(size: int, number: int, sleep: float) -> float:
            place = at[size]
            factor: float = factors[place][luck[number & mask]] * (1 + asleep[place] * sleep)
            return middles[size] * factor + costs[size] + own_s[number & mask]

        return batch_s

    def capacity_qps(self, serving: Serving, end: str = "value") -> float:
        """The most samples a second that ``serving`` can serve: all batches are full then."""
        size = serving.max_batch
        at = bisect_left(self._sizes, size)
        run_s = end_of(self.latency(size), end) * float(self.batches[at].factors.mean())
        return serving.instances * size / (run_s + serving.batch_s + size * serving.request_s)


def end_of(figure: Figure, end: str) -> float:
    """``figure``'s ``value``, ``low`` or ``high``."""
    return float(getattr(figure, end))


def _between(before: BatchLatency, after: BatchLatency, size: int) -> Figure:
    """Linear in the size between two batches."""
    share = (size - before.size) / (after.size - before.size)

    def at(end: str) -> float:
        low, high = end_of(before.seconds, end), end_of(after.seconds, end)
        return low + share * (high - low)

    return Figure(at("value"), at("low"), at("high"))
