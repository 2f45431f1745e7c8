"""``bricks scenario``: latency under load and throughput of a served model, from its bricks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bricks.cli.scenario_options import ScenarioCommandOptions
from bricks.cli.study import command_of
from bricks.studies.study import StudyOffer

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.studies.study import Study


def _study() -> Callable[..., Study[Any, Any, Any, Any]]:
    """The function that makes the study of a served model."""
    from bricks.studies.serving.study import ServingStudy

    def study(
        options: ScenarioCommandOptions, workspace: Workspace, notice: Callable[[str], None]
    ) -> Study[Any, Any, Any, Any]:
        return ServingStudy(options.question, workspace, notice)

    return study


OFFER = StudyOffer(
    name="scenario",
    help="""\
    Predict a served model's latency under load, its throughput, and the rate it can keep.

    Missing bricks are measured first, for batches of several sizes; a simulated server then runs
    them. For text that a decoder makes, see 'bricks llm'. docs/guides/serving.md says what is
    assumed. Example: bricks scenario resnet50 --scenario server --qps 40 --slo 100ms --batching 4
    --threads 1
    """,
    options=ScenarioCommandOptions,
    load=_study,
    of_models=True,
)

scenario = command_of(OFFER)
