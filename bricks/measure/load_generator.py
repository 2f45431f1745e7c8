"""A process that sends queries to a served model as MLPerf LoadGen schedules them.

``python -m bricks.measure.load_generator`` reads settings as JSON from standard input, connects to
the server, and prints LoadGen's results as JSON. It is a process of its own, because LoadGen logs
into files, and its work must not delay the server's interpreter. Without LoadGen, it sends queries
at random times by itself. Must not know models.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bricks.measure.worker.load_server import NUMBER

# The scenario that needs no LoadGen: single samples at the times of a Poisson process.
POISSON = "Poisson"

# Samples that LoadGen chooses from: all are equal here.
_SAMPLES = 1024
# A result of LoadGen's detailed log.
_RESULT = re.compile(r'"key": "(result_\w[^"]*)", "value": ("[^"]*"|[^,]+),')


@dataclass(frozen=True, slots=True)
class Queries:
    """A series of ``count`` queries of a ``scenario`` in LoadGen's spelling, or ``POISSON``.

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


def main() -> None:
    """Run one test."""
    settings = json.load(sys.stdin)
    path, queries = settings.pop("socket"), Queries(**settings)
    send = send_at_random if queries.scenario == POISSON else run
    print(json.dumps(send(path, queries), allow_nan=False))


def send_at_random(path: str, queries: Queries) -> dict[str, Any]:
    """Send ``queries`` at random times to the server at ``path``; their times in seconds."""
    rng, numbers = random.Random(queries.seed), range(queries.count)
    answered = threading.Semaphore(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        client = _Client(connection, lambda served: answered.release(len(served)))
        receiver = client.receiving()
        due_s = time.perf_counter()
        for number in numbers:
            due_s += rng.expovariate(queries.qps)
            time.sleep(max(0.0, due_s - time.perf_counter()))
            client.send([number])
        for _ in numbers:
            answered.acquire()
        connection.shutdown(socket.SHUT_WR)
        receiver.join()
    return client.seconds()


def run(path: str, queries: Queries) -> dict[str, Any]:
    """Have LoadGen send ``queries`` to the server at ``path``.

    Returns its results under its own names, with ``issued_s`` and ``latencies_s`` of each query.
    """
    import mlperf_loadgen as loadgen

    test = loadgen.TestSettings()
    test.scenario = getattr(loadgen.TestScenario, queries.scenario)
    test.mode = loadgen.TestMode.PerformanceOnly
    test.min_duration_ms = 0
    test.min_query_count = test.max_query_count = queries.count
    test.schedule_rng_seed = test.sample_index_rng_seed = test.qsl_rng_seed = queries.seed
    test.server_target_qps = test.offline_expected_qps = queries.qps
    test.server_target_latency_ns = int(1e9 * queries.bound_s)
    test.server_target_latency_percentile = queries.percentile / 100
    test.single_stream_target_latency_percentile = queries.percentile / 100
    test.multi_stream_target_latency_percentile = queries.percentile / 100
    test.multi_stream_samples_per_query = queries.samples
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        response = loadgen.QuerySampleResponse
        client = _Client(
            connection,
            lambda numbers: loadgen.QuerySamplesComplete([response(n, 0, 0) for n in numbers]),
        )
        receiver = client.receiving()
        system = loadgen.ConstructSUT(client.issue, lambda: None)
        library = loadgen.ConstructQSL(_SAMPLES, _SAMPLES, lambda _: None, lambda _: None)
        with tempfile.TemporaryDirectory() as folder:
            log = loadgen.LogSettings()
            log.enable_trace = False
            log.log_output.outdir = folder
            log.log_output.copy_summary_to_stdout = False
            loadgen.StartTestWithLogSettings(system, library, test, log)
            detail = (Path(folder) / "mlperf_log_detail.txt").read_text(encoding="utf-8")
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(system)
        connection.shutdown(socket.SHUT_WR)
        receiver.join()
    results = {key: json.loads(value) for key, value in _RESULT.findall(detail)}
    return {**results, **client.seconds()}


class _Client:
    """Sends samples, and passes the numbers of served samples to ``served``."""

    def __init__(self, connection: socket.socket, served: Callable[[list[int]], object]) -> None:
        self._connection, self._served = connection, served
        self._queries: list[tuple[float, list[int]]] = []
        self._served_s: dict[int, float] = {}

    def issue(self, samples: Any) -> None:
        """Send the samples of one of LoadGen's queries."""
        self.send([sample.id for sample in samples])

    def receiving(self) -> threading.Thread:
        """A thread that receives answers until the server leaves."""
        thread = threading.Thread(target=self.receive, daemon=True)
        thread.start()
        return thread

    def send(self, numbers: list[int]) -> None:
        self._queries.append((time.perf_counter(), numbers))
        self._connection.sendall(b"".join(map(NUMBER.pack, numbers)))

    def receive(self) -> None:
        """Receive numbers of served samples, until the server leaves."""
        rest = b""
        while data := self._connection.recv(1 << 16):
            data = rest + data
            whole = len(data) - len(data) % NUMBER.size
            rest, now_s = data[whole:], time.perf_counter()
            numbers = [number for (number,) in NUMBER.iter_unpack(data[:whole])]
            self._served_s |= dict.fromkeys(numbers, now_s)
            self._served(numbers)
        if len(self._served_s) < sum(len(numbers) for _, numbers in self._queries):
            # LoadGen would wait forever for the missing samples.
            print("the server left before it had answered all", file=sys.stderr, flush=True)
            os._exit(1)

    def seconds(self) -> dict[str, list[float]]:
        """Seconds from the first query to each query, and seconds of each."""
        if not self._queries:
            return {"issued_s": [], "latencies_s": []}
        first_s = self._queries[0][0]
        return {
            "issued_s": [round(issued_s - first_s, 7) for issued_s, _ in self._queries],
            "latencies_s": [
                round(max(self._served_s[n] for n in numbers) - issued_s, 7)
                for issued_s, numbers in self._queries
            ],
        }


if __name__ == "__main__":
    main()
