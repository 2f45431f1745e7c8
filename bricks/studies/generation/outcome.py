"""Latencies and throughput of texts that begin together, from the latencies of their steps.

Must not know how steps are estimated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.compose.queueing.metrics import rate
from bricks.studies.generation.result import GenerationMemory, GenerationResult
from bricks.units.interval import common_sum

if TYPE_CHECKING:
    from bricks.studies.generation.steps import StepTimes
    from bricks.studies.generation.texts import Generation
    from bricks.system import Target


def generated(
    name: str,
    target: Target,
    generation: Generation,
    times: StepTimes,
    memory: GenerationMemory,
) -> GenerationResult:
    """The result of ``generation`` for one batch of texts that begin together."""
    size = generation.batch if generation.qps is None else 1
    prompt, steps = times.prompts[size], times.steps[size]
    further = generation.new_tokens - 1
    pasts = range(generation.prompt_tokens, generation.prompt_tokens + further)
    ttft_s = prompt.run.mean_s.shifted(generation.step_s)
    tpot_s, total_s = None, ttft_s
    if further:
        median_s = common_sum(times.at(size, past) for past in pasts).scaled(1 / further)
        tpot_s = replace(steps[-1].run, latency_s=median_s).mean_s.shifted(generation.step_s)
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
