"""Records a step of a PyTorch program in a worker, as a graph of calls.

Here because the user's code may run nowhere else than in a worker. Must not know what is recorded.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bricks import backends
from bricks.closing import Closing
from bricks.errors import WorkerError
from bricks.graph.digest import digest
from bricks.graph.model import Model
from bricks.graph.view import graph_of, parse_model
from bricks.measure.protocol.graphs import RecordProgram
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.sources.defaults import PROGRAMS_RUNTIME

_logger = logging.getLogger(__name__)

# A function may build a large model, and a few steps of it may take long.
_TIMEOUT_S = 1800.0


def record_program(
    entry: str,
    *,
    runtime: str = PROGRAMS_RUNTIME,
    threads: int = 1,
    seed: int = 0,
    batch: int | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    folder: str | None = None,
) -> Model:
    """One step of the program ``entry``, as a model without weights.

    ``entry`` is ``FILE.py:FUNCTION`` or ``package.module:FUNCTION``. The function is called with
    ``batch=`` if that is given, and with ``options``; docs/torch.md says what it returns. A
    relative file starts from ``folder``, by default the current one; the empty folder is the zoo's.
    Raises
    :class:`~bricks.errors.WorkerError` for a program that cannot be recorded, and
    :class:`~bricks.errors.BackendError` if the runtime is not installed.
    """
    given = {**({} if batch is None else {"batch": batch}), **(options or {})}
    with ProgramRecorder(runtime=runtime, threads=threads, seed=seed) as recorder:
        return recorder.record(entry, given, name=name, folder=folder)


class ProgramRecorder(Closing):
    """Records many programs with one worker; use it as a context manager, or close it."""

    def __init__(self, *, runtime: str, threads: int, seed: int) -> None:
        """Raises :class:`~bricks.errors.BackendError` if the runtime is not installed."""
        info = backends.describe(runtime)
        self._worker = Supervisor(
            WorkerSettings(info.name, threads, seed, timing=False, python=info.python)
        )

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def record(
        self,
        entry: str,
        options: Mapping[str, Any],
        *,
        name: str | None = None,
        folder: str | None = None,
    ) -> Model:
        """One step of the program ``entry``, whose function is called with ``options``.

        See :func:`record_program`.
        """
        started = time.perf_counter()
        title = entry if name is None else name
        _logger.info("%s: recording a step", title)
        try:
            request = RecordProgram(entry, os.getcwd() if folder is None else folder, options)
            skeleton = self._worker.ask_afresh(request, timeout_s=_TIMEOUT_S)
        except WorkerError as error:
            text = str(error)
            raise WorkerError(text if entry in text else f"{entry}: {text}") from error
        proto = parse_model(skeleton)
        graph = graph_of(proto)
        inputs = tuple((each, graph.types[each]) for each in graph.inputs)
        read_s = time.perf_counter() - started
        return Model(title, Path(), skeleton, inputs, digest(proto), read_s=read_s)
