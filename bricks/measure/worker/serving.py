"""Handles requests to serve models and to generate text.

Loads instances, and serves a load generator with them; a decoder is loaded for any number of
tokens. Must not know when samples arrive, nor any prediction.
"""

from __future__ import annotations

import gc
import time

import numpy as np

from bricks.backends.base import Binding, LoadedDecoder, TextGenerator
from bricks.errors import WorkerError
from bricks.graph.view import parse_model
from bricks.measure.protocol.request import Announce
from bricks.measure.protocol.serving import (
    GenerateText,
    LoadDecoder,
    LoadServed,
    Serve,
    ServedBatch,
    TextTimes,
)
from bricks.measure.worker.load_server import LoadServer, Run
from bricks.measure.worker.runtime import WorkerRuntime

# Bytes that a stand-in for a model reads: it evicts the server's code as a model does.
_STAND_IN_BYTES = 8 << 20


class ServingRequests:
    """Serves models with the backend of ``runtime``; calls ``announce`` to show that it lives."""

    def __init__(self, runtime: WorkerRuntime, announce: Announce) -> None:
        self._runtime, self._announce = runtime, announce
        self._instances: list[dict[int, Run]] = []

    def load(self, request: LoadServed) -> None:
        """Load the models once for each instance, and run each twice."""
        self._instances = []
        gc.collect()
        for instance in range(request.instances):
            runs: dict[int, Run] = {}
            for size, model in request.models:
                runs[size] = self._loaded(size, model)
                self._announce(instance)
            self._instances.append(runs)

    def _loaded(self, size: int, model: bytes) -> Run:
        """A function that runs a batch, after two runs to warm up."""
        proto = parse_model(model)
        loaded = self._runtime.backend.load(proto, key=f"served-{size}", optimize=True)
        own = Binding((None,) * len(proto.graph.input), (None,) * len(proto.graph.output))
        bound = loaded.bind(own, np.zeros(0, np.uint8))

        def run() -> float:
            return bound.sample().host_s

        for _ in range(2):
            run()
        return run

    def serve(self, request: Serve) -> tuple[ServedBatch, ...]:
        """Serve until the load generator leaves."""
        runs = self._instances
        if request.stand_in_s:
            sizes = range(1, request.max_batch + 1)
            runs = [
                {
                    size: _stand_in(seconds)
                    for size, seconds in zip(sizes, request.stand_in_s, strict=True)
                }
                for _ in range(request.instances)
            ]
        if len(runs) != request.instances:
            raise WorkerError(
                f"{len(runs)} instances are loaded, and {request.instances} are to serve"
            )
        server = LoadServer(self._announce)
        return tuple(server.serve(request.path, runs, request.max_batch, request.wait_s))


def _stand_in(least_s: float) -> Run:
    """Reads memory in place of a model, for ``least_s`` seconds or a little longer."""
    data = np.ones(_STAND_IN_BYTES // 8)

    def run() -> float:
        began_s, elapsed_s = time.perf_counter(), 0.0
        while not elapsed_s or elapsed_s < least_s:
            data.sum()
            elapsed_s = time.perf_counter() - began_s
        return elapsed_s

    return run


class GenerationRequests:
    """Generates text with a decoder that the backend of ``runtime`` loads."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime
        self._generating: LoadedDecoder | None = None

    def load(self, request: LoadDecoder) -> None:
        """Load a decoder; the one before is dropped."""
        generator = self._runtime.capable(TextGenerator)
        self._generating = None
        self._generating = generator.load_decoder(parse_model(request.model), request.decoder)

    def generate(self, request: GenerateText) -> TextTimes:
        """Generate a batch of texts; seconds of each step, and between steps."""
        if self._generating is None:
            raise WorkerError("no decoder is loaded")
        steps_s, between_s = self._generating.generate(
            request.batch, request.prompt_tokens, request.new_tokens
        )
        return TextTimes(tuple(steps_s), tuple(between_s))
