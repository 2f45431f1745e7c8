"""``bricks systems``: this host, and the systems that the cache knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bricks.cli.options import Cache, Json
from bricks.cli.output import print_json, show
from bricks.errors import UsageError

if TYPE_CHECKING:
    from bricks.bench import Bench
    from bricks.system import System, Target

SystemName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A system in the cache ('bricks systems'), not this one."),
]


def systems(json: Json = False, cache: Cache = "cache") -> None:
    """List the systems in the cache, and say which one this host is.

    Example: bricks systems --json
    """
    from bricks.store import Store
    from bricks.system import fingerprint

    here = fingerprint()
    known: list[System] = []
    targets: list[Target] = []
    if Store.exists(cache):  # one that is not there must not come from being asked about
        with Store.open(cache) as store:
            known, targets = store.systems(), store.targets()
    rows = [
        {
            **system.to_json(),
            "this_host": system.key == here.key,
            "runtimes": [t.runtime.to_json() for t in targets if t.system.key == system.key],
        }
        for system in known
    ]
    if json:
        print_json({"this_host": here.to_json(), "systems": rows})
        return
    from bricks.report.tables import facts_table

    show(f"This host is {here.name} ({here.key}).", facts_table(here.identity))
    for row in rows:
        mark = " (this host)" if row["this_host"] else ""
        show("", f"{row['name']} ({row['key']}){mark} was measured with:")
        for runtime in row["runtimes"]:
            level = runtime.get("optimization")
            show(
                f"  {runtime['backend']} {runtime['version']}, {runtime['threads']} threads,"
                f" brick optimisation {runtime['brick_optimization']}"
                f"{f', optimisation {level}' if level else ''}"
            )
    if not rows:
        show("", "The cache knows no system yet: 'bricks measure MODEL' makes this one known.")


def target_called(bench: Bench, name: str) -> Target:
    """The target on the system of this name or key that runs what ``bench`` runs.

    Raises :class:`UsageError` if there is none, or more than one.
    """
    targets = [t for t in bench.store.targets() if name in (t.system.name, t.system.key)]
    if not targets:
        known = sorted({t.system.name for t in bench.store.targets()})
        listed = ", ".join(known) or "none yet"
        raise UsageError(f"no system in the cache is called {name!r}; it knows: {listed}")
    wanted = bench.runtime
    fitting = [t for t in targets if t.runtime == wanted]
    if not fitting:
        raise UsageError(
            f"system {name!r} has no measurements with {wanted.backend} {wanted.version},"
            f" {wanted.threads} threads: see 'bricks systems'"
        )
    if len(fitting) > 1:
        keys = ", ".join(t.system.key for t in fitting)
        raise UsageError(f"several systems are called {name!r}: give one of their keys, {keys}")
    return fitting[0]
