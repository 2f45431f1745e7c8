"""Graphs as ONNX Runtime executes them, with their weights, types, values and shared memory.

Types: a cache of keys and values holds one more token after a step than before; the runtime infers
that it keeps its size, as in memory that is large enough from the beginning.

Weights: the runtime rewrites some when it fuses nodes, before it reorders or packs them. It folds a
normalisation or a scale into the convolution before it: the new weight stays in memory until the
graph is optimised. Rewritten weights follow from the source graph, not from the executed graph.

Memory: some outputs are computed in place, in the memory of an input. The allocation planner has no
public interface, so the rules of its kernel registrations are repeated here: views never move data
(a Reshape costs nothing inside a model, and a copy outside of it), and some kernels overwrite an
input that has no further readers. A test compares these rules with the memory that the runtime
allocates. A wrong rule changes the location of a brick's output during measurement, never the
result.

Must not know how sessions are timed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from bricks.backends.base import Evaluator, ExecutedGraph, ValueObserver, WeightObserver
from bricks.backends.onnxruntime.optimized import (
    inferred_types,
    save_optimized,
    save_with_weights,
)
from bricks.backends.onnxruntime.sessions import NONE, create_session, session_options
from bricks.backends.onnxruntime.synthetic_data import SurrogateWeights, SyntheticData
from bricks.backends.onnxruntime.values import run, translated, type_of_value
from bricks.backends.synthetic_data import OBSERVED
from bricks.graph.model import Graph
from bricks.graph.model_metadata import known_values
from bricks.graph.payload import is_referenced, read_inline
from bricks.graph.sketch import SIGNS
from bricks.graph.synthesis import Pool
from bricks.graph.topology import captured, default_domain, used_values
from bricks.graph.types import TensorType, ValueType
from bricks.graph.view import graph_of, upstream, without_values
from bricks.operators.integer_ranges import integer_ranges

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


# Inputs and outputs of the runtime's GroupQueryAttention.
_OPERATOR, _PAST, _TOTAL, _PRESENT = "GroupQueryAttention", 3, 6, (1, 2)


def corrected_types(
    proto: onnx.ModelProto, graph: Graph, types: Mapping[str, ValueType]
) -> dict[str, ValueType]:
    """The real types of values of ``graph``, a view of ``proto``, where ``types`` are wrong."""
    corrected: dict[str, ValueType] = {}
    for node in graph.nodes:
        if node.op_type != _OPERATOR or len(node.input) <= _TOTAL:
            continue
        past, total = types.get(node.input[_PAST]), _number(proto, graph, node.input[_TOTAL])
        if not isinstance(past, TensorType) or total is None or total <= past.shape[2]:
            continue
        shape = (*past.shape[:2], total, *past.shape[3:])
        names = (node.output[i] for i in _PRESENT if i < len(node.output) and node.output[i])
        corrected.update((name, TensorType(past.dtype, shape)) for name in names)
    return corrected


def _number(proto: onnx.ModelProto, graph: Graph, name: str) -> int | None:
    """The integer ``name`` in a run; None if it is not known before."""
    fixed: dict[str, Any] = known_values(proto)
    if name in fixed:
        return int(np.ravel(fixed[name])[0])
    tensor = graph.initializers.get(name)
    if tensor is not None and not is_referenced(tensor):
        return int(numpy_helper.to_array(tensor).reshape(-1)[0])
    if name not in graph.inputs:
        return None
    range_ = integer_ranges(graph, [name]).get(name)
    return range_.low if range_ is not None and range_.high - range_.low == 1 else None


def rewritten_bytes(graph: Graph) -> int:
    """Bytes of the weights of ``graph``, a source graph, that fusions rewrite."""
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.nodes:
        for name in used_values(node):
            readers[name].append(node)
    total = 0
    for node in graph.nodes:
        if default_domain(node.domain) or node.op_type not in ("Conv", "ConvTranspose"):
            continue
        weight, result = node.input[1], node.output[0]
        if weight not in graph.initializers or result in graph.outputs:
            continue
        after = readers[result]
        if len(after) == 1 and _folds(after[0], node, graph):
            total += graph.types[weight].size_bytes
    return total


def _folds(after: onnx.NodeProto, node: onnx.NodeProto, graph: Graph) -> bool:
    if default_domain(after.domain):
        return False
    if after.op_type == "BatchNormalization":
        return all(name in graph.initializers for name in after.input[1:])
    scale = after.input[1] if len(after.input) > 1 else ""
    return after.op_type == "Mul" and node.op_type == "Conv" and scale in graph.initializers


# Operators, with their domain, whose first output is a view of the first input.
VIEWS = frozenset(("", op) for op in ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"))
# The inputs that the first output may overwrite; arithmetic (Add, Mul, Sqrt) overwrites none.
_ELEMENTWISE = (
    "Cast", "Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu",
    "ScatterElements", "Selu", "Shrink", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu", "Trilu",
)  # fmt: skip
OVERWRITES: dict[tuple[str, str], tuple[int, ...]] = {
    **{("", op): (0,) for op in _ELEMENTWISE},
    # The summand of a fused residual connection.
    ("com.microsoft", "FusedConv"): (3,),
    ("com.microsoft", "NhwcFusedConv"): (3,),
    ("com.microsoft.nchwc", "Conv"): (3,),
}


def in_place_values(graph: Graph) -> dict[str, str]:
    """A mapping of values to the values whose memory they reuse.

    As the runtime's planner does, this counts, node by node in execution order, the remaining
    readers of each buffer, summed over the values that share it.
    """
    readers = Counter(name for node in graph.nodes for name in _reads(node))
    # The caller owns the memory of inputs and outputs, and weights must persist.
    fixed = {*graph.inputs, *graph.outputs, *graph.initializers}
    owner: dict[str, str] = {}  # values by the first value that had their memory
    shared = {}
    for node in graph.nodes:
        output = node.output[0] if node.output else ""
        source = _source(node, graph, fixed, readers, owner) if output not in fixed else ""
        if output and source:
            shared[output] = source
            owner[output] = owner.get(source, source)
            readers[owner[output]] += readers[output]
        for name in _reads(node):
            readers[owner.get(name, name)] -= 1
    return shared


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The values that ``node`` reads, once per port, since the planner counts ports."""
    yield from (name for name in node.input if name)
    yield from captured(node)


def _source(
    node: onnx.NodeProto,
    graph: Graph,
    fixed: set[str],
    readers: Counter[str],
    owner: dict[str, str],
) -> str:
    """The input whose memory the first output of ``node`` reuses; empty if there is none."""
    kind = (default_domain(node.domain), node.op_type)
    view = kind in VIEWS
    for position in (0,) if view else OVERWRITES.get(kind, ()):
        source = node.input[position] if position < len(node.input) else ""
        if not source or source in fixed:
            continue
        before, after = graph.types[source], graph.types[node.output[0]]
        if not (isinstance(before, TensorType) and isinstance(after, TensorType)):
            continue
        if "STRING" in (before.dtype, after.dtype) or before.size_bytes != after.size_bytes:
            continue
        if view or readers[owner.get(source, source)] == 1:
            return source
    return ""
