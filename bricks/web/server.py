"""Runs the application on a port until it is told to stop.

Here because only this module knows the program that speaks HTTP. Must not know what is served.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import uvicorn

from bricks.errors import BricksError

if TYPE_CHECKING:
    from starlette.applications import Starlette

# Requests that run on when the server is told to stop get so many seconds.
_PATIENCE_S = 5

# More connections than these are told to come again later.
_CONNECTIONS = 512


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there, on any free port if it is 0; BricksError if it cannot."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(address)
            made.listen(_CONNECTIONS)
        except OSError:
            made.close()
            raise
    except OSError as exc:
        raise BricksError(
            f"nothing can listen on {host}:{port} ({exc.strerror or exc}): give another --host or"
            " --port"
        ) from exc
    return made


def serve(
    app: Starlette,
    listening: socket.socket,
    ready: Callable[[], None],
    *,
    trusted_proxies: Sequence[str] = (),
) -> None:
    """Serve until SIGINT or SIGTERM; ``ready`` is called once requests are answered.

    Of ``trusted_proxies``, addresses or networks, the header X-Forwarded-For is believed: a client
    is the last address in it that is no such proxy. Nobody else's is.
    """

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()

    config = uvicorn.Config(
        app,
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_PATIENCE_S,
        lifespan="on",
        ws="none",
    )
    server = Server(config)
    server.run(sockets=[listening])
    if not server.started:
        raise BricksError("the server did not start; what it logged says why")
