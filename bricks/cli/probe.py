"""``bricks probe``: measure enough of a new system in a minute to predict the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import DetailOptions, SurveyOptions
from bricks.cli.output import finish, print_json, show_answer
from bricks.cli.reading import DecomposedModel, decompositions, read_all
from bricks.cli.workspaces import open_workspace, target_facts
from bricks.session.defaults import MAX_PROBE_BRICKS, MIN_PROBE_BRICKS, PROBE_BRICKS, PROBING_S
from bricks.sources import Unread
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.session.measuring import Probed
    from bricks.system import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """How many bricks are measured, and the seconds that this takes at most."""

    bricks: int = option(
        "How many bricks to measure.",
        default=PROBE_BRICKS, least=MIN_PROBE_BRICKS, most=MAX_PROBE_BRICKS,
    )  # fmt: skip
    budget_s: float = option(
        "Measure no longer than this.",
        default=PROBING_S, flag="--budget", least=1.0, metavar="SECONDS",
    )  # fmt: skip


@command
def probe(options: SurveyOptions, effort: ProbeOptions, detail: DetailOptions) -> None:
    """Measure the few bricks that tell most of this system, and predict all others from them.

    What the cache holds of other systems tells what to expect; so few bricks tell how this one
    differs. 'bricks predict MODEL --no-measure' then knows it. Of the models named, or of the whole
    zoo. Example: bricks probe --threads 2
    """
    from bricks.report.models import probing_answer
    from bricks.session import measuring

    with open_workspace(options) as workspace:
        results = list(decompositions(workspace, read_all(options).models))
        errors = [result.error for result in results if isinstance(result, Unread)]
        models = [result.model for result in results if isinstance(result, DecomposedModel)]
        done = measuring.probe(workspace, models, bricks=effort.bricks, budget_s=effort.budget_s)
        target = workspace.target
    answer = probing_answer(done)
    if options.general.json:
        print_json({"answer": answer, **target_facts(target, options), **_facts(done)})
    elif done.deviation is not None:
        remarks = [f"Predictions also learn from {_described(of)}." for of in done.source_targets]
        show_answer(answer, remarks=remarks, every=detail.every)
    finish([*errors, *_failures(done, refused=bool(errors))])


def _facts(done: Probed) -> dict[str, Any]:
    """The JSON keys of the outcome; ``wall_s`` in seconds, ``deviation`` relative."""
    return {
        "models": done.models,
        "bricks": done.bricks,
        "probes": done.probes,
        "measured_bricks": done.measured,
        "teachers": [
            {"system": target.system.name, "runtime": target.runtime.to_json()}
            for target in done.source_targets
        ],
        "deviation": done.deviation,
        "wall_s": done.wall_s,
    }


def _described(target: Target) -> str:
    runtime = target.runtime
    threads = f"{runtime.threads} thread{'s' if runtime.threads > 1 else ''}"
    level = "" if runtime.optimization == "all" else f", optimisation {runtime.optimization}"
    return f"{target.system.name}: {runtime.backend} {runtime.version}, {threads}{level}"


def _failures(done: Probed, *, refused: bool) -> Iterator[str]:
    """A line for each failed brick, and one if too few are measured to predict others.

    ``refused`` says that models were refused, which is the cause then.
    """
    for failure in done.failures:
        yield (
            f"brick {failure.key} could not be measured: {failure.reason}; another run takes"
            " others instead"
        )
    if done.deviation is None and not refused:
        yield f"{done.measured} bricks are measured: too few to predict others from"
