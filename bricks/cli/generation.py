"""``bricks scenario --scenario generation``: text that a decoder generates, from its bricks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bricks.cli.options import Measuring, open_bench
from bricks.cli.output import print_json, show
from bricks.cli.scenario_facts import ends
from bricks.errors import UsageError
from bricks.session.targets import target_called
from bricks.units.quantities import seconds_of

if TYPE_CHECKING:
    from bricks.studies.generation.check import GeneratedText
    from bricks.studies.generation.result import GenerationLoad, GenerationResult
    from bricks.studies.generation.steps import Step
    from bricks.units.interval import Interval

_PROMPT_TOKENS, _NEW_TOKENS = 512, 128


def generation_scenario(
    options: Measuring,
    model: str,
    prompt_tokens: int | None,
    new_tokens: int | None,
    batch: int | None,
    step_cost: str | None,
    qps: float | None,
    system: str | None,
    *,
    check: bool,
    measure: bool,
) -> None:
    """Predict a decoder that generates, and print what follows."""
    from bricks.studies.generation.predict import predict_generation
    from bricks.studies.generation.result import Generation

    asked = Generation(
        _PROMPT_TOKENS if prompt_tokens is None else prompt_tokens,
        _NEW_TOKENS if new_tokens is None else new_tokens,
        1 if batch is None else batch,
        0.0 if step_cost is None else seconds_of("--step-cost", step_cost, "cost"),
        qps,
    )
    if check and system is not None:
        raise UsageError("--check generates text on this host: leave out --system")
    with open_bench(options) as bench, ExitStack() as opened:
        target = bench.target if system is None else target_called(bench.workspace, system)
        text: GeneratedText | None = None
        if check:
            from bricks.studies.generation.check import GeneratedText

            text = opened.enter_context(GeneratedText(bench, model, asked))
            text.generate()
            asked = text.generation
        result = predict_generation(bench, model, asked, target=target, measure=measure)
        if text is not None:
            result = text.checked(result)
    facts = generation_facts(result)
    if options.json:
        print_json(facts)
        return
    from bricks.report.generation import generation_parts

    show(*generation_parts(facts))


def generation_facts(result: GenerationResult) -> dict[str, Any]:
    """What ``--json`` prints; a figure that is not there, or has no end, is None."""
    asked = result.generation
    return {
        "model": result.model,
        "system": result.target.system.to_json(),
        "runtime": result.target.runtime.to_json(),
        "scenario": "generation",
        "prompt_tokens": asked.prompt_tokens,
        "new_tokens": asked.new_tokens,
        "batch": asked.batch,
        "qps": asked.qps,
        "step_cost_s": asked.step_s,
        **ends("ttft_s", result.ttft_s),
        **ends("tpot_s", result.tpot_s),
        **ends("total_s", result.total_s),
        **ends("tokens_per_s", result.tokens_per_s),
        "interpolation_error": max(map(result.times.interpolation_error, result.times.steps)),
        "prompt": _step_facts(result.prompt),
        "steps": [_step_facts(step) for step in result.shown],
        "memory": asdict(result.memory),
        "load": None if result.load is None else _load_facts(result.load),
        "warnings": list(result.warnings),
        "checked": None if result.checked is None else asdict(result.checked),
    }


def _step_facts(step: Step) -> dict[str, Any]:
    return {
        "batch": step.batch,
        "tokens": step.tokens,
        "past_tokens": step.past,
        **ends("latency_s", step.latency_s),
        **asdict(step.provenance),
    }


def _load_facts(load: GenerationLoad) -> dict[str, Any]:
    def named(name: str, found: Mapping[str, Interval]) -> dict[str, float | None]:
        percentiles = ("p50_s", "p90_s", "p99_s")
        facts = [ends(f"{name}_{each}", found.get(each)).items() for each in percentiles]
        return dict(item for each in facts for item in each)

    return {
        **named("ttft", load.ttft),
        **named("tpot", load.tpot),
        **ends("tokens_per_s", load.tokens_per_s),
        **ends("utilisation", load.utilisation),
        **ends("capacity_qps", load.capacity_qps),
        "mean_batch": load.mean_batch,
        "saturated": load.saturated,
    }
