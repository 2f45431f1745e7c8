"""Records a step of a PyTorch program in a worker, as a graph of calls.

Here because the user's code must only run in a worker. Must not know how steps are used.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bricks import backends
from bricks.closing import Closing
from bricks.errors import WorkerError
from bricks.graph.model import Model
from bricks.graph.view import graph_of, parse_model
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.reading.digest import digest
from bricks.system.accelerator import CPU

if TYPE_CHECKING:
    from bricks.measure.protocol.models import RecordProgram

_logger = logging.getLogger(__name__)

# A function may build a large model, and a few steps of it may take long.
_TIMEOUT_S = 1800.0


class ProgramRecorder(Closing):
    """Records many programs with one worker; use it as a context manager, or close it."""

    def __init__(
        self,
        *,
        runtime: str,
        threads: int,
        seed: int,
        device: str = CPU,
        python: str | None = None,
    ) -> None:
        """``python`` is the path of the user's Python, whose packages the programs import.

        Raises :class:`~bricks.errors.BackendError` if the runtime is not installed.
        """
        info = backends.describe(runtime, device, python)
        self._worker = Supervisor(
            WorkerSettings(
                info.name, threads, seed, timing=False, python=info.python, device=device
            )
        )

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def record(self, program: RecordProgram, *, name: str | None = None) -> Model:
        """One step of ``program``, as a model without weights, by default called as its function.

        Raises :class:`~bricks.errors.WorkerError` for a program that cannot be recorded.
        """
        started = time.perf_counter()
        title = program.entry if name is None else name
        _logger.info("%s: recording a step", title)
        try:
            skeleton = self._worker.ask_afresh(program, timeout_s=_TIMEOUT_S)
        except WorkerError as error:
            text = str(error)
            raise WorkerError(
                text if program.entry in text else f"{program.entry}: {text}"
            ) from error
        proto = parse_model(skeleton)
        graph = graph_of(proto)
        inputs = tuple((input_name, graph.types[input_name]) for input_name in graph.inputs)
        read_s = time.perf_counter() - started
        return Model(title, Path(), skeleton, inputs, digest(proto), read_s=read_s)
