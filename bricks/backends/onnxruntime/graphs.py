"""Graphs as ONNX Runtime executes them, with their weights, types and values.

Must not know how sessions are timed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnx

from bricks.backends.base import Evaluator, ExecutedGraph, ValueObserver, WeightObserver
from bricks.backends.onnxruntime.inplace import in_place_values
from bricks.backends.onnxruntime.misinferred import corrected_types
from bricks.backends.onnxruntime.optimized import (
    inferred_types,
    save_optimized,
    save_with_weights,
)
from bricks.backends.onnxruntime.rewriting import rewritten_bytes
from bricks.backends.onnxruntime.sessions import NONE, create_session, session_options
from bricks.backends.onnxruntime.surrogate_weights import SurrogateWeights
from bricks.backends.onnxruntime.synthetic_data import SyntheticData
from bricks.backends.onnxruntime.values import run, translated, type_of_value
from bricks.backends.synthetic_data import OBSERVED
from bricks.graph.payload import is_referenced, read_inline
from bricks.graph.sketch import SIGNS
from bricks.graph.synthesis import Pool
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of, upstream, without_values

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime as ort

    from bricks.graph.containers import ValueType

# On values of random signs, PRelu takes five times as long as on positive values.
_BRANCHING = frozenset(("PRelu", "Shrink"))


class OnnxRuntimeGraphs(Evaluator, ValueObserver, WeightObserver):
    """ONNX Runtime, optimising graphs at a ``level``, with synthetic data of a ``seed``."""

    def __init__(self, seed: int, level: str) -> None:
        pool = Pool(seed)
        self.level = level
        self.surrogates = SurrogateWeights(pool)
        self.data = SyntheticData(pool)

    def sign_sensitive(self, operator: str) -> bool:
        """True for operators whose loop contains a branch that is not vectorised."""
        return operator in _BRANCHING

    def branching_on(self, operator: str) -> Collection[str]:
        """The signs, for the same operators."""
        return (SIGNS,) if operator in _BRANCHING else ()

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """The graph after all optimisations; no weight is read or written to disk."""
        optimized, refused = save_optimized(proto, self.surrogates, self.level)
        names = ", ".join(map(repr, refused))
        notes = [f"the runtime refuses the shapes of inputs {names}: it is not told them"]
        return replace(
            self._executed(optimized),
            notes=notes if refused else (),
            rewritten_bytes=0 if self.level == NONE else rewritten_bytes(graph_of(proto)),
        )

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[ExecutedGraph, Mapping[str, np.ndarray]]:
        """The executed graph together with its weights, for checking that bricks are exact."""
        optimized, arrays = save_with_weights(proto, weights, self.level)
        return self._executed(optimized), arrays

    def executed_weights(self, proto: onnx.ModelProto, *, key: str) -> dict[str, np.ndarray]:
        """The weights of the executed graph, made of the synthetic weights of :meth:`load`."""
        optimized, arrays = save_with_weights(proto, self.data.of(proto, key)[0], self.level)
        small = (t for t in optimized.graph.initializer if not is_referenced(t))
        numbers = (t for t in small if t.data_type != onnx.TensorProto.STRING)
        return {**arrays, **{t.name: read_inline(t) for t in numbers}}

    def weights_of(
        self,
        executed: onnx.ModelProto,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        key: str,
    ) -> dict[str, np.ndarray]:
        """Weights for the graph ``executed``, optimised from ``proto`` with ``weights``.

        Integers, which may be steering values, keep the values that the optimised graph has for
        them, original or folded.
        """
        arrays, _ = self.data.of(executed, key, share=True)
        steering = [name for name, type_ in without_values(executed).items() if not type_.floating]
        arrays.update((name, weights[name]) for name in steering if name in weights)
        outputs = {name for node in proto.graph.node for name in node.output}
        folded = [name for name in steering if name in outputs]
        arrays.update((name, value) for name, (value, _) in self._observed(proto, folded))
        return arrays

    def types(self, proto: onnx.ModelProto) -> tuple[dict[str, ValueType], list[str]]:
        """Every value's type, inferred by the runtime or observed in one run."""
        types, open_values = inferred_types(proto, self.surrogates)
        types.update(corrected_types(proto, graph_of(proto, types), types))
        types.update((name, type_) for name, (_, type_) in self._observed(proto, open_values))
        return types, open_values

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> dict[str, list[float]]:
        """The contents of small values in one run on synthetic data."""
        return {name: value.ravel().tolist() for name, (value, _) in self._observed(proto, names)}

    def observe(
        self,
        proto: onnx.ModelProto,
        names: Sequence[str],
        *,
        key: str,
        turning: Collection[str] = (),
        turns: Iterable[int] = (0,),
    ) -> Iterator[dict[str, np.ndarray]]:
        """Tensors in runs on synthetic data."""
        for values in self._runs(proto, names, key, turning, turns):
            yield {n: value for n, (value, type_) in values if isinstance(type_, TensorType)}

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
        *,
        optimize: bool,
    ) -> Sequence[Any]:
        """One run with given weights and inputs."""
        session = create_session(proto, weights, self.options(optimize=optimize))
        with translated("running the model"):
            results = run(session, feeds)
        return [results[output.name] for output in proto.graph.output]

    def options(self, *, optimize: bool) -> ort.SessionOptions:
        """Options of a session that optimises its graph at the level of this runtime, or not."""
        return session_options(self.level if optimize else NONE)

    def _executed(self, optimized: onnx.ModelProto) -> ExecutedGraph:
        types, observed = self.types(optimized)
        in_place = in_place_values(graph_of(optimized, types))
        return ExecutedGraph(optimized, types, in_place, observed)

    def _observed(
        self, proto: onnx.ModelProto, names: Sequence[str], key: str = OBSERVED
    ) -> Iterator[tuple[str, tuple[Any, ValueType]]]:
        """The values called ``names``, and their types, in one run of ``proto`` on synthetic data.

        Only the nodes that they depend on run. ``key`` determines the data.
        """
        return next(self._runs(proto, names, key))

    def _runs(
        self,
        proto: onnx.ModelProto,
        names: Sequence[str],
        key: str,
        turning: Collection[str] = (),
        turns: Iterable[int] = (0,),
    ) -> Iterator[Iterator[tuple[str, tuple[Any, ValueType]]]]:
        """As :meth:`_observed`, in a run for each of ``turns`` of the inputs ``turning``."""
        part = upstream(proto, names)
        weights, inputs = self.data.of(part, key, whole=graph_of(proto))
        session = None
        if part.graph.node:
            session = create_session(part, weights, self.options(optimize=False))
        for turn in turns:
            feeds = {n: make(turn if n in turning else 0) for n, (make, _) in inputs.items()}
            observed = [(n, (feeds[n], inputs[n][1])) for n in names if n in feeds]
            if session is not None:
                with translated("running the model once to learn what depends on data"):
                    results = run(session, feeds)
                for output in session.get_outputs():
                    value = results[output.name]
                    observed.append((output.name, (value, type_of_value(value, output.type))))
            yield iter(observed)
