"""Requests: checks of each, who asks, what arrives, and how an answer is sent.

Any page that is open in a user's browser can reach a server that the user can reach, also under a
name of its own that leads to the server's address (DNS rebinding). So requests to another host name
and requests from pages of other sites are refused. Texts of errors leave without paths of the host.
Must not know routes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from bricks.errors import BricksError, StoreError, first_line, printable
from bricks.web import pages
from bricks.web.jobs import DONE, Job

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bricks.web.server_limits import ServerLimits

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

# Characters of an unknown host name that its refusal repeats.
_MAX_NAME = 100

# Pages with pictures: Vega compiles expressions, and sets styles of its own.
_STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PICTURES = _STRICT.replace("script-src 'self'", "script-src 'self' 'unsafe-eval'").replace(
    "style-src 'self'", "style-src 'self' 'unsafe-inline'"
)
CSP = "content-security-policy"
_ALWAYS = {
    CSP: _STRICT,
    "x-content-type-options": "nosniff",
    # Without any referrer, browsers would not tell where forms come from.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

HTML = "text/html; charset=utf-8"


class Guard:
    """Wraps an application that is called by one of ``names``, or by its address, or locally.

    A server that listens on all addresses is called by the one that a connection leads to.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(map(_normal, (*_LOOPBACK, *names)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _ALWAYS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, sending)
        else:
            await PlainTextResponse(refusal, 403)(scope, receive, sending)

    def _refusal(self, scope: Scope, headers: Headers) -> str | None:
        host = headers.get("host", "")
        name, address = _name_of(host), (scope.get("server") or ("",))[0]
        if name not in self._names and name != _normal(address):
            shown = printable(name[:_MAX_NAME])
            return f"this server has no host name {shown!r}: 'bricks web --allow-host' gives it one"
        if scope["method"] in ("GET", "HEAD"):
            return None
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return "a page of another site sent this"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "a page of another site sent this"
        return None


def _name_of(host: str) -> str:
    """The name or address in a Host header, without the port."""
    if host.startswith("["):
        return _normal(host[1:].partition("]")[0])
    return _normal(host.partition(":")[0])


def _normal(name: str) -> str:
    """A host name in lower case; an address as it is usually written."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name.lower()
    # A socket for both versions of the protocol reports IPv4 addresses as such ones.
    return str(getattr(address, "ipv4_mapped", None) or address)


def error_texts(folders: Iterable[str | Path]) -> Callable[[BaseException], str]:
    """Return a function from an error to a line for clients, without paths of the host.

    Paths in ``folders`` are removed, and those of Python and of this package.
    """
    known = {str(Path(folder).expanduser().absolute()) for folder in folders}
    known |= {sys.prefix, sys.base_prefix, tempfile.gettempdir(), os.getcwd(), str(Path.home())}
    known |= {sysconfig.get_path("purelib"), str(Path(__file__).resolve().parents[2])}
    known |= {str(Path(folder).resolve()) for folder in known}
    # The longest first; the root would match names within models.
    listed = sorted(known - {"/"}, key=len)
    paths = re.compile("|".join(rf"{re.escape(folder)}[^\s'\":;,]*" for folder in reversed(listed)))

    def text(error: BaseException) -> str:
        if isinstance(error, StoreError) or not isinstance(error, BricksError):
            return "the server could not do this; its log says why"
        return paths.sub("…", first_line(error, 500))

    return text


def client_of(request: Request) -> str:
    """The address of the client."""
    return request.client.host if request.client is not None else "unknown"


def of_this_site(request: Request) -> bool:
    """Whether a person or a page of this server asks, and no page of another site."""
    return request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def refuse_other_sites(request: Request) -> None:
    """Refuse a question that needs work if a page of another site asks it."""
    if not of_this_site(request):
        raise HTTPException(403, "a page of another site asks this: follow the link once more here")


async def received(request: Request, most: int, limits: ServerLimits) -> bytes:
    """The body of a request, refused by its stated size before any of it is read."""
    stated = request.headers.get("content-length", "")
    if not (stated.isascii() and stated.isdecimal()):
        raise HTTPException(411, "the size of what is sent is not stated: send Content-Length")
    if len(stated) > 15 or int(stated) > most:
        raise HTTPException(413, f"at most {most} bytes are taken: send models without weights")
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(limits.upload_s):
            async for chunk in request.stream():
                parts.append(chunk)
    except TimeoutError as exc:
        raise HTTPException(408, "this took too long to arrive") from exc
    except ClientDisconnect as exc:
        raise HTTPException(400, "this did not arrive whole") from exc
    return b"".join(parts)


async def form_of(request: Request, limits: ServerLimits) -> dict[str, str]:
    """The fields of a form, by name."""
    body = await received(request, limits.form_bytes, limits)
    return {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}


async def when_done(job: Job, query: str, wait_s: float) -> Response:
    """Redirect to the answer of ``job`` if it is there in ``wait_s``, else to the job's page."""
    try:
        async with asyncio.timeout(wait_s):
            await job.ended.wait()
    except TimeoutError:
        pass
    if job.state == DONE:
        return RedirectResponse(f"{job.address}{query}", 303)
    return RedirectResponse(f"/jobs/{job.id}{query}", 303)


class Pages:
    """Renders pages of a server that measures, or does not."""

    def __init__(self, *, measure: bool) -> None:
        self._measure = measure

    def content(self, template: str, **values: Any) -> bytes:
        """The page rendered from the template of this name."""
        return pages.page(template, measure=self._measure, **values)

    def page(self, template: str, *, http_status: int = 200, **values: Any) -> Response:
        """The answer with this page."""
        return Response(self.content(template, **values), http_status, media_type=HTML)
