"""``bricks worker``: let this host measure for others."""

from __future__ import annotations

from typing import Annotated

import typer

from bricks.cli.output import remark


def worker(
    scheduler: Annotated[
        str, typer.Argument(metavar="tcp://HOST:PORT", help="The scheduler that gives out work.")
    ],
    name: Annotated[
        str | None,
        typer.Option(show_default="its address", help="What this host is called there."),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=1.0, metavar="SECONDS", help="How long to wait for the scheduler."),
    ] = 30.0,
) -> None:
    """Measure on this host what 'bricks measure --scheduler' asks for, until interrupted.

    Any program that can connect to the scheduler can run code on this host. Use it on networks
    whose users you trust, or with Dask's TLS.

    Example: bricks worker tcp://192.0.2.1:8786
    """
    from bricks.fleet.worker import serve

    try:
        serve(
            scheduler,
            name=name,
            timeout_s=wait,
            joined=lambda address: remark(f"{address} has joined {scheduler}: Ctrl-C ends it"),
        )
    except KeyboardInterrupt:  # how a worker is meant to end
        remark(f"has left {scheduler}; what was not handed over yet, others measure")
