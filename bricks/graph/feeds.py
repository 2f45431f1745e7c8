"""What inputs are fed with when something is run: what they are known to hold, or made up.

One place for that rule, for whoever runs a model and whoever checks it. Must not know runtimes.
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
    """What makes the value of each input of ``proto``, seen as ``graph``.

    Integers that are made up are within ``ranges``; ``prefix`` and the input's name decide them.
    """
    held = held_values(proto)
    return {
        name: partial(natural, held[name], graph.types[name])
        if name in held
        else partial(pool.value, f"{prefix}{name}", graph.types[name], ranges.get(name))
        for name in graph.inputs
    }
