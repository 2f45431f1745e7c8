"""``bricks measure``: measure missing bricks."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import MeasureOptions
from bricks.cli.output import add, finish, print_json, show
from bricks.cli.reading import decomposed, read_all
from bricks.cli.warnings import refuse_crowding, warn_of_denormals
from bricks.cli.workspaces import open_workspace
from bricks.errors import BricksError
from bricks.sources import Unread
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.model import Model
    from bricks.session.summaries import Measured
    from bricks.session.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """The Dask scheduler whose hosts measure; None: this host does."""

    scheduler: str | None = option(
        "Measure on the hosts that have joined there with 'bricks worker'.",
        default=None, metavar="tcp://HOST:PORT",
    )  # fmt: skip


@command
def measure(options: MeasureOptions, fleet: FleetOptions) -> None:
    """Measure the bricks of models, each once per system and runtime.

    What the cache holds is not measured again. Example: bricks measure models/ --threads 1
    """
    from bricks.session import measuring

    if fleet.scheduler is not None:
        from bricks.cli.fleet import measure_on

        measure_on(fleet.scheduler, options)
        return
    rows: list[dict[str, Any]] = []
    with open_workspace(options) as workspace:
        refuse_crowding(workspace.target)
        good: list[Model] = []
        needed: set[str] = set()
        private_bricks: list[Brick] = []
        for model in decomposed(workspace, read_all(options, private_bricks)):
            row, keys = _row(workspace, model)
            rows.append(row)
            needed |= keys
            if row["error"] is None and not isinstance(model, Unread):
                good.append(model)
                warn_of_denormals(model)
        needed |= {brick.key for brick in private_bricks}
        done = measuring.measure(workspace, good, private_bricks)
        facts = {
            "system": workspace.target.system.to_json(),
            "runtime": workspace.runtime.to_json(),
            "granularity": options.runtime.granularity,
            "models": rows,
            **_totals(done),
        }
        failed = _failed(workspace, done)
        # Not done.unfinished: that also counts the probes of the call overhead, which are not
        # bricks.
        settled = workspace.store.measurements.settled(workspace.target.key, sorted(needed))
        missing = len(needed - settled) - done.predicted_bricks
    errors = [row["error"] for row in rows if row["error"] is not None]
    errors += failed
    if done.unfinished:
        left = f"with {missing} bricks unfinished" if missing else "before the overhead of a call"
        errors.append(
            f"the budget of {options.measuring.budget_s} s ended {left}: run the same command"
            " again to go on"
        )
    if options.general.json:
        print_json(facts)
    elif done.bricks or done.models:
        from bricks.report.tables import disturbance

        stand = f"; they stand for {done.occurrences} occurrences in {done.models} models"
        show(f"{_counted(done, missing)}{stand if done.models else ''} ({done.wall_s:.1f} s)")
        add(*disturbance(done))
    finish(errors)


def _row(workspace: Workspace, model: Model | Unread) -> tuple[dict[str, Any], Set[str]]:
    """The facts of a model, and the keys of its bricks."""
    row: dict[str, Any] = {"model": model.name, "bricks": None, "occurrences": None, "error": None}
    if isinstance(model, Unread):
        return {**row, "error": model.error}, set()
    try:
        plan = workspace.plans.decompose(model).plan
    except BricksError as error:
        return {**row, "error": str(error)}, set()
    facts = {**row, "bricks": len(plan.keys), "occurrences": len(plan.occurrences)}
    return facts, set(plan.keys)


def _counted(done: Measured, missing: int) -> str:
    """The result of every brick, in words."""
    failed = len(done.failures)
    known = done.bricks - done.new_bricks - failed - missing - done.predicted_bricks
    counts = {
        "measured now": done.new_bricks,
        "known before": known,
        "failed": failed,
        "left unfinished": missing,
        "left to be predicted": done.predicted_bricks,
    }
    said = [f"{count} {what}" for what, count in counts.items() if count]
    return f"{done.bricks} bricks: {', '.join(said)}"


def _failed(workspace: Workspace, done: Measured) -> list[str]:
    """A line for each brick that could not be measured."""
    bricks = workspace.store.plans.load_bricks([failure.key for failure in done.failures])
    return [
        f"brick {f.key} ({', '.join(bricks[f.key].operators)}) could not be measured: {f.reason};"
        " --retry tries again"
        for f in done.failures
    ]


def _totals(done: Measured) -> dict[str, Any]:
    return {
        "occurrences": done.occurrences,
        "bricks": done.bricks,
        "new_bricks": done.new_bricks,
        "predicted_bricks": done.predicted_bricks,
        "unfinished": done.unfinished,
        "failures": [{"brick": f.key, "reason": f.reason} for f in done.failures],
        "wall_s": done.wall_s,
        "foreign_cores": done.foreign_cores,
        "rounds": done.rounds,
        "disturbed_rounds": done.disturbed_rounds,
        "remeasured_bricks": done.remeasured_bricks,
        "ballast_short": done.eviction_short,
        "bricks_apart": len(done.apart),
    }
