"""What handlers of requests share: who asks, what arrives, and how an answer is sent.

Must not know routes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from bricks.web import pages
from bricks.web.jobs import DONE, Job

if TYPE_CHECKING:
    from bricks.web.server_limits import ServerLimits

HTML = "text/html; charset=utf-8"


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
