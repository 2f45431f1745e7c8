"""``bricks web``: a server with pages of models' latencies on all known systems."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from bricks.cli.command import command
from bricks.cli.options import GRANULARITIES, KEPT, CacheLocation, threads_option
from bricks.cli.output import note
from bricks.errors import UsageError
from bricks.session.defaults import GRANULARITY, RUNTIME
from bricks.studies.options import option

_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """The address that is listened on, who is believed, and what is kept and measured of uploads.

    ``allow_host`` are host names, ``trust_proxy`` addresses or networks of proxies.
    """

    host: str = option("The address to listen on.", default="127.0.0.1", metavar="ADDRESS")
    port: int = option(
        "The port; 0 takes a free one.", default=8080, least=0, most=65535, metavar="N"
    )
    allow_host: list[str] | None = option(
        "A further host name of this server, as in the addresses of its pages; may be repeated.",
        default=None, metavar="NAME",
    )  # fmt: skip
    trust_proxy: list[str] | None = option(
        "A proxy whose X-Forwarded-For header names the client; may be repeated.",
        default=None, metavar="ADDRESS", shown="none is believed",
    )  # fmt: skip
    keep: str = option(
        "What of an upload is kept: its plan, also the model without weights, or nothing.",
        default="plan", metavar="|".join(KEPT), values=KEPT,
    )  # fmt: skip
    measure: bool = option("Measure bricks that this host lacks, of every model.", default=False)

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for an unknown value of ``keep``, no host name or address."""
        if self.keep not in KEPT:
            raise UsageError(f"--keep {self.keep!r} is not known: give one of {', '.join(KEPT)}")
        for name in self.allow_host or ():
            if not (_HOST_NAME.fullmatch(name) or _is_network(name)):
                raise UsageError(
                    f"--allow-host {name!r} is no host name: give it without scheme and port, as"
                    " bricks.example.com"
                )
        for address in self.trust_proxy or ():
            if not _is_network(address):
                raise UsageError(
                    f"--trust-proxy {address!r} is no address: give that of the proxy as this"
                    " server sees it, as 192.0.2.1, or its network, as 192.0.2.0/24"
                )


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class DecomposingOptions:
    """The runtime that decomposes uploaded models, its threads, and the cache of plans."""

    runtime: str = option(
        "What decomposes uploaded models.", default=RUNTIME, metavar="NAME", values="runtimes"
    )
    granularity: str = option(
        "The bricks that models are cut into.",
        default=GRANULARITY, metavar="executed|N|N+1", values=GRANULARITIES,
    )  # fmt: skip
    threads: int | None = threads_option()


@command
def web(server: WebOptions, models: DecomposingOptions, store: CacheLocation) -> None:
    """Serve pages that tell what a model takes on every known system, until interrupted.

    Models are uploaded without their weights, or chosen from the zoo. Nothing is measured unless
    --measure says so. Example: bricks web --port 8080
    """
    try:
        import uvicorn  # noqa: F401  # only checks that they are installed
        from starlette.applications import Starlette  # noqa: F401
    except ImportError as exc:
        raise UsageError(
            f"the server needs {exc.name}, which is not installed: pip install 'onnx-bricks[web]'"
        ) from exc
    from bricks.report.page import check_renderer
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace
    from bricks.web.app import application
    from bricks.web.server import bound, serve
    from bricks.web.server_limits import Keep

    check_renderer()
    options = Options(
        runtime=models.runtime, granularity=models.granularity, threads=models.threads
    )
    with Workspace.open(store.cache, options):
        pass  # a cache or an option that cannot be used is said before anybody connects
    app = application(
        store.cache, options,
        host=server.host, allowed_hosts=server.allow_host or (), keep=Keep(server.keep),
        measure=server.measure,
    )  # fmt: skip
    listening = bound(server.host, server.port)
    with listening:
        address, port = listening.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        serve(
            app,
            listening,
            lambda: note(f"listening on http://{shown}:{port}"),
            trusted_proxies=server.trust_proxy or (),
        )
