"""The parent's side of the worker: sends it requests, and starts another one when it ends.

A worker that crashes, hangs or is killed becomes a :class:`WorkerDied` with the reason; the next
request starts a fresh one. It must not know what is asked, or why.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from bricks import backends
from bricks.closing import Closing
from bricks.errors import WorkerError
from bricks.measure.protocol.pipe import decode, encode
from bricks.measure.protocol.process import Hello, LimitMemory
from bricks.measure.protocol.request import Answer, Request, answer_from_json, request_to_json
from bricks.measure.worker_process import (
    Freed,
    WorkerDied,
    WorkerKilled,
    WorkerProcess,
    worker_command,
)

__all__ = ["MAX_ATTEMPTS", "Freed", "Supervisor", "WorkerDied", "WorkerKilled", "WorkerSettings"]

_logger = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0

# Of a limit of memory, a worker that holds more than this is replaced.
_HELD_SHARE = 0.5

# How often a request is sent whose worker is killed from outside, which may be an accident.
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker. ``memory_bytes`` limits its data; None: no limit.

    ``workers`` is how many nodes of a model it may run at the same time. A worker that is not
    ``timing`` keeps freed memory for later use, since it spends most of its time on filling memory
    for the first time. One that times must not, for that would change latencies. ``freed`` decides
    otherwise. ``python`` is the interpreter that the runtime is installed for; ``command`` starts
    another program in place of the worker.
    """

    backend: str
    threads: int
    seed: int
    memory_bytes: int | None = None
    python: str = sys.executable
    command: Sequence[str] | None = None
    workers: int = 1
    timing: bool = True
    optimization: str = "all"
    freed: Freed | None = None

    @property
    def start_command(self) -> tuple[str, ...]:
        """The command that starts the process."""
        if self.command is not None:
            return tuple(self.command)
        return worker_command(self.python, self.backend)


class Supervisor(Closing):
    """Owns one worker process at a time. ``starts`` counts the processes that it has started."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._memory_bytes = settings.memory_bytes
        self._process: WorkerProcess | None = None
        self.starts = 0
        self._asked = 0  # requests that the live worker has got
        self._awaited = False  # whether the live worker still has to say that it is ready
        self._closed = False

    @property
    def backend(self) -> str:
        """The name of the worker's runtime."""
        return self._settings.backend

    @property
    def fresh(self) -> bool:
        """Whether the next request is the worker's first: later it may hold memory of earlier ones.

        It is, too, if no worker lives.
        """
        return self._process is None or not self._asked

    def ask(
        self,
        request: Request[Answer],
        *,
        timeout_s: float,
        on_step: Callable[[int], None] | None = None,
    ) -> Answer:
        """The worker's answer to a request.

        ``timeout_s`` is the longest silence: it starts anew with every step that is announced to
        ``on_step``. Raises :class:`WorkerError` where the worker refuses, :class:`WorkerDied` where
        it ends or stays silent too long. Any other exception meanwhile, such as Ctrl-C, ends the
        worker: its answer would be taken for that to the next request.
        """
        if self._process is not None and not self._process.alive:
            self.reset()  # it ended while nobody asked
        self._refuse_if_closed()
        self.awaken()
        self._welcome()
        self._asked += 1
        message = self._exchange(request, timeout_s, on_step)
        if "error" in message:
            raise WorkerError(str(message["error"]))
        return answer_from_json(request, message["ok"])

    def ask_afresh(self, request: Request[Answer], *, timeout_s: float) -> Answer:
        """As :meth:`ask`, for requests that any worker can answer: sent again if it is killed."""
        for _ in range(MAX_ATTEMPTS - 1):
            with suppress(WorkerKilled):
                return self.ask(request, timeout_s=timeout_s)
        return self.ask(request, timeout_s=timeout_s)

    @contextmanager
    def memory_limited(self, memory_bytes: int) -> Iterator[None]:
        """Limit the worker's data to this meanwhile, and never to more than its settings say.

        A worker that still holds much of it, of what it did before, is ended: under the limit it
        could not even start a thread, and would wait for it without end.
        """
        of_settings = self._settings.memory_bytes
        limit_bytes = memory_bytes if of_settings is None else min(memory_bytes, of_settings)
        if self._limit_memory(limit_bytes) > _HELD_SHARE * limit_bytes and self._asked > 1:
            self.reset()
        try:
            yield
        finally:
            self._limit_memory(of_settings)

    def _limit_memory(self, memory_bytes: int | None) -> int:
        """Limit the worker's data; bytes that it holds, 0 where there is none, or nobody tells."""
        self._memory_bytes = memory_bytes
        if self._process is not None:
            with suppress(WorkerDied):  # the next one starts with this limit
                return self.ask(LimitMemory(memory_bytes), timeout_s=START_TIMEOUT_S) or 0
        return 0

    def processor_s(self) -> float:
        """Processor time in seconds that the live worker has taken; 0 if there is none."""
        return 0.0 if self._process is None else self._process.processor_s()

    @property
    def alive(self) -> bool:
        """Whether there is a worker, and it runs."""
        process = self._process
        return process is not None and process.alive

    def kill(self) -> None:
        """Kill the worker, from any thread: whoever waits for its answer gets WorkerDied."""
        process = self._process
        if process is not None:
            process.kill()

    def reset(self) -> None:
        """End the worker, at once; the next request starts a fresh one."""
        self._end()

    def close(self) -> None:
        """End the worker for good."""
        self._closed = True
        self._end()

    def awaken(self) -> None:
        """Start the worker if there is none, and do not wait for it: importing takes a while."""
        self._refuse_if_closed()
        if self._process is not None:
            return
        settings = self._settings
        freed = settings.freed or (Freed.BY_DEFAULT if settings.timing else Freed.KEPT)
        self._process = WorkerProcess(settings.start_command, freed=freed)
        _logger.info(
            "worker %d started: %s, threads: %d",
            self._process.pid, settings.backend, settings.threads,
        )  # fmt: skip
        self.starts += 1
        self._asked = 0
        hello = Hello(
            settings.backend,
            settings.threads,
            settings.seed,
            memory_bytes=self._memory_bytes,
            workers=settings.workers,
            timing=settings.timing,
            optimization=settings.optimization,
            location=backends.location(settings.backend),
        )
        self._awaited = True
        with self._ended_by_exceptions() as process:
            process.send(encode(request_to_json(hello)), START_TIMEOUT_S)

    def _welcome(self) -> None:
        """Wait until a worker that was just started is ready."""
        if self._awaited:
            self._awaited = False
            message = self._answer(START_TIMEOUT_S, None)
            if "error" in message:
                self._end()  # it would have no backend
                raise WorkerError(str(message["error"]))

    def _refuse_if_closed(self) -> None:
        if self._closed:  # maybe by another thread
            raise WorkerError("the worker was ended")

    def _exchange(
        self, request: Request[Any], timeout_s: float, on_step: Callable[[int], None] | None
    ) -> dict[str, Any]:
        """The message that ends the exchange, ``ok`` or ``error``; anything else ends the worker.

        So a worker that lives afterwards has nothing left to say.
        """
        with self._ended_by_exceptions() as process:
            process.send(encode(request_to_json(request)), timeout_s)
        return self._answer(timeout_s, on_step)

    def _answer(self, timeout_s: float, on_step: Callable[[int], None] | None) -> dict[str, Any]:
        with self._ended_by_exceptions() as process:
            while True:
                line = process.receive(timeout_s)
                try:
                    message = decode(line)
                except WorkerError as error:
                    raise WorkerDied(str(error)) from error
                if "ok" in message or "error" in message:
                    return message
                if on_step is not None:
                    on_step(int(message.get("at", 0)))

    @contextmanager
    def _ended_by_exceptions(self) -> Iterator[WorkerProcess]:
        """The live worker's process, which any exception meanwhile ends."""
        process = self._process
        if process is None:  # another thread has ended it
            raise WorkerError("the worker was ended")
        try:
            yield process
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        process, self._process = self._process, None
        self._awaited = False
        if process is not None:
            process.end()
            _logger.info("worker %d ended", process.pid)
