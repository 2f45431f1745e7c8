"""``bricks measure --scheduler``: measure on the hosts of a Dask scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.cli.options import MeasureOptions
from bricks.cli.output import finish, note, print_json, show
from bricks.cli.progress import terminal_progress
from bricks.cli.reading import read_all
from bricks.cli.warnings import warn_of_denormals
from bricks.cli.workspaces import workspace_options
from bricks.errors import UsageError
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.fleet.report import FleetMeasured
    from bricks.graph.model import Model


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
        from bricks.report.fleet import fleet_tables

        first, second = fleet_tables(targets, hosts)
        show(first, "", second)
    finish([*(model.error for model in unread), *_errors(done)])


def _errors(done: FleetMeasured) -> list[str]:
    """A line for each failure."""
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
