"""The exchange of messages with one worker process, from its start to its end.

Must not know the meaning of requests, nor other processes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.errors import WorkerError
from bricks.measure.protocol.pipe import decode, encode
from bricks.measure.protocol.request import Answer, Request, answer_from_json, request_to_json
from bricks.measure.worker_process import Freed, WorkerDied, WorkerProcess

if TYPE_CHECKING:
    from bricks.measure.protocol.process import Hello

_logger = logging.getLogger(__name__)

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
        self._welcome()
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

    def _welcome(self) -> None:
        """Wait for the answer to the first request, if it is still to come."""
        if self._awaited:
            self._awaited = False
            message = self._message(START_TIMEOUT_S, None)
            if "error" in message:
                self.end()  # it would have no backend
                raise WorkerError(str(message["error"]))

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
