"""``bricks advise --scenario server``: instances, batches and hosts that serve a rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.cli.caches import refuse_missing_cache
from bricks.cli.options import SurveyOptions
from bricks.cli.output import finish, print_json, show
from bricks.cli.reading import shapes_of, values_of
from bricks.cli.systems import known_targets
from bricks.cli.workspaces import open_workspace
from bricks.errors import UsageError
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.studies.serving.advise import ServingAnswer
    from bricks.studies.serving.scenario import ScenarioLoad

_SERVING = "Serving"
_SERVER = "server"
_LARGEST_BATCH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAdviceOptions:
    """The scenario of a server, its rate, and the largest batch that it makes."""

    scenario: str | None = option(
        "Advice for a server that keeps the bound at a rate; see 'bricks scenario'.",
        default=None, metavar="server", shown=False, group=_SERVING,
    )  # fmt: skip
    qps: float | None = option(
        "Samples a second, which arrive as a Poisson process.",
        default=None, metavar="N", shown=False, group=_SERVING,
    )  # fmt: skip
    percentile: float | None = option(
        "The percentile of the latencies that keeps the bound.",
        default=None, metavar="P", shown="99", group=_SERVING,
    )  # fmt: skip
    batching: int | None = option(
        "Largest batch to look at.", default=None, least=1, metavar="N", shown="8", group=_SERVING
    )


def advise_server(
    options: SurveyOptions, systems: Sequence[str], slo_s: float, server: ServerAdviceOptions
) -> None:
    """Print how each known target serves the models of ``options`` within ``slo_s`` seconds."""
    from bricks.studies.serving.advise import NoServingAdvice, ServingAdvice
    from bricks.units.facts import facts

    _refuse(options, server)
    answer = _answer(options, systems, _load(slo_s, server), server.batching or _LARGEST_BATCH)
    if options.general.json:
        print_json(facts(answer))
    elif any(isinstance(advice, ServingAdvice) for advice in answer.answers):
        from bricks.report.serving_advice import serving_advice_parts

        show(*serving_advice_parts(answer))
    finish(advice.error for advice in answer.answers if isinstance(advice, NoServingAdvice))


def _refuse(options: SurveyOptions, server: ServerAdviceOptions) -> None:
    """Raise :class:`UsageError` for options that make no sense together."""
    if server.scenario != _SERVER:
        raise UsageError(f"there is advice for --scenario server, not {server.scenario!r}")
    if server.qps is None:
        raise UsageError("a server is asked at a rate: add --qps N")
    if not options.models.words:
        raise UsageError("advice for a server is for models that are named: name one")


def _load(slo_s: float, server: ServerAdviceOptions) -> ScenarioLoad:
    from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad

    return ScenarioLoad(ScenarioKind.SERVER, server.qps, slo_s=slo_s, percentile=server.percentile)


def _answer(
    options: SurveyOptions, systems: Sequence[str], load: ScenarioLoad, largest_batch: int
) -> ServingAnswer:
    """The advice for all models, the best first."""
    from bricks.studies.serving.advise import ServingAnswer, advise_serving, best_first

    refuse_missing_cache(options.general.cache)
    shapes, values = shapes_of(options.models), values_of(options.models)
    with open_workspace(options) as workspace:
        targets = list(known_targets(workspace, systems))
        advised = [
            advice
            for name in options.models.words
            for advice in advise_serving(
                workspace, name, load, targets,
                largest_batch=largest_batch, shapes=shapes, values=values,
            )
        ]  # fmt: skip
    return ServingAnswer(_SERVER, load, tuple(sorted(advised, key=best_first)))
