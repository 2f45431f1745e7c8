"""The parent's side of the worker: sends it requests, and starts another one when it ends.

A worker that crashes, hangs or is killed becomes a :class:`WorkerDied` with the reason; the next
request starts a fresh one. The exchange of messages with one worker process is a conversation, from
its start to its end. It must not know the meaning of requests.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bricks import backends
from bricks.closing import Closing
from bricks.errors import WorkerError
from bricks.measure.protocol import decode, encode
from bricks.measure.protocol.request import Answer, Request, answer_from_json, request_to_json
from bricks.measure.protocol.walking import BackendSettings, Hello, LimitMemory
from bricks.measure.worker_process import (
    Freed,
    WorkerCrashed,
    WorkerDied,
    WorkerKilled,
    WorkerProcess,
    worker_command,
)
from bricks.system.worker_packages import worker_packages

__all__ = [
    "MAX_ATTEMPTS",
    "Freed",
    "Supervisor",
    "WorkerCrashed",
    "WorkerDied",
    "WorkerKilled",
    "WorkerSettings",
]

_logger = logging.getLogger(__name__)

# A worker whose data exceed this share of its limit of memory is replaced.
_HELD_SHARE = 0.5

# How often a request is sent if its worker is killed from outside, which may be an accident.
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class WorkerSettings(BackendSettings):
    """The settings of a worker process and of its backend.

    ``python`` is the interpreter that the runtime is installed for, of bricks or of the user;
    ``command`` starts another program in place of the worker, with that interpreter. A worker that
    is not ``timing`` keeps freed memory for later use, since it spends most of its time on filling
    memory for the first time. One that times must not, for that would change latencies. ``freed``
    decides otherwise.
    """

    python: str = sys.executable
    command: Sequence[str] | None = None
    freed: Freed | None = None

    @property
    def start_command(self) -> tuple[str, ...]:
        """The command that starts the process."""
        if self.command is not None:
            return tuple(self.command)
        return worker_command(self.python, self.backend)

    @property
    def freed_memory(self) -> Freed:
        """What the process does with memory that it has freed."""
        return self.freed or (Freed.BY_DEFAULT if self.timing else Freed.KEPT)


class Supervisor(Closing):
    """Owns one worker process at a time; ``starts`` counts the processes that it started."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._memory_bytes = settings.memory_bytes
        self._conversation: Conversation | None = None
        self._closed = False
        self.starts = 0

    @property
    def backend(self) -> str:
        """The name of the worker's runtime."""
        return self._settings.backend

    @property
    def device(self) -> str:
        """The device that runs the worker's models: ``cpu`` or ``cuda``."""
        return self._settings.device

    @property
    def fresh(self) -> bool:
        """Whether the next request is the worker's first, so that it holds no memory of others.

        True also if no worker lives.
        """
        conversation = self._live
        return conversation is None or not conversation.asked

    @property
    def alive(self) -> bool:
        """Whether there is a worker, and it runs."""
        conversation = self._live
        return conversation is not None and conversation.alive

    def processor_s(self) -> float:
        """Processor time in seconds of the live worker; 0 if there is none."""
        conversation = self._live
        return 0.0 if conversation is None else conversation.processor_s()

    def ask(
        self, request: Request[Answer], *, timeout_s: float, on_step: OnStep | None = None
    ) -> Answer:
        """The worker's answer to a request.

        ``timeout_s`` is the longest silence: it starts anew with every step that is announced to
        ``on_step``. Raises :class:`WorkerError` where the worker refuses, :class:`WorkerDied` where
        it ends or stays silent too long. Any other exception meanwhile, such as Ctrl-C, ends the
        worker.
        """
        if self._live is not None and not self.alive:
            self.reset()  # it ended between requests
        return self._started().ask(request, timeout_s, on_step)

    def ask_running(self, request: Request[Answer], *, timeout_s: float) -> Answer:
        """As :meth:`ask`, for requests that only the worker that runs can answer.

        Raises :class:`WorkerError` if it has ended: a fresh one would know nothing of its past.
        """
        conversation = self._live
        if conversation is None or not conversation.alive:
            raise WorkerDied("it has ended")
        return conversation.ask(request, timeout_s, None)

    def ask_afresh(self, request: Request[Answer], *, timeout_s: float) -> Answer:
        """As :meth:`ask`, for requests that any worker can answer.

        Sent again if the worker is killed, or crashes although other requests came before: one of
        these may be the cause.
        """
        for _ in range(MAX_ATTEMPTS - 1):
            fresh = self.fresh
            try:
                return self.ask(request, timeout_s=timeout_s)
            except WorkerKilled:
                continue
            except WorkerCrashed:
                if fresh:
                    raise
        return self.ask(request, timeout_s=timeout_s)

    @contextmanager
    def memory_limited(self, memory_bytes: int) -> Iterator[None]:
        """Limit the worker's data to ``memory_bytes`` (or its settings' limit) for a block.

        A worker whose data already take much of the limit is ended: under the limit it could not
        even start a thread, and would wait for the thread forever.
        """
        of_settings = self._settings.memory_bytes
        limit_bytes = memory_bytes if of_settings is None else min(memory_bytes, of_settings)
        held_bytes, live = self._limit_memory(limit_bytes), self._live
        if held_bytes > _HELD_SHARE * limit_bytes and live is not None and live.asked > 1:
            self.reset()
        try:
            yield
        finally:
            self._limit_memory(of_settings)

    def kill(self) -> None:
        """Kill the worker, from any thread: a thread that waits for its answer gets WorkerDied."""
        conversation = self._live
        if conversation is not None:
            conversation.kill()

    def reset(self) -> None:
        """End the worker, at once; the next request starts a fresh one."""
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.end()

    def close(self) -> None:
        """End the worker, and refuse further requests."""
        self._closed = True
        self.reset()

    def start(self) -> None:
        """Start the worker if there is none, and do not wait for it: importing takes a while."""
        self._started()

    def _started(self) -> Conversation:
        if self._closed:  # maybe by another thread
            raise WorkerError("the worker was ended")
        conversation = self._live
        if conversation is not None:
            return conversation
        settings = self._settings
        conversation = Conversation(
            settings.start_command,
            freed=settings.freed_memory,
            packages=worker_packages(settings.python, _logger.info),
        )
        self._conversation = conversation
        _logger.info(
            "worker %d started: %s, threads: %d",
            conversation.pid,
            settings.backend,
            settings.threads,
        )
        self.starts += 1
        limited = replace(settings, memory_bytes=self._memory_bytes)
        conversation.greet(Hello(limited, backends.location(settings.backend)))
        return conversation

    @property
    def _live(self) -> Conversation | None:
        """The conversation with the worker, unless it was ended from here."""
        conversation = self._conversation
        return None if conversation is None or conversation.ended else conversation

    def _limit_memory(self, memory_bytes: int | None) -> int:
        """Limit the worker's data; their bytes now, 0 without a worker or a count."""
        self._memory_bytes = memory_bytes
        if self._live is not None:
            with suppress(WorkerDied):  # the next one starts with this limit
                return self.ask(LimitMemory(memory_bytes), timeout_s=START_TIMEOUT_S) or 0
        return 0


START_TIMEOUT_S = 120.0

# Receives the number of each step that a worker announces.
OnStep = Callable[[int], None]


class Conversation:
    """One worker process and its messages; ``asked`` counts the requests after the first.

    Any exception during an exchange, such as Ctrl-C, ends the process: otherwise its late answer
    would be read as the answer to the next request. After :meth:`end`, which any thread may call,
    every exchange raises :class:`WorkerError`.
    """

    def __init__(self, command: Sequence[str], *, freed: Freed, packages: Path | None) -> None:
        process = WorkerProcess(command, freed=freed, packages=packages)
        self.pid = process.pid
        self.asked = 0
        self._process: WorkerProcess | None = process
        self._awaited = False  # whether the answer to the first request is still to come

    @property
    def ended(self) -> bool:
        """Whether the process was ended from here."""
        return self._process is None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        process = self._process
        return process is not None and process.alive

    def processor_s(self) -> float:
        """Processor time in seconds of the process; 0 if it was ended."""
        process = self._process
        return 0.0 if process is None else process.processor_s()

    def greet(self, hello: Hello) -> None:
        """Send the first request, and do not wait for the answer."""
        self._awaited = True
        self._send(hello, START_TIMEOUT_S)

    def ask(self, request: Request[Answer], timeout_s: float, on_step: OnStep | None) -> Answer:
        """The answer to a request; :class:`WorkerError` where the worker refuses.

        ``timeout_s`` is the longest silence: it starts anew with every announced step. Raises
        :class:`WorkerDied` where the process ends or stays silent too long.
        """
        # The answer to the first request may be still to come.
        if self._awaited:
            self._awaited = False
            message = self._message(START_TIMEOUT_S, None)
            if "error" in message:
                self.end()  # it would have no backend
                raise WorkerError(str(message["error"]))
        self.asked += 1
        self._send(request, timeout_s)
        message = self._message(timeout_s, on_step)
        if "error" in message:
            raise WorkerError(str(message["error"]))
        return answer_from_json(request, message["ok"])

    def kill(self) -> None:
        """Kill the process, from any thread: a thread that waits for its answer gets WorkerDied."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """End the process, and remove all that belongs to it."""
        process, self._process = self._process, None
        self._awaited = False
        if process is not None:
            process.end()
            _logger.info("worker %d ended", process.pid)

    def _send(self, request: Request[Any], timeout_s: float) -> None:
        with self._ended_by_exceptions() as process:
            process.send(encode(request_to_json(request)), timeout_s)

    def _message(self, timeout_s: float, on_step: OnStep | None) -> dict[str, Any]:
        """The message that ends an exchange, ``ok`` or ``error``."""
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
        """The live process, which any exception meanwhile ends."""
        process = self._process
        if process is None:  # another thread has ended it
            raise WorkerError("the worker was ended")
        try:
            yield process
        except BaseException:
            self.end()
            raise
