"""Brings numbers in the region between -1 and 1 before what minds large ones runs, in the worker.

See ``backends/input_clamp``. Untimed, in place, and with all threads, as what has made the numbers:
so hardly anything changes but them. Must not know what is walked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from bricks.backends.base import Loaded, Placed, Placement
from bricks.backends.input_clamp import INPUT_CLAMP, input_clamp, magnitude_sensitive
from bricks.graph.tensor import TensorType
from bricks.graph.topology import all_nodes
from bricks.graph.view import graph_of

# Loads a model, by its key.
Load = Callable[[onnx.ModelProto, str], Loaded]


class InputClamp:
    """What tames the inputs of whatever is placed, once for each size."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._sizes: dict[str, tuple[int | None, ...]] = {}  # of inputs to tame, by what is loaded
        self._loaded: dict[int, Loaded] = {}  # by the number of elements

    def learn(self, id: str, proto: onnx.ModelProto) -> None:
        """Note that ``proto`` is loaded as ``id``, and whether it minds large numbers."""
        self._sizes.pop(id, None)
        if any(magnitude_sensitive(node.op_type) for node in all_nodes(proto.graph)):
            graph = graph_of(proto)
            self._sizes[id] = tuple(_elements(graph.types[name]) for name in graph.inputs)

    def forget(self) -> None:
        """Unload everything."""
        self._sizes.clear()
        self._loaded.clear()

    def of(self, id: str, offsets: Sequence[int | None], region: np.ndarray) -> list[Placed]:
        """What to run before ``id``, whose inputs lie at these ``offsets`` into ``region``."""
        placed = []
        for size, offset in zip(self._sizes.get(id, ()), offsets, strict=False):
            if size is None or offset is None:  # memory of its own holds what was made up for it
                continue
            if size not in self._loaded:
                self._loaded[size] = self._load(input_clamp(size), INPUT_CLAMP)
            placed.append(self._loaded[size].place(Placement((offset,), (offset,)), region))
        return placed


def _elements(type_: object) -> int | None:
    """How many numbers there are to tame: of float32 alone, as other types stay as they are."""
    if isinstance(type_, TensorType) and type_.dtype == "FLOAT" and type_.elements:
        return type_.elements
    return None
