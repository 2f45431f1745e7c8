"""``bricks worker``: let this host measure for others."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.cli.command import command
from bricks.cli.output import note
from bricks.studies.options import argument, option


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The scheduler that this host joins, its name there, and the seconds to wait for it."""

    scheduler: str = argument("The scheduler that gives out work.", metavar="tls://HOST:PORT")
    name: str | None = option("What this host is called there.", default=None, shown="its address")
    wait_s: float = option(
        "How long to wait for the scheduler.",
        default=30.0, flag="--wait", least=1.0, metavar="SECONDS",
    )  # fmt: skip


@command
def worker(options: WorkerOptions) -> None:
    """Measure on this host what 'bricks measure --scheduler' asks for, until interrupted.

    Any program that can connect to the scheduler can run code on this host. So use Dask's TLS; on a
    network whose users you trust, insecure+tcp://HOST:PORT is an address without it.

    Example: bricks worker tls://192.0.2.1:8786
    """
    from bricks.fleet.cluster import serve

    scheduler = options.scheduler
    try:
        serve(
            scheduler,
            name=options.name,
            timeout_s=options.wait_s,
            joined=lambda address: note(f"{address} has joined {scheduler}: Ctrl-C ends it"),
        )
    except KeyboardInterrupt:  # how a worker is meant to end
        note(f"has left {scheduler}; what was not handed over yet, others measure")
