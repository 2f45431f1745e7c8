"""The routes of studies: a page with a form and its answer, and the same as JSON.

Must not know any study, nor how it answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bricks.errors import BricksError
from bricks.web.requests import Pages, client_of, refuse_other_sites, when_done
from bricks.web.study_form import StudyForm
from bricks.web.study_pages import study_pages
from bricks.web.study_service import StudyService, StudyWork, address_of, failed

if TYPE_CHECKING:
    from starlette.requests import Request

    from bricks.studies.offer import StudyOffer, StudyPage
    from bricks.web.answer_service import AnswerService
    from bricks.web.jobs import Job, Jobs
    from bricks.web.server_limits import ServerLimits


@dataclass(frozen=True, slots=True)
class StudyRoutes:
    """Handlers of requests about the studies with a page."""

    service: StudyService
    systems: AnswerService
    jobs: Jobs
    limits: ServerLimits
    rendering: Pages

    def routes(self) -> Iterator[Route]:
        """The addresses of all studies."""
        for study, page in study_pages():
            yield Route(page.path, partial(self._page, study, page), methods=["GET"])
            yield Route(f"/api{page.path}", partial(self._facts, study, page), methods=["GET"])

    async def _page(self, study: StudyOffer, page: StudyPage, request: Request) -> Response:
        form = await self._form(study, page)
        query = form.asked(request.query_params)
        answer = self.service.known(address_of(form, query)) if query else None
        if query and answer is None:
            error = _refusal(form, query)
            if error is None:
                return await self._queued(request, form, query)
            answer = failed(str(error))
        return self.rendering.page(
            "study",
            question=page.question,
            path=page.path,
            fields=form.fields(query),
            answer=answer,
            command=form.command(query),
            address=address_of(form, query),
        )

    async def _facts(self, study: StudyOffer, page: StudyPage, request: Request) -> Response:
        form = await self._form(study, page)
        query = form.asked(request.query_params)
        form.options(query)  # refuses what makes no sense
        answer = self.service.known(address_of(form, query))
        if answer is None:
            refuse_other_sites(request)
            job = self._submit(request, form, query)
            return JSONResponse({"job": job.id, "state": job.state}, 202)
        return JSONResponse(answer.facts, 200 if answer.headline or answer.blocks else 400)

    async def _queued(
        self, request: Request, form: StudyForm, query: Mapping[str, str]
    ) -> Response:
        refuse_other_sites(request)
        job = self._submit(request, form, query)
        return await when_done(job, "", self.limits.wait_s)

    def _submit(self, request: Request, form: StudyForm, query: Mapping[str, str]) -> Job:
        work = StudyWork(self.service, form, query)
        key = address_of(form, query)
        return self.jobs.submit(client_of(request), form.page.question, work, key=key)

    async def _form(self, study: StudyOffer, page: StudyPage) -> StudyForm:
        """The form, with the systems that were measured with the runtime of the study."""
        runtime = self.service.runtime_of(study)
        systems = [
            system["name"]
            for system in await self.systems.systems()
            if any(of["backend"] == runtime for of in system["runtimes"])
        ]
        return StudyForm(study, page, list(dict.fromkeys(systems)))


def _refusal(form: StudyForm, query: Mapping[str, str]) -> BricksError | None:
    """Why the options of a query make no sense; None if they do."""
    try:
        form.options(query)
    except BricksError as error:
        return error
    return None
