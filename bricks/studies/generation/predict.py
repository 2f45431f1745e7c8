"""Predicts the generation of text: a step for the prompt, and one for each further token.

Steps are models of a few lengths of the cache, whose bricks are measured all at once. Must not know
how results are shown.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bricks.api.bench import Bench
from bricks.compose.memory.peak import UnknownMemory
from bricks.compose.queueing.batching import batch_sizes
from bricks.compose.queueing.metrics import rate
from bricks.compose.queueing.run import run_latency
from bricks.graph.model import Model
from bricks.studies.generation.decoders import Steps, steps_of
from bricks.studies.generation.load import load_of
from bricks.studies.generation.result import Generation, GenerationMemory, GenerationResult
from bricks.studies.generation.steps import Step, StepTimes, lengths_between
from bricks.system import Target
from bricks.units.interval import Interval, common_sum


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
    return replace(result, load=load_of(times, generation, bench.options.seed))


def _step(
    bench: Bench, key: tuple[int, int, int], model: Model, target: Target, measure: bool
) -> Step:
    batch, tokens, past = key
    basis = bench.basis(model, measure=measure, target=target)
    where = f"{batch} x {tokens} tokens after {past} on {target.system.name}"
    run = run_latency(basis, f"{model.name} in a step of {where}", seed=bench.options.seed)
    return Step(batch, tokens, past, run.latency_s, run.factors, run.provenance)


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
    ttft_s = _mean_run(prompt.latency_s, prompt.factors, generation.step_s)
    tpot_s, total_s = None, ttft_s
    if further:
        median_s = common_sum(times.at(size, past) for past in pasts).scaled(1 / further)
        tpot_s = _mean_run(median_s, steps[-1].factors, generation.step_s)
        total_s = common_sum((ttft_s, tpot_s.scaled(further)))
    tokens = size * generation.new_tokens
    return GenerationResult(
        model=name,
        target=target,
        generation=generation,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        total_s=total_s,
        tokens_per_s=total_s.map(lambda seconds: rate(tokens, seconds)),
        prompt=prompt,
        shown=steps,
        times=times,
        memory=memory,
    )


def _mean_run(median_s: Interval, factors: np.ndarray, between_s: float) -> Interval:
    """The mean of runs with these medians, and what is between two of them."""
    return median_s.scaled(float(factors.mean())).shifted(between_s)


def _memory(
    bench: Bench, decoder: Steps, generation: Generation, largest: Model, target: Target
) -> GenerationMemory:
    tokens = generation.prompt_tokens + generation.new_tokens - 1
    cache_bytes = decoder.cache_bytes(generation.batch, tokens)
    found = bench.predict_memory(largest, target=target)
    if isinstance(found, UnknownMemory):
        return GenerationMemory(None, cache_bytes, None, (found.reason,))
    return GenerationMemory(found.weight_bytes, cache_bytes, found.peak_bytes, found.unknown)
