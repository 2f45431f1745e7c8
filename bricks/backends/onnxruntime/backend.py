"""ONNX Runtime on CPU.

All sessions share one global thread pool and one arena, as all nodes of a whole model do; sessions
with pools of their own spin against each other (microsoft/onnxruntime #17011). Weights come from
the pool of synthetic numbers as OrtValues: nothing is serialised, and no weight file has to exist.
A session copies its weights, so each session has its own, as uncached as a model's. The large
arrays that a session copies from share one block of memory. Must not know plans or the store.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from bricks.backends.base import (
    Evaluator,
    ExecutedGraph,
    Profiler,
    StandaloneLoader,
    TextGenerator,
    ValueObserver,
    WeightObserver,
)
from bricks.backends.onnxruntime.generating import GeneratingSession
from bricks.backends.onnxruntime.inplace import in_place_values
from bricks.backends.onnxruntime.misinferred import corrected_types
from bricks.backends.onnxruntime.optimized import (
    inferred_types,
    save_optimized,
    save_with_weights,
)
from bricks.backends.onnxruntime.parallel import create_parallel_session
from bricks.backends.onnxruntime.profile import ProfiledSession, profiling
from bricks.backends.onnxruntime.rewriting import rewritten_bytes
from bricks.backends.onnxruntime.sessions import (
    ALL,
    NONE,
    LoadedSession,
    create_session,
    session_options,
)
from bricks.backends.onnxruntime.standalone import StandaloneModel, write_standalone
from bricks.backends.onnxruntime.standins import StandIns
from bricks.backends.onnxruntime.synthetic_data import SyntheticData
from bricks.backends.onnxruntime.values import run, translated, type_found
from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.decoder import Decoder
from bricks.graph.model_metadata import held_values, noted_sketches
from bricks.graph.payload import is_referenced
from bricks.graph.sketch import SIGNS
from bricks.graph.synthesis import Pool
from bricks.graph.tensor import TensorType
from bricks.graph.value_dependence import values_decide
from bricks.graph.view import graph_of, unsure, upstream, without_values

# The first version in which Python can set the size of the global thread pool.
_OLDEST = "1.23"
# The runtime's code for an arena that grows by the requested sizes.
_AS_REQUESTED = 1
# On values of random signs, PRelu takes five times as long as on positive values.
_BRANCHING = frozenset(("PRelu", "Shrink"))


class OnnxRuntimeBackend(
    Evaluator, ValueObserver, WeightObserver, Profiler, StandaloneLoader, TextGenerator
):
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
                f" threads of a given size: install {_OLDEST} or newer"
            )
        ort.set_default_logger_severity(4)
        ort.set_global_thread_pool_sizes(threads, workers + 1 if workers > 1 else 1)
        memory = ort.OrtMemoryInfo(
            "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
        )
        # By default the arena grows to powers of two, up to twice the memory that is needed.
        arena = ort.OrtArenaCfg({"arena_extend_strategy": _AS_REQUESTED})
        ort.create_and_register_allocator(memory, arena)
        self._level = optimization
        pool = Pool(seed)
        self._stand_ins = StandIns(pool)
        self._data = SyntheticData(pool)

    def sign_sensitive(self, operator: str) -> bool:
        """True for operators whose loop contains a branch that is not vectorised."""
        return operator in _BRANCHING

    def branching_on(self, operator: str) -> Collection[str]:
        """The signs, for the same operators."""
        return (SIGNS,) if operator in _BRANCHING else ()

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """The graph after all optimisations; no weight is read or written to disk."""
        optimized, refused = save_optimized(proto, self._stand_ins, self._level)
        listed = ", ".join(map(repr, refused))
        notes = [f"the runtime refuses the shapes of inputs {listed}: it is not told them"]
        return replace(
            self._described(optimized),
            notes=notes if refused else (),
            rewritten_bytes=0 if self._level == NONE else rewritten_bytes(graph_of(proto)),
        )

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[ExecutedGraph, Mapping[str, np.ndarray]]:
        """The executed graph together with its weights, for checking that bricks are exact."""
        optimized, arrays = save_with_weights(proto, weights, self._level)
        return self._described(optimized), arrays

    def executed_weights(self, proto: onnx.ModelProto, *, key: str) -> dict[str, np.ndarray]:
        """The weights of the executed graph, of the synthetic weights that :meth:`load` gives."""
        optimized, arrays = save_with_weights(proto, self._data.of(proto, key)[0], self._level)
        small = (t for t in optimized.graph.initializer if not is_referenced(t))
        return {**arrays, **{t.name: numpy_helper.to_array(t) for t in small}}

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> dict[str, list[float]]:
        """The contents of small values in one run on synthetic data."""
        return {name: value.ravel().tolist() for name, (value, _) in self._observed(proto, names)}

    def observe(
        self, proto: onnx.ModelProto, names: Sequence[str], *, key: str
    ) -> dict[str, np.ndarray]:
        """These tensors in one run on synthetic data."""
        found = self._observed(proto, names, key)
        return {name: value for name, (value, type_) in found if isinstance(type_, TensorType)}

    def load(
        self,
        proto: onnx.ModelProto,
        *,
        key: str,
        optimize: bool,
        streams: Sequence[int] = (),
    ) -> LoadedSession:
        """A session with synthetic weights and inputs."""
        options = self._options(optimize and not streams)
        return self._loaded(proto, key, options, streams)[0]

    def profiled(
        self, proto: onnx.ModelProto, *, key: str, streams: Sequence[int] = ()
    ) -> ProfiledSession:
        """A session like that of :meth:`load` that records when it runs each node."""
        folder = tempfile.TemporaryDirectory(prefix="bricks-")
        options = profiling(self._options(not streams), folder.name)
        loaded, names = self._loaded(proto, key, options, streams)
        return ProfiledSession(loaded, folder, names)

    def standalone(
        self, proto: onnx.ModelProto, *, key: str, folder: Path, inline: bool = False
    ) -> StandaloneModel:
        """A model and its weights in ``folder``; its session will have an arena of its own."""
        weights, inputs = self._data.of(proto, key, share=True)
        path = write_standalone(proto, weights, folder, inline=inline)
        return StandaloneModel(path, inputs, self._level)

    def load_decoder(self, proto: onnx.ModelProto, decoder: Decoder) -> GeneratingSession:
        """A session for any number of tokens."""
        weights, _ = self._data.of(proto, decoder.name, share=True)
        session = create_session(decoder.opened(proto), weights, self._options(True))
        types = graph_of(proto).types
        return GeneratingSession(session, decoder, types, weights)

    def _loaded(
        self,
        proto: onnx.ModelProto,
        key: str,
        options: ort.SessionOptions,
        streams: Sequence[int],
    ) -> tuple[LoadedSession, Sequence[str]]:
        """A session with synthetic weights and inputs, and the original names of its nodes.

        The names are empty unless nodes were renamed to their positions for the streams.
        """
        # Where values decide, they are those of a run that observes them: of the same scale.
        share = not values_decide(proto.graph.node)
        weights, inputs = self._data.of(proto, key, share=share)
        if not streams:
            session = create_session(unsure(proto), weights, options)
            return LoadedSession(
                session, weights, inputs, held_values(proto), noted_sketches(proto)
            ), ()
        executed, _ = save_optimized(proto, self._stand_ins, self._level)
        weights = self._weights_of(executed, proto, weights, key)
        session = create_parallel_session(unsure(executed), weights, streams, options)
        names = [node.name for node in executed.graph.node]
        return LoadedSession(session, weights, inputs), names

    def _options(self, optimize: bool) -> ort.SessionOptions:
        return session_options(self._level if optimize else NONE)

    def _weights_of(
        self,
        executed: onnx.ModelProto,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        key: str,
    ) -> dict[str, np.ndarray]:
        """Weights for the graph that the runtime optimised from ``proto`` with ``weights``.

        Integers, which may be steering values, keep the values that the optimised graph has for
        them, original or folded.
        """
        made, _ = self._data.of(executed, key, share=True)
        steering = [name for name, type_ in without_values(executed).items() if not type_.floating]
        made.update((name, weights[name]) for name in steering if name in weights)
        outputs = {name for node in proto.graph.node for name in node.output}
        folded = [name for name in steering if name in outputs]
        made.update((name, value) for name, (value, _) in self._observed(proto, folded))
        return made

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
        *,
        optimize: bool,
    ) -> Sequence[Any]:
        """One run with given weights and inputs."""
        session = create_session(proto, weights, self._options(optimize))
        with translated("running the model"):
            results = run(session, feeds)
        return [results[output.name] for output in proto.graph.output]

    def types(self, proto: onnx.ModelProto) -> tuple[dict[str, ValueType], list[str]]:
        """Every value's type, inferred by the runtime or observed in one run."""
        types, open_values = inferred_types(proto, self._stand_ins)
        types.update(corrected_types(proto, graph_of(proto, types), types))
        types.update((name, type_) for name, (_, type_) in self._observed(proto, open_values))
        return types, open_values

    def _described(self, optimized: onnx.ModelProto) -> ExecutedGraph:
        types, observed = self.types(optimized)
        in_place = in_place_values(graph_of(optimized, types))
        return ExecutedGraph(optimized, types, in_place, observed)

    def _observed(
        self, proto: onnx.ModelProto, names: Sequence[str], key: str = "observed"
    ) -> Iterator[tuple[str, tuple[Any, ValueType]]]:
        """The values called ``names``, and their types, in one run of ``proto`` on synthetic data.

        Only the nodes that they depend on run. ``key`` determines the data.
        """
        part = upstream(proto, names)
        weights, inputs = self._data.of(part, key, whole=graph_of(proto))
        made = {name: make() for name, (make, _) in inputs.items()}
        types = {name: type_ for name, (_, type_) in inputs.items()}
        yield from ((name, (made[name], types[name])) for name in names if name in made)
        if part.graph.node:
            session = create_session(part, weights, self._options(False))
            with translated("running the model once to learn what depends on data"):
                results = run(session, made)
            for output in session.get_outputs():
                value = results[output.name]
                yield output.name, (value, type_found(value, output.type))
