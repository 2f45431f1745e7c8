"""Requests for texts that arrive at a rate: a simulated server with continuous batching.

Must not know models, nor how latencies are estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.compose.queueing.batching import ContinuousPolicy, TextLengths
from bricks.compose.queueing.run import RunSampler
from bricks.compose.queueing.simulation import (
    ServerRun,
    metric,
    percentiles,
    poisson_s,
    rate,
    simulate,
    without_warm_up,
)
from bricks.studies.generation.result import PERCENTILES, GenerationLoad
from bricks.units.draws import IN_COMMON, Draw, Drawn, interval_of

if TYPE_CHECKING:
    import numpy as np

    from bricks.studies.generation.options import Generation
    from bricks.studies.generation.steps import StepTimes
    from bricks.units.interval import Interval

# Simulated requests at a rate, and requests per sequence of a batch in a saturated server.
_REQUESTS, _SATURATED = 4000, 40


def load_of(times: StepTimes, generation: Generation, seed: int) -> GenerationLoad:
    """Requests at the rate of ``generation``, with draws of the latencies of all steps together."""
    assert generation.qps is not None
    first, further = generation.prompt_tokens, generation.new_tokens - 1
    curves = [times.by_batch(past) for past in range(first, first + further)]
    sizes = range(1, generation.batch + 1) if further else ()
    table = {size: [curve.at(size) for curve in curves] for size in sizes}
    server, qps = _Server(times, generation, table, seed), generation.qps
    capacities = IN_COMMON.map(server.capacity_qps)
    capacity, saturated = interval_of(capacities), qps >= capacities.value
    unbounded = qps >= capacity.low
    runs = _runs(server, qps, capacities)
    busy = metric(runs, lambda run: min(1.0, run.busy_s / run.span_s))

    def of_requests(tell: Callable[[ServerRun], np.ndarray]) -> Mapping[str, Interval]:
        seconds = runs.map(lambda run: without_warm_up(tell(run)))
        return {} if saturated else percentiles(seconds, PERCENTILES, unbounded=unbounded)

    tokens = generation.new_tokens
    return GenerationLoad(
        ttft=of_requests(lambda run: run.first_latencies_s),
        tpot=of_requests(lambda run: (run.done_s - run.first_s) / further) if further else {},
        tokens_per_s=capacity.map(lambda most_qps: min(qps * tokens, tokens * most_qps)),
        utilisation=replace(busy, high=1.0) if unbounded else busy,
        capacity_qps=capacity,
        mean_batch=runs.value.mean_batch,
        saturated=saturated,
    )


def _runs(server: _Server, qps: float, capacities: Drawn[float]) -> Drawn[ServerRun]:
    """The server with each draw; where it saturates, as with latencies at their values."""
    arrivals_s = poisson_s(qps, _REQUESTS, server.seed)
    value = server.serve(arrivals_s, IN_COMMON.value)

    def unless_saturated(draw: Draw, capacity_qps: float) -> ServerRun:
        return server.serve(arrivals_s, draw) if qps < capacity_qps else value

    return Drawn(value, tuple(map(unless_saturated, IN_COMMON.draws, capacities.draws)))


@dataclass(frozen=True, slots=True)
class _Server:
    """A server with continuous batching; ``table`` has its steps by batch size and cache length.

    The same ``seed`` gives steps of the same number the same noise.
    """

    times: StepTimes
    generation: Generation
    table: Mapping[int, Sequence[Interval]]
    seed: int

    def capacity_qps(self, draw: Draw) -> float:
        """Requests a second of a saturated server, with the latencies of ``draw``."""
        count = _SATURATED * self.generation.batch
        return rate(count, self.serve([0.0] * count, draw).span_s)

    def serve(self, arrivals_s: Sequence[float], draw: Draw) -> ServerRun:
        """Requests that arrive at ``arrivals_s``, with the latencies of ``draw``."""
        generation, prompt = self.generation, self.times.prompts[1].run
        first, between_s = generation.prompt_tokens, generation.step_s
        table_s = {size: [*map(draw.of, row)] for size, row in self.table.items()}
        longest = {size: steps[-1].run for size, steps in self.times.steps.items() if steps}
        runs = RunSampler({0: prompt, **longest}, self.seed)
        places = {size: runs.place(size) for size in table_s}

        prompt_latency_s = draw.of(prompt.latency_s)

        def prompt_s(number: int) -> float:
            return prompt_latency_s * runs.factor(0, number) + between_s

        def step_s(size: int, past: int, number: int) -> float:
            factor = runs.factor(places[size], number)
            return table_s[size][past - first] * factor + between_s

        lengths = TextLengths(first, generation.new_tokens)
        return simulate(arrivals_s, [ContinuousPolicy(lengths, generation.batch, prompt_s, step_s)])
