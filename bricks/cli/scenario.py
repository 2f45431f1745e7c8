"""``bricks scenario``: latency under load and throughput of a served model, from its bricks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bricks.cli.scenario_options import GENERATION, ScenarioCommandOptions
from bricks.cli.study import View, command_of
from bricks.studies.offer import StudyOffer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.session.workspace import Workspace
    from bricks.studies.generation.result import GenerationResult
    from bricks.studies.serving.result import ScenarioResult
    from bricks.studies.study import Study


def _study() -> Callable[..., Study[Any, Any, Any, Any]]:
    """The function that makes the study: of a served model, or of text that a decoder makes."""
    from bricks.studies.generation.study import GenerationStudy
    from bricks.studies.serving.study import ServingStudy

    def study(
        options: ScenarioCommandOptions, workspace: Workspace, notice: Callable[[str], None]
    ) -> Study[Any, Any, Any, Any]:
        kind: Any = GenerationStudy if options.load.scenario == GENERATION else ServingStudy
        made: Study[Any, Any, Any, Any] = kind(options.question, workspace, notice)
        return made

    return study


def _parts(result: ScenarioResult | GenerationResult) -> Sequence[RenderableType]:
    from bricks.report.generation import generation_parts
    from bricks.report.scenario import scenario_parts
    from bricks.studies.generation.result import GenerationResult

    if isinstance(result, GenerationResult):
        return generation_parts(result)
    return scenario_parts(result)


OFFER = StudyOffer(
    name="scenario",
    help="""\
    Predict a served model's latency under load, its throughput, and the rate it can keep.

    Missing bricks are measured first, for batches of several sizes; a simulated server then runs
    them. With --scenario generation, a decoder makes text token by token, such as decoder_llama
    of the zoo. docs/guides/serving.md says what is assumed. Example: bricks scenario resnet50
    --scenario server --qps 40 --slo 100ms --batching 4 --threads 1
    """,
    options=ScenarioCommandOptions,
    load=_study,
    of_models=True,
)

scenario = command_of(OFFER, View(_parts))
