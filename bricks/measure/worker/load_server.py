"""A server of one load generator: a queue, batches, and instances that run them.

Samples arrive over a Unix socket, each as a number of eight bytes; the server returns the number
when the sample is served. Must not know when samples arrive, nor which model a batch runs.
"""

from __future__ import annotations

import gc
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bricks.errors import WorkerError
from bricks.measure.protocol.request import Announce
from bricks.measure.protocol.serving import ServedBatch
from bricks.units.sample import Sample

# The number of a sample on the socket.
NUMBER = struct.Struct("=Q")

# Seconds until a load generator has connected: it imports its library first.
_CONNECT_S = 60.0
# Seconds between announcements while the load generator has not connected.
_AWAITED_S = 0.5
# Seconds between announcements that the server still lives.
_ANNOUNCE_S = 2.0
_RECEIVED_BYTES = 1 << 16

# Runs a batch once; its latency in seconds.
Run = Callable[[], float]


class LoadServer:
    """Serves one load generator after the other; calls ``announce`` to show that it lives."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce

    def serve(
        self, path: str, instances: list[dict[int, Run]], max_batch: int, wait_s: float
    ) -> list[ServedBatch]:
        """Serve the client that connects to a Unix socket at ``path``, until it leaves.

        Each of ``instances`` maps the size of a batch to a function that runs it. A batch runs when
        it has ``max_batch`` samples, or its first sample has waited for ``wait_s`` seconds.
        """
        connection: socket.socket | None = None
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(path)
            try:
                listening.listen(1)
                listening.settimeout(_AWAITED_S)
                until_s = time.monotonic() + _CONNECT_S
                while connection is None and time.monotonic() < until_s:
                    self._announce(0)  # the server lives
                    with suppress(TimeoutError):
                        connection = listening.accept()[0]
            finally:
                Path(path).unlink(missing_ok=True)
        if connection is None:
            raise WorkerError("no load generator has connected")
        with connection:
            connection.settimeout(None)
            server = _Connection(connection, instances, max_batch, wait_s)
            gc.disable()
            try:
                return server.serve(self._announce)
            finally:
                gc.enable()

    def serve_passes(
        self, path: str, one_pass: Callable[[], list[Sample]]
    ) -> tuple[list[list[Sample]], list[float]]:
        """Run a pass for each query that arrives at ``path``.

        Returns the samples of each pass, and the idle seconds before each pass.
        """
        passes: list[list[Sample]] = []

        def run() -> float:
            passes.append(one_pass())
            return sum(sample.host_s for sample in passes[-1])

        batches = self.serve(path, [{1: run}], 1, 0.0)
        return passes, [batch.idle_s for batch in batches]


class _Connection:
    """One connection's queue and instances."""

    def __init__(
        self,
        connection: socket.socket,
        instances: list[dict[int, Run]],
        max_batch: int,
        timeout_s: float,
    ) -> None:
        self._connection, self._instances = connection, instances
        self._max_batch, self._timeout_s = max_batch, timeout_s
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._ended = False
        self._failure: BaseException | None = None
        self._batches: dict[int, ServedBatch] = {}  # by number, in order of dequeuing
        self._dequeued = 0

    def serve(self, announce: Announce) -> list[ServedBatch]:
        threads = [
            threading.Thread(target=self._instance, args=(runs,), daemon=True)
            for runs in self._instances
        ]
        for thread in threads:
            thread.start()
        self._receive(announce)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise WorkerError(f"a batch failed: {self._failure}") from self._failure
        return [batch for _, batch in sorted(self._batches.items())]

    def _receive(self, announce: Announce) -> None:
        rest, announced_s = b"", time.monotonic()
        while data := self._connection.recv(_RECEIVED_BYTES):
            now_s = time.perf_counter()
            data = rest + data
            whole = len(data) - len(data) % NUMBER.size
            rest = data[whole:]
            arrived = [(now_s, data[at : at + NUMBER.size]) for at in range(0, whole, NUMBER.size)]
            with self._changed:
                self._waiting.extend(arrived)
                self._changed.notify_all()
            if time.monotonic() - announced_s > _ANNOUNCE_S:
                announced_s = time.monotonic()
                announce(len(self._batches))

    def _instance(self, runs: dict[int, Run]) -> None:
        try:
            free_s = time.perf_counter()
            while batch := self._dequeue():
                number, due_s, samples = batch
                run_s = runs[len(samples)]()
                with self._sending:
                    self._connection.sendall(b"".join(sample for _, sample in samples))
                # Dequeuing a batch delays the instance too.
                idle_s = max(0.0, due_s - free_s)
                begun_s, free_s = free_s + idle_s, time.perf_counter()
                here_s = tuple(free_s - arrived_s for arrived_s, _ in samples)
                self._batches[number] = ServedBatch(
                    len(samples), run_s, free_s - begun_s, idle_s, here_s
                )
        except BaseException as failure:  # raised where the threads are joined
            self._failure = failure
            with self._changed:
                self._ended = True
            self._connection.shutdown(socket.SHUT_RDWR)  # so that nobody waits for answers

    def _dequeue(self) -> tuple[int, float, list[tuple[float, bytes]]] | None:
        """The next batch: its number, when a free instance was due to run it, and its samples.

        None after the client has left.
        """
        with self._changed:
            while True:
                while not self._waiting and not self._ended:
                    self._changed.wait()
                if self._ended:
                    return None
                due_s = self._waiting[0][0] + self._timeout_s
                left_s = due_s - time.perf_counter()
                if len(self._waiting) >= self._max_batch or left_s <= 0:
                    break
                self._changed.wait(left_s)
            count = min(self._max_batch, len(self._waiting))
            samples = [self._waiting.popleft() for _ in range(count)]
            last_s = samples[-1][0] if count == self._max_batch else due_s
            self._dequeued += 1
            return self._dequeued, min(due_s, last_s), samples
