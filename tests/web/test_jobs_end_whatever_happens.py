"""A job ends with a reason: also where its worker cannot start, or the server goes down."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("starlette")

from bricks.errors import WorkerError
from bricks.web.jobs import DONE, FAILED, Job, Jobs, JobWorker
from bricks.web.server_limits import ServerLimits


class Decomposer:
    closed = False

    def close(self) -> None:
        self.closed = True


class Service:
    """Its first ``failures`` decomposers cannot be had."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.made: list[Decomposer] = []

    async def decomposer(self) -> Decomposer:
        if self.failures:
            self.failures -= 1
            raise WorkerError("no process can be started")
        self.made.append(Decomposer())
        return self.made[-1]


def jobs_of(service: Any) -> Jobs:
    return Jobs(service, ServerLimits(decomposers=1, per_client=5), str)


async def nothing(job: Job, worker: JobWorker) -> None:
    job.address = "/answer"


def test_a_worker_that_cannot_start_fails_its_job_and_the_next_one_tries_anew() -> None:
    async def asked() -> list[Job]:
        jobs = jobs_of(service)
        jobs.start()
        both = [jobs.submit("client", name, nothing) for name in ("first", "second")]
        await asyncio.gather(*(job.ended.wait() for job in both))
        await jobs.close()
        return both

    service = Service(failures=1)
    first, second = asyncio.run(asked())
    assert (first.state, first.error) == (FAILED, "no process can be started")
    assert (second.state, second.error, second.address) == (DONE, None, "/answer")
    assert [made.closed for made in service.made] == [True]


def test_all_jobs_end_with_the_server() -> None:
    async def asked() -> list[Job]:
        begun = asyncio.Event()

        async def endless(job: Job, worker: JobWorker) -> None:
            begun.set()
            await asyncio.Event().wait()

        jobs = jobs_of(Service())
        jobs.start()
        three = [jobs.submit("client", name, endless) for name in ("runs", "waits", "waits too")]
        await begun.wait()
        await jobs.close()
        return three

    ended = asyncio.run(asked())
    assert all(job.ended.is_set() and job.work is None for job in ended)
    assert [job.state for job in ended] == [FAILED] * 3
    assert len({job.error for job in ended}) == 1 and ended[0].error
