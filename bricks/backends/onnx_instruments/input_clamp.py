"""Clamps inputs to -1 … 1 before operators that large numbers slow down, in the worker.

See ``backends/onnx_instruments/input_clamp``. The clamp runs untimed, in place, and with all threads, like the step
that wrote the numbers, so that it changes little else than their values. It must not know what is
walked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from bricks.backends.base import Loaded, Placed, Placement
from bricks.backends.onnx_instruments.clamp_model import (
    INPUT_CLAMP,
    input_clamp,
    magnitude_sensitive,
)
from bricks.graph.tensor import TensorType
from bricks.graph.topology import all_nodes
from bricks.graph.view import graph_of

# Loads a model, by its key.
Load = Callable[[onnx.ModelProto, str], Loaded]


class InputClamp:
    """The models that clamp, one for each size, and what they have to clamp."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._sizes: dict[str, tuple[int | None, ...]] = {}  # of inputs to clamp, by id
        self._loaded: dict[int, Loaded] = {}  # by the number of elements

    def register(self, id: str, proto: onnx.ModelProto) -> None:
        """Note that ``proto`` is loaded as ``id``, and whether large numbers slow it down."""
        self._sizes.pop(id, None)
        if any(magnitude_sensitive(node.op_type) for node in all_nodes(proto.graph)):
            graph = graph_of(proto)
            self._sizes[id] = tuple(_elements(graph.types[name]) for name in graph.inputs)

    def unload(self) -> None:
        """Unload everything."""
        self._sizes.clear()
        self._loaded.clear()

    def placed(self, id: str, offsets: Sequence[int | None], region: np.ndarray) -> list[Placed]:
        """The clamps to run before ``id``, whose inputs lie at ``offsets`` into ``region``.

        An input without an offset has memory of its own, whose synthetic numbers are small.
        """
        placed = []
        for size, offset in zip(self._sizes.get(id, ()), offsets, strict=False):
            if size is None or offset is None:
                continue
            if size not in self._loaded:
                self._loaded[size] = self._load(input_clamp(size), INPUT_CLAMP)
            placed.append(self._loaded[size].place(Placement((offset,), (offset,)), region))
        return placed


def _elements(type_: object) -> int | None:
    """How many numbers there are to clamp; None of other types than float32, which stay."""
    if isinstance(type_, TensorType) and type_.dtype == "FLOAT" and type_.elements:
        return type_.elements
    return None
