"""ONNX Runtime on CPU.

All sessions share one global thread pool and one arena, as all nodes of a whole model do; sessions
with pools of their own spin against each other (microsoft/onnxruntime #17011). Weights come from
the pool of synthetic numbers as OrtValues: nothing is serialised, and no weight file has to exist.
A session copies its weights, so each session has its own, as uncached as a model's. The large
arrays that a session copies from share one block of memory. Must not know plans or the store.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from bricks.backends.base import Binding, Profiler, SizeLoader, StandaloneLoader, TextGenerator
from bricks.backends.onnxruntime.graphs import OnnxRuntimeGraphs
from bricks.backends.onnxruntime.loaded import (
    BoundSession,
    GeneratingSession,
    LoadedSession,
    ProfiledSession,
    StandaloneSession,
    profiling,
    write_standalone,
)
from bricks.backends.onnxruntime.oldest import OLDEST
from bricks.backends.onnxruntime.optimized import save_optimized
from bricks.backends.onnxruntime.sessions import (
    ALL,
    create_parallel_session,
    create_session,
    default_options,
)
from bricks.errors import BackendError
from bricks.graph.decoder import Decoder
from bricks.graph.view import graph_of, without_shapes
from bricks.operators.dependence import data_decides

# The runtime's code for an arena that grows by the requested sizes.
_AS_REQUESTED = 1


class OnnxRuntimeBackend(OnnxRuntimeGraphs, Profiler, StandaloneLoader, SizeLoader, TextGenerator):
    """ONNX Runtime's CPU execution provider with a fixed number of threads.

    The calling thread is one of the pool that runs nodes in parallel, and only waits.
    """

    # Creating a session mostly copies weights; meanwhile each session holds its weights twice.
    loaders = 2

    def __init__(
        self, *, threads: int, seed: int, workers: int = 1, optimization: str = ALL
    ) -> None:
        if not hasattr(ort, "set_global_thread_pool_sizes"):
            raise BackendError(
                f"onnxruntime {ort.__version__} is too old, its sessions cannot share a pool of"
                f" threads of a given size: install {OLDEST} or newer"
            )
        super().__init__(seed, optimization)
        ort.set_default_logger_severity(4)
        ort.set_global_thread_pool_sizes(threads, workers + 1 if workers > 1 else 1)
        memory = ort.OrtMemoryInfo(
            "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
        )
        # By default the arena grows to powers of two, up to twice the memory that is needed.
        arena = ort.OrtArenaCfg({"arena_extend_strategy": _AS_REQUESTED})
        ort.create_and_register_allocator(memory, arena)

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> LoadedSession:
        """A session with synthetic weights and inputs."""
        options = self.options(optimize=optimize and not streams)
        return self._loaded(proto, key, options, streams)[0]

    def profiled(
        self, proto: onnx.ModelProto, *, key: str, streams: Sequence[int] = ()
    ) -> ProfiledSession:
        """A session like that of :meth:`load` which records when it runs each node."""
        folder = tempfile.TemporaryDirectory(prefix="bricks-")
        options = profiling(self.options(optimize=not streams), folder.name)
        loaded, names = self._loaded(proto, key, options, streams)
        return ProfiledSession(loaded, folder, names)

    def standalone(
        self, proto: onnx.ModelProto, *, key: str, folder: Path, inline: bool = False
    ) -> StandaloneSession:
        """A model and its weights in ``folder``; its session will have an arena of its own."""
        weights, inputs = self.data.of(proto, key, share=True)
        path = write_standalone(proto, weights, folder, inline=inline)
        return StandaloneSession(path, inputs, self.level)

    def load_sizes(
        self, opened: onnx.ModelProto, sizes: Sequence[onnx.ModelProto], *, key: str
    ) -> list[BoundSession]:
        """A session with an arena of its own, which grows with the sizes that it meets."""
        weights, _ = self.data.of(sizes[0], key, share=True)
        session = create_session(without_shapes(opened), weights, default_options(self.level))
        nowhere = np.zeros(0, np.uint8)
        separate = Binding.separate(len(session.get_inputs()), len(session.get_outputs()))
        return [
            LoadedSession(session, weights, self.data.of(size, key)[1]).bind(separate, nowhere)
            for size in sizes
        ]

    def load_decoder(self, proto: onnx.ModelProto, decoder: Decoder) -> GeneratingSession:
        """A session for any number of tokens."""
        weights, _ = self.data.of(proto, decoder.name, share=True)
        session = create_session(
            decoder.with_open_dims(proto), weights, self.options(optimize=True)
        )
        return GeneratingSession(session, decoder, graph_of(proto).types, weights)

    def _loaded(
        self, proto: onnx.ModelProto, key: str, options: ort.SessionOptions, streams: Sequence[int]
    ) -> tuple[LoadedSession, Sequence[str]]:
        """A session with synthetic weights and inputs, and the original names of its nodes.

        The names are empty unless nodes were renamed to their positions for the streams.
        """
        # Values that decide latencies have the same scale as in the run that observed them.
        share = not data_decides(proto)
        weights, inputs = self.data.of(proto, key, share=share)
        if not streams:
            session = create_session(without_shapes(proto), weights, options)
            return LoadedSession(session, weights, inputs), ()
        executed, _ = save_optimized(proto, self.surrogates, self.level)
        weights = self.weights_of(executed, proto, weights, key)
        session = create_parallel_session(without_shapes(executed), weights, streams, options)
        names = [node.name for node in executed.graph.node]
        return LoadedSession(session, weights, inputs), names
