"""Requests to serve models: a queue, batches, and instances that run them, for a load generator.

Samples arrive over a Unix socket, each as a number of eight bytes; the number comes back when the
sample is served. Must not know when samples arrive, nor what is predicted.
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
from typing import Any

import numpy as np

from bricks.backends.base import Backend, Placement
from bricks.errors import WorkerError
from bricks.graph.view import parse_model
from bricks.measure.protocol import unpack

Facts = dict[str, Any]

# The number of a sample on the socket.
NUMBER = struct.Struct("=Q")

# Seconds until a load generator has connected: it imports its library first.
_CONNECT_S = 60.0
# Seconds between announcements that it is awaited.
_AWAITED_S = 0.5
# Seconds between announcements that the server still lives.
_ANNOUNCE_S = 2.0
_RECEIVED_BYTES = 1 << 16

# Runs one after another that are timed after a long pause.
_WAKING_RUNS = 6
# A processor that was busy for so many seconds is awake.
_AWAKE_S = 0.05

# Runs a batch once; its latency in seconds.
Run = Callable[[], float]


# A stand-in for a model reads so much: what the server runs is as cold after it as after a model.
_STAND_IN_BYTES = 8 << 20


def _stand_in() -> Run:
    """Reads memory in place of a model: what the server takes besides is its own."""
    data = np.ones(_STAND_IN_BYTES // 8)

    def run() -> float:
        began_s = time.perf_counter()
        data.sum()
        return time.perf_counter() - began_s

    return run


class ServingRequests:
    """Answers requests with what ``backend`` loads; ``say`` tells that the server lives."""

    def __init__(self, backend: Callable[[], Backend], say: Callable[[Facts], None]) -> None:
        self._backend, self._say = backend, say
        self._instances: list[dict[int, Run]] = []

    def do_load_served(self, models: list[tuple[int, str]], instances: int) -> Facts:
        """Load the model of each batch size once for each instance, and run each twice."""
        self._instances = []
        gc.collect()
        for instance in range(instances):
            runs: dict[int, Run] = {}
            for size, model in models:
                proto = parse_model(unpack(model))
                loaded = self._backend().load(proto, key=f"served-{size}", optimize=True)
                own = Placement((None,) * len(proto.graph.input), (None,) * len(proto.graph.output))
                runs[size] = loaded.place(own, np.zeros(0, np.uint8)).sample
                for _ in range(2):
                    runs[size]()
                self._say({"at": instance})
            self._instances.append(runs)
        return {}

    def do_time_after_pauses(
        self, size: int, long_s: float, pauses_s: list[float], repeats: int
    ) -> Facts:
        """Seconds of batches of a size: ``waking`` of several after a long pause, by repetition.

        ``paused`` of one after each of ``pauses_s``, before which the processor was busy.
        """
        run = self._instances[0][size]
        waking, paused = [], [list[float]() for _ in pauses_s]
        for number in range(repeats):
            self._say({"at": number})
            time.sleep(long_s)
            waking.append([run() for _ in range(_WAKING_RUNS)])
            for pause_s, taken in zip(pauses_s, paused, strict=True):
                awake_s = time.monotonic() + _AWAKE_S
                while time.monotonic() < awake_s:
                    run()
                time.sleep(pause_s)
                taken.append(run())
        return {"waking": waking, "paused": paused}

    def do_serve(
        self, path: str, max_batch: int, wait_s: float, instances: int, empty: bool
    ) -> Facts:
        """Serve until the load generator leaves; all batches as [size, run_s, occupied_s].

        Listens on a Unix socket at ``path``, and says so. With ``empty`` no model is run,
        but memory is read in its place.
        """
        if empty:
            runs = [dict.fromkeys(range(1, max_batch + 1), _stand_in()) for _ in range(instances)]
        else:
            runs = self._instances
        if len(runs) != instances:
            raise WorkerError(f"{len(runs)} instances are loaded, and {instances} are to serve")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(path)
            try:
                listening.listen(1)
                connection = self._accepted(listening)
            finally:
                Path(path).unlink(missing_ok=True)
        with connection:
            connection.settimeout(None)
            server = _Server(connection, runs, max_batch, wait_s)
            gc.disable()
            try:
                return {"batches": server.serve(self._say)}
            finally:
                gc.enable()

    def _accepted(self, listening: socket.socket) -> socket.socket:
        """The load generator's connection; says meanwhile that it is awaited."""
        listening.settimeout(_AWAITED_S)
        until_s = time.monotonic() + _CONNECT_S
        while time.monotonic() < until_s:
            self._say({"at": 0})
            with suppress(TimeoutError):
                return listening.accept()[0]
        raise WorkerError("no load generator has connected")


class _Server:
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
        self._batches: list[tuple[int, float, float]] = []

    def serve(self, say: Callable[[Facts], None]) -> list[tuple[int, float, float]]:
        """Serve until the other side leaves."""
        threads = [
            threading.Thread(target=self._guarded, args=(runs,), daemon=True)
            for runs in self._instances
        ]
        for thread in threads:
            thread.start()
        self._receive(say)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise WorkerError(f"a batch failed: {self._failure}") from self._failure
        return self._batches

    def _receive(self, say: Callable[[Facts], None]) -> None:
        """Queue what arrives until there is no more."""
        rest, said_s = b"", time.monotonic()
        while data := self._connection.recv(_RECEIVED_BYTES):
            now_s = time.perf_counter()
            data = rest + data
            whole = len(data) - len(data) % NUMBER.size
            rest = data[whole:]
            arrived = [(now_s, data[at : at + NUMBER.size]) for at in range(0, whole, NUMBER.size)]
            with self._changed:
                self._waiting.extend(arrived)
                self._changed.notify_all()
            if time.monotonic() - said_s > _ANNOUNCE_S:
                said_s = time.monotonic()
                say({"at": len(self._batches)})

    def _guarded(self, runs: dict[int, Run]) -> None:
        try:
            self._instance(runs)
        except BaseException as failure:  # told where the threads are joined
            self._failure = failure
            with self._changed:
                self._ended = True
            self._connection.shutdown(socket.SHUT_RDWR)  # so that nobody waits for answers

    def _instance(self, runs: dict[int, Run]) -> None:
        while taken := self._take():
            began_s = time.perf_counter()
            run_s = runs[len(taken)]()
            with self._sending:
                self._connection.sendall(b"".join(taken))
            self._batches.append((len(taken), run_s, time.perf_counter() - began_s))

    def _take(self) -> list[bytes]:
        """The next batch; empty at the end."""
        with self._changed:
            while True:
                while not self._waiting and not self._ended:
                    self._changed.wait()
                if self._ended:
                    return []
                until_s = self._waiting[0][0] + self._timeout_s
                left_s = until_s - time.perf_counter()
                if len(self._waiting) >= self._max_batch or left_s <= 0:
                    break
                self._changed.wait(left_s)
            size = min(self._max_batch, len(self._waiting))
            return [self._waiting.popleft()[1] for _ in range(size)]
