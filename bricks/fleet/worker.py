"""``bricks worker``: a host joins the fleet.

It runs a Dask worker that is configured to disturb concurrent timing as little as possible:
one call at a time, no profiler that looks a hundred times a second, no limit to memory of its own.
Any program that can connect to the scheduler can run code on this host, because a Dask worker
executes the functions that it is sent. Must not know what is measured.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable

from bricks.errors import FleetError, first_line
from bricks.fleet import host
from bricks.fleet.cluster import (
    RESOURCE,
    check_certificates,
    checked_address,
    dask_without_logs,
)

# Background work that Dask does several times a second, and that no part of bricks uses.
_BACKGROUND = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.memory.monitor-interval": "5s",
}


def serve(
    address: str,
    *,
    name: str | None = None,
    timeout_s: float = 30.0,
    joined: Callable[[str], None] = lambda address: None,
) -> None:
    """Run calls for the scheduler at ``address`` until the scheduler ends, or until interrupted.

    ``joined`` is called with the worker's own address. Raises FleetError if no scheduler answers
    within ``timeout_s`` seconds, or when it has gone; KeyboardInterrupt on SIGINT and SIGTERM.
    """
    address = checked_address(address)
    with dask_without_logs():
        import dask

        check_certificates(address, "worker")
        with (
            dask.config.set(_BACKGROUND),
            tempfile.TemporaryDirectory(prefix="bricks-worker-") as own,
        ):
            try:
                asyncio.run(_serve(address, name, timeout_s, joined, own))
            finally:
                host.finish_all()


async def _serve(
    address: str, name: str | None, timeout_s: float, joined: Callable[[str], None], folder: str
) -> None:
    from distributed import Worker

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    worker = Worker(
        address,
        name=name,
        nthreads=1,
        resources={RESOURCE: 1},
        memory_limit=0,
        local_directory=folder,
        death_timeout=timeout_s,
        silence_logs=50,
    )
    try:
        await worker
    except Exception as exc:  # Dask and the network raise many kinds
        raise FleetError(
            f"no scheduler answers at {address} ({first_line(exc)}): start one with"
            " 'dask scheduler'"
        ) from exc
    joined(worker.address)
    finished, stopped = asyncio.ensure_future(worker.finished()), asyncio.ensure_future(stop.wait())
    await asyncio.wait((finished, stopped), return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await worker.close(reason="bricks worker was ended")
        raise KeyboardInterrupt
    stopped.cancel()
    raise FleetError(f"the scheduler {address} has gone: run the same command to join another")
