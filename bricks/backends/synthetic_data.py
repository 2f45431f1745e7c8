"""Synthetic weights and inputs of ONNX models: ordinary numbers and valid integers.

Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from bricks.graph.feeds import InputMaker, feeds
from bricks.graph.tensor import TensorType
from bricks.graph.view import without_values
from bricks.operators.integer_ranges import integer_ranges

if TYPE_CHECKING:
    import onnx

    from bricks.graph.graph import Graph
    from bricks.graph.synthesis import Pool

# A whole model has the same data wherever it runs: where values, types and branches that depend on
# data are observed, where it is measured, and where it is served.
OBSERVED, _WHOLE = "observed", ("m1-", "served-")

# From the number and the type of a weight to shared values; None: values of its own.
Shared = Callable[[int, TensorType], np.ndarray | None]


def data_key(key: str) -> str:
    """The key that determines the data of what is loaded under ``key``."""
    return OBSERVED if key.startswith(_WHOLE) else key


def synthetic_data(
    pool: Pool,
    proto: onnx.ModelProto,
    graph: Graph,
    key: str,
    *,
    whole: Graph | None = None,
    shared: Shared = lambda number, type_: None,
) -> tuple[dict[str, np.ndarray], Mapping[str, InputMaker]]:
    """Return weights and functions that make inputs, by name, for ``proto`` and its ``graph``.

    ``key`` and the pool determine their values, except of inputs with values in the metadata of
    ``proto``. ``whole`` is the graph of which it is a part, and determines valid integers.
    """
    key, types = data_key(key), without_values(proto)
    integers = [name for name, type_ in types.items() if not type_.floating]
    ranges = integer_ranges(whole or graph, [*graph.inputs, *integers])
    weights = {}
    for number, (name, type_) in enumerate(types.items()):
        values = shared(number, type_)
        if values is None:
            values = pool.weight(f"{key}/{name}", type_, ranges.get(name))
        weights[name] = values
    return weights, feeds(proto, graph, ranges, pool, f"{key}/")
