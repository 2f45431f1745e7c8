"""Serves models on this host: a worker with queue and batches gets queries from LoadGen.

Must not know any prediction.
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
from typing import TYPE_CHECKING, Any, TypeVar

from bricks.closing import Closing
from bricks.errors import UsageError, WorkerError
from bricks.measure.load_generator import POISSON, Queries
from bricks.measure.protocol.serving import LoadServed, Serve, ServedBatch
from bricks.measure.sampler import Sampler, WalkSamples
from bricks.measure.walk_builder import WalkOptions, walk_of

if TYPE_CHECKING:
    from bricks.decompose.plan import Decomposition
    from bricks.graph.model import Model
    from bricks.measure.conditions import Conditions
    from bricks.measure.supervisor import Supervisor

# The most seconds for making a session; a server that is silent for longer hangs.
_LOAD_TIMEOUT_S, _SILENT_S = 300.0, 300.0

_MODULE = "mlperf_loadgen"
_WALK = "served"

Answer = TypeVar("Answer")

# Seconds by brick, one for each pass.
Samples = Mapping[str, Sequence[float]]

# Characters of a load generator's error text that are kept.
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
    """How the server batches samples; see :class:`bricks.studies.serving.scenario.Serving`."""

    max_batch: int
    timeout_s: float
    instances: int


@dataclass(frozen=True, slots=True)
class ServedQueries:
    """Results of a series of real queries.

    ``issued_s`` and ``latencies_s`` are of each query, in seconds, as the client measured them.
    ``summary`` has LoadGen's results under its own names. ``batches`` are in order of arrival.
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
        """Serve ``queries``; with ``stand_in_s``, memory is read in place of running a model.

        ``stand_in_s`` has the seconds of a batch of each size, from one sample on. Raises
        :class:`~bricks.errors.WorkerError` if the server or the load generator fails.
        """
        path, batching = str(Path(self._folder.name) / "socket"), self._batching
        request = Serve(
            path, batching.max_batch, batching.timeout_s, batching.instances, tuple(stand_in_s)
        )
        batches, results = drive(
            queries,
            path,
            lambda ready: self._worker.ask(request, timeout_s=_SILENT_S, on_step=ready),
        )
        issued_s, latencies_s = results.pop("issued_s"), results.pop("latencies_s")
        return ServedQueries(issued_s, latencies_s, results, batches)


class ServedWalk:
    """A server that runs the bricks of a model instead of the model.

    So bricks run after the same pauses, threads and sockets as the model. They are loaded, and have
    run once.
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
    def timed_counts(self) -> Counter[str]:
        """The number of occurrences at which each brick is timed in a pass."""
        return Counter(step.key for step in self._sampler.steps(_WALK) if step.timed)

    def passes(self, qps: float, count: int, seed: int) -> tuple[Sequence[float], Samples]:
        """Run ``count`` passes, requested at random times at a rate of ``qps``.

        Returns the idle seconds before each pass, and the mean seconds of each brick in each pass.
        Raises :class:`~bricks.errors.WorkerError` if the server or its client fails.
        """
        with tempfile.TemporaryDirectory(prefix="bricks-served-") as folder:
            path = str(Path(folder) / "socket")
            queries = Queries(POISSON, count, qps, seed=seed)
            (samples, idle_s), _ = drive(
                queries, path, lambda ready: self._sampler.served(_WALK, path, ready)
            )
        return idle_s, _host_s(samples)

    def looped(self, count: int) -> Samples:
        """Run ``count`` passes one after another, without a server; seconds of each brick."""
        return _host_s(self._sampler.walk(_WALK, count))


def _host_s(walk: WalkSamples) -> Samples:
    return {key: [sample.host_s for sample in of_key] for key, of_key in walk.samples.items()}


def drive(
    queries: Queries, path: str, serve: Callable[[Callable[[int], None]], Answer]
) -> tuple[Answer, dict[str, Any]]:
    """Run ``serve`` and a load generator that sends ``queries`` to ``path``; the results of both.

    ``serve`` calls its argument until the load generator has connected.
    """
    generator: list[subprocess.Popen[str]] = []

    def ready(_: int) -> None:
        if not generator:
            process = subprocess.Popen(
                [sys.executable, "-m", "bricks.measure.load_generator"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=True,  # Ctrl-C is for the parent alone
            )  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(json.dumps({"socket": path, **asdict(queries)}))
            process.stdin.close()
            process.stdin = None
            generator.append(process)
        elif generator[0].poll() is not None:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(path)

    try:
        answer = serve(ready)
        out, log = generator[0].communicate(timeout=_SILENT_S)
    except BaseException:
        for process in generator:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10)
        raise
    if generator[0].returncode != 0:
        lines = [line for line in log.strip().splitlines() if line]
        reason = lines[-1][:_MAX_REASON] if lines else f"exit status {generator[0].returncode}"
        raise WorkerError(f"the load generator failed: {reason}")
    results: dict[str, Any] = json.loads(out)
    return answer, results
