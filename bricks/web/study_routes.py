"""The routes of studies: a page with a form and its answer, and the same as JSON.

Answers come from what is known, in a workspace and a thread of their own: a study may take long, so
it must not hold up answers about models. Nothing is measured. A result is shown as the paragraphs
and tables that a terminal shows. Must not know any study, nor compute results.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from rich.table import Table
from rich.text import Text
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bricks.errors import BricksError
from bricks.report.study import view_of_study
from bricks.session.workspace import Workspace
from bricks.studies.study import ask
from bricks.units.facts import json_of
from bricks.web.jobs import PREDICTING, Job, JobWorker
from bricks.web.requests import Pages, client_of, refuse_other_sites, when_done
from bricks.web.study_pages import StudyForm, study_pages

if TYPE_CHECKING:
    from rich.console import RenderableType
    from starlette.requests import Request

    from bricks.report.study import StudyView
    from bricks.session.options import Options
    from bricks.studies.study import StudyOffer, StudyPage
    from bricks.web.answer_service import AnswerService
    from bricks.web.jobs import Jobs
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
            try:
                form.options(query)  # refuses what makes no sense
            except BricksError as error:
                answer = failed(str(error))
            else:
                refuse_other_sites(request)
                job = self._submit(request, form, query)
                return await when_done(job, "", self.limits.wait_s)
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

    def _submit(self, request: Request, form: StudyForm, query: Mapping[str, str]) -> Job:
        address = address_of(form, query)

        async def work(job: Job, worker: JobWorker) -> None:
            job.state = PREDICTING
            await self.service.answer(form, query)
            job.address = address

        return self.jobs.submit(client_of(request), form.page.question, work, key=address)

    async def _form(self, study: StudyOffer, page: StudyPage) -> StudyForm:
        """The form, with the systems that were measured with the runtime of the study."""
        runtime = self.service.runtime_of(study)
        systems = [
            system["name"]
            for system in await self.systems.systems()
            if any(of["backend"] == runtime for of in system["runtimes"])
        ]
        return StudyForm(study, page, list(dict.fromkeys(systems)))


# What a command recommends; a page shows the command instead.
_REMEDY = ": leave out --no-measure"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StudyAnswer:
    """The answer to a question: its first line, paragraphs and tables, and its JSON.

    ``errors`` are lines about parts without an answer; without any answer, ``headline`` is None.
    ``made_s`` is in seconds of ``time.monotonic()``.
    """

    headline: str | None
    blocks: Sequence[str | PageTable]
    errors: Sequence[str]
    facts: Mapping[str, Any]
    made_s: float


class StudyService:
    """Answers studies with the measurements in ``cache`` and published ones; closed once.

    ``error_text`` makes the line for a client from an error.
    """

    def __init__(
        self,
        cache: str,
        options: Options,
        limits: ServerLimits,
        error_text: Callable[[BaseException], str],
    ) -> None:
        self._cache, self._limits, self._error_text = cache, limits, error_text
        self._options = replace(options, graph_timeout_s=limits.decompose_s)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="studies")
        self._workspaces: dict[str, Workspace] = {}
        self._answers: OrderedDict[str, StudyAnswer] = OrderedDict()

    async def close(self) -> None:
        """Close the workspaces after the current work."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=True)

    def _close(self) -> None:
        for workspace in self._workspaces.values():
            workspace.close()
        self._workspaces.clear()

    def known(self, address: str) -> StudyAnswer | None:
        """The answer to the question at ``address``, if there is one that is not old."""
        answer = self._answers.get(address)
        if answer is None or time.monotonic() - answer.made_s > self._limits.answer_s:
            return None
        return answer

    async def answer(self, form: StudyForm, query: Mapping[str, str]) -> None:
        """Answer a question, so that :meth:`known` returns the answer."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._thread, self._answer, form, query)
        self._answers[address_of(form, query)] = found
        while len(self._answers) > self._limits.answers:
            self._answers.popitem(last=False)

    def _answer(self, form: StudyForm, query: Mapping[str, str]) -> StudyAnswer:
        try:
            options = form.options(query)
            study = form.offer.load()(options, self._workspace(form), _logger.info)
            result = ask(study, measure=False)
        except BricksError as error:
            return failed(self._error_text(error).partition(_REMEDY)[0])
        view = view_of_study(form.offer.name)
        headline = None if view.answer is None else view.answer(result)
        facts = {"answer": headline, **json_of(result)}
        return StudyAnswer(
            headline, blocks_of(view, result), [*result.errors], facts, time.monotonic()
        )

    def runtime_of(self, study: StudyOffer) -> str:
        """The runtime that answers ``study``."""
        return study.runtime or self._options.runtime

    def _workspace(self, form: StudyForm) -> Workspace:
        runtime = self.runtime_of(form.offer)
        if runtime not in self._workspaces:
            options = replace(self._options, runtime=runtime)
            self._workspaces[runtime] = Workspace.open(self._cache, options)
        return self._workspaces[runtime]


def failed(error: str) -> StudyAnswer:
    """The answer to a question that has none, because of ``error``."""
    return StudyAnswer(None, (), [error], {"error": error}, time.monotonic())


def address_of(form: StudyForm, query: Mapping[str, str]) -> str:
    """The address of a question."""
    return f"{form.page.path}?{urlencode(form.asked(query))}"


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table as texts; ``left`` says which columns are aligned on the left."""

    titles: Sequence[str]
    left: Sequence[bool]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(cls, table: Table) -> PageTable:
        """The texts of a table for terminals."""
        columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
        return cls(
            [_plain(column.header) for column in table.columns],
            [column.justify != "right" for column in table.columns],
            list(zip(*columns, strict=True)),
        )


def blocks_of(view: StudyView, result: Any) -> list[str | PageTable]:
    """The parts of a result, and remarks, in the order to show them."""
    blocks: list[str | PageTable] = []
    for part in [*view.parts(result), *view.remarks(result)]:
        if isinstance(part, Table):
            blocks.append(PageTable.of(part))
        elif text := _plain(part):
            blocks.append(text)
    return blocks


def _plain(part: RenderableType) -> str:
    return part.plain if isinstance(part, Text) else str(part)
