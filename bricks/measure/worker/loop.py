"""The child process's main loop: reads requests, writes the worker's answers, ends with the parent.

It speaks JSON lines on standard input and output (see ``measure/protocol``), and turns exceptions
into error messages, so that a failed request does not end the process. It must not know any
request.

Run as ``python -m bricks.measure.worker``.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
from typing import Any, BinaryIO

from bricks.errors import BricksError, first_line
from bricks.measure.protocol.pipe import LIFELINE, SCRATCH, decode, encode
from bricks.measure.worker.worker import Worker


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
