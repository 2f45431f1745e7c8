"""Starts a worker that a launcher such as torchrun runs as its child.

The launcher passes on standard input and output, and no other pipe. So the worker sees the end of
the parent as the end of requests, and the end of the launcher as a signal. Must not know which
launcher it is.

Run as ``python -m bricks.measure.worker.launched``.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

from bricks.measure.protocol import LIFELINE
from bricks.measure.worker.worker import main

_PR_SET_PDEATHSIG = 1  # prctl(2)


if __name__ == "__main__":
    os.environ.pop(LIFELINE, None)  # the pipe was not passed on
    with suppress(OSError, AttributeError):  # anything but Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    main()
