"""The routes: pages for people, and the same facts as JSON below ``/api``.

Each handler checks its request, asks the answer service or the queue, and renders. Must not know
how answers are computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bricks import sources
from bricks.errors import BricksError, ModelError, UsageError, one_line
from bricks.graph.model import Model
from bricks.reading.read import read_bytes
from bricks.session.options import Options
from bricks.store.published_index import folder as published_folder
from bricks.web import openapi, pages
from bricks.web.answer_service import (
    DIGEST,
    AnswerService,
    ModelAnswers,
    ModelPictures,
    checked_batch,
)
from bricks.web.guard import CSP, PICTURES, Guard, error_texts
from bricks.web.jobs import DONE, FAILED, Busy, Job, Jobs
from bricks.web.server_limits import Keep, ServerLimits
from bricks.zoo import entries
from bricks.zoo.catalogue import entry, zoo_folder

_MAX_NAME = 200
_MAX_WORDS = 200

_HTML = "text/html; charset=utf-8"
_HEADINGS = {403: "Not allowed", 404: "Not found", 413: "Too large", 429: "Too many", 503: "Busy"}


def application(
    cache: str,
    options: Options,
    *,
    host: str,
    limits: ServerLimits | None = None,
    keep: Keep = Keep.PLAN,
    measure: bool = False,
) -> Starlette:
    """The application, for a server that listens on ``host``."""
    if keep is Keep.MODEL and "://" in cache:
        raise UsageError("models are kept in the folder of a cache: give --cache a folder")
    if measure and keep is Keep.NOTHING:
        raise UsageError("what is measured is kept: leave out --measure or --keep nothing")
    return _Site(cache, options, limits or ServerLimits(), host, keep, measure=measure).app()


class _Guarded(Starlette):
    """An application whose guard checks requests first, also before error handlers."""

    def __init__(self, host: str, **fields: Any) -> None:
        self._host = host
        super().__init__(**fields)

    def build_middleware_stack(self) -> ASGIApp:
        return Guard(super().build_middleware_stack(), self._host)


class _Site:
    def __init__(
        self,
        cache: str,
        options: Options,
        limits: ServerLimits,
        host: str,
        keep: Keep,
        *,
        measure: bool,
    ) -> None:
        self._limits, self._host, self._measure = limits, host, measure
        self._service = AnswerService(cache, options, limits, keep, measure=measure)
        local = [] if "://" in cache else [cache]
        self._error_text = error_texts([*local, zoo_folder(), published_folder()])
        self._jobs = Jobs(self._service, limits, self._error_text)

    def app(self) -> Starlette:
        """The application with its routes."""
        get, post = ["GET"], ["POST"]
        return _Guarded(
            self._host,
            routes=[
                Route("/", self._home, methods=get),
                Route("/answers", self._ask, methods=post),
                Route("/jobs/{job}", self._job_page, methods=get),
                Route("/models/{digest}", self._model_page, methods=get),
                Route("/models/{digest}/{target}", self._pictures_page, methods=get),
                Route("/zoo", self._zoo_page, methods=get),
                Route("/systems", self._systems_page, methods=get),
                Route("/systems/{key}", self._system_page, methods=get),
                Route("/static/{name}", self._static, methods=get),
                Route("/api/models", self._upload, methods=post),
                Route("/api/models/{digest}", self._model, methods=get),
                Route("/api/models/{digest}/{target}", self._where, methods=get),
                Route("/api/jobs/{job}", self._job, methods=get),
                Route("/api/zoo", self._zoo, methods=get),
                Route("/api/zoo/{name}", self._decompose, methods=post),
                Route("/api/systems", self._systems, methods=get),
                Route("/api/systems/{key}", self._system, methods=get),
                Route("/api/openapi.json", self._openapi, methods=get),
            ],
            exception_handlers={
                HTTPException: self._http_error,
                BricksError: self._bricks_error,
                Exception: self._server_error,
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
            await self._service.close()

    # Pages

    async def _home(self, request: Request) -> Response:
        systems = await self._service.systems()
        threads = sorted({r["threads"] for system in systems for r in system["runtimes"]})
        return self._page(
            "home",
            model=request.query_params.get("model", "")[:_MAX_NAME],
            names=[model.name for model in entries()],
            threads=threads,
            limits=self._limits,
            keep=self._service.keep.value,
            host=request.headers.get("host", ""),
        )

    async def _ask(self, request: Request) -> Response:
        """Queue the zoo model that a form names, and redirect to the page of its job."""
        body = await self._received(request, self._limits.form_bytes)
        form = {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}
        threads = _threads(form.get("threads", ""))
        job = self._submit_zoo(request, form.get("model", ""), form.get("batch", ""))
        then = "" if threads is None else f"?threads={threads}"
        return RedirectResponse(f"/jobs/{job.id}{then}", 303)

    async def _job_page(self, request: Request) -> Response:
        job = self._job_of(request)
        if job.state == DONE:
            threads = _threads(request.query_params.get("threads", ""))
            then = "" if threads is None else f"?threads={threads}"
            return RedirectResponse(f"/models/{job.digest}{then}", 303)
        return self._page("job", job=job.id, name=job.name, state=job.state, error=job.error)

    async def _model_page(self, request: Request) -> Response:
        threads = _threads(request.query_params.get("threads", ""))
        answers = await self._answered(request)
        if threads not in answers.pages:
            if len(answers.pages) > 64:  # anybody can ask for any number
                answers.pages.clear()
            values = pages.model_values(answers.facts, threads)
            answers.pages[threads] = pages.page("model", measure=self._measure, **values)
        return Response(answers.pages[threads], media_type=_HTML)

    async def _pictures_page(self, request: Request) -> Response:
        pictures, digest = await self._pictured(request)
        if "page" not in pictures.pages:
            values = pages.picture_values(pictures, digest)
            pictures.pages["page"] = pages.page("pictures", measure=self._measure, **values)
        return Response(pictures.pages["page"], media_type=_HTML, headers={CSP: PICTURES})

    async def _zoo_page(self, request: Request) -> Response:
        words = request.query_params.get("q", "")[:_MAX_WORDS]
        rows = _zoo_rows()
        models = pages.matching(rows, words)
        return self._page("zoo", models=models, total=len(rows), q=words)

    async def _systems_page(self, request: Request) -> Response:
        words = request.query_params.get("q", "")[:_MAX_WORDS]
        rows = await self._service.systems()
        matches = pages.matching(rows, words)
        return self._page("systems", systems=matches, total=len(rows), q=words)

    async def _system_page(self, request: Request) -> Response:
        return self._page("system", system=await self._system_of(request))

    async def _static(self, request: Request) -> Response:
        file = pages.static().get(request.path_params["name"])
        if file is None:
            raise HTTPException(404, "there is no such file")
        content, kind = file
        return Response(content, media_type=kind, headers={"cache-control": "max-age=3600"})

    def _page(self, template: str, *, http_status: int = 200, **values: Any) -> Response:
        content = pages.page(template, measure=self._measure, **values)
        return Response(content, http_status, media_type=_HTML)

    # The same as JSON

    async def _upload(self, request: Request) -> Response:
        name = request.query_params.get("name", "") or "model"
        batch = checked_batch(request.query_params.get("batch", ""))
        if len(name) > _MAX_NAME:
            raise HTTPException(400, f"the name is longer than {_MAX_NAME} characters")
        client = _client(request)
        with self._jobs.arrival(client):
            content = await self._received(request, self._limits.upload_bytes)
        read = partial(read_bytes, content, one_line(name), batch=batch)
        job = self._jobs.submit(client, one_line(name), read, upload=True)
        return JSONResponse(self._job_facts(job), 202)

    async def _received(self, request: Request, most: int) -> bytes:
        """The body of a request, refused by its stated size before any of it is read."""
        stated = request.headers.get("content-length", "")
        if not (stated.isascii() and stated.isdecimal()):
            raise HTTPException(411, "the size of what is sent is not stated: send Content-Length")
        if len(stated) > 15 or int(stated) > most:
            raise HTTPException(413, f"at most {most} bytes are taken: send models without weights")
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._limits.upload_s):
                async for chunk in request.stream():
                    parts.append(chunk)
        except TimeoutError as exc:
            raise HTTPException(408, "this took too long to arrive") from exc
        except ClientDisconnect as exc:
            raise HTTPException(400, "this did not arrive whole") from exc
        return b"".join(parts)

    async def _decompose(self, request: Request) -> Response:
        batch = request.query_params.get("batch", "")
        job = self._submit_zoo(request, request.path_params["name"], batch)
        return JSONResponse(self._job_facts(job), 202)

    async def _job(self, request: Request) -> Response:
        return JSONResponse(self._job_facts(self._job_of(request)))

    async def _model(self, request: Request) -> Response:
        threads = _threads(request.query_params.get("threads", ""))
        answers = await self._answered(request)
        rows = [r for r in answers.facts["answers"] if threads in (None, r["threads"])]
        return JSONResponse({**answers.facts, "answers": rows})

    async def _where(self, request: Request) -> Response:
        pictures, digest = await self._pictured(request)
        return JSONResponse(pages.picture_facts(pictures, digest))

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

    def _submit_zoo(self, request: Request, name: str, batch: str) -> Job:
        known = entry(name[:_MAX_NAME])
        size = checked_batch(batch)

        def read() -> Model:
            return sources.read(
                sources.OnnxFile(known.name, known.name, known.path),
                sources.ReadOptions(batch=size),
            )

        return self._jobs.submit(_client(request), known.name, read, upload=False)

    def _job_of(self, request: Request) -> Job:
        job = self._jobs.get(request.path_params["job"])
        if job is None:
            raise HTTPException(404, "there is no such job, or not any more: ask again")
        return job

    def _job_facts(self, job: Job) -> dict[str, Any]:
        return {
            "job": job.id,
            "name": job.name,
            "state": job.state,
            "ahead": self._jobs.ahead(job),
            "digest": job.digest,
            "error": job.error if job.state == FAILED else None,
        }

    async def _answered(self, request: Request) -> ModelAnswers:
        answers = await self._service.answered(request.path_params["digest"])
        if answers is None:
            raise HTTPException(404, "no model of this digest is known: upload it")
        return answers

    async def _pictured(self, request: Request) -> tuple[ModelPictures, str]:
        digest, target = request.path_params["digest"], request.path_params["target"]
        pictures = None
        if DIGEST.fullmatch(digest) is not None:
            pictures = await self._service.pictured(digest, target)
        if pictures is None:
            raise HTTPException(404, "nothing is known of this model on this target")
        return pictures, digest

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

    async def _server_error(self, request: Request, error: Exception) -> Response:
        return self._refused(request, 500, self._error_text(error))

    def _refused(
        self, request: Request, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": text}, status, headers=dict(headers or {}))
        heading = _HEADINGS.get(status, "This did not work")
        page = self._page("error", http_status=status, status=status, heading=heading, error=text)
        page.headers.update(dict(headers or {}))
        return page


def _client(request: Request) -> str:
    return request.client.host if request.client is not None else "unknown"


def _threads(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 5):
        raise UsageError(f"{text[:20]!r} is no number of threads")
    return int(text)


def _zoo_rows() -> list[dict[str, Any]]:
    keys = ("name", "task", "family", "framework", "source", "parameters", "flops", "inputs")
    return [{name: each.to_json()[name] for name in keys} for each in entries()]
