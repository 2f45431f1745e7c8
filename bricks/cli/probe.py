"""``bricks probe``: measure enough of a new system in a minute to predict the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bricks.cli.options import (
    Surveying,
    decomposed,
    open_workspace,
    read_all,
    takes_options,
)
from bricks.cli.output import finish, print_json, show
from bricks.errors import BricksError
from bricks.session.defaults import MAX_PROBE_BRICKS, MIN_PROBE_BRICKS, PROBE_BRICKS, PROBING_S
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.system.target import Target

Bricks = Annotated[
    int,
    typer.Option(min=MIN_PROBE_BRICKS, max=MAX_PROBE_BRICKS, help="How many bricks to measure."),
]
Budget = Annotated[
    float, typer.Option(min=1.0, metavar="SECONDS", help="Measure no longer than this.")
]


def _counted(targets: int) -> str:
    return "another target" if targets == 1 else f"{targets} other targets"


def _said(target: Target) -> str:
    runtime = target.runtime
    threads = f"{runtime.threads} thread{'s' if runtime.threads > 1 else ''}"
    level = "" if runtime.optimization == "all" else f", optimisation {runtime.optimization}"
    return f"{target.system.name}: {runtime.backend} {runtime.version}, {threads}{level}"


@takes_options
def probe(options: Surveying, bricks: Bricks = PROBE_BRICKS, budget: Budget = PROBING_S) -> None:
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
        done = probing.probe(workspace, good, bricks=bricks, budget_s=budget)
        facts = {
            "system": workspace.target.system.to_json(),
            "runtime": workspace.runtime.to_json(),
            "granularity": options.granularity,
            "models": done.models,
            "bricks": done.bricks,
            "probes": done.probes,
            "measured_bricks": done.measured,
            "teachers": [
                {"system": target.system.name, "runtime": target.runtime.to_json()}
                for target in done.teachers
            ],
            "deviation": done.deviation,
            "wall_s": done.wall_s,
        }
        lines = [
            f"brick {f.key} could not be measured: {f.reason}; another run takes others instead"
            for f in done.failures
        ]
        name = workspace.target.system.name
    if options.json:
        print_json(facts)
    elif done.deviation is not None:
        also = f", and from {_counted(len(done.teachers))}" if done.teachers else ""
        show(
            f"{name}: {done.measured} of {done.bricks} bricks are measured ({done.wall_s:.1f} s),"
            f" the others are predicted from them{also}.",
            *(f"  {_said(target)}" for target in done.teachers),
            f"Of {done.models} models, half are known to"
            f" ± {100 * NORMAL_95 * done.deviation:.0f} % or better.",
        )
    if done.deviation is None and not errors:
        lines.append(f"{done.measured} bricks are measured: too few to predict others from")
    finish([*errors, *lines])
