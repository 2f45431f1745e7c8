"""How long a batch of any size takes: estimates at some sizes, interpolated between them.

Must not know how estimates are made, nor how queries arrive.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from bricks.compose.estimate import MEASURED, Provenance
from bricks.compose.queueing.batching import BatchSeconds
from bricks.compose.queueing.idle import AWAKE, ServerState, Waking
from bricks.compose.queueing.metrics import rate
from bricks.studies.serving.scenario import Serving
from bricks.units.cases import End, value_of
from bricks.units.curve import Curve
from bricks.units.interval import Interval

# Random numbers that are drawn once and used again and again.
_DRAWS = 1 << 16


@dataclass(frozen=True, slots=True)
class BatchLatency:
    """A batch of ``size`` samples: its latency, and single runs relative to their median.

    ``factors`` has the shape ``(draws,)``. A batch takes ``asleep_share`` of its latency longer on
    a processor that sleeps; None: that was not measured.
    """

    FACTS: ClassVar = (
        ("size", "batch"), "latency_s", "throughput",
        ("provenance.measured_share", "measured_share"),
        ("provenance.published_share", "published_share"),
        ("provenance.predicted_share", "predicted_share"), "asleep_share",
    )  # fmt: skip

    size: int
    latency_s: Interval
    factors: np.ndarray = field(repr=False)
    provenance: Provenance = MEASURED
    asleep_share: float | None = None

    def in_state(self, state: ServerState | None) -> BatchLatency:
        """The same batch as a server has it; None: in a server it takes as long."""
        if state is None:
            return replace(self, asleep_share=0.0)
        return replace(
            self,
            latency_s=self.latency_s.scaled(state.factor),
            factors=np.random.default_rng(0).choice(state.spread, len(self.factors)),
            asleep_share=state.asleep_share,
        )

    @property
    def throughput(self) -> Interval:
        """Samples a second of one instance that runs such batches one after another."""
        mean = float(self.factors.mean())
        return self.latency_s.map(lambda s: rate(self.size, mean * s))


@dataclass(frozen=True)  # without slots: what follows is kept
class ServiceTimes:
    """Latencies of batches of ascending sizes, from 1 on; those between are interpolated.

    ``waking`` is how the processor sleeps and wakes.
    """

    batches: Sequence[BatchLatency]
    waking: Waking = AWAKE

    @cached_property
    def curve(self) -> Curve:
        """Seconds of a batch by its size."""
        return Curve.through((batch.size, batch.latency_s) for batch in self.batches)

    @property
    def interpolation_error(self) -> float:
        """The worst error of a size that is interpolated from its neighbours, relative to it."""
        return self.curve.error

    def latency(self, size: int) -> Interval:
        """The latency of a batch of ``size``, which is none above the largest."""
        return self.curve.at(size)

    def sampler(self, serving: Serving, end: End, *, seed: int) -> BatchSeconds:
        """Seconds of single batches with all that they cost the server, at an ``end``.

        The same ``seed`` gives batches of the same number the same noise, so that ends and rates
        are compared with each other.
        """
        sizes = range(1, serving.max_batch + 1)
        middles = [0.0, *(end(self.latency(size)) for size in sizes)]
        own_s: list[float] = serving.own_batches_s(_DRAWS).tolist()
        costs = [0.0, *(size * serving.request_s for size in sizes)]
        at = [0, *map(self._place, sizes)]
        factors: list[list[float]] = [batch.factors.tolist() for batch in self.batches]
        asleep = [batch.asleep_share or 0.0 for batch in self.batches]
        noise = np.random.default_rng(seed).integers(0, len(factors[0]), _DRAWS).tolist()
        mask = _DRAWS - 1

        def batch_s(size: int, number: int, sleep: float) -> float:
            place = at[size]
            factor: float = factors[place][noise[number & mask]] * (1 + asleep[place] * sleep)
            return middles[size] * factor + costs[size] + own_s[number & mask]

        return batch_s

    def capacity_qps(self, serving: Serving, end: End = value_of) -> float:
        """The most samples a second that ``serving`` can serve: all batches are full then."""
        size = serving.max_batch
        factors = self.batches[self._place(size)].factors
        run_s = end(self.latency(size)) * float(factors.mean())
        return serving.instances * size / (run_s + serving.batch_s + size * serving.request_s)

    def _place(self, size: int) -> int:
        """The first batch of at least this size."""
        return bisect_left(self.curve.sizes, size)
