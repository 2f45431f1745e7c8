"""``bricks advise --scenario server``: what serves a model at a rate, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.cli.known import refuse_missing
from bricks.cli.options import Surveying, given_values, open_workspace
from bricks.cli.output import finish, print_json, show
from bricks.cli.systems import known_targets
from bricks.errors import UsageError
from bricks.units.quantities import seconds_of

if TYPE_CHECKING:
    from bricks.studies.serving.advise import ServingAnswer
    from bricks.studies.serving.scenario import ScenarioLoad

_LARGEST_BATCH = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of the command about serving, as they were typed."""

    scenario: str
    slo: str
    qps: float | None
    percentile: float | None
    batching: int | None

    @property
    def load(self) -> ScenarioLoad:
        """The load that a server has; its bound is read."""
        from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad

        slo_s = seconds_of("--slo", self.slo)
        return ScenarioLoad(ScenarioKind.SERVER, self.qps, slo_s=slo_s, percentile=self.percentile)


def advise_server(
    options: Surveying, systems: Sequence[str], wanted: Wanted, batches: str | None
) -> None:
    """Print how each known target serves the models that ``options`` name."""
    from bricks.studies.serving.advise import NoServingAdvice, ServingAdvice
    from bricks.units.facts import facts

    _refuse(options, wanted, batches)
    answer = _answer(options, systems, wanted, wanted.load)
    if options.json:
        print_json(facts(answer))
    elif any(isinstance(each, ServingAdvice) for each in answer.answers):
        from bricks.report.serving_advice import serving_advice_parts

        show(*serving_advice_parts(answer))
    finish(each.error for each in answer.answers if isinstance(each, NoServingAdvice))


def _refuse(options: Surveying, wanted: Wanted, batches: str | None) -> None:
    """:class:`UsageError` for what makes no sense together."""
    if wanted.scenario != "server":
        raise UsageError(f"there is advice for --scenario server, not {wanted.scenario!r}")
    if wanted.qps is None:
        raise UsageError("a server is asked at a rate: add --qps N")
    if not options.models:
        raise UsageError("advice for a server is for models that are named: name one")
    if batches is not None or options.batch is not None:
        raise UsageError("a server makes batches itself: give --batching N in place of --batch")


def _answer(
    options: Surveying, systems: Sequence[str], wanted: Wanted, load: ScenarioLoad
) -> ServingAnswer:
    """The advice for all models, the best first."""
    from bricks.graph.sizes import parse_shape
    from bricks.studies.serving.advise import ServingAnswer, advise_serving, best_first

    refuse_missing(options.cache)
    shapes, values = dict(map(parse_shape, options.shape or [])), given_values(options)
    largest = wanted.batching or _LARGEST_BATCH
    with open_workspace(options) as workspace:
        targets = list(known_targets(workspace, systems))
        found = [
            advice
            for name in options.models
            for advice in advise_serving(
                workspace, name, load, targets,
                largest_batch=largest, shapes=shapes, values=values,
            )
        ]  # fmt: skip
    return ServingAnswer(wanted.scenario, load, tuple(sorted(found, key=best_first)))
