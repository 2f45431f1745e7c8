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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bricks.closing import Closing
from bricks.decompose.plan import Decomposition
from bricks.errors import UsageError, WorkerError
from bricks.graph.model import Model
from bricks.measure.conditions import Conditions
from bricks.measure.load_generator import POISSON, Queries
from bricks.measure.protocol.serving import LoadServed, Serve, ServedBatch
from bricks.measure.sampler import Sampler
from bricks.measure.supervisor import Supervisor
from bricks.measure.walk_builder import WalkOptions, walk_of
from bricks.measure.walk_samples import WalkSamples

# Making a session may take this long; a server that says nothing for so long hangs.
_LOAD_TIMEOUT_S, _SILENT_S = 300.0, 300.0

_MODULE = "mlperf_loadgen"
_WALK = "served"

Answer = TypeVar("Answer")

# Seconds by brick, one for each pass.
Samples = Mapping[str, Sequence[float]]

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
class Batching:
    """How the server joins samples; see :class:`bricks.studies.serving.scenario.Serving`."""

    max_batch: int
    timeout_s: float
    instances: int


@dataclass(frozen=True, slots=True)
class ServedQueries:
    """A series of real queries.

    ``issued_s`` and ``latencies_s`` are those of each query, as the client has seen them, in
    seconds; ``summary`` is LoadGen's own, under its names; ``batches`` those that were run, in the
    order in which samples arrived.
    """

    issued_s: Sequence[float] = field(repr=False)
    latencies_s: Sequence[float] = field(repr=False)
    summary: Mapping[str, Any]
    batches: Sequence[ServedBatch] = field(repr=False)


class ServedModel(Closing):
    """Instances of a model in a worker, loaded for each size of a batch; a context manager."""

    def __init__(self, worker: Supervisor, batching: Batching) -> None:
        self._worker, self._batching = worker, batching
        self._folder = tempfile.TemporaryDirectory(prefix="bricks-served-")

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
        self._folder.cleanup()

    def load(self, models: Mapping[int, Model]) -> None:
        """Load ``models`` by the size of their batch, once for each instance."""
        skeletons = tuple((size, model.skeleton) for size, model in models.items())
        request = LoadServed(skeletons, self._batching.instances)
        self._worker.ask(request, timeout_s=_LOAD_TIMEOUT_S)

    def serve(self, queries: Queries, *, stand_in_s: Sequence[float] = ()) -> ServedQueries:
        """Serve ``queries``; memory is read in place of running a model for ``stand_in_s``.

        These are the seconds of a batch of each size, from one sample on; empty: the model is run.
        Raises :class:`~bricks.errors.WorkerError` if the server or the load generator fails.
        """
        path, batching = str(Path(self._folder.name) / "socket"), self._batching
        request = Serve(
            path, batching.max_batch, batching.timeout_s, batching.instances, tuple(stand_in_s)
        )
        batches, found = drive(
            queries,
            path,
            lambda ready: self._worker.ask(request, timeout_s=_SILENT_S, on_step=ready),
        )
        issued_s, latencies_s = found.pop("issued_s"), found.pop("latencies_s")
        return ServedQueries(issued_s, latencies_s, found, batches)


class ServedWalk:
    """The bricks of a model in the place of the model that a server runs.

    So they meet pauses, threads and sockets as it would. They are loaded, and have run once.
    """

    def __init__(
        self, worker: Supervisor, decomposition: Decomposition, conditions: Conditions
    ) -> None:
        plan = decomposition.plan
        walk = walk_of(
            decomposition,
            plan.keys,
            WalkOptions(
                optimize=plan.granularity != "executed",
                max_eviction_bytes=conditions.max_eviction_bytes,
            ),
        )
        self._sampler = Sampler(worker, {_WALK: walk}, timeout_s=conditions.timeout_s)
        self._sampler.prepare()
        self._sampler.walk(_WALK, 1)  # a brick that does not run is left out from now on

    @property
    def places(self) -> Counter[str]:
        """At how many occurrences each brick is timed in a pass."""
        return Counter(step.key for step in self._sampler.steps(_WALK) if step.timed)

    def passes(self, qps: float, count: int, seed: int) -> tuple[Sequence[float], Samples]:
        """``count`` passes that are asked for at random times, ``qps`` a second.

        The idle seconds before each, and seconds of each brick, the mean of those in a pass. Raises
        :class:`~bricks.errors.WorkerError` if the server or whoever asks fails.
        """
        with tempfile.TemporaryDirectory(prefix="bricks-served-") as folder:
            path = str(Path(folder) / "socket")
            queries = Queries(POISSON, count, qps, seed=seed)
            (taken, idle_s), _ = drive(
                queries, path, lambda ready: self._sampler.served(_WALK, path, ready)
            )
        return idle_s, _host_s(taken)

    def looped(self, count: int) -> Samples:
        """``count`` passes one after another, without a server: seconds of each brick."""
        return _host_s(self._sampler.walk(_WALK, count))


def _host_s(taken: WalkSamples) -> Samples:
    return {key: [sample.host_s for sample in of] for key, of in taken.samples.items()}


def drive(
    queries: Queries, path: str, serve: Callable[[Callable[[int], None]], Answer]
) -> tuple[Answer, dict[str, Any]]:
    """What ``serve`` returns and what the load generator found that asked at ``path`` meanwhile.

    ``serve`` calls what it gets as long as it awaits the load generator.
    """
    asking: list[subprocess.Popen[str]] = []

    def ready(_: int) -> None:
        if not asking:
            asking.append(_start(queries, path))
        elif asking[0].poll() is not None:
            _leave(path)  # in its place, so that the server waits for nobody

    try:
        answer = serve(ready)
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
    found: dict[str, Any] = json.loads(out)
    return answer, found


def _leave(path: str) -> None:
    """Connect to the server at ``path`` and leave at once; nothing if it listens no more."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)


def _start(queries: Queries, path: str) -> subprocess.Popen[str]:
    """A load generator that connects to the server at ``path``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bricks.measure.load_generator"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,  # Ctrl-C is for the parent alone
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps({"socket": path, **asdict(queries)}))
    process.stdin.close()
    process.stdin = None
    return process
