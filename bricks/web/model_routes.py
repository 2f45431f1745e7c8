"""The routes of models: uploads, jobs, answers, and where the time goes; and the work of a job.

A job reads a model, decomposes it in the supervised process of a worker, within its allowances, and
adds up its latencies. Must not know how answers are computed.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from bricks.errors import BricksError, OpenDimensions, one_line
from bricks.web import pages
from bricks.web.answer_service import DIGEST, AnswerService, ModelAnswers, ModelPictures
from bricks.web.answers import (
    AnswerQuestion,
    AnswerRow,
    answer_values,
    checked_batch,
    headline,
    with_bound,
)
from bricks.web.jobs import DECOMPOSING, DONE, FAILED, PREDICTING, READING, Job, Jobs, JobWorker
from bricks.web.questioned_models import QuestionedModel, QuestionedModels
from bricks.web.requests import (
    CSP,
    HTML,
    PICTURES,
    Pages,
    client_of,
    form_of,
    of_this_site,
    received,
    refuse_other_sites,
    when_done,
)
from bricks.web.server_limits import Keep
from bricks.zoo import entry

if TYPE_CHECKING:
    from starlette.requests import Request

    from bricks.web.server_limits import ServerLimits

_MAX_NAME = 200

# Anybody can ask any number of questions about a model: so many pages of them are kept.
_MAX_PAGES = 64


class ModelRoutes:
    """Handlers of requests about models."""

    def __init__(
        self, service: AnswerService, jobs: Jobs, limits: ServerLimits, rendering: Pages
    ) -> None:
        self._service, self._jobs, self._limits, self._pages = service, jobs, limits, rendering
        self._models = QuestionedModels(limits.answers, limits.held_bytes)

    def routes(self) -> list[Route]:
        """The addresses of models and jobs."""
        get, post = ["GET"], ["POST"]
        return [
            Route("/answers", self._ask, methods=post),
            Route("/jobs/{job}", self._job_page, methods=get),
            Route("/jobs/{job}", self._size, methods=post),
            Route("/models/{digest}", self._model_page, methods=get),
            Route("/models/{digest}/{target}", self._pictures_page, methods=get),
            Route("/api/models", self._upload, methods=post),
            Route("/api/models/{digest}", self._model, methods=get),
            Route("/api/models/{digest}/{target}", self._where, methods=get),
            Route("/api/jobs/{job}", self._job, methods=get),
            Route("/api/zoo/{name}", self._decompose, methods=post),
        ]

    # Pages

    async def _ask(self, request: Request) -> Response:
        """Queue the zoo model that a form names, and redirect to the page of its job."""
        form = await form_of(request, self._limits)
        question = AnswerQuestion.of(form)
        job = self._submit_zoo(request, form.get("model", ""), question.batch)
        return RedirectResponse(f"/jobs/{job.id}{question.without_batch.query}", 303)

    async def linked(self, request: Request) -> Response | None:
        """Redirect to the answer about the zoo model that a link names; None without one.

        A link on a page of another site must not cause work: there a person asks once more.
        """
        name = request.query_params.get("model", "")
        if not name or not of_this_site(request):
            return None
        question = AnswerQuestion.of(request.query_params)
        job = self._submit_zoo(request, name, question.batch)
        return await when_done(job, question.without_batch.query, self._limits.wait_s)

    async def _job_page(self, request: Request) -> Response:
        job, query = self._job_of(request), _query(request)
        if job.state == DONE:
            return RedirectResponse(f"{job.address}{query}", 303)
        asks = job.open_axes and self._models.get(job.id) is not None
        return self._pages.page(
            "job", job=job, axes=job.open_axes if asks else (), query=query, name=job.name
        )

    async def _size(self, request: Request) -> Response:
        """Queue the upload of a job again, with sizes of its open axes."""
        job, form = self._job_of(request), await form_of(request, self._limits)
        origin = self._models.get(job.id)
        if origin is None or not job.open_axes:
            raise HTTPException(404, "this file is not here any more: send it again")
        sizes = {
            axis.key: checked_batch(form.get(f"size{number}", "")) or axis.example
            for number, axis in enumerate(job.open_axes)
        }
        sized = self._submit(request, origin.sized(job.shapes, sizes))
        return await when_done(sized, _query(request), self._limits.wait_s)

    async def _model_page(self, request: Request) -> Response:
        question = AnswerQuestion.of(request.query_params)
        answers = await self._answered(request)
        if question.batch not in (None, answers.plan.inferences):
            return await self._other_batch(request, answers, question)
        if question not in answers.pages:
            if len(answers.pages) > _MAX_PAGES:
                answers.pages.clear()
            values = answer_values(
                answers.rows, question, answers.plan.model, answers.here, answers.agreements
            )
            other_batches = await self._origin_of(answers) is not None
            answers.pages[question] = self._pages.content(
                "model", facts=answers.facts, other_batches=other_batches, **values
            )
        return Response(answers.pages[question], media_type=HTML)

    async def _other_batch(
        self, request: Request, answers: ModelAnswers, question: AnswerQuestion
    ) -> Response:
        """Redirect to the answers for the same model with another batch."""
        origin, batch = await self._origin_of(answers), question.batch
        if origin is None or batch is None:
            raise HTTPException(404, "this file is not here any more: send it again for a batch")
        query, other = question.without_batch.query, origin.with_batch(batch)
        digest = self._models.digest_of(other)
        if digest is not None and await self._service.answered(digest) is not None:
            return RedirectResponse(f"/models/{digest}{query}", 303)
        refuse_other_sites(request)
        job = self._submit(request, other, key=(answers.plan.digest, batch))
        return await when_done(job, query, self._limits.wait_s)

    async def _pictures_page(self, request: Request) -> Response:
        pictures, digest = await self._pictured(request)
        if "page" not in pictures.pages:
            values = pages.picture_values(pictures, digest)
            pictures.pages["page"] = self._pages.content("pictures", **values)
        return Response(pictures.pages["page"], media_type=HTML, headers={CSP: PICTURES})

    # The same as JSON

    async def _upload(self, request: Request) -> Response:
        name = one_line(request.query_params.get("name", "") or "model")
        batch = checked_batch(request.query_params.get("batch", ""))
        if len(name) > _MAX_NAME:
            raise HTTPException(400, f"the name is longer than {_MAX_NAME} characters")
        with self._jobs.arrival(client_of(request)):
            content = await received(request, self._limits.upload_bytes, self._limits)
        job = self._submit(request, QuestionedModel(name, content, batch))
        return JSONResponse(self._job_facts(job), 202)

    async def _decompose(self, request: Request) -> Response:
        batch = checked_batch(request.query_params.get("batch", ""))
        job = self._submit_zoo(request, request.path_params["name"], batch)
        return JSONResponse(self._job_facts(job), 202)

    async def _job(self, request: Request) -> Response:
        return JSONResponse(self._job_facts(self._job_of(request)))

    async def _model(self, request: Request) -> Response:
        question = AnswerQuestion.of(request.query_params)
        answers = await self._answered(request)
        rows = [r for r in answers.rows if question.threads in (None, r.target.runtime.threads)]
        answered = [row for row in rows if isinstance(row, AnswerRow)]
        facts = {
            "answer": headline(
                answered, question, answers.plan.model, answers.here, answers.agreements
            ),
            **answers.facts,
            "answers": [with_bound(row, question.slo_s) for row in rows],
        }
        return JSONResponse(facts)

    async def _where(self, request: Request) -> Response:
        pictures, digest = await self._pictured(request)
        return JSONResponse(pages.picture_facts(pictures, digest))

    # What handlers share

    def _submit_zoo(self, request: Request, name: str, batch: int | None) -> Job:
        known = entry(name[:_MAX_NAME])
        return self._submit(request, QuestionedModel(known.name, batch=batch))

    def _submit(self, request: Request, origin: QuestionedModel, *, key: object = None) -> Job:
        work = partial(self._work, origin)
        return self._jobs.submit(client_of(request), origin.name, work, key=key)

    async def _work(self, origin: QuestionedModel, job: Job, worker: JobWorker) -> None:
        """Do the work; ``job`` has the digest and the address of the answers then."""
        job.state = READING
        try:
            model = await worker.call(origin.read)
        except OpenDimensions:
            self._models.hold(job.id, origin)  # until somebody gives the sizes
            raise
        decomposition = None
        if not await self._service.knows(model):
            job.state = DECOMPOSING
            decomposition = await worker.call(lambda: worker.decomposer(model))
        job.state = PREDICTING
        await self._service.add(model, decomposition)
        if origin.content is None:  # of the zoo: those of others are read in workers alone
            await self._service.translate(model)
        if origin.content is not None and self._service.keep is Keep.MODEL:
            self._service.keep_model(model)
        if self._service.keep is not Keep.NOTHING or origin.content is None:
            self._models.hold(model.digest, origin)
            self._models.answered(origin, model.digest)
        await self._service.answered(model.digest)
        job.digest, job.address = model.digest, f"/models/{model.digest}"

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
            "address": job.address,
            "open_axes": [asdict(axis) for axis in job.open_axes],
            "error": job.error if job.state == FAILED else None,
        }

    async def _answered(self, request: Request) -> ModelAnswers:
        answers = await self._service.answered(request.path_params["digest"])
        if answers is None:
            raise HTTPException(404, "no model of this digest is known: upload it")
        return answers

    async def _origin_of(self, answers: ModelAnswers) -> QuestionedModel | None:
        """The origin of a model; after a restart, that of a zoo model."""
        plan = answers.plan
        known = self._models.get(plan.digest)
        if known is None:
            known = await self._jobs.call(
                lambda: zoo_origin(plan.model, plan.inferences, plan.digest)
            )
            if known is not None:
                self._models.hold(plan.digest, known)
        return known

    async def _pictured(self, request: Request) -> tuple[ModelPictures, str]:
        digest, target = request.path_params["digest"], request.path_params["target"]
        pictures = None
        if DIGEST.fullmatch(digest) is not None:
            pictures = await self._service.pictured(digest, target)
        if pictures is None:
            raise HTTPException(404, "nothing is known of this model on this target")
        return pictures, digest


def _query(request: Request) -> str:
    """The question of a request without its batch, as a query."""
    return AnswerQuestion.of(request.query_params).without_batch.query


def zoo_origin(name: str, batch: int, digest: str) -> QuestionedModel | None:
    """The zoo model ``name`` with this batch; None unless its digest is ``digest``.

    An upload may have the name of a zoo model.
    """
    for origin in (QuestionedModel(name), QuestionedModel(name, batch=batch)):
        try:
            if origin.read().digest == digest:
                return origin
        except BricksError:
            return None
    return None
