"""``bricks measure``: measure missing bricks, here or on the hosts of a Dask scheduler."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import DetailOptions, MeasureOptions
from bricks.cli.output import finish, note, print_json, show, show_answer, terminal_progress
from bricks.cli.reading import DecomposedModel, decompositions, read_all, warn_of_denormals
from bricks.cli.workspaces import open_workspace, target_facts, workspace_options
from bricks.errors import UsageError
from bricks.session.defaults import refuse_crowding
from bricks.sources import Unread
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.fleet.report import FleetMeasured
    from bricks.graph.model import Model
    from bricks.session.measuring import Measured
    from bricks.session.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """The Dask scheduler whose hosts measure; None: this host measures."""

    scheduler: str | None = option(
        "Measure on the hosts that have joined there with 'bricks worker'.",
        default=None, metavar="tls://HOST:PORT",
    )  # fmt: skip


@command
def measure(options: MeasureOptions, fleet: FleetOptions, detail: DetailOptions) -> None:
    """Measure the bricks of models, each once per system and runtime.

    What the cache holds is not measured again. Example: bricks measure models/ --threads 1
    """
    from bricks.report.models import measuring_answer
    from bricks.report.tables import disturbance
    from bricks.session import measuring

    if fleet.scheduler is not None:
        measure_on(fleet.scheduler, options)
        return
    with open_workspace(options) as workspace:
        refuse_crowding(workspace.target)
        read = read_all(options, private=True)
        results: list[DecomposedModel | Unread] = []
        for result in decompositions(workspace, read.models):
            results.append(result)
            if isinstance(result, DecomposedModel):
                warn_of_denormals(result.model)
        decomposed = [result for result in results if isinstance(result, DecomposedModel)]
        models = [result.model for result in decomposed]
        done = measuring.measure(workspace, models, read.private_bricks)
        needed = {brick.key for brick in read.private_bricks}
        needed |= {key for result in decomposed for key in result.decomposition.plan.keys}
        missing = _missing(workspace, needed) - done.predicted_bricks
        bricks = workspace.store.plans.load_bricks([failure.key for failure in done.failures])
        failures = [
            f"brick {f.key} ({', '.join(bricks[f.key].operators)}) could not be measured:"
            f" {f.reason}; --retry tries again"
            for f in done.failures
        ]
        target = workspace.target
    answer = measuring_answer(done, unfinished=missing)
    if options.general.json:
        about = {"answer": answer, **target_facts(target, options)}
        print_json({**about, "models": list(map(_row, results)), **_totals(done)})
    elif done.bricks or done.models:
        show_answer(answer, remarks=disturbance(done), every=detail.every)
    errors = [result.error for result in results if isinstance(result, Unread)] + failures
    if done.unfinished:
        budget_s = options.measuring.budget_s
        left = f"with {missing} bricks unfinished" if missing else "before the overhead of a call"
        errors.append(
            f"the budget of {budget_s} s ended {left}: run the same command again to go on"
        )
    finish(errors)


def _missing(workspace: Workspace, needed: Set[str]) -> int:
    """The number of bricks in ``needed`` that are neither measured nor failed.

    Not ``Measured.unfinished``, which also counts the probes of the call overhead.
    """
    settled = workspace.store.measurements.settled(workspace.target.key, sorted(needed))
    return len(needed - settled)


def _row(result: DecomposedModel | Unread) -> dict[str, Any]:
    if isinstance(result, Unread):
        return {"model": result.name, "bricks": None, "occurrences": None, "error": result.error}
    plan = result.decomposition.plan
    counts = {"bricks": len(plan.keys), "occurrences": len(plan.occurrences)}
    return {"model": result.model.name, **counts, "error": None}


def _totals(done: Measured) -> dict[str, Any]:
    """The counts of all models together, as JSON; times in seconds."""
    from bricks.units.facts import json_of

    return {
        "occurrences": done.occurrences,
        "bricks": done.bricks,
        "new_bricks": done.new_bricks,
        "predicted_bricks": done.predicted_bricks,
        "unfinished": done.unfinished,
        "failures": json_of(done.failures),
        "wall_s": done.wall_s,
        "foreign_cores": done.foreign_cores,
        "rounds": done.rounds,
        "disturbed_rounds": done.disturbed_rounds,
        "throttled_rounds": done.throttled_rounds,
        "remeasured_bricks": done.remeasured_bricks,
        "ballast_short": done.eviction_short,
        "bricks_apart": len(done.separate),
    }


def measure_on(scheduler: str, options: MeasureOptions) -> None:
    """Measure the models on all hosts that have joined ``scheduler``, into the cache."""
    from bricks.fleet.cluster import checked_address, connected
    from bricks.fleet.coordinator import Coordinator
    from bricks.store import Store
    from bricks.units.facts import facts

    checked_address(scheduler)
    found = read_all(options, private=True)
    if found.private_bricks:
        raise UsageError(
            "a private suite holds no models that could be dealt out: measure it on each host,"
            " without --scheduler"
        )
    models: list[Model] = [model for model in found.models if not isinstance(model, Unread)]
    unread = [model for model in found.models if isinstance(model, Unread)]
    for model in models:
        warn_of_denormals(model)
    if not models:
        finish([model.error for model in unread])
        return
    with (
        Store.open(options.general.cache) as store,
        connected(scheduler) as cluster,
        terminal_progress() as progress,
    ):
        coordinator = Coordinator(
            cluster, store, models, workspace_options(options), progress=progress, note=note
        )
        done = coordinator.run()
    targets, hosts = list(map(facts, done.targets)), list(map(facts, done.hosts))
    if options.general.json:
        rows = [{"model": m.name, "error": getattr(m, "error", None)} for m in found.models]
        done_facts = {"targets": targets, "hosts": hosts, "wall_s": done.wall_s}
        print_json({"scheduler": scheduler, "models": rows, **done_facts})
    else:
        from bricks.report.systems import fleet_tables

        first, second = fleet_tables(targets, hosts)
        show(first, "", second)
    finish([*(model.error for model in unread), *_errors(done)])


def _errors(done: FleetMeasured) -> list[str]:
    lines: list[str] = []
    for report in done.targets:
        name = report.target.system.name
        lines += [f"on {name}: {error}" for error in report.errors.values()]
        lines += report.given_up
        lines += [
            f"brick {f.key} could not be measured on {name}: {f.reason}; --retry tries again"
            for f in report.failures
        ]
        if report.unfinished and not report.given_up:
            lines.append(
                f"{report.unfinished} bricks are not measured on {name}, whose hosts have left or"
                " had no time: run the same command again to go on"
            )
    return lines
