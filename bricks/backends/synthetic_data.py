"""Synthetic weights and inputs of ONNX models: ordinary numbers, and integers that are valid.

Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from bricks.graph.feeds import feeds
from bricks.graph.graph import Graph
from bricks.graph.synthesis import Pool
from bricks.graph.tensor import TensorType
from bricks.graph.view import without_values
from bricks.operators.integer_ranges import integer_ranges

# From the number and the type of a weight to its values; None: as others.
Shared = Callable[[int, TensorType], np.ndarray | None]


def synthetic_data(
    pool: Pool,
    proto: onnx.ModelProto,
    graph: Graph,
    key: str,
    *,
    whole: Graph | None = None,
    shared: Shared = lambda number, type_: None,
) -> tuple[dict[str, np.ndarray], Mapping[str, Callable[[], Any]]]:
    """Weights, and makers of inputs, by name, for ``proto``, whose graph with all types is given.

    ``key`` and the pool determine their values; inputs whose values the metadata of ``proto`` holds
    take those. ``whole`` is the graph that it is a part of: all of it says which integers are
    valid.
    """
    types = without_values(proto)
    integers = [name for name, type_ in types.items() if not type_.floating]
    ranges = integer_ranges(whole or graph, [*graph.inputs, *integers])
    weights = {}
    for number, (name, type_) in enumerate(types.items()):
        found = shared(number, type_)
        if found is None:
            found = pool.weight(f"{key}/{name}", type_, ranges.get(name))
        weights[name] = found
    return weights, feeds(proto, graph, ranges, pool, f"{key}/")
