"""The routes: pages for people, and the same facts as JSON below ``/api``.

Each handler checks its request, asks the answer service or the queue, and renders. Must not know
how answers are computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bricks.errors import BricksError, ModelError, UsageError
from bricks.store.published_index import folder as published_folder
from bricks.web import openapi, pages
from bricks.web.answer_service import AnswerService
from bricks.web.jobs import Busy, Jobs
from bricks.web.model_routes import ModelRoutes
from bricks.web.requests import Guard, Pages, error_texts
from bricks.web.server_limits import Keep, ServerLimits
from bricks.web.study_routes import StudyRoutes, StudyService
from bricks.zoo import entries
from bricks.zoo.catalogue import zoo_folder

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from bricks.session.options import Options

_MAX_NAME = 200
_MAX_WORDS = 200

_HEADINGS = {403: "Not allowed", 404: "Not found", 413: "Too large", 429: "Too many", 503: "Busy"}


def application(
    cache: str,
    options: Options,
    *,
    host: str,
    limits: ServerLimits | None = None,
    allowed_hosts: Sequence[str] = (),
    keep: Keep = Keep.PLAN,
    measure: bool = False,
) -> Starlette:
    """The application, for a server that listens on ``host``.

    It refuses requests to other host names than this, ``allowed_hosts``, those of loopback, and the
    address that a connection leads to.
    """
    if keep is Keep.MODEL and "://" in cache:
        raise UsageError("models are kept in the folder of a cache: give --cache a folder")
    if measure and keep is Keep.NOTHING:
        raise UsageError("what is measured is kept: leave out --measure or --keep nothing")
    names = (host, *allowed_hosts)
    return _Site(cache, options, limits or ServerLimits(), names, keep, measure=measure).app()


class _Guarded(Starlette):
    """An application whose guard checks requests first, also before error handlers."""

    def __init__(self, names: Sequence[str], **fields: Any) -> None:
        self._names = names
        super().__init__(**fields)

    def build_middleware_stack(self) -> ASGIApp:
        return Guard(super().build_middleware_stack(), self._names)


class _Site:
    def __init__(
        self,
        cache: str,
        options: Options,
        limits: ServerLimits,
        names: Sequence[str],
        keep: Keep,
        *,
        measure: bool,
    ) -> None:
        self._limits, self._names, self._pages = limits, names, Pages(measure=measure)
        self._service = AnswerService(cache, options, limits, keep, measure=measure)
        local = [] if "://" in cache else [cache]
        self._error_text = error_texts([*local, zoo_folder(), published_folder()])
        self._jobs = Jobs(self._service, limits, self._error_text)
        self._studies = StudyService(cache, options, limits, self._error_text)
        self._asked = StudyRoutes(self._studies, self._service, self._jobs, limits, self._pages)
        self._models = ModelRoutes(self._service, self._jobs, limits, self._pages)

    def app(self) -> Starlette:
        get = ["GET"]
        return _Guarded(
            self._names,
            routes=[
                Route("/", self._home, methods=get),
                *self._models.routes(),
                *self._asked.routes(),
                Route("/zoo", self._zoo_page, methods=get),
                Route("/systems", self._systems_page, methods=get),
                Route("/systems/{key}", self._system_page, methods=get),
                Route("/static/{name}", self._static, methods=get),
                Route("/api/zoo", self._zoo, methods=get),
                Route("/api/systems", self._systems, methods=get),
                Route("/api/systems/{key}", self._system, methods=get),
                Route("/api/openapi.json", self._openapi, methods=get),
            ],
            exception_handlers={
                HTTPException: self._http_error,
                BricksError: self._bricks_error,
                Exception: self._bricks_error,
            },
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        await self._service.open()
        await asyncio.to_thread(pages.static)
        self._jobs.start()
        try:
            yield
        finally:
            await self._jobs.close()
            await self._studies.close()
            await self._service.close()

    # Pages

    async def _home(self, request: Request) -> Response:
        if (answered := await self._models.linked(request)) is not None:
            return answered
        systems = await self._service.systems()
        threads = sorted({r["threads"] for system in systems for r in system["runtimes"]})
        return self._pages.page(
            "home",
            model=request.query_params.get("model", "")[:_MAX_NAME],
            names=[model.name for model in entries()],
            threads=threads,
            limits=self._limits,
            keep=self._service.keep.value,
            host=request.headers.get("host", ""),
        )

    async def _zoo_page(self, request: Request) -> Response:
        words = request.query_params.get("q", "")[:_MAX_WORDS]
        rows = _zoo_rows()
        models = pages.matching(rows, words)
        return self._pages.page("zoo", models=models, total=len(rows), q=words)

    async def _systems_page(self, request: Request) -> Response:
        words = request.query_params.get("q", "")[:_MAX_WORDS]
        rows = await self._service.systems()
        matches = pages.matching(rows, words)
        return self._pages.page("systems", systems=matches, total=len(rows), q=words)

    async def _system_page(self, request: Request) -> Response:
        return self._pages.page("system", system=await self._system_of(request))

    async def _static(self, request: Request) -> Response:
        file = pages.static().get(request.path_params["name"])
        if file is None:
            raise HTTPException(404, "there is no such file")
        content, kind = file
        return Response(content, media_type=kind, headers={"cache-control": "max-age=3600"})

    # The same as JSON

    async def _zoo(self, request: Request) -> Response:
        words = request.query_params.get("q", "")[:_MAX_WORDS]
        return JSONResponse({"models": pages.matching(_zoo_rows(), words)})

    async def _systems(self, request: Request) -> Response:
        words = request.query_params.get("q", "")[:_MAX_WORDS]
        return JSONResponse({"systems": pages.matching(await self._service.systems(), words)})

    async def _system(self, request: Request) -> Response:
        return JSONResponse(await self._system_of(request))

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(openapi.description(self._limits))

    # What handlers share

    async def _system_of(self, request: Request) -> dict[str, Any]:
        for system in await self._service.systems():
            if system["key"] == request.path_params["key"]:
                return system
        raise HTTPException(404, "no system has this key")

    # Errors

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._refused(request, error.status_code, str(error.detail), error.headers)

    async def _bricks_error(self, request: Request, error: Exception) -> Response:
        if isinstance(error, Busy):
            return self._refused(request, 503, self._error_text(error), {"retry-after": "10"})
        wrong = isinstance(error, UsageError | ModelError)
        return self._refused(request, 400 if wrong else 500, self._error_text(error))

    def _refused(
        self, request: Request, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": text}, status, headers=dict(headers or {}))
        heading = _HEADINGS.get(status, "This did not work")
        page = self._pages.page(
            "error", http_status=status, status=status, heading=heading, error=text
        )
        page.headers.update(dict(headers or {}))
        return page


def _zoo_rows() -> list[dict[str, Any]]:
    keys = ("name", "task", "family", "framework", "source", "parameters", "flops", "inputs")
    return [{name: each.to_json()[name] for name in keys} for each in entries()]
