"""The worker: its main loop, and the method that handles each request, in the child process.

Run as ``python -m bricks.measure.worker``. It speaks JSON lines on standard input and output (see
``measure/protocol``), and turns exceptions into error messages, so that a failed request does not
end the process. It ends with the parent. If it dies (of a crash of the runtime, for lack of memory,
or ended by the parent because it hangs), only this process ends. Must not know of the store, or of
why a request is sent.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from bricks.errors import BricksError, WorkerError, first_line
from bricks.measure.protocol import LIFELINE, SCRATCH, decode, encode
from bricks.measure.protocol.request import (
    Handlers,
    Request,
    answer_to_json,
    handlers_of,
    request_from_json,
)
from bricks.measure.worker.evaluation import EvaluationRequests
from bricks.measure.worker.graphs import GraphRequests, QuantisingRequests
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.loaded_pieces import LoadedPieces
from bricks.measure.worker.passes import FusedRuns
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.serving import GenerationRequests, ServingRequests
from bricks.measure.worker.training import RankRequests, TrainingRequests
from bricks.measure.worker.walking import LoadingRequests, WalkRequests, WalkState, WarmUp
from bricks.measure.worker.whole_models import WholeModelRequests


class Worker:
    """One backend, its loaded ``pieces``, and the ``handlers`` of all requests.

    ``say`` sends a message to the parent while a request is handled.
    """

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        def announce(number: int) -> None:
            say({"at": number})

        runtime = WorkerRuntime()
        instruments = WorkerInstruments(runtime)
        self.pieces = LoadedPieces(runtime, instruments)
        state = WalkState(runtime, instruments, self.pieces, FusedRuns(), WarmUp(), announce)
        subjects = (
            runtime,
            LoadingRequests(state),
            WalkRequests(state),
            WholeModelRequests(runtime, state.unload),
            GraphRequests(runtime),
            EvaluationRequests(runtime),
            TrainingRequests(runtime, announce),
            RankRequests(runtime),
            ServingRequests(runtime, announce),
            GenerationRequests(runtime),
            QuantisingRequests(runtime),
        )
        self.handlers: Handlers = {
            kind: handle for subject in subjects for kind, handle in handlers_of(subject).items()
        }
        self._kinds = {kind.__name__: kind for kind in self.handlers}

    def answer(self, request: Request[Any]) -> Any:
        """The answer to a request, of the request's answer type."""
        return self.handlers[type(request)](request)

    def answer_json(self, message: dict[str, Any]) -> Any:
        """The answer to a request; both are JSON."""
        kind = self._kinds.get(str(message.pop("op", "")))
        if kind is None:
            raise WorkerError("the worker does not know this operation")
        return answer_to_json(kind, self.answer(request_from_json(kind, message)))


def main() -> None:
    """Serve on standard input and output; output of libraries goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    _end_with_parent()
    tempfile.tempdir = os.environ.pop(SCRATCH, None)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests, one JSON object a line, until the input ends."""

    def say(message: dict[str, Any]) -> None:
        answers.write(encode(message))
        answers.flush()

    worker = Worker(say)
    for line in requests:
        try:
            say({"ok": worker.answer_json(decode(line))})
        except BricksError as error:
            say({"error": str(error)})
        except MemoryError as error:
            say({"error": f"out of memory: {first_line(error)}"})
        except Exception as error:  # a failed request must not end the process
            say({"error": f"{type(error).__name__}: {first_line(error)}"})


def _end_with_parent() -> None:
    """End with the parent, even if the parent is killed while a brick runs.

    A thread waits for the end of a pipe that only the parent holds. Waiting takes no processor
    time, and the thread runs as soon as the runtime releases Python's lock.
    """
    lifeline = os.environ.pop(LIFELINE, "")
    if lifeline:
        threading.Thread(target=_end_with, args=(int(lifeline),), daemon=True).start()


def _end_with(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    if tempfile.tempdir is not None:  # the parent, which would remove it, is gone
        shutil.rmtree(tempfile.tempdir, ignore_errors=True)
    os._exit(1)
