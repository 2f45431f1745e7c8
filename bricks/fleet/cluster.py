"""Hosts that have joined a Dask scheduler, and calls of functions on them; ``bricks worker`` joins.

The only module that knows Dask. Dask pickles functions and their results, so any program that can
connect to the scheduler can run code on all hosts, and a host can run code on the coordinator's:
nothing here protects against that. The scheduler belongs behind Dask's TLS (its own configuration,
with addresses that begin ``tls://``), or on a network whose users are trusted: the user must say
that such an address is insecure. No address is contacted but the one that the user gives.

A host runs a Dask worker that is configured to disturb concurrent timing as little as possible: one
call at a time, no profiler that looks a hundred times a second, no limit to memory of its own. Must
not know what is called on the hosts, nor what is measured.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ipaddress
import logging
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bricks.errors import FleetError, UsageError, first_line
from bricks.fleet import host
from bricks.fleet.coordinator import HostStatus, RemoteCall

if TYPE_CHECKING:
    from distributed import Client, Future

# The Dask resource of which a worker started by 'bricks worker' has one: so no other worker gets a
# call, and each runs one call at a time.
RESOURCE = "bricks"

# A call that is cancelled has so long to end by itself: Dask logs an error where it is cut off.
_CANCEL_S = 1.0

# Of addresses, by whether Dask encrypts what is sent, and checks by certificates who sends it.
_SCHEMES = {"tls": True, "wss": True, "tcp": False, "ws": False}

# Before the scheme of an address off loopback without TLS: the user knows what that means.
_INSECURE = "insecure+"


def checked_address(address: str) -> str:
    """The address of a scheduler, as Dask takes it; UsageError unless it looks like one.

    One that is not protected by TLS must be on this host, or begin with ``insecure+``.
    """
    plain = address.removeprefix(_INSECURE)
    scheme, _, place = plain.partition("://")
    host, colon, port = place.rpartition(":")
    if scheme not in _SCHEMES or not (host and colon and port.isdecimal()):
        raise UsageError(f"{address!r} is no scheduler: give its address, as tls://host:8786")
    if not (address != plain or _SCHEMES[scheme] or _is_loopback(host)):
        raise UsageError(
            f"{address} is not protected by TLS, and Dask runs the code that it is sent, so"
            f" everybody on that network could run code on all hosts: give tls://{place}, or"
            f" {_INSECURE}{plain} where you trust them all"
        )
    return plain


def _is_loopback(host: str) -> bool:
    """Whether ``host`` is a name or an address of this host that no other can reach."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def dask_without_logs() -> Iterator[None]:
    """Import Dask with its log switched off; FleetError where it is not installed."""
    missing = FleetError("measuring on many hosts needs Dask: pip install 'onnx-bricks[fleet]'")
    try:
        import dask
    except ImportError as exc:
        raise missing from exc
    with dask.config.set({"logging": {"distributed": "critical", "bokeh": "critical"}}):
        try:
            import distributed  # noqa: F401  # reads that setting once
        except ImportError as exc:
            raise missing from exc
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        yield


def check_certificates(address: str, role: str) -> None:
    """Raise FleetError if Dask has no certificate to prove at ``address`` who this host is.

    ``role`` is ``client`` or ``worker``. Without TLS none is needed.
    """
    from distributed import Security

    if not _SCHEMES[address.partition("://")[0]]:
        return
    names = f"distributed.comm.tls.ca-file, .{role}.cert and .{role}.key"
    try:
        context = Security().get_connection_args(role).get("ssl_context")
    except OSError as exc:  # a file is missing, or holds no certificate
        raise FleetError(
            f"the certificates for {address} cannot be used ({first_line(exc)}): correct {names} in"
            " Dask's configuration"
        ) from exc
    if context is None:
        raise FleetError(
            f"{address} needs certificates: set {names} in Dask's configuration"
            " (https://distributed.dask.org/en/stable/tls.html)"
        )


@contextmanager
def connected(address: str, timeout_s: float = 10.0) -> Iterator[DaskCluster]:
    """The hosts behind the scheduler at ``address``; FleetError if none answers there."""
    address = checked_address(address)
    with dask_without_logs():
        from distributed import Client

        check_certificates(address, "client")
        try:
            client = Client(address, timeout=timeout_s, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as exc:
            raise FleetError(
                f"no scheduler answers at {address} ({first_line(exc)}): start one with"
                " 'dask scheduler', or give another --scheduler"
            ) from exc
        try:
            yield DaskCluster(client, address)
        finally:
            client.close(timeout=2)


class DaskCluster:
    """The hosts that have joined a scheduler with ``bricks worker``."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self._address = address

    def hosts(self) -> Mapping[str, HostStatus]:
        """All connected hosts, by address; FleetError if the scheduler has gone."""
        scheduler = self._client.scheduler
        if self._client.status != "running" or scheduler is None:
            raise self._gone()
        # Not scheduler_info(): what that returns, the client overwrites every two seconds with
        # facts that hold no workers, also between asking and returning.
        try:
            identity: Any = self._client.sync(scheduler.identity, n_workers=-1)
        except OSError as exc:
            raise self._gone() from exc
        return {
            address: HostStatus(str(facts["name"]), float(facts["last_seen"]))
            for address, facts in identity["workers"].items()
            if RESOURCE in facts["resources"]
        }

    def _gone(self) -> FleetError:
        return FleetError(
            f"the scheduler {self._address} has gone; what was gathered is kept: start it again,"
            " and run the same command to go on"
        )

    def call(self, address: str, function: Callable[..., Any], *arguments: Any) -> RemoteCall:
        """Call a function on a host."""
        return _DaskCall(self._client, self._submit(address, function, *arguments))

    def notify(self, address: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on a host when it is free, without waiting for a result."""
        from distributed import fire_and_forget

        if self._client.status != "running":
            return  # no host can be reached without it
        fire_and_forget(self._submit(address, function, *arguments))

    def _submit(self, address: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        with warnings.catch_warnings():
            # Dask advises to scatter large arguments; a model is sent to each host once, as it is.
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._client.submit(
                function,
                *arguments,
                workers=[address],
                allow_other_workers=False,
                resources={RESOURCE: 1},
                pure=False,
                retries=0,
            )


class _DaskCall:
    """A call that counts as done only when its result has arrived here.

    Dask's own future is done as soon as the result lies on the host; fetching it then waits forever
    if the host hangs in between.
    """

    def __init__(self, client: Client, future: Future[Any]) -> None:
        self._future = future
        loop: Any = client.loop  # tornado's, around one of asyncio's
        self._fetched = asyncio.run_coroutine_threadsafe(
            client.gather(future, asynchronous=True), loop.asyncio_loop
        )

    def done(self) -> bool:
        return self._fetched.done()

    def result(self) -> Any:
        return self._fetched.result(timeout=0)

    def cancel(self) -> None:
        self._future.cancel()  # which ends the fetching, unless the result is on its way
        concurrent.futures.wait([self._fetched], timeout=_CANCEL_S)
        self._fetched.cancel()


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
