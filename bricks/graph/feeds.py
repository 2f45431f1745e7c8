"""Choose the values of inputs for a run: known values where there are any, else synthetic ones.

Separate so that running a model and checking it follow one rule. Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import onnx

from bricks.graph.domains import Range
from bricks.graph.graph import Graph
from bricks.graph.model_metadata import held_values, natural
from bricks.graph.synthesis import Pool


def feeds(
    proto: onnx.ModelProto,
    graph: Graph,
    ranges: Mapping[str, Range],
    pool: Pool,
    prefix: str = "",
) -> dict[str, Callable[[], Any]]:
    """A function per input of ``proto`` (as ``graph``) that returns the input's value.

    Synthetic integers lie within ``ranges``; ``prefix`` and the input's name determine them.
    """
    held = held_values(proto)
    return {
        name: partial(natural, held[name], graph.types[name])
        if name in held
        else partial(pool.value, f"{prefix}{name}", graph.types[name], ranges.get(name))
        for name in graph.inputs
    }
