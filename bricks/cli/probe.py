"""``bricks probe``: measure enough of a new system in a minute to predict the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.cli.command import command
from bricks.cli.options import SurveyOptions
from bricks.cli.output import finish, print_json, show
from bricks.cli.reading import decomposed, read_all
from bricks.cli.workspaces import open_workspace
from bricks.errors import BricksError
from bricks.session.defaults import MAX_PROBE_BRICKS, MIN_PROBE_BRICKS, PROBE_BRICKS, PROBING_S
from bricks.sources import Unread
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.system.target import Target


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


def _counted(targets: int) -> str:
    return "another target" if targets == 1 else f"{targets} other targets"


def _said(target: Target) -> str:
    runtime = target.runtime
    threads = f"{runtime.threads} thread{'s' if runtime.threads > 1 else ''}"
    level = "" if runtime.optimization == "all" else f", optimisation {runtime.optimization}"
    return f"{target.system.name}: {runtime.backend} {runtime.version}, {threads}{level}"


@command
def probe(options: SurveyOptions, effort: ProbeOptions) -> None:
    """Measure the few bricks that tell most of this system, and predict all others from them.

    What the cache holds of other systems tells what to expect; so few bricks tell how this one
    differs. 'bricks predict MODEL --no-measure' then knows it. Of the models named, or of the whole
    zoo. Example: bricks probe --threads 2
    """
    from bricks.samples.statistics import NORMAL_95
    from bricks.session import probing

    with open_workspace(options) as workspace:
        errors, good = [], []
        for model in decomposed(workspace, read_all(options)):
            if isinstance(model, Unread):
                errors.append(model.error)
                continue
            try:
                workspace.plans.decompose(model)
            except BricksError as error:
                errors.append(str(error))
            else:
                good.append(model)
        done = probing.probe(workspace, good, bricks=effort.bricks, budget_s=effort.budget_s)
        facts = {
            "system": workspace.target.system.to_json(),
            "runtime": workspace.runtime.to_json(),
            "granularity": options.runtime.granularity,
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
        lines = [
            f"brick {f.key} could not be measured: {f.reason}; another run takes others instead"
            for f in done.failures
        ]
        name = workspace.target.system.name
    if options.general.json:
        print_json(facts)
    elif done.deviation is not None:
        also = f", and from {_counted(len(done.source_targets))}" if done.source_targets else ""
        show(
            f"{name}: {done.measured} of {done.bricks} bricks are measured ({done.wall_s:.1f} s),"
            f" the others are predicted from them{also}.",
            *(f"  {_said(target)}" for target in done.source_targets),
            f"Of {done.models} models, half are known to"
            f" ± {100 * NORMAL_95 * done.deviation:.0f} % or better.",
        )
    if done.deviation is None and not errors:
        lines.append(f"{done.measured} bricks are measured: too few to predict others from")
    finish([*errors, *lines])
