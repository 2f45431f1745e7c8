"""A bounded queue of questions that wait for work, are worked on, or were.

Each is worked on by one of a few workers, so one that takes long does not hold up the others. Must
not know HTTP, nor what the work is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from bricks.errors import BricksError, OpenDimensions
from bricks.web.questioned_models import OpenAxis, OpenShapes, open_axes

if TYPE_CHECKING:
    from bricks.measure.graphs import Decomposer
    from bricks.web.answer_service import AnswerService
    from bricks.web.server_limits import ServerLimits

T = TypeVar("T")

_logger = logging.getLogger(__name__)

# A job's states in their order; the last two are its ends.
QUEUED, READING, DECOMPOSING, PREDICTING, DONE, FAILED = (
    "queued", "reading", "decomposing", "predicting", "done", "failed",
)  # fmt: skip

_GOING_DOWN = "the server is going down"


class Busy(BricksError):
    """The server has no room for another model now."""


@dataclass(slots=True)
class Job:
    """A question in the queue; its ``work`` is released once it has ended.

    ``key`` identifies the question; None if it may be asked several times at once.

    ``address`` is that of the answer's page, and ``digest`` that of a model, once they are known.
    ``open_axes`` are those of ``shapes`` that a model lacks sizes of.
    """

    id: str
    client: str
    name: str
    work: Work | None
    key: object = None
    state: str = QUEUED
    address: str | None = None
    digest: str | None = None
    error: str | None = None
    open_axes: Sequence[OpenAxis] = ()
    shapes: OpenShapes = field(default_factory=dict)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class JobWorker:
    """What a worker has: a decomposer with a process of its own, and threads."""

    decomposer: Decomposer
    threads: ThreadPoolExecutor

    async def call(self, function: Callable[[], T]) -> T:
        """The result of ``function``, called in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, function)


# Sets the state of a job while it works, and its address in the end.
Work = Callable[[Job, JobWorker], Awaitable[None]]


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
        """End all jobs: those that wait, too."""
        self._closing = True
        for decomposer in self._decomposers:
            decomposer.close()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        while not self._waiting.empty():
            job = self._waiting.get_nowait()
            job.state, job.error = FAILED, _GOING_DOWN
            self._end(job)
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

    def submit(self, client: str, name: str, work: Work, *, key: object = None) -> Job:
        """Queue ``work``; :class:`Busy` if the queue or a client's share is full.

        Work of the same ``key`` that has not ended is not queued again.
        """
        for other in self._jobs.values():
            if key is not None and other.key == key and not other.ended.is_set():
                return other
        self._refuse(client)
        job = Job(secrets.token_urlsafe(12), client, name, work, key)
        self._of_client[client] += 1
        self._jobs[job.id] = job
        while len(self._jobs) > self._limits.jobs:
            oldest = next((j for j in self._jobs.values() if j.ended.is_set()), None)
            if oldest is None:
                break
            del self._jobs[oldest.id]
        self._waiting.put_nowait(job)
        return job

    async def call(self, function: Callable[[], T]) -> T:
        """The result of ``function``, called in one of the workers' threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

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
            raise Busy(_GOING_DOWN)
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
        """Work on one job after another; the worker starts with the first.

        If it cannot, that job fails with the reason, and the next one tries anew.
        """
        worker: JobWorker | None = None
        try:
            while True:
                job = await self._waiting.get()
                with self._ending(job):
                    assert job.work is not None
                    if worker is None:
                        decomposer = await self._service.decomposer()
                        self._decomposers.append(decomposer)
                        worker = JobWorker(decomposer, self._threads)
                    await job.work(job, worker)
        finally:
            if worker is not None:
                with contextlib.suppress(BricksError):
                    worker.decomposer.close()

    @contextmanager
    def _ending(self, job: Job) -> Iterator[None]:
        """Set the last state of ``job``, by what happens to it here."""
        try:
            yield
            job.state = DONE
        except asyncio.CancelledError:
            job.state, job.error = FAILED, _GOING_DOWN
            raise
        except Exception as error:  # whatever it is, the next question has its turn
            if not isinstance(error, BricksError):
                _logger.exception("a question could not be answered")
            if isinstance(error, OpenDimensions):
                job.open_axes, job.shapes = open_axes(error), error.dims
            job.state, job.error = FAILED, self._error_text(error)
        finally:
            self._end(job)

    def _end(self, job: Job) -> None:
        job.work = None
        job.ended.set()
        self._leave(job.client)
