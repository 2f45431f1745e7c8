"""Operators that large inputs slow down, and the clamp to -1 … 1 that runs before them.

A tiny result of ``exp`` is a denormal number, on which processors compute up to twenty times
slower; sines of large numbers are slow too. Trained models produce hardly any such numbers. A walk
over some of a model's bricks may omit the normalising ones, so that activations grow from pass to
pass; the clamp keeps them small. It runs untimed, in place, and with all threads, like the step
that wrote the numbers, so that it changes little else than their values. It must not know what is
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from bricks.backends.base import Loaded, Placed, Placement
from bricks.graph.tensor import TensorType
from bricks.graph.topology import all_nodes
from bricks.graph.view import graph_of

# Loads a model, by its key.
Load = Callable[[onnx.ModelProto, str], Loaded]

INPUT_CLAMP = "input clamp"

# Found by running some fifty operators with ONNX Runtime on inputs of magnitudes from 1e-25 to
# 1e30. Attention is listed because it contains a softmax.
_MAGNITUDE_SENSITIVE = frozenset(
    (
        *("Softmax", "LogSoftmax", "BiasSoftmax", "Exp", "Softplus", "Mish"),
        *("Elu", "Selu", "Celu", "Sin", "Cos", "Tan"),
        *("Attention", "MultiHeadAttention", "GroupQueryAttention"),
    )
)

# The range of synthetic inputs (see ``graph.synthesis``).
_LIMIT = 1.0

# The numbers of each input that are to be clamped; None of those that stay as they are.
Sizes = Sequence[int | None]


class InputClamp:
    """The models that clamp, one for each size."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._loaded: dict[int, Loaded] = {}  # by the number of elements

    def unload(self) -> None:
        """Unload everything."""
        self._loaded.clear()

    def bound(
        self, sizes: Sizes, offsets: Sequence[int | None], region: np.ndarray
    ) -> Iterator[Placed]:
        """The clamps of inputs of these ``sizes``, which lie at ``offsets`` into ``region``.

        An input without an offset has memory of its own, whose synthetic numbers are small.
        """
        for size, offset in zip(sizes, offsets, strict=False):
            if size is None or offset is None:
                continue
            if size not in self._loaded:
                self._loaded[size] = self._load(clamp_model(size), INPUT_CLAMP)
            yield self._loaded[size].place(Placement((offset,), (offset,)), region)


def clamped(proto: onnx.ModelProto) -> Sizes:
    """The sizes of the inputs that are clamped before ``proto`` runs."""
    if not any(node.op_type in _MAGNITUDE_SENSITIVE for node in all_nodes(proto.graph)):
        return ()
    graph = graph_of(proto)
    return tuple(_elements(graph.types[name]) for name in graph.inputs)


def _elements(type_: object) -> int | None:
    """How many numbers there are to clamp; None of other types than float32, which stay."""
    if isinstance(type_, TensorType) and type_.dtype == "FLOAT" and type_.elements:
        return type_.elements
    return None


def clamp_model(elements: int) -> onnx.ModelProto:
    """A model that clamps ``elements`` float32 numbers to -1 … 1."""
    shape = [elements]
    limits = {"low": -_LIMIT, "high": _LIMIT}
    graph = helper.make_graph(
        [helper.make_node("Clip", ["in", "low", "high"], ["out"])],
        "input_clamp",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)],
        initializer=[helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in limits.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
