"""Predicts the generation of text: a step for the prompt, and one for each further token.

Steps are models of a few lengths of the cache, whose bricks are measured all at once. Must not know
how results are shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from bricks.api.bench import Bench
from bricks.compose.figure import Figure
from bricks.compose.memory.peak import UnknownMemory
from bricks.graph.model import Model
from bricks.studies.generation.continuous import Generated, generate
from bricks.studies.generation.decoders import Steps, steps_of
from bricks.studies.generation.result import (
    Generation,
    GenerationLoad,
    GenerationMemory,
    GenerationResult,
)
from bricks.studies.generation.steps import Step, StepTimes, lengths_between
from bricks.studies.serving.outcome import poisson_s
from bricks.studies.serving.run import run_latency
from bricks.studies.serving.service import batch_sizes
from bricks.system import Target

# Requests that are simulated at a rate, and of a server that always has some waiting.
_REQUESTS, _SATURATED = 4000, 40
# The first requests find an idle server.
_WARM_UP = 0.05

_ENDS = ("value", "low", "high")
_PERCENTILES = {"p50_s": 50.0, "p90_s": 90.0, "p99_s": 99.0}


def predict_generation(
    bench: Bench,
    name: str,
    generation: Generation,
    *,
    target: Target | None = None,
    measure: bool = True,
) -> GenerationResult:
    """Predict the decoder called ``name`` for ``generation``.

    With ``measure``, missing bricks are measured first; nothing can be measured on a ``target``
    other than the bench's. Raises :class:`~bricks.errors.ModelError` for a model that is no decoder
    with a cache, and :class:`~bricks.errors.BricksError` for a step that cannot be predicted.
    """
    target = bench.target if target is None else target
    decoder = steps_of(name)
    measure = measure and target.key == bench.target.key
    alone = generation.qps is None
    sizes = [generation.batch] if alone else batch_sizes(generation.batch)
    prompts = [generation.batch] if alone else [1]
    first, last = generation.prompt_tokens, generation.prompt_tokens + generation.new_tokens - 2
    lengths = lengths_between(first, last) if generation.new_tokens > 1 else []
    wanted = [(size, first, 0) for size in prompts]
    wanted += [(size, 1, past) for size in sizes for past in lengths]
    models = {step: decoder.read(bench, *step) for step in wanted}
    if measure:
        bench.measure(models.values())
    steps = {key: _step(bench, key, model, target, measure) for key, model in models.items()}
    times = StepTimes(
        {size: steps[size, first, 0] for size in prompts},
        {size: [steps[size, 1, past] for past in lengths] for size in sizes},
    )
    largest = models[wanted[-1]]
    memory = _memory(bench, decoder, generation, largest, target)
    result = generated(name, target, generation, times, memory)
    if generation.qps is None:
        return result
    return replace(result, load=_load(times, generation, bench.options.seed))


def _step(
    bench: Bench, key: tuple[int, int, int], model: Model, target: Target, measure: bool
) -> Step:
    batch, tokens, past = key
    which = f"in a step of {batch} x {tokens} tokens after {past}"
    run = run_latency(bench, model, which, target, measure=measure)
    return Step(batch, tokens, past, run.seconds, run.factors, run.provenance)


def generated(
    name: str,
    target: Target,
    generation: Generation,
    times: StepTimes,
    memory: GenerationMemory,
) -> GenerationResult:
    """What follows from ``times`` for one batch of texts at once."""
    size = generation.batch if generation.qps is None else 1
    prompt, steps = times.prompts[size], times.steps[size]
    further = generation.new_tokens - 1
    pasts = range(generation.prompt_tokens, generation.prompt_tokens + further)
    ttft = _mean_run(prompt.seconds, prompt.factors, generation.step_s)
    tpot, total = None, ttft
    if further:
        own = [times.at(size, past) for past in pasts]
        mean = Figure(*(float(np.mean([getattr(f, end) for f in own])) for end in _ENDS))
        tpot = _mean_run(mean, steps[-1].factors, generation.step_s)
        total = Figure(*(getattr(ttft, e) + further * getattr(tpot, e) for e in _ENDS))
    tokens = size * generation.new_tokens
    return GenerationResult(
        model=name,
        target=target,
        generation=generation,
        ttft_s=ttft,
        tpot_s=tpot,
        total_s=total,
        tokens_per_s=Figure(*(_rate(tokens, getattr(total, e)) for e in ("value", "high", "low"))),
        prompt=prompt,
        shown=steps,
        times=times,
        memory=memory,
    )


def _rate(count: int, seconds: float) -> float:
    """So many in so many seconds; the low end of an interval may be none."""
    return count / seconds if seconds > 0 else math.inf


def _mean_run(median: Figure, factors: np.ndarray, between_s: float) -> Figure:
    """The mean of runs with these medians, and what is between two of them."""
    mean = float(factors.mean())
    return Figure(*(mean * getattr(median, end) + between_s for end in _ENDS))


def _memory(
    bench: Bench, decoder: Steps, generation: Generation, largest: Model, target: Target
) -> GenerationMemory:
    tokens = generation.prompt_tokens + generation.new_tokens - 1
    cache_bytes = decoder.cache_bytes(generation.batch, tokens)
    found = bench.predict_memory(largest, target=target)
    if isinstance(found, UnknownMemory):
        return GenerationMemory(None, cache_bytes, None, (found.reason,))
    return GenerationMemory(found.weight_bytes, cache_bytes, found.peak_bytes, found.unknown)


def _load(times: StepTimes, generation: Generation, seed: int) -> GenerationLoad:
    """Requests at a rate, by continuous batching, with latencies at each end of their intervals."""
    assert generation.qps is not None
    runs, capacity = dict[str, Generated](), dict[str, float]()
    for end in _ENDS:
        simulate = _simulation(times, generation, end, seed)
        count = _SATURATED * generation.batch
        capacity[end] = _rate(count, simulate([0.0] * count).span_s)
        if generation.qps < capacity[end] or end == "value":
            runs[end] = simulate(poisson_s(generation.qps, _REQUESTS, seed))
    saturated = generation.qps >= capacity["value"]
    value = runs["value"]
    rate = generation.qps * generation.new_tokens
    made = [min(rate, generation.new_tokens * capacity[end]) for end in ("value", "high", "low")]
    busy = {end: min(1.0, run.busy_s / run.span_s) for end, run in runs.items()}

    def of_all(tell: Callable[[Generated], float]) -> Figure:
        """A figure at all ends; without an upper end where the server may be above saturation."""
        found = {end: tell(run) for end, run in runs.items()}
        high = max(found.values()) if len(found) == len(_ENDS) else float("inf")
        return Figure(found["value"], min(found.values()), high)

    def percentiles(tell: Callable[[Generated], np.ndarray]) -> dict[str, Figure]:
        if saturated:
            return {}
        return {
            name: of_all(partial(_percentile, tell, percent))
            for name, percent in _PERCENTILES.items()
        }

    return GenerationLoad(
        ttft=percentiles(lambda run: run.ttft_s),
        tpot=percentiles(lambda run: run.tpot_s) if generation.new_tokens > 1 else {},
        tokens_per_s=Figure(*made),
        utilisation=Figure(busy["value"], min(busy.values()), busy.get("high", 1.0)),
        capacity_qps=Figure(capacity["value"], capacity["high"], capacity["low"]),
        mean_batch=float(value.batches.mean()) if len(value.batches) else 1.0,
        saturated=saturated,
    )


def _percentile(tell: Callable[[Generated], np.ndarray], percent: float, run: Generated) -> float:
    seconds = tell(run)
    steady = seconds[int(_WARM_UP * len(seconds)) :]
    return float(np.percentile(steady, percent))


def _simulation(
    times: StepTimes, generation: Generation, end: str, seed: int
) -> Callable[[list[float]], Generated]:
    """A server whose steps take what is estimated, at an ``end`` of the intervals."""
    first = generation.prompt_tokens
    pasts = range(first, first + max(1, generation.new_tokens - 1))
    sizes = sorted(times.steps)
    by_size = {
        size: [float(getattr(times.at(size, past), end)) for past in pasts]
        for size in sizes
        if times.steps[size]
    }
    table = {size: _between(by_size, size) for size in range(1, generation.batch + 1) if by_size}
    prompt = times.prompts[1]
    prompt_value = float(getattr(prompt.seconds, end))
    rng, draws = np.random.default_rng(seed), 1 << 16
    luck = rng.integers(0, len(prompt.factors), draws)
    prompt_luck = prompt.factors[luck].tolist()
    step_luck = {
        size: (steps[-1].factors[luck] if steps else np.ones(draws)).tolist()
        for size, steps in times.steps.items()
    }
    nearest = {size: min(s for s in sizes if s >= size) for size in table}

    def prompt_s(number: int) -> float:
        taken: float = prompt_value * prompt_luck[number % draws] + generation.step_s
        return taken

    def step_s(size: int, past: int, number: int) -> float:
        factor: float = step_luck[nearest[size]][number % draws]
        return table[size][past - first] * factor + generation.step_s

    def simulate(arrivals_s: list[float]) -> Generated:
        return generate(
            arrivals_s, first, generation.new_tokens, generation.batch, prompt_s, step_s
        )

    return simulate


def _between(by_size: dict[int, list[float]], size: int) -> list[float]:
    """Seconds by length of a batch between those that are estimated: linear in its size."""
    if size in by_size:
        return by_size[size]
    low = max(each for each in by_size if each < size)
    high = min(each for each in by_size if each > size)
    share = (size - low) / (high - low)
    pairs = zip(by_size[low], by_size[high], strict=True)
    return [before + share * (after - before) for before, after in pairs]
