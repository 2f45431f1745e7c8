"""``bricks systems``: this host, and the systems that the cache knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.cli.options import Cache, Json
from bricks.cli.output import print_json, show

if TYPE_CHECKING:
    from bricks.system import System, Target


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
            show(
                f"  {runtime['backend']} {runtime['version']}, {runtime['threads']} threads,"
                f" brick optimisation {runtime['brick_optimization']}"
            )
    if not rows:
        show("", "The cache knows no system yet: 'bricks measure MODEL' makes this one known.")
