"""A bounded queue of models that wait for decomposing, are decomposed, or were.

A model is read and decomposed by one of a few workers, in the supervised process of its own and
within its allowances, so one that takes long does not hold up the others. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from bricks.errors import BricksError
from bricks.graph.model import Model
from bricks.measure.graphs import Decomposer
from bricks.web.answer_service import AnswerService
from bricks.web.server_limits import Keep, ServerLimits

_logger = logging.getLogger(__name__)

# A job's states in their order; the last two are its ends.
QUEUED, READING, DECOMPOSING, PREDICTING, DONE, FAILED = (
    "queued", "reading", "decomposing", "predicting", "done", "failed",
)  # fmt: skip


class Busy(BricksError):
    """The server has no room for another model now."""


@dataclass(slots=True)
class Job:
    """A model in the queue; ``read`` returns the model, and is released after that."""

    id: str
    client: str
    name: str
    upload: bool
    read: Callable[[], Model] | None
    state: str = QUEUED
    digest: str | None = None
    error: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Jobs:
    """The queue; :meth:`start` its workers in a running loop, and :meth:`close` it.

    ``error_text`` makes the line for a client from an error.
    """

    def __init__(
        self,
        service: AnswerService,
        limits: ServerLimits,
        error_text: Callable[[BaseException], str],
    ) -> None:
        self._service, self._limits, self._error_text = service, limits, error_text
        self._waiting: asyncio.Queue[Job] = asyncio.Queue()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._of_client: Counter[str] = Counter()
        self._arriving = 0
        self._workers: list[asyncio.Task[None]] = []
        self._decomposers: list[Decomposer] = []
        self._threads = ThreadPoolExecutor(limits.decomposers, thread_name_prefix="decompose")
        self._closing = False

    def start(self) -> None:
        """Start the workers."""
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._limits.decomposers)]

    async def close(self) -> None:
        """Drop jobs that wait, and end those that run."""
        self._closing = True
        for decomposer in self._decomposers:
            decomposer.close()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._threads.shutdown(wait=True, cancel_futures=True)

    @contextmanager
    def arrival(self, client: str) -> Iterator[None]:
        """Room for an upload while it arrives; :class:`Busy` if there is none."""
        if self._arriving >= self._limits.arriving:
            raise Busy("too many models arrive at the moment: try again in a minute")
        self._refuse(client)
        self._arriving += 1
        self._of_client[client] += 1
        try:
            yield
        finally:
            self._arriving -= 1
            self._leave(client)

    def submit(self, client: str, name: str, read: Callable[[], Model], *, upload: bool) -> Job:
        """Queue a model; :class:`Busy` if the queue or a client's share is full."""
        self._refuse(client)
        job = Job(secrets.token_urlsafe(12), client, name, upload, read)
        self._of_client[client] += 1
        self._jobs[job.id] = job
        while len(self._jobs) > self._limits.jobs:
            oldest = next((j for j in self._jobs.values() if j.ended.is_set()), None)
            if oldest is None:
                break
            del self._jobs[oldest.id]
        self._waiting.put_nowait(job)
        return job

    def get(self, name: str) -> Job | None:
        """The job of this id; None where there is none, or none any more."""
        return self._jobs.get(name)

    def ahead(self, job: Job) -> int:
        """The number of jobs that wait before ``job``."""
        before = 0
        for other in self._jobs.values():
            if other is job:
                break
            before += other.state == QUEUED
        return before if job.state == QUEUED else 0

    def _refuse(self, client: str) -> None:
        if self._closing:
            raise Busy("the server is going down")
        if self._waiting.qsize() >= self._limits.queue:
            raise Busy("too many models wait already: try again in a minute")
        if self._of_client[client] >= self._limits.per_client:
            raise Busy(
                f"{self._limits.per_client} models of yours are being worked on: wait for them"
            )

    def _leave(self, client: str) -> None:
        self._of_client[client] -= 1
        if self._of_client[client] <= 0:
            del self._of_client[client]

    async def _work(self) -> None:
        decomposer = await self._service.decomposer()
        self._decomposers.append(decomposer)
        try:
            while True:
                job = await self._waiting.get()
                try:
                    await self._do(job, decomposer)
                except asyncio.CancelledError:
                    job.state, job.error = FAILED, "the server is going down"
                    raise
                except Exception as error:  # whatever it is, the next model has its turn
                    if not isinstance(error, BricksError):
                        _logger.exception("a model could not be decomposed")
                    job.state, job.error = FAILED, self._error_text(error)
                finally:
                    job.read = None
                    job.ended.set()
                    self._leave(job.client)
        finally:
            with contextlib.suppress(BricksError):
                decomposer.close()

    async def _do(self, job: Job, decomposer: Decomposer) -> None:
        assert job.read is not None
        loop = asyncio.get_running_loop()
        job.state = READING
        model = await loop.run_in_executor(self._threads, job.read)
        job.read = None  # releases the upload
        decomposition = None
        if not await self._service.knows(model):
            job.state = DECOMPOSING
            decomposition = await loop.run_in_executor(self._threads, decomposer, model)
        job.state = PREDICTING
        await self._service.add(model, decomposition)
        if job.upload and self._service.keep is Keep.MODEL:
            self._service.keep_model(model)
        await self._service.answered(model.digest)
        job.digest, job.state = model.digest, DONE
