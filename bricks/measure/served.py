"""Models that are really served on this host: a worker with queue and batches, driven by LoadGen.

Must not know what is predicted of them.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from bricks.errors import UsageError, WorkerError
from bricks.graph.model import Model
from bricks.measure.protocol import pack
from bricks.measure.supervisor import Supervisor

# Making a session may take this long; a server that says nothing for so long hangs.
_LOAD_TIMEOUT_S, _SILENT_S = 300.0, 300.0

_MODULE = "mlperf_loadgen"

# Characters of what a load generator said before it failed.
_MAX_REASON = 300


def refuse_without_loadgen() -> None:
    """:class:`UsageError` where LoadGen is not installed."""
    if importlib.util.find_spec(_MODULE) is None:
        raise UsageError(
            "MLPerf LoadGen drives real queries, and is not installed: pip install"
            " 'onnx-bricks[loadgen]'"
        )


@dataclass(frozen=True, slots=True)
class Queries:
    """What LoadGen asks: ``count`` queries of a ``scenario`` in its own spelling.

    ``qps`` is the rate of the server scenario, ``samples`` those of a query of MultiStream,
    ``bound_s`` and ``percentile`` the bound that LoadGen judges by, ``seed`` that of the arrivals.
    """

    scenario: str
    count: int
    qps: float = 1.0
    samples: int = 1
    bound_s: float = 1e6
    percentile: float = 99.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Batching:
    """How the server joins samples; see :class:`bricks.scenarios.scenario.Serving`."""

    max_batch: int
    timeout_s: float
    instances: int


@dataclass(frozen=True, slots=True)
class ServedBatch:
    """A batch: its size, what the model took of it, and how long its instance was occupied."""

    size: int
    run_s: float
    occupied_s: float


@dataclass(frozen=True, slots=True)
class ServedQueries:
    """A series of real queries.

    ``issued_s`` and ``latencies_s`` are those of each query, as the client has seen them, in
    seconds; ``summary`` is LoadGen's own, under its names; ``batches`` those that were run.
    """

    issued_s: Sequence[float] = field(repr=False)
    latencies_s: Sequence[float] = field(repr=False)
    summary: Mapping[str, Any]
    batches: Sequence[ServedBatch] = field(repr=False)


class ServedModel:
    """Instances of a model in a worker, loaded for each size of a batch; a context manager."""

    def __init__(self, worker: Supervisor, batching: Batching) -> None:
        self._worker, self._batching = worker, batching
        self._folder = tempfile.TemporaryDirectory(prefix="bricks-served-")

    def __enter__(self) -> ServedModel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._worker.close()
        self._folder.cleanup()

    def load(self, models: Mapping[int, Model]) -> None:
        """Load ``models`` by the size of their batch, once for each instance."""
        self._worker.ask(
            "load_served",
            timeout_s=_LOAD_TIMEOUT_S,
            models=[[size, pack(model.skeleton)] for size, model in models.items()],
            instances=self._batching.instances,
        )

    def time_after_pauses(
        self, size: int, long_s: float, pauses_s: Sequence[float], repeats: int
    ) -> tuple[list[float], dict[float, float]]:
        """Median seconds of batches of ``size``, of several after a pause of ``long_s``.

        And of one after each of ``pauses_s``, before which the processor was busy for long.
        """
        answer = self._worker.ask(
            "time_after_pauses", timeout_s=_SILENT_S, size=size, long_s=long_s,
            pauses_s=list(pauses_s), repeats=repeats,
        )  # fmt: skip
        waking_s = [median(taken) for taken in zip(*answer["waking"], strict=True)]
        paused_s = [median(taken) for taken in answer["paused"]]
        return waking_s, dict(zip(pauses_s, paused_s, strict=True))

    def serve(self, queries: Queries, *, empty: bool = False) -> ServedQueries:
        """Serve ``queries``; with ``empty`` memory is read in place of running a model.

        Raises :class:`~bricks.errors.WorkerError` if the server or the load generator fails.
        """
        path = str(Path(self._folder.name) / "socket")
        asking: list[subprocess.Popen[str]] = []

        def ready(_: int) -> None:
            if not asking:
                asking.append(_start(queries, path))
            elif asking[0].poll() is not None:
                _leave(path)  # in its place, so that the server waits for nobody

        batching = self._batching
        try:
            answer = self._worker.ask(
                "serve", timeout_s=_SILENT_S, on_step=ready, path=path,
                max_batch=batching.max_batch, wait_s=batching.timeout_s,
                instances=batching.instances, empty=empty,
            )  # fmt: skip
            out, said = asking[0].communicate(timeout=_SILENT_S)
        except BaseException:
            for process in asking:
                process.kill()
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=10)
            raise
        if asking[0].returncode != 0:
            lines = [line for line in said.strip().splitlines() if line]
            reason = lines[-1][:_MAX_REASON] if lines else f"exit status {asking[0].returncode}"
            raise WorkerError(f"the load generator failed: {reason}")
        found = json.loads(out)
        issued_s, latencies_s = found.pop("issued_s"), found.pop("latencies_s")
        return ServedQueries(
            issued_s, latencies_s, found, [ServedBatch(*batch) for batch in answer["batches"]]
        )


def _leave(path: str) -> None:
    """Connect to the server at ``path`` and leave at once; nothing if it listens no more."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)


def _start(queries: Queries, path: str) -> subprocess.Popen[str]:
    """A load generator that connects to the server at ``path``."""
    settings = {
        "socket": path,
        "scenario": queries.scenario,
        "queries": queries.count,
        "qps": queries.qps,
        "samples": queries.samples,
        "bound_s": queries.bound_s,
        "percentile": queries.percentile,
        "seed": queries.seed,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "bricks.measure.load_generator"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,  # Ctrl-C is for the parent alone
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(settings))
    process.stdin.close()
    process.stdin = None
    return process
